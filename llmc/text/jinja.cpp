#include "llmc/text/jinja.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <string_view>

#include "llmc/base/error.h"
#include "llmc/base/utf8.h"
#include "llmc/text/pattern.h"

using nlohmann::json;

std::string trimmed(std::string_view text) {
    static thread_local const Pattern white(std::string("[\\x1c-\\x1f") + white_space + "]");
    while (white.ends(text)) text = text.substr(0, last_character(text));
    while (white.begins(text)) {
        size_t next = 1;
        while (next < text.size() && (uint8_t(text[next]) & 0xc0) == 0x80) next++;
        text = text.substr(next);
    }
    return std::string(text);
}

static bool is_true(const json& value) {
    if (value.is_boolean()) return value.get<bool>();
    if (value.is_number()) return value != 0;
    if (value.is_string()) return !value.get_ref<const std::string&>().empty();
    return !value.empty();
}

static std::string text_of(const json& value) {
    if (value.is_string()) return value;
    if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
    return value.is_null() ? "" : json_text(value);
}

// --- expressions, which are evaluated as they are read; what is not defined is null ---

struct Expression {
    std::string_view text;
    const json& variables;
    size_t at = 0;
    int depth = 0;

    json evaluate() {
        const json value = conditional();
        skip_space();
        if (at < text.size()) refuse(text.substr(at));
        return value;
    }

   private:
    [[noreturn]] void refuse(std::string_view what) const {
        fail("'%s' is not understood", printable(std::string(what.substr(0, 60))).c_str());
    }
    void skip_space() {
        while (at < text.size() && isspace(uint8_t(text[at]))) at++;
    }
    bool take(std::string_view symbol) {
        skip_space();
        if (!text.substr(at).starts_with(symbol)) return false;
        at += symbol.size();
        return true;
    }
    void need(std::string_view symbol) {
        if (!take(symbol)) refuse(text.substr(at));
    }
    std::string name() {
        skip_space();
        const size_t start = at;
        while (at < text.size() && (isalnum(uint8_t(text[at])) || text[at] == '_')) at++;
        return std::string(text.substr(start, at - start));
    }
    bool take_word(const char* word) {
        const size_t start = at;
        if (name() == word) return true;
        at = start;
        return false;
    }
    json conditional() {
        if (++depth > max_json_depth) fail("an expression is too deep");
        json value = any();
        if (take_word("if")) {
            const bool holds = is_true(any());
            const json other = take_word("else") ? conditional() : json();
            if (!holds) value = other;
        }
        depth--;
        return value;
    }
    json any() {
        json value = all();
        while (take_word("or")) {
            const json right = all();
            if (!is_true(value)) value = right;
        }
        return value;
    }
    json all() {
        json value = negation();
        while (take_word("and")) {
            const json right = negation();
            if (is_true(value)) value = right;
        }
        return value;
    }
    json negation() {
        bool negated = false, is_negation = false;
        for (; take_word("not"); is_negation = true) negated = !negated;
        const json value = comparison();
        return is_negation ? json(is_true(value) != negated) : value;
    }
    json comparison() {
        json value = sum();
        for (;;) {
            if (take("=="))
                value = value == sum();
            else if (take("!="))
                value = value != sum();
            else if (take_word("is"))
                value = test(value);
            else if (take_word("in"))
                value = contains(sum(), value);
            else if (take_word("not"))
                need("in "), value = !contains(sum(), value);
            else
                return value;
        }
    }
    json test(const json& value) {
        const bool negated = take_word("not");
        const std::string kind = name();
        if (kind == "defined" || kind == "none") return (value.is_null() == (kind == "none")) != negated;
        if (kind == "string") return value.is_string() != negated;
        refuse("is " + kind);
    }
    static bool contains(const json& all, const json& value) {
        if (all.is_string()) return all.get<std::string>().find(text_of(value)) != std::string::npos;
        return all.is_object() ? all.contains(text_of(value))
                               : std::find(all.begin(), all.end(), value) != all.end();
    }
    // Of at most ten digits, so that sums and remainders are in range.
    int64_t number_of(const json& value) const {
        const auto number = value.get<int64_t>();
        if (std::abs(number) > 9999999999) refuse(std::to_string(number));
        return number;
    }
    json sum() {
        json value = postfix();
        for (;;) {
            if (take("+") || take("~")) {
                const json right = postfix();
                const bool numbers = value.is_number() && right.is_number();
                value = numbers ? json(number_of(value) + number_of(right))
                                : json(text_of(value) + text_of(right));
                if (value.is_string() && value.get_ref<const std::string&>().size() > max_json_bytes)
                    fail("it makes too long a text");
            } else if (take("%")) {
                const json right = postfix();
                if (!value.is_number_integer() || !right.is_number_integer() || right == 0) refuse("%");
                value = number_of(value) % number_of(right);
            } else
                return value;
        }
    }
    json postfix() {
        json value = primary();
        for (;;) {
            if (take("|"))
                value = apply(name(), value);
            else if (take("."))
                value = method_or_member(value);
            else if (take("["))
                value = item(value);
            else
                return value;
        }
    }
    json apply(const std::string& filter, const json& value) const {
        if (filter == "trim" || filter == "strip") return trimmed(text_of(value));
        if (filter == "length") return value.is_string() ? value.get<std::string>().size() : value.size();
        refuse(filter);
    }
    json method_or_member(const json& value) {
        const std::string member = name();
        if (!take("(")) return value.is_object() ? value.value(member, json()) : json();
        need(")");
        return apply(member, value);
    }
    // value[0], value[-1], value['role'], or value[1:].
    json item(const json& value) {
        const json index = conditional();
        const bool slices = take(":");
        need("]");
        if (index.is_string())
            return value.is_object() ? value.value(index.get<std::string>(), json()) : json();
        if (!value.is_array() || !index.is_number_integer()) refuse(text);
        const int size = int(value.size()), i = index.get<int>(), from = i < 0 ? size + i : i;
        if (!slices) return from >= 0 && from < size ? value[size_t(from)] : json();
        json rest = json::array();
        for (int k = std::max(0, from); k < size; k++) rest.push_back(value[size_t(k)]);
        return rest;
    }
    json primary() {
        skip_space();
        const char c = at < text.size() ? text[at] : '\0';
        if (c == '\'' || c == '"') return quoted(c);
        if (take("(")) {
            json value = conditional();
            need(")");
            return value;
        }
        const bool negative = take("-");
        const std::string word = name();
        if (word.empty()) refuse(text.substr(at));
        if (isdigit(uint8_t(word[0])) && word.size() > 9) refuse(word);
        if (isdigit(uint8_t(word[0]))) return (negative ? -1 : 1) * atoi(word.c_str());
        if (word == "true" || word == "True") return true;
        if (word == "false" || word == "False") return false;
        if (take("(")) return call(word);
        return variables.value(word, json());
    }
    json call(const std::string& function) {
        if (function != "raise_exception") refuse(function + "(");
        fail("it says: %s", printable(text_of(conditional())).c_str());
    }
    json quoted(char quote) {
        std::string value;
        for (at++; at < text.size() && text[at] != quote; at++) {
            if (text[at] != '\\' || at + 1 == text.size()) {
                value += text[at];
                continue;
            }
            const char escaped = text[++at];
            value += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped == 'r' ? '\r' : escaped;
        }
        need(std::string_view(&quote, 1));
        return value;
    }
};

// --- statements ---

struct JinjaTag {
    std::string before;  // the text before it
    char kind = '\0';    // '%', '{', '#', or 0 at the end
    std::string inside = "";
};

static std::string_view without_space(std::string_view text) {
    while (!text.empty() && isspace(uint8_t(text.front()))) text.remove_prefix(1);
    while (!text.empty() && isspace(uint8_t(text.back()))) text.remove_suffix(1);
    return text;
}

// Removes what lstrip_blocks and {%- remove from the end of a text before a tag.
static void strip_before(std::string& text, bool begins_line, char kind, char mark) {
    if (mark == '-') {
        while (!text.empty() && isspace(uint8_t(text.back()))) text.pop_back();
    } else if (kind != '{' && mark != '+') {
        const size_t end = text.find_last_not_of(" \t");
        if (end == text.npos ? begins_line : text[end] == '\n') text.resize(end + 1);
    }
}

// Where the tag that begins at `at` ends: before its two closing characters, which quotes may hold, too.
static size_t end_of_tag(std::string_view source, size_t at, char kind) {
    const char closing[] = {kind == '{' ? '}' : kind, '}', '\0'};
    char quote = '\0';
    for (size_t i = at + 2; i + 1 < source.size(); i++) {
        if (!quote && source.substr(i, 2) == closing) return i;
        if (kind == '#') continue;
        if (quote && source[i] == '\\')
            i++;
        else if (quote ? source[i] == quote : source[i] == '\'' || source[i] == '"')
            quote = quote ? '\0' : source[i];
    }
    fail("'%s' does not end", printable(std::string(source.substr(at, 40))).c_str());
}

static std::vector<JinjaTag> split_tags(std::string_view source) {
    if (source.ends_with('\n')) source.remove_suffix(1);
    std::vector<JinjaTag> tags;
    for (size_t at = 0;;) {
        size_t open = at;
        while ((open = source.find('{', open)) != source.npos && open + 1 < source.size() &&
               std::string_view("{%#").find(source[open + 1]) == std::string_view::npos)
            open++;
        if (open == source.npos || open + 1 >= source.size()) {
            tags.push_back({std::string(source.substr(std::min(at, source.size())))});
            return tags;
        }
        const char kind = source[open + 1];
        const size_t end = end_of_tag(source, open, kind);
        std::string_view inside = source.substr(open + 2, end - open - 2);
        JinjaTag tag = {std::string(source.substr(at, open - at)), kind};
        const bool begins_line = at == 0 || source[at - 1] == '\n';
        strip_before(tag.before, begins_line, kind, inside.empty() ? '\0' : inside[0]);
        if (inside.starts_with('-') || inside.starts_with('+')) inside.remove_prefix(1);
        at = end + 2;
        if (inside.ends_with('-')) {
            inside.remove_suffix(1);
            while (at < source.size() && isspace(uint8_t(source[at]))) at++;
        } else if (kind != '{' && source.substr(at).starts_with('\n')) {
            at++;
        }
        tag.inside = without_space(inside);
        tags.push_back(std::move(tag));
    }
}

struct JinjaProgram {
    std::vector<JinjaTag> tags;
    size_t at = 0;
    std::string out = {};
    int depth = 0, steps = 0;

    // Runs up to the end of the block, where a statement has one of these first words, and returns the
    // statement. Without `runs`, it only skips.
    std::string run(json& variables, bool runs, std::initializer_list<std::string_view> ends) {
        if (++depth > max_json_depth) fail("its blocks are too deep");
        for (; at < tags.size(); at++) {
            if (++steps > 1000000 || out.size() > max_json_bytes) fail("it takes too long");
            const JinjaTag& tag = tags[at];
            if (runs) out += tag.before;
            if (runs && tag.kind == '{') out += text_of(Expression{tag.inside, variables}.evaluate());
            if (tag.kind != '%') continue;
            const std::string word = tag.inside.substr(0, tag.inside.find_first_of(" \n\t("));
            if (std::find(ends.begin(), ends.end(), word) != ends.end()) return depth--, tag.inside;
            statement(word, tag.inside.substr(word.size()), variables, runs);
        }
        if (ends.size() > 0) fail("'%s' is missing", std::string(*(ends.end() - 1)).c_str());
        return "";
    }

   private:
    void statement(const std::string& word, const std::string& rest, json& variables, bool runs) {
        if (word == "if") return choose(rest, variables, runs);
        if (word == "for") return loop(rest, variables, runs);
        if (word == "generation" || word == "endgeneration") return;  // what an assistant says
        if (word != "set") fail("the statement '%s' is not understood", printable(word).c_str());
        if (!runs) return;
        const size_t equals = rest.find('=');
        const std::string name(without_space(std::string_view(rest).substr(0, equals)));
        if (equals == rest.npos || name.find_first_of(". ,") != name.npos)
            fail("'set%s' is not understood", printable(rest).c_str());
        variables[name] = Expression{std::string_view(rest).substr(equals + 1), variables}.evaluate();
    }
    void choose(std::string condition, json& variables, bool runs) {
        bool is_done = false;
        for (;;) {
            const bool holds = runs && !is_done && is_true(Expression{condition, variables}.evaluate());
            is_done = is_done || holds;
            at++;
            const std::string end = run(variables, holds, {"elif", "else", "endif"});
            if (end == "endif") return;
            condition = end == "else" ? "true" : end.substr(4);
        }
    }
    void loop(const std::string& rest, json& variables, bool runs) {
        const size_t in = rest.find(" in ");
        if (in == rest.npos || rest.find(" if ") != rest.npos)
            fail("'for%s' is not understood", printable(rest).c_str());
        const std::string name(without_space(std::string_view(rest).substr(0, in)));
        const json items =
            runs ? Expression{std::string_view(rest).substr(in + 4), variables}.evaluate() : json();
        if (!items.is_array() && !items.is_null())
            fail("'for%s' is not understood: it is no list", printable(rest).c_str());
        const size_t start = ++at, count = items.size();
        for (size_t i = 0; i < count; i++) {
            at = start;
            json inner = variables;
            inner[name] = items[i];
            inner["loop"] = {{"first", i == 0},
                             {"last", i + 1 == count},
                             {"index", i + 1},
                             {"index0", i},
                             {"length", count}};
            run(inner, true, {"endfor"});
        }
        if (count == 0) run(variables, false, {"endfor"});
    }
};

std::string render_jinja(const std::string& source, const json& variables) {
    JinjaProgram program = {split_tags(source)};
    json own = variables;
    program.run(own, true, {});
    return program.out;
}
