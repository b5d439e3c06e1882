// The message of the Error that an action throws, for tests of error messages.
#pragma once
#include <functional>
#include <string>

#include "llmc/error.h"

// Empty where nothing is thrown.
inline std::string message_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}
