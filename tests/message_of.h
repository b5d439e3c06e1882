// For tests of error messages.
#pragma once
#include <functional>
#include <string>

#include "llmc/base/error.h"
#include "tests/contains.h"

// Returns the message of the Error that the action throws; empty if it throws none.
inline std::string message_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

// Expects an Error whose message contains the part.
inline void expect_error(std::string_view part, const std::function<void()>& action) {
    EXPECT_TRUE(contains(message_of(action), part));
}
