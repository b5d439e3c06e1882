// Tests that start other test programs, and the programs themselves, on a device that dev/setup.sh unpacks in
// .tools/, under the validation layer.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/run_program.h"

inline std::string environment(const char* name) {
    const char* value = getenv(name);
    return value ? value : "";
}

// Lavapipe's subgroups have bits / 32 invocations, also in programs that start afterwards; "": as usual.
// Mesa's shader cache ignores that: each size needs one of its own.
inline void set_vector_bits(const std::string& bits) {
    const std::string cache = BINARY_DIR "/mesa_cache_" + bits;
    for (const auto& [name, value] :
         {std::pair("LP_NATIVE_VECTOR_WIDTH", bits), {"MESA_SHADER_CACHE_DIR", cache}})
        bits.empty() ? unsetenv(name) : setenv(name, value.c_str(), 1);
}

struct OtherDevice : testing::Test {
    // `word` is what dev/setup.sh takes; it writes .tools/bin/with-WORD.
    explicit OtherDevice(const std::string& word) : setup(word) {}

    std::string setup, wrapper = SOURCE_DIR "/.tools/bin/with-" + setup;
    std::string device = environment("LLMC_TEST_DEVICE");  // empty: the one that was unpacked

    void SetUp() override {
        if (device == "none") GTEST_SKIP() << "LLMC_TEST_DEVICE=none: tests on Vulkan devices are disabled";
        if (device.empty() && !std::filesystem::exists(wrapper)) {
            if (!environment("CI").empty())
                FAIL() << "this is CI, but dev/setup.sh " << setup << " was not run";
            GTEST_SKIP() << "the device is missing: run dev/setup.sh " << setup;
        }
        setenv("LAUNCHPAD_VALIDATION", "1", 1);
        unsetenv("GTEST_TOTAL_SHARDS");  // of this program, not of the tests that it starts
    }
    // Runs a program of the build folder on the device. It must succeed without validation messages.
    ProgramResult run(const std::string& program, const Words& options) const {
        Words argv;
        if (device.empty()) argv.push_back(wrapper);
        argv.push_back(BINARY_DIR "/" + program);
        argv.insert(argv.end(), options.begin(), options.end());
        const ProgramResult result = run_program(argv);
        EXPECT_EQ(result.status, 0) << program << "\n" << result.out << result.err;
        EXPECT_FALSE(contains(result.err, "validation:"));
        return result;
    }
    // Runs the tests that `filter` matches: some must, and none may be skipped.
    void expect_success(const std::string& program, const std::string& filter) const {
        const ProgramResult result = run(program, {"--gtest_filter=" + filter});
        EXPECT_TRUE(contains(result.out, "[       OK ]"));
        EXPECT_FALSE(contains(result.out, "SKIPPED"));
    }
    std::string device_option() const { return device.empty() ? "0" : device; }
};
