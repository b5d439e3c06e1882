#include "llmc/text/jinja_functions.h"

#include <algorithm>
#include <cctype>

#include "llmc/base/error.h"
#include "llmc/text/jinja.h"
#include "llmc/text/pattern.h"

using nlohmann::json;

// Without white space, or these ASCII characters, at the ends.
static std::string stripped(std::string_view text, const std::string& characters, bool left, bool right) {
    static thread_local const Pattern spaces(std::string("[\\x1c-\\x1f") + white_space + "]");
    const auto is_one_of = [&](char c) { return characters.find(c) != characters.npos; };
    const bool white = characters.empty();
    while (right && !text.empty() && (white ? spaces.ends(text) : is_one_of(text.back())))
        text = text.substr(0, last_character(text));
    while (left && !text.empty() && (white ? spaces.begins(text) : is_one_of(text[0]))) {
        size_t next = 1;
        while (next < text.size() && (uint8_t(text[next]) & 0xc0) == 0x80) next++;
        text = text.substr(next);
    }
    return std::string(text);
}

std::string trimmed(std::string_view text) { return stripped(text, "", true, true); }

// --- values ---

bool jinja_true(const json& value) {
    if (value.is_boolean()) return value.get<bool>();
    if (value.is_number()) return value != 0;
    if (value.is_string()) return !value.get_ref<const std::string&>().empty();
    return !value.is_discarded() && !value.empty();
}

std::string jinja_text(const json& value) {
    if (value.is_string()) return value;
    if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
    if (value.is_discarded()) return "";
    if (value.is_structured()) fail("a list as text is not understood");
    return value.is_null() ? "None" : json_text(value);
}

bool jinja_equal(const json& a, const json& b) {
    return a.is_discarded() || b.is_discarded() ? a.is_discarded() && b.is_discarded() : a == b;
}

int jinja_depth(const json& value) {
    int depth = 0;
    if (value.is_structured())
        for (const json& item : value) depth = std::max(depth, 1 + jinja_depth(item));
    return depth;
}

const json& jinja_member(const json& object, const std::string& name) {
    const auto found = object.is_object() ? object.find(name) : object.end();
    return found == object.end() ? jinja_undefined : *found;
}

// --- filters, methods and tests ---

static json split_at(const std::string& text, const std::string& separator) {
    json parts = json::array();
    for (size_t start = 0, end; start <= text.size(); start = end + separator.size()) {
        end = std::min(text.find(separator, start), text.size());
        parts.push_back(text.substr(start, end - start));
    }
    return parts;
}

static std::string replaced(const std::string& text, const std::string& old, const std::string& by) {
    std::string all;
    size_t start = 0;
    for (size_t at; (at = text.find(old, start)) != text.npos; start = at + old.size()) {
        all.append(text, start, at - start).append(by);
        if (all.size() > max_json_bytes) fail("it makes too long a text");
    }
    return all.append(text, start);
}

// With the cases of ASCII.
static JinjaResult with_case(const std::string& name, std::string text) {
    if (std::any_of(text.begin(), text.end(), [](char c) { return uint8_t(c) >= 0x80; })) return {};
    for (size_t i = 0; i < text.size(); i++) {
        const bool begins = i == 0 || (name == "title" && !isalpha(uint8_t(text[i - 1])));
        const bool is_upper = name == "upper" || (name != "lower" && begins);
        text[i] = char(is_upper ? toupper(text[i]) : tolower(text[i]));
    }
    return text;
}

// Of methods and filters.
static JinjaResult of_text(const std::string& name, const std::string& text,
                           const JinjaArguments& arguments) {
    const std::string first = arguments.text(0);
    if (name == "strip" || name == "trim") return stripped(text, first, true, true);
    if (name == "lstrip") return stripped(text, first, true, false);
    if (name == "rstrip") return stripped(text, first, false, true);
    if (name == "startswith") return text.starts_with(first);
    if (name == "endswith") return text.ends_with(first);
    if (name == "split" && !first.empty() && arguments.list.size() == 1) return split_at(text, first);
    if (name == "replace" && !first.empty() && arguments.list.size() == 2)
        return replaced(text, first, arguments.text(1));
    if (name == "upper" || name == "lower" || name == "title" || name == "capitalize")
        return with_case(name, text);
    return {};
}

JinjaResult jinja_holds(const std::string& test, const json& value, const json& argument) {
    if (test == "defined" || test == "undefined") return value.is_discarded() == (test == "undefined");
    if (test == "none") return value.is_null();
    if (test == "string") return value.is_string();
    if (test == "mapping") return value.is_object();
    if (test == "iterable" || test == "sequence")
        return value.is_string() || value.is_structured() || value.is_discarded();
    if (test == "boolean") return value.is_boolean();
    if (test == "true" || test == "false") return value == json(test == "true");
    if (test == "number") return value.is_number() || value.is_boolean();
    if (test == "equalto" || test == "eq" || test == "==") return jinja_equal(value, argument);
    if (test == "ne" || test == "!=") return !jinja_equal(value, argument);
    if ((test == "odd" || test == "even") && value.is_number_integer())
        return (value.get<int64_t>() % 2 == 0) == (test == "even");
    return {};
}

static JinjaResult of_list(const std::string& filter, const json& value, const JinjaArguments& arguments) {
    if (filter == "list") return value;
    if (filter == "first") return value.empty() ? jinja_undefined : value.front();
    if (filter == "last") return value.empty() ? jinja_undefined : value.back();
    const bool is_map = filter == "map" && arguments.named.contains("attribute");
    if (!is_map && filter != "join" && filter != "selectattr" && filter != "rejectattr") return {};
    json chosen = json::array();
    std::string all;
    for (const json& item : value) {
        if (filter == "join") {
            if (all.size() > max_json_bytes) fail("it makes too long a text");
            all += (&item == &value[0] ? "" : arguments.text(0)) + jinja_text(item);
        } else if (is_map) {
            chosen.push_back(jinja_member(item, jinja_text(arguments.named["attribute"])));
        } else {
            const json& member = jinja_member(item, arguments.text(0));
            const JinjaResult is = arguments.list.size() > 1
                                       ? jinja_holds(arguments.text(1), member, arguments.at(2))
                                       : jinja_true(member);
            if (!is) return {};
            if (is->get<bool>() == (filter == "selectattr")) chosen.push_back(item);
        }
    }
    return filter == "join" ? json(all) : chosen;
}

JinjaResult jinja_filter(const std::string& filter, const json& value, const JinjaArguments& arguments) {
    if (filter == "default" || filter == "d") {
        const bool fits = value.is_discarded() || (jinja_true(arguments.at(1)) && !jinja_true(value));
        return fits ? arguments.at(0) : value;
    }
    if (filter == "string" || filter == "safe") return jinja_text(value);
    if (filter == "length" || filter == "count") {
        if (value.is_discarded()) return 0;
        if (!value.is_string()) return value.is_structured() ? JinjaResult(value.size()) : JinjaResult();
        const auto& text = value.get_ref<const std::string&>();
        return std::count_if(text.begin(), text.end(), [](char c) { return (uint8_t(c) & 0xc0) != 0x80; });
    }
    if (value.is_array()) return of_list(filter, value, arguments);
    return of_text(filter, jinja_text(value), arguments);
}

JinjaResult jinja_call(const std::string& method, const json& value, const JinjaArguments& arguments) {
    if (value.is_string() && method != "trim") return of_text(method, value, arguments);
    if (!value.is_object() || method != "get") return {};
    const json& member = jinja_member(value, arguments.text(0));
    return !member.is_discarded() ? member : arguments.list.size() > 1 ? arguments.at(1) : json();
}

int64_t jinja_number(const json& value) {
    if (!value.is_number_integer()) fail("arithmetic without whole numbers is not understood");
    const auto number = value.get<int64_t>();
    const int64_t most = 9999999999;
    if (number > most || number < -most) fail("'%lld' is not understood", (long long)number);
    return number;
}

json jinja_sum(const json& a, const json& b) {
    if (a.is_discarded() || b.is_discarded()) fail("a sum has something that is undefined");
    if (a.is_array() && b.is_array()) {
        json all = a;
        if (a.size() + b.size() > 1000000) fail("it makes too long a list");
        all.insert(all.end(), b.begin(), b.end());
        return all;
    }
    if (!a.is_string() || !b.is_string()) return jinja_number(a) + jinja_number(b);
    return a.get_ref<const std::string&>() + b.get_ref<const std::string&>();
}

json jinja_slice(const json& value, const json* bounds) {
    if (!value.is_array()) fail("a part of what is no list is not understood");
    const auto is_given = [&](int i) { return bounds[i].is_number(); };
    const int64_t size = int64_t(value.size()), step = is_given(2) ? jinja_number(bounds[2]) : 1;
    if (step == 0) fail("a step of 0 is not understood");
    const int64_t least = step > 0 ? 0 : -1, most = step > 0 ? size : size - 1;
    const auto bound = [&](int i, int64_t otherwise) {
        const int64_t at = is_given(i) ? jinja_number(bounds[i]) : otherwise;
        return is_given(i) ? std::clamp(at < 0 ? at + size : at, least, most) : at;
    };
    json part = json::array();
    const int64_t end = bound(1, step > 0 ? size : -1);
    for (int64_t i = bound(0, step > 0 ? 0 : size - 1); step > 0 ? i < end : i > end; i += step)
        part.push_back(value[size_t(i)]);
    return part;
}
