// Declares options with checks of their values for CLI11, whose own checks print ranges of up to 309 digits,
// and messages about command lines that do not parse.
#pragma once
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

#include "llmc/base/error.h"

// What is wrong with a number as others write it; "": nothing. CLI11 reads 010 as octal, as 8.
inline std::string misspelled_number(const std::string& text) {
    const auto is_digit = [&](size_t i) {
        return i < text.size() && isdigit(static_cast<unsigned char>(text[i]));
    };
    const size_t sign = text.find_first_of("+-") == 0, mark = text.find_first_of("_,'");
    if (text.substr(std::min(sign, text.size())).starts_with('0') && is_digit(sign + 1))
        return text + " is not a decimal number: leave out the leading 0";
    if (mark != text.npos && mark > 0 && is_digit(mark - 1) && is_digit(mark + 1))
        return text + " is not a number: leave out the marks between its digits";
    return "";
}

// The number in the text must be at least `least` and at most `most`; NaN is refused.
inline CLI::Validator number_check(double least, double most, const std::string& description) {
    return CLI::Validator(
        [=](std::string& text) {
            if (const std::string fault = misspelled_number(text); !fault.empty()) return fault;
            double value = 0;
            const bool good = CLI::detail::lexical_cast(text, value) && value >= least && value <= most;
            return good ? std::string() : text + " is not " + description;
        },
        description);
}

inline CLI::Validator between(double least, double most) {
    return number_check(least, most, format_string("%.10g to %.10g", least, most));
}

// A count, which is stored in an int.
inline CLI::Validator at_least(int least) {
    const int most = 1 << 30;
    const std::string range = format_string("at least %d", least);
    const CLI::Validator check = number_check(least, most, range);
    return CLI::Validator(
        [=](std::string& text) {
            double value = 0;
            const bool large = CLI::detail::lexical_cast(text, value) && value > most;
            return large ? text + format_string(" is not at most %d", most) : check(text);
        },
        range);
}

// A number that is stored in a uint64_t. CLI11 itself reads -1, and numbers from 2^64 on, as 2^64 - 1.
inline CLI::Validator unsigned_number() {
    return CLI::Validator(
        [](std::string& text) {
            if (const std::string fault = misspelled_number(text); !fault.empty()) return fault;
            double value = 0;
            errno = 0;
            strtoull(text.c_str(), nullptr, 0);
            if (!CLI::detail::lexical_cast(text, value) || !(value >= 0)) return text + " is not at least 0";
            return errno == 0 ? std::string() : text + " is not at most 18446744073709551615";
        },
        "at least 0");
}

// A number of bytes, such as 8G, 7.5G or 900M (1024^3 and 1024^2 bytes), at least 1M; 0 for "all".
uint64_t parse_size(const std::string& text);  // Error if it is none
CLI::Validator size_check();

// A path. A ~ at its start, which a shell leaves in --output=~/x and in quotes, is the home folder.
CLI::Validator home_path();

// One of these words. CLI11's own check prints them as a set.
CLI::Validator one_of(const std::vector<std::string>& words);

// For an option that is stored in an integer. CLI11's own message does not say what is wanted.
template <class Integer>
CLI::Validator whole_number() {
    return CLI::Validator(
        [](std::string& text) {
            Integer value;
            return CLI::detail::lexical_cast(text, value) ? "" : text + " is not a whole number in digits";
        },
        "");
}

// Declares an option with a check, and shows its default value.
template <class Value>
CLI::Option* add(CLI::App& app, const char* names, Value& value, const CLI::Validator& check,
                 const char* help) {
    CLI::Option* option = app.add_option(names, value, help)->transform(check)->capture_default_str();
    if constexpr (std::is_integral_v<Value>) option->check(whole_number<Value>());
    return option;
}

// 0 or 1. CLI11 itself takes any number for a bool.
inline CLI::Validator zero_or_one() { return one_of({"0", "1", "false", "true"}).description("0 or 1"); }

// Error if an argument is --flag=VALUE, for a flag of the app or of a subcommand, with another value than
// these. CLI11 itself takes any number for a flag.
void check_flags(const CLI::App& app, const std::vector<std::string>& arguments,
                 const std::vector<std::string>& values = {"true", "false"});

// The message for a command line that does not parse. It begins with the option; for an unknown one it
// suggests the nearest.
std::string explain(const CLI::App& app, const CLI::ParseError& error);

// " (did you mean --NAME?)" with the nearest of the options' long names; "" if none is near.
std::string nearest_option(const CLI::App& app, const std::string& name);
