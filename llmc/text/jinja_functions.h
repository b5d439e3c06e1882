// Values of Jinja, and what its filters, methods and tests make of them. What is not defined is JSON's
// discarded value.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/json.h"

inline const nlohmann::json jinja_undefined(nlohmann::json::value_t::discarded);

bool jinja_true(const nlohmann::json& value);
bool jinja_equal(const nlohmann::json& a, const nlohmann::json& b);
// As {{ value }} writes it. Error if it is a list.
std::string jinja_text(const nlohmann::json& value);
int jinja_depth(const nlohmann::json& value);  // of lists in lists
// Undefined if there is none.
const nlohmann::json& jinja_member(const nlohmann::json& object, const std::string& name);

// --- what functions do; none: it is not understood ---

struct JinjaArguments {
    std::vector<nlohmann::json> list = {};
    nlohmann::json named = nlohmann::json::object();

    const nlohmann::json& at(size_t i) const { return i < list.size() ? list[i] : jinja_undefined; }
    std::string text(size_t i) const { return jinja_text(at(i)); }
};
using JinjaResult = std::optional<nlohmann::json>;

JinjaResult jinja_filter(const std::string& filter, const nlohmann::json& value,
                         const JinjaArguments& arguments);
JinjaResult jinja_call(const std::string& method, const nlohmann::json& value,
                       const JinjaArguments& arguments);
JinjaResult jinja_holds(const std::string& test, const nlohmann::json& value, const nlohmann::json& argument);

// Without the white space at both ends, as Python's strip().
std::string trimmed(std::string_view text);

// --- arithmetic; error if it is not understood ---

// Of at most ten digits, so that sums and remainders are in range.
int64_t jinja_number(const nlohmann::json& value);
nlohmann::json jinja_sum(const nlohmann::json& a, const nlohmann::json& b);
nlohmann::json jinja_slice(const nlohmann::json& value, const nlohmann::json* bounds);  // [from:to:step]
