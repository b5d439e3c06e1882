// Texts that contain other texts.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <string_view>

// For EXPECT_TRUE and EXPECT_FALSE, which print both if they fail.
inline testing::AssertionResult contains(std::string_view text, std::string_view part) {
    const bool found = text.find(part) != text.npos;
    return testing::AssertionResult(found)
           << "'" << part << (found ? "' is in\n" : "' is not in\n") << text.substr(0, 50'000);
}
