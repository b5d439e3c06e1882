#include "llmc/text/jinja.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <set>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/utf8.h"
#include "llmc/text/jinja_functions.h"

using nlohmann::json;

// --- expressions, which are evaluated as they are read ---

struct Expression {
    std::string_view text;
    const json& variables;
    size_t at = 0;
    int depth = 0;
    bool runs = true;  // false: it is only read, since nobody needs its value

    json evaluate() {
        const json value = conditional();
        skip_space();
        if (at < text.size()) refuse(text.substr(at));
        return value;
    }
    // The list of a loop; its condition follows, or nothing.
    json evaluate_list(std::string_view& condition) {
        const json value = any();
        if (take_word("if")) condition = text.substr(std::exchange(at, text.size()));
        skip_space();
        if (at < text.size()) refuse(text.substr(at));
        return value;
    }

   private:
    [[noreturn]] void refuse(std::string_view what) const {
        if (what.empty()) fail("an expression ends where a value should follow");
        fail("'%s' is not understood", printable(first_characters(what, 60)).c_str());
    }
    void skip_space() {
        while (at < text.size() && isspace(uint8_t(text[at]))) at++;
    }
    char next() {
        skip_space();
        return at < text.size() ? text[at] : '\0';
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
    using Part = json (Expression::*)();
    json if_needed(bool needed, Part part) {
        const bool before = std::exchange(runs, runs && needed);
        json value = (this->*part)();
        runs = before;
        return value;
    }
    json conditional() {
        if (++depth > max_json_depth) fail("an expression is too deep");
        const size_t start = at;
        if_needed(false, &Expression::any);
        const bool has_condition = take_word("if"), is_met = !has_condition || jinja_true(any());
        const size_t end = at;
        json value = jinja_undefined;
        if (runs && is_met) {
            at = start;
            value = any();
            at = end;
        }
        if (has_condition && take_word("else")) {
            const json other = if_needed(!is_met, &Expression::conditional);
            if (!is_met) value = other;
        }
        depth--;
        return value;
    }
    json any() {
        json value = all();
        while (take_word("or")) {
            const json right = if_needed(!jinja_true(value), &Expression::all);
            if (!jinja_true(value)) value = right;
        }
        return value;
    }
    json all() {
        json value = negation();
        while (take_word("and")) {
            const json right = if_needed(jinja_true(value), &Expression::negation);
            if (jinja_true(value)) value = right;
        }
        return value;
    }
    json negation() {
        bool negated = false, is_negation = false;
        for (; take_word("not"); is_negation = true) negated = !negated;
        const json value = comparison();
        return is_negation ? json(jinja_true(value) != negated) : value;
    }
    std::string comparison_operator() {
        for (const char* symbol : {"==", "!=", "<=", ">=", "<", ">"})
            if (take(symbol)) return symbol;
        if (take_word("in")) return "in";
        const size_t start = at;
        if (take_word("not") && take_word("in")) return "not in";
        at = start;
        return "";
    }
    json comparison() {
        json value = sum();
        for (std::string symbol; !(symbol = comparison_operator()).empty();) {
            const json right = sum();
            if (runs) value = compare(symbol, value, right);
        }
        return value;
    }
    bool compare(const std::string& symbol, const json& left, const json& right) const {
        if (symbol == "==" || symbol == "!=") return jinja_equal(left, right) == (symbol == "==");
        if (symbol == "in" || symbol == "not in") return contains(right, left) == (symbol == "in");
        if (!(left.is_number() && right.is_number()) && !(left.is_string() && right.is_string()))
            refuse(text);
        const bool is_less = symbol[0] == '<' ? left < right : right < left;
        return is_less || (symbol.size() == 2 && left == right);
    }
    bool contains(const json& all, const json& value) const {
        if (all.is_string() && value.is_string())
            return all.get_ref<const std::string&>().find(value.get<std::string>()) != std::string::npos;
        if (all.is_object()) return value.is_string() && all.contains(value.get<std::string>());
        if (!all.is_array() && !all.is_discarded()) refuse(text);
        return all.is_array() && std::any_of(all.begin(), all.end(),
                                             [&](const json& item) { return jinja_equal(item, value); });
    }
    json sum() {
        json value = concatenation();
        for (;;) {
            const bool adds = take("+");
            if (!adds && !take("-")) return value;
            const json right = concatenation();
            if (!runs) continue;
            value = adds ? jinja_sum(value, right) : json(jinja_number(value) - jinja_number(right));
            check_length(value);
        }
    }
    static void check_length(const json& value) {
        if (value.is_string() && value.get_ref<const std::string&>().size() > max_json_bytes)
            fail("it makes too long a text");
    }
    json concatenation() {
        json value = product();
        while (take("~")) {
            const json right = product();
            if (runs) value = jinja_text(value) + jinja_text(right);
            check_length(value);
        }
        return value;
    }
    // Of remainders and whole quotients, which round down, as Python's.
    json product() {
        json value = postfix();
        for (;;) {
            std::string symbol;
            for (const char* known : {"**", "*", "//", "/", "%"})
                if (symbol.empty() && take(known)) symbol = known;
            if (symbol.empty()) return value;
            const json right = postfix();
            if (!runs) continue;
            if ((symbol != "%" && symbol != "//") || right == 0) refuse(symbol);
            const int64_t a = jinja_number(value), b = jinja_number(right), rest = ((a % b) + b) % b;
            value = symbol == "%" ? rest : (a - rest) / b;
        }
    }
    json postfix() {
        bool negative = take("-");
        skip_space();
        const size_t start = at;
        json value = primary();
        for (;;) {
            const std::string_view before = text.substr(start, at - start);
            if (take(".")) {
                value = method_or_member(value, before);
            } else if (take("[")) {
                value = item(value, before);
            } else {  // a sign binds less than members, and more than filters
                if (std::exchange(negative, false) && runs) value = -jinja_number(value);
                if (take("|"))
                    value = apply(jinja_filter, name(), value);
                else if (take_word("is"))
                    value = test(value);
                else
                    return value;
            }
        }
    }
    json apply(JinjaResult (*function)(const std::string&, const json&, const JinjaArguments&),
               const std::string& name, const json& value) {
        const JinjaArguments given = take("(") ? arguments() : JinjaArguments();
        if (!runs) return jinja_undefined;
        const JinjaResult result = function(name, value, given);
        if (!result) refuse(name);
        return *result;
    }
    json test(const json& value) {
        const bool negated = take_word("not");
        const std::string kind = name();
        const char c = next();
        json argument = jinja_undefined;
        if (c == '\'' || c == '"' || c == '[' || c == '(' || isdigit(uint8_t(c))) argument = primary();
        if (!runs) return jinja_undefined;
        const JinjaResult result =
            kind == "in" ? JinjaResult(contains(argument, value)) : jinja_holds(kind, value, argument);
        if (!result) refuse("is " + kind);
        return result->get<bool>() != negated;
    }
    void need_defined(const json& value, std::string_view what) const {
        if (runs && value.is_discarded())
            fail("'%s' is undefined", printable(first_characters(what, 60)).c_str());
    }
    json method_or_member(const json& value, std::string_view what) {
        need_defined(value, what);
        const std::string member = name();
        return next() == '(' ? apply(jinja_call, member, value) : jinja_member(value, member);
    }
    // value[0], value[-1], value['role'], value[1:] or value[::-1].
    json item(const json& value, std::string_view what) {
        need_defined(value, what);
        json bounds[3] = {jinja_undefined, jinja_undefined, jinja_undefined};
        size_t colons = 0;
        for (;; colons++) {
            if (colons > 2) refuse(text);
            if (next() != ':' && next() != ']') bounds[colons] = conditional();
            if (!take(":")) break;
        }
        need("]");
        if (!runs) return jinja_undefined;
        if (colons > 0) return jinja_slice(value, bounds);
        if (bounds[0].is_string()) return jinja_member(value, bounds[0]);
        if (!value.is_array() || !bounds[0].is_number_integer()) refuse(text);
        const int64_t size = int64_t(value.size()), i = jinja_number(bounds[0]),
                      at_index = i < 0 ? size + i : i;
        return at_index >= 0 && at_index < size ? value[size_t(at_index)] : jinja_undefined;
    }
    JinjaArguments arguments() {
        JinjaArguments given;
        while (!take(")")) {
            const size_t start = at;
            const std::string key = name();
            if (!key.empty() && next() == '=' && !text.substr(at).starts_with("==")) {
                need("=");
                given.named[key] = conditional();
            } else {
                at = start;
                given.list.push_back(conditional());
            }
            if (next() != ')') need(",");
        }
        return given;
    }
    // The rest of (a, b), [a, b] or {a: b}; (a) is a.
    json items(char opening) {
        const char closing = opening == '(' ? ')' : opening == '[' ? ']' : '}';
        json list = opening == '{' ? json::object() : json::array();
        bool is_tuple = opening != '(';
        while (next() != closing) {
            const json item = conditional();
            if (opening != '{') list.push_back(item);
            if (opening == '{') {
                need(":");
                list[jinja_text(item)] = conditional();
            }
            if (next() == closing) break;
            need(",");
            is_tuple = true;
        }
        at++;
        return is_tuple || list.empty() ? list : list[0];
    }
    json primary() {
        const char c = next();
        if (c == '\'' || c == '"') return quoted();
        if (c == '(' || c == '[' || c == '{') return at++, items(c);
        const std::string word = name();
        if (word.empty()) refuse(text.substr(at));
        if (isdigit(uint8_t(word[0]))) return number(word);
        if (word == "true" || word == "True") return true;
        if (word == "false" || word == "False") return false;
        if (word == "none" || word == "None") return json();
        return take("(") ? call(word) : jinja_member(variables, word);
    }
    json number(const std::string& digits) {
        if (digits.size() > 9 || digits.find_first_not_of("0123456789") != digits.npos) refuse(digits);
        const bool has_fraction = at + 1 < text.size() && text[at] == '.' && isdigit(uint8_t(text[at + 1]));
        if (!has_fraction) return std::stoi(digits);
        at++;
        const std::string fraction = name();
        if (fraction.find_first_not_of("0123456789") != fraction.npos) refuse(fraction);
        return std::stod(digits + "." + fraction);
    }
    json call(const std::string& function) {
        const JinjaArguments given = arguments();
        if (!runs) return jinja_undefined;
        if (function == "namespace" || function == "dict") return given.named;
        if (function != "raise_exception") refuse(function + "(");
        fail("it says: %s", printable(given.text(0)).c_str());
    }
    json quoted() {
        std::string value;
        while (next() == '\'' || next() == '"') {  // adjacent texts are one
            const char quote = text[at++];
            for (; at < text.size() && text[at] != quote; at++) {
                if (text[at] != '\\' || at + 1 == text.size()) {
                    value += text[at];
                    continue;
                }
                const char escaped = text[++at];
                value += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped == 'r' ? '\r' : escaped;
            }
            need(std::string_view(&quote, 1));
        }
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
    std::set<std::string> namespaces = {};  // whose members have changed

    // Runs up to the end of the block, where a statement has one of these first words, and returns the
    // statement. Without `runs`, it only skips.
    std::string run(json& variables, bool runs, std::initializer_list<std::string_view> ends) {
        if (++depth > max_json_depth) fail("its blocks are too deep");
        for (; at < tags.size(); at++) {
            if (++steps > 1000000 || out.size() > max_json_bytes) fail("it takes too long");
            const JinjaTag& tag = tags[at];
            if (runs) out += tag.before;
            if (runs && tag.kind == '{') out += jinja_text(Expression{tag.inside, variables}.evaluate());
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
        if (!runs) return;
        if (word != "set") fail("the statement '%s' is not understood", printable(word).c_str());
        const size_t equals = rest.find('='), dot = rest.find('.');
        const std::string name(without_space(std::string_view(rest).substr(0, std::min(dot, equals))));
        if (equals == rest.npos || name.find_first_of(" ,") != name.npos)
            fail("'set%s' is not understood", printable(rest).c_str());
        const json value = Expression{std::string_view(rest).substr(equals + 1), variables}.evaluate();
        if (jinja_depth(value) > max_json_depth)
            fail("'set%s' makes lists too deep", printable(rest).c_str());
        if (dot > equals) {
            variables[name] = value;
        } else {  // a member of a namespace
            json& of = variables[name];
            if (!of.is_object())
                fail("'set%s' is not understood: it is no namespace", printable(rest).c_str());
            of[std::string(without_space(std::string_view(rest).substr(dot + 1, equals - dot - 1)))] = value;
            namespaces.insert(name);
        }
    }
    void choose(std::string condition, json& variables, bool runs) {
        bool is_done = false;
        for (;;) {
            const bool is_met = runs && !is_done && jinja_true(Expression{condition, variables}.evaluate());
            is_done = is_done || is_met;
            at++;
            const std::string end = run(variables, is_met, {"elif", "else", "endif"});
            if (end == "endif") return;
            condition = end == "else" ? "true" : end.substr(4);
        }
    }
    json items_of(const std::string& list, const std::string& name, const json& variables) {
        std::string_view condition;
        const json all = Expression{list, variables}.evaluate_list(condition);
        if (!all.is_array() && !all.is_discarded())
            fail("'for %s in%s' is not understood: it is no list", name.c_str(), printable(list).c_str());
        if (condition.empty()) return all.is_array() ? all : json::array();
        json items = json::array(), inner = variables;
        for (const json& item : all) {
            inner[name] = item;
            if (jinja_true(Expression{condition, inner}.evaluate())) items.push_back(item);
        }
        return items;
    }
    void loop(const std::string& rest, json& variables, bool runs) {
        const size_t in = rest.find(" in ");
        const std::string name(without_space(std::string_view(rest).substr(0, in)));
        if (runs && (in == rest.npos || name.find_first_of(" ,") != name.npos))
            fail("'for%s' is not understood", printable(rest).c_str());
        const json items = runs ? items_of(rest.substr(in + 3), name, variables) : json::array();
        const size_t start = ++at, count = items.size();
        std::string end;
        for (size_t i = 0; i < count; i++) {
            at = start;
            json inner = variables,
                 about = {{"first", i == 0}, {"last", i + 1 == count}, {"index", i + 1},
                          {"index0", i},     {"revindex", count - i},  {"revindex0", count - i - 1},
                          {"length", count}};
            if (i > 0) about["previtem"] = items[i - 1];
            if (i + 1 < count) about["nextitem"] = items[i + 1];
            inner[name] = items[i];
            inner["loop"] = about;
            end = run(inner, true, {"else", "endfor"});
            for (const std::string& shared : namespaces) variables[shared] = inner[shared];
        }
        if (count == 0) end = run(variables, false, {"else", "endfor"});
        if (end == "endfor") return;
        at++;
        run(variables, runs && count == 0, {"endfor"});
    }
};

std::string render_jinja(const std::string& source, const json& variables) {
    JinjaProgram program = {split_tags(source)};
    json own = variables;
    program.run(own, true, {});
    return program.out;
}
