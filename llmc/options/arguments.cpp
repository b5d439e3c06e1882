#include "llmc/options/arguments.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <variant>

#include "llmc/base/error.h"

// --- arguments ---

static bool is_option(const std::string& argument) {
    return argument.size() > 1 && argument[0] == '-' && !strchr("0123456789.", argument[1]);
}

// An argument that names an option, and the value in it.
struct NamedOption {
    Option* option = nullptr;
    std::optional<std::string> value = {};
};

static NamedOption find_long(OptionTable& table, const std::string& argument) {
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(2, equals - 2);
    NamedOption found = {table.find(name)};
    if (equals != argument.npos) found.value = argument.substr(equals + 1);
    if (found.option && found.option->is_positional()) return {};
    if (found.option || found.value || !name.starts_with("no-")) return found;
    Option* option = table.find(name.substr(3));
    if (option && option->has_negation) return {option, "false"};
    return {};
}

// Whether a value may follow a flag directly. No number begins with a letter: -lr is another program's
// option.
static bool may_follow_flag(const Option& o, const std::string& value) {
    const bool is_text = std::holds_alternative<std::string*>(o.value) || o.is_list();
    return is_text || (!o.words.empty() && !o.is_bool) || !isalpha(uint8_t(value[0])) ||
           value == o.word_for_zero || std::ranges::count(o.words, value);
}

static NamedOption find_option(OptionTable& table, const std::string& argument) {
    if (argument.starts_with("--")) return find_long(table, argument);
    for (Option& row : table.rows)
        if (row.flag == argument.substr(1)) return {&row};
    if (find_long(table, "-" + argument).option) return {};  // which nearest() names
    const size_t equals = argument.find('=');
    for (Option& row : table.rows)
        if (equals != argument.npos && equals > 1 && row.flag == argument.substr(1, equals - 1))
            return {&row, argument.substr(equals + 1)};
    for (Option& row : table.rows)
        if (row.flag == argument.substr(1, 1) && row.bare.empty() && may_follow_flag(row, argument.substr(2)))
            return {&row, argument.substr(2)};
    return {};
}

// Error if an argument is an option, where the value of another one is expected.
static void refuse_option(OptionTable& table, const Option& before, const std::string& argument) {
    const auto is_flag = [&](const Option& row) { return "-" + row.flag == argument; };
    if (is_option(argument) && (argument.starts_with("--") || std::ranges::any_of(table.rows, is_flag)))
        fail("%s needs a value, and %s looks like an option%s", before.dashed().c_str(), argument.c_str(),
             before.count > 1 ? "" : ("; as a value: " + before.dashed() + "=" + argument).c_str());
}

// The values of an option, which begin at arguments[next].
static std::vector<std::string> take_values(OptionTable& table, const NamedOption& named,
                                            const std::vector<std::string>& arguments, size_t& next) {
    const Option& o = *named.option;
    std::vector<std::string> values;
    if (named.value) values.push_back(*named.value);
    if (!o.bare.empty() && named.value && !std::count(o.words.begin(), o.words.end(), *named.value))
        fail("%s takes no value%s: leave out '=%s'", o.dashed().c_str(),
             o.words.size() > 2 ? (" but " + o.words.back()).c_str() : "", named.value->c_str());
    if (!o.bare.empty() && !named.value) values.push_back(o.bare);
    while (values.size() < o.count && next < arguments.size() && arguments[next] != "--") {
        refuse_option(table, o, arguments[next]);
        values.push_back(arguments[next++]);
    }
    while (o.is_long && next < arguments.size() && !is_option(arguments[next]))
        values.push_back(arguments[next++]);
    if (values.size() < o.count && o.count == 1) fail("%s needs a value", o.dashed().c_str());
    if (values.size() < o.count)
        fail("%s needs %zu values: %s", o.dashed().c_str(), o.count, o.placeholder.c_str());
    return values;
}

using GivenValues = std::vector<std::pair<Option*, std::vector<std::string>>>;

// A list has all values; everything else is given once.
static void add_values(GivenValues& given, Option* option, const std::vector<std::string>& values) {
    const auto same = [&](const auto& other) { return other.first == option; };
    const auto before = std::find_if(given.begin(), given.end(), same);
    if (before == given.end())
        given.emplace_back(option, values);
    else if (option->is_list())
        before->second.insert(before->second.end(), values.begin(), values.end());
    else
        fail("%s is given twice: it takes one value", option->dashed().c_str());
}

// An argument by position. False: there is none.
static bool add_word(OptionTable& table, GivenValues& given, const std::string& word) {
    for (Option& row : table.rows) {
        const bool is_taken =
            std::any_of(given.begin(), given.end(), [&](auto& g) { return g.first == &row; });
        if (!row.is_positional() || (is_taken && !row.is_list())) continue;
        add_values(given, &row, {word});
        return true;
    }
    return false;
}

static bool asks_for_text(const Option& option) { return option.name == "help" || option.name == "version"; }

// The values in the arguments, and what is wrong with the first argument that is none of the table's.
static GivenValues given_values(OptionTable& table, const std::vector<std::string>& arguments,
                                std::string& fault) {
    GivenValues given;
    bool only_words = false;
    for (size_t next = 0; next < arguments.size();) {
        const std::string& argument = arguments[next++];
        if (argument == "--" && !only_words) {
            only_words = true;
        } else if (only_words || !is_option(argument)) {
            if (!add_word(table, given, argument) && fault.empty())
                fault = "unexpected argument '" + argument + "'" +
                        (table.find("text")     ? ": each text is given with --text"
                         : table.find("PROMPT") ? ": a prompt of several words needs quotes"
                                                : "");
        } else if (const NamedOption named = find_option(table, argument); named.option) {
            add_values(given, named.option, take_values(table, named, arguments, next));
            if (asks_for_text(*named.option)) break;
        } else if (const std::string name = argument.substr(0, argument.find('=')); fault.empty()) {
            const std::string value = name.size() < argument.size() ? argument.substr(name.size() + 1)
                                      : next < arguments.size() && !is_option(arguments[next])
                                          ? arguments[next]
                                          : "";
            fault = "unknown option " + name + table.nearest(name, value);
        }
    }
    return given;
}

static void set_values(OptionTable& table, const std::vector<std::string>& arguments) {
    std::string fault;
    const GivenValues given = given_values(table, arguments, fault);
    for (const auto& [option, values] : given) table.set(*option, values, Source::command_line);
    if (!fault.empty()) fail("%s", fault.c_str());
    if (!given.empty() && asks_for_text(*given.back().first)) return;
    for (const Option& row : table.rows)
        if (row.is_required && row.source == Source::built_in) fail("%s is required", row.dashed().c_str());
}

void parse_arguments(OptionTable& table, const std::vector<std::string>& arguments) {
    try {
        set_values(table, arguments);
    } catch (const Error& error) {
        fail("%s (--help lists the options)", error.what());
    }
}

// --- help ---

static std::string names_of(const Option& o) {
    std::string names = (o.flag.empty() ? "" : "-" + o.flag + ",") + o.dashed();
    if (o.has_negation) names += ", --no-" + o.name;
    const bool is_text = o.path == PathKind::none &&
                         (std::holds_alternative<std::string*>(o.value) || !o.words.empty() || o.is_list());
    const std::string kind = o.path != PathKind::none ? "PATH" : is_text ? "TEXT" : "N";
    if (!o.placeholder.empty()) return names + " " + o.placeholder;
    return o.is_positional() || !o.bare.empty() ? names + (o.is_list() ? "..." : "") : names + " " + kind;
}

// The default, unless it says nothing or the text names it.
static std::string help_of(const Option& o) {
    const std::vector<std::string> values = o.texts();
    const bool is_shown =
        values.size() == 1 && !values[0].empty() && o.bare.empty() && o.help.find("(default") == o.help.npos;
    return o.help + (is_shown ? " [" + values[0] + "]" : "");
}

static std::string wrapped(const std::string& text, size_t indent) {
    const size_t width = 110 - indent;
    std::string lines, rest = text;
    while (rest.size() > width && rest.rfind(' ', width) != rest.npos) {
        const size_t end = rest.rfind(' ', width);
        lines += rest.substr(0, end) + "\n" + std::string(indent, ' ');
        rest = rest.substr(end + 1);
    }
    return lines + rest + "\n";
}

std::string help_text(const OptionTable& table) {
    std::string usage = command_of(table.program) + " [options]", text, group;
    for (const Option& row : table.rows) {
        if (row.is_positional()) usage += " " + row.name + (row.is_list() ? "..." : "");
        if (row.help.empty()) continue;  // for tests
        if (row.group != group) text += "\n" + (group = row.group) + ":\n";
        std::string names = "  " + names_of(row);
        names.resize(std::max<size_t>(names.size(), 34), ' ');
        text += names + (names.size() > 34 ? "\n" + std::string(34, ' ') : "") + wrapped(help_of(row), 34);
    }
    return table.description + "\n\n  " + usage + "\n" + text;
}
