#include "llmc/options/option_table.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <regex>

#include "llmc/base/error.h"
#include "llmc/base/os.h"
#include "llmc/data/weighted_path.h"

Source Sources::of(const void* value) const {
    const auto found = by_place.find(place(value));
    return found == by_place.end() ? Source::built_in : found->second;
}

template <class T>
constexpr bool is_list_of_values = false;
template <class T>
constexpr bool is_list_of_values<std::vector<T>*> = true;

// --- values from texts; each throws what is wrong with the text ---

// The number in a text. strtold() also reads hexadecimal numbers, infinities and NaN.
static bool read_number(const std::string& text, long double& value) {
    char* end = nullptr;
    value = strtold(text.c_str(), &end);
    return !text.empty() && *end == 0 && text.find_first_not_of("+-.eE0123456789") == text.npos;
}

// 010 is 8 to some programs, and 1_000 a thousand.
static void refuse_misspelled(const std::string& text) {
    const auto is_digit = [&](size_t i) {
        return i < text.size() && isdigit(static_cast<unsigned char>(text[i]));
    };
    const size_t sign = text.find_first_of("+-") == 0, mark = text.find_first_of("_,'");
    if (sign < text.size() && text[sign] == '0' && is_digit(sign + 1))
        fail("%s is not a decimal number: leave out the leading 0", text.c_str());
    if (mark != text.npos && mark > 0 && is_digit(mark - 1) && is_digit(mark + 1))
        fail("%s is not a number: leave out the marks between its digits", text.c_str());
}

// A number of bytes, such as 8G, 7.5G or 900M (1024^3 and 1024^2 bytes), at least 1M; 0 for "all".
static uint64_t parse_size(const std::string& text) {
    static const std::regex pattern("([0-9]+([.][0-9]+)?)([KMGT])(i?B)?", std::regex::icase);
    std::smatch part;
    if (text == "all") return 0;
    if (text.size() > 32 || !std::regex_match(text, part, pattern))
        fail("%s is not a size such as 8G or 900M, nor all", text.empty() ? "''" : text.c_str());
    const size_t unit = std::string("KMGT").find(char(toupper(part[3].str()[0])));
    const double kib = strtod(part[1].str().c_str(), nullptr) * double(uint64_t(1) << 10 * unit);
    if (kib < 1 << 10 || kib > double(uint64_t(1) << 40))
        fail("%s is not a size from 1M to 1024T", text.c_str());
    return uint64_t(kib) << 10;
}

static std::string sentence(const std::vector<std::string>& words) {
    std::string text;
    for (size_t i = 0; i < words.size(); i++)
        text += (i == 0 ? "" : i + 1 < words.size() ? ", " : " or ") + words[i];
    return text;
}

static bool has_least_only(const Option& o) { return o.range.starts_with("at least"); }

template <class Number>
static Number number_of(const Option& o, const std::string& text) {
    if (o.is_size) return Number(parse_size(text));
    if (!o.word_for_zero.empty() && text == o.word_for_zero) return 0;
    refuse_misspelled(text);
    const char* shown = text.empty() ? "''" : text.c_str();
    const std::string range = o.range + (o.word_for_zero.empty() ? "" : ", or " + o.word_for_zero);
    long double value = 0;
    if (!read_number(text, value))
        fail("%s is not a number: give a %s%s%s", shown,
             std::is_integral_v<Number> ? "whole number" : "number",
             range.empty()       ? ""
             : has_least_only(o) ? ", "
                                 : " from ",
             range.c_str());
    // a bound such as 0.05 is a double, which the text is compared as
    if (double(value) > o.most && has_least_only(o)) fail("%s is not at most %.10g", shown, o.most);
    if (!o.range.empty() && (double(value) < o.least || double(value) > o.most))
        fail("%s is not %s", shown, range.c_str());
    if constexpr (!std::is_integral_v<Number>) {
        const std::string digits_before_e = text.substr(0, text.find_first_of("eE"));
        if (Number(value) == 0 && digits_before_e.find_first_of("123456789") != text.npos)
            fail("%s is too small a number: it would be 0", shown);
        return Number(value);
    }
    const bool is_negative = text[0] == '-';
    const bool in_digits = text.find_first_not_of("0123456789", is_negative) == text.npos;
    errno = 0;
    const uint64_t digits = strtoull(text.c_str() + is_negative, nullptr, 10);
    if (std::is_unsigned_v<Number> && in_digits && errno)
        fail("%s is not at most 18446744073709551615", shown);
    if (!in_digits && value == std::floor(value) && std::abs(value) < 1e15L)  // 1e3
        fail("%s is not a whole number in digits: write %.0f", shown, double(value));
    const bool fits = std::is_unsigned_v<Number> || (value >= INT32_MIN && value <= INT32_MAX);
    if (!in_digits || !fits) fail("%s is not a whole number in digits", shown);
    return is_negative ? Number(-int64_t(digits)) : Number(digits);
}

// A ~ at the start of a path, which a shell leaves in --output=~/x and in quotes, is the home folder.
static std::string text_value(const Option& o, std::string text) {
    if (o.path != PathKind::none && (text == "~" || text.starts_with("~/"))) {
        if (home_folder().empty()) fail("%s: HOME is not set", text.c_str());
        text.replace(0, 1, home_folder());
    }
    if (o.is_list() && o.path != PathKind::none && !o.has_weights) refuse_weight(text);
    if (const std::string fault = o.problem ? o.problem(text) : ""; !fault.empty()) fail("%s", fault.c_str());
    return text;
}

static size_t word_number(const Option& o, const std::string& text) {
    if (o.is_bool && (text == "0" || text == "1")) return text == "1";
    const size_t number = size_t(std::find(o.words.begin(), o.words.end(), text) - o.words.begin());
    if (number == o.words.size())
        fail("%s is not %s", text.empty() ? "''" : text.c_str(),
             o.is_bool && o.bare.empty() ? "0 or 1" : sentence(o.words).c_str());
    return number;
}

static void read_value(const Option&, std::monostate, const std::string&) {}
template <class Number>
static void read_value(const Option& o, Number* value, const std::string& text) {
    *value = number_of<Number>(o, text);
}
static void read_value(const Option& o, std::string* value, const std::string& text) {
    *value = text_value(o, text);
}
static void read_value(const Option& o, EnumValue value, const std::string& text) {
    value.set(value.at, o.words.empty() ? number_of<int>(o, text) : int(word_number(o, text)));
}
template <class T>
static void read_value(const Option& o, std::vector<T>* values, const std::string& text) {
    T value;
    read_value(o, &value, text);
    values->push_back(value);
}

static std::vector<std::string> parts_of(const Option& o, const std::vector<std::string>& texts) {
    if (o.is_list() && o.path != PathKind::none && texts == std::vector<std::string>{""}) return {};
    if (!o.has_commas) return texts;
    std::vector<std::string> parts;
    for (const std::string& text : texts)
        for (size_t start = 0, end; start <= text.size(); start = end + 1) {
            end = std::min(text.find(',', start), text.size());
            parts.push_back(text.substr(start, end - start));
        }
    return parts;
}

void Option::set(const std::vector<std::string>& all) {
    std::visit(
        [&]<class T>(T variable) {
            if constexpr (is_list_of_values<T>) variable->clear();
            for (const std::string& text : parts_of(*this, all)) {
                if (!words.empty() && !std::is_same_v<T, EnumValue>) word_number(*this, text);
                read_value(*this, variable, text);
            }
        },
        value);
}

// --- texts from values ---

// The shortest text that is read as the same number.
template <class Number>
static std::string number_text(Number value) {
    for (int digits = 6;; digits++) {
        const std::string text = format_string("%.*g", digits, double(value));
        if (digits == 17 || Number(strtold(text.c_str(), nullptr)) == value) return text;
    }
}

static std::string size_text(uint64_t bytes) {
    const int unit = bytes % (uint64_t(1) << 30) == 0 ? 3 : bytes % (1 << 20) == 0 ? 2 : 1;
    return bytes == 0 ? "all"
                      : format_string("%llu%c", (unsigned long long)(bytes >> 10 * unit), "BKMG"[unit]);
}

static std::string text_of(const Option&, const std::string& value) { return value; }
static std::string text_of(const Option& o, EnumValue value) {
    const int number = value.get(value.at);
    return o.words.empty() ? std::to_string(number) : o.words.at(size_t(number));
}
template <class Number>
static std::string text_of(const Option& o, Number value) {
    if (o.is_size) return size_text(uint64_t(value));
    if (value == 0 && !o.word_for_zero.empty()) return o.word_for_zero;
    if constexpr (std::is_integral_v<Number>) return std::to_string(value);
    return number_text(value);
}

std::vector<std::string> Option::texts() const {
    std::vector<std::string> texts;
    std::visit(
        [&]<class T>(T variable) {
            if constexpr (is_list_of_values<T>)
                for (const auto& one : *variable) texts.push_back(text_of(*this, one));
            else if constexpr (std::is_pointer_v<T>)
                texts.push_back(text_of(*this, *variable));
            else if constexpr (std::is_same_v<T, EnumValue>)
                texts.push_back(text_of(*this, variable));
        },
        value);
    return texts;
}

std::string Option::shown() const {
    std::string text;
    for (const std::string& one : texts())
        text += (text.empty() ? "" : " ") + dashed() + (one == bare ? "" : " " + shell_word(one));
    return text;
}

// --- rows ---

Option& Option::between(double from, double to) {
    range = format_string("%.10g to %.10g", from, to);
    return least = from, most = to, *this;
}

Option& Option::at_least(double from, double to) {
    range = format_string("at least %.10g", from);
    return least = from, most = to, *this;
}

bool Option::is_list() const {
    return count == 1 && std::visit([]<class T>(T) { return is_list_of_values<T>; }, value);
}

// The address of the variable; null: there is none.
static const void* address_of(const OptionValue& value) {
    return std::visit(
        []<class T>(T variable) -> const void* {
            if constexpr (std::is_pointer_v<T>)
                return variable;
            else if constexpr (std::is_same_v<T, EnumValue>)
                return variable.at;
            else
                return nullptr;
        },
        value);
}

Option& OptionTable::add_row(const std::string& names, const std::string& help, OptionValue value,
                             bool is_bool) {
    const size_t end = std::min(names.find(' '), names.size()), dashes = names.find("--");
    const size_t begin = dashes == names.npos ? 0 : dashes + 2;
    Option row = {.name = names.substr(begin, end - begin),
                  .flag = begin > 2 ? names.substr(1, dashes - 2) : "",
                  .usual_names = names.substr(end),
                  .group = group,
                  .help = help,
                  .value = value,
                  .is_bool = is_bool};
    if (is_bool) row.one_of({"false", "true"}).bare = "true";
    if (std::holds_alternative<int*>(value)) row.at_least(0);
    if (std::holds_alternative<uint64_t*>(value)) row.at_least(0, 0x1p64);
    if (sources) row.source = sources->of(address_of(value));
    rows.push_back(row);
    return rows.back();
}

void OptionTable::add_without_effect(const std::string& names, const char* why) {
    Option& row = add_row(names, std::string("without effect: ") + why, std::monostate());
    row.is_saved = row.is_compared = false;
    row.without_effect = why;
}

Option* OptionTable::find(const std::string& name) {
    for (Option& row : rows)
        if (row.name == name) return &row;
    return nullptr;
}

void OptionTable::set(Option& option, const std::vector<std::string>& texts, Source source) {
    if (source < option.source) return;
    const auto is_blank = [](const std::string& text) {
        return text.find_first_not_of(" \t\r\n") == text.npos;
    };
    if (option.needs_text && source == Source::command_line && std::ranges::any_of(texts, is_blank))
        fail("%s is empty: give it a text, or leave it out", option.dashed().c_str());
    try {
        option.set(texts);
    } catch (const Error& error) {
        fail("%s: %s", option.dashed().c_str(), error.what());
    }
    option.source = source;
    if (sources && address_of(option.value)) sources->set(address_of(option.value), source);
}

// --- options without effect ---

// The name that gave the value: of a negation, its own.
static std::string name_given(const Option& row) {
    const bool is_negation = row.has_negation && row.texts()[0] == "false";
    return is_negation ? "--no-" + row.name : row.dashed();
}

static bool has_word(const std::string& words, const std::string& word) {
    return (' ' + words + ' ').find(' ' + word + ' ') != words.npos;
}

std::vector<std::string> OptionTable::notes_of(const std::vector<InVain>& options) const {
    std::vector<std::string> notes;
    for (const InVain& option : options)
        for (const Option& row : rows)
            if (option.is_in_vain && row.source == Source::command_line && has_word(option.names, row.name))
                notes.push_back(name_given(row) + " has no effect: " + option.why);
    return notes;
}

std::vector<std::string> OptionTable::notes_of_unread(const char* instead,
                                                      const std::vector<std::string>& read) const {
    std::vector<std::string> notes;
    for (const Option& row : rows) {
        const bool is_of_machine = row.name == "threads" || row.name == "simd" || row.name == "tensor-cores";
        if (row.source == Source::command_line && !is_of_machine && !std::ranges::count(read, row.name))
            notes.push_back(name_given(row) + " has no effect with " + instead);
    }
    return notes;
}

// --- suggestions ---

// Insertions, deletions and replacements that turn one word into the other.
static size_t edit_distance(const std::string& a, const std::string& b) {
    std::vector<size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (size_t i = 1; i <= a.size(); i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.size(); j++) {
            const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row.back();
}

std::string OptionTable::nearest(const std::string& name, const std::string& value) {
    const std::string word = name.substr(std::min(name.find_first_not_of('-'), name.size()));
    std::string usual = ' ' + word + ' ';
    std::replace(usual.begin(), usual.end(), '_', '-');
    const size_t longest = 64;  // of a name that may be an option's
    size_t least = word.size() > longest ? 0 : word.size() < 4 ? 2 : std::max<size_t>(2, word.size() / 3) + 1;
    const Option* found = nullptr;
    for (const Option& row : rows) {
        if (row.is_positional()) continue;
        const bool is_usual = (' ' + row.name + row.usual_names + ' ').find(usual) != std::string::npos;
        const bool begins_with_it = word.size() > 1 && row.name.starts_with(word);
        const size_t distance = is_usual ? 0 : begins_with_it ? 1 : least ? edit_distance(word, row.name) : 1;
        if (!is_usual && (distance >= least || distance >= row.name.size())) continue;
        least = distance;
        found = &row;
        if (is_usual) break;
    }
    if (!found) return "";
    const bool is_short = name.size() == 3 && name[0] == '-' && name[1] != '-' && !found->flag.empty();
    const bool has_value = found->bare.empty() && !value.empty();
    const std::string meant =
        is_short ? "-" + found->flag + (has_value ? " " + shell_word(value) : "") : found->dashed();
    return " (did you mean " + meant + "?)";
}
