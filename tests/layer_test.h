// Helpers of the layer tests: a launchpad for each memory mode of the test device, random inputs, device
// arrays that start as NaN, and a comparison that fails on NaN.
//
// LLMC_TEST_DEVICE names the device, as --device does; "none" runs only the CPU parts of the tests. By
// default, the tests use the first Vulkan device, even if it is a software device. The validation layer is on
// unless LAUNCHPAD_VALIDATION=0.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>

#include "llmc/launchpad/kernel_version.h"
#include "llmc/launchpad/launchpad.h"
#include "llmc/launchpad/vulkan.h"

inline std::string test_device() {
    const char* name = getenv("LLMC_TEST_DEVICE");
    return name && *name ? name : "0";
}

using LaunchPads = std::vector<std::unique_ptr<LaunchPad>>;

// The test device with the validation layer and all checks of the launchpad itself.
inline LaunchPadOptions test_options() {
    const char* validation = getenv("LAUNCHPAD_VALIDATION");
    LaunchPadOptions options;
    options.device = test_device();
    options.validation = !validation || strcmp(validation, "0") != 0;
    options.check_pointers = true;
    options.reverse_groups = true;
    options.cache_directory = "none";
    return options;
}

inline LaunchPads make_test_pads() {
    LaunchPads made;
    if (test_device() == "none") return made;
    for (MemoryMode mode : {MemoryMode::unified, MemoryMode::staged}) {
        LaunchPadOptions options = test_options();
        options.memory = mode;
        try {
            made.push_back(std::make_unique<LaunchPad>(options));
        } catch (const Error& error) {
            // A discrete GPU has no unified memory; any other error is a failure.
            if (mode != MemoryMode::unified || !strstr(error.what(), "unified memory")) throw;
        }
    }
    return made;
}

inline LaunchPads& kept_test_pads() {
    static LaunchPads pads = make_test_pads();
    return pads;
}

// One launchpad for each memory mode that the device supports, made at first use; empty if
// LLMC_TEST_DEVICE=none.
inline const LaunchPads& test_pads() { return kept_test_pads(); }

// Closes the launchpads before main() returns: static objects of drivers and layers may be destroyed before
// the tests' static objects.
struct CloseTestPads : testing::Environment {
    void TearDown() override { kept_test_pads().clear(); }
};
inline testing::Environment* const close_test_pads = testing::AddGlobalTestEnvironment(new CloseTestPads);

// A message of the validation layer fails the test.
struct CountMessages : testing::EmptyTestEventListener {
    int before = 0;
    void OnTestStart(const testing::TestInfo&) override { before = validation_message_count(); }
    void OnTestEnd(const testing::TestInfo&) override {
        EXPECT_EQ(validation_message_count(), before) << "the validation layer printed messages";
    }
};
inline const bool counts_messages = [] {
    testing::UnitTest::GetInstance()->listeners().Append(new CountMessages);
    return true;
}();

// The storage types: a layer's tests are TYPED_TESTs over them. Tensors are held as floats that Real
// represents exactly (random_values<Real>, rounded<Real>), so that one reference in fp32 or double serves all
// types, within tolerance<Real>().
using RealTypes = testing::Types<float, bf16, fp16>;

template <class Element>
std::vector<float> rounded(std::vector<float> values) {
    for (float& v : values) v = float(Element(v));
    return values;
}

// Relative L2 error: fp32's, or the error of rounding the results to a 16-bit type (at most 2^-9 for
// bf16 and 2^-12 for fp16) and one or two intermediate results.
template <class Element>
double tolerance(double fp32 = 1e-5) {
    return std::max(fp32, std::is_same_v<Element, bf16> ? 4e-3 : std::is_same_v<Element, fp16> ? 5e-4 : 0.0);
}

template <class Element = float>
std::vector<float> random_values(size_t n, uint32_t seed, float scale = 1.0f) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal(0.0f, scale);
    std::vector<float> values(n);
    for (float& v : values) v = normal(generator);
    return rounded<Element>(values);
}

// Converts floats to arrays of another element type, and back.
template <class Element>
std::vector<Element> from_floats(const std::vector<float>& values) {
    std::vector<Element> result(values.size());
    for (size_t i = 0; i < values.size(); i++) result[i] = Element(values[i]);
    return result;
}
template <class Element>
std::vector<float> to_floats(const std::vector<Element>& values) {
    return std::vector<float>(values.begin(), values.end());
}

inline std::vector<int> random_integers(size_t n, uint32_t seed, int below) {
    std::mt19937 generator(seed);
    std::vector<int> values(n);
    for (int& v : values) v = int(generator() % uint32_t(below));
    return values;
}

inline std::vector<float> nans(size_t n) {
    return std::vector<float>(n, std::numeric_limits<float>::quiet_NaN());
}

// An array in the launchpad's memory, or on the host (null), with given values or, for outputs, n NaNs. The
// values are floats, whatever the element type is, or ints.
template <class Element>
struct DeviceArray {
    using Value = std::conditional_t<std::is_integral_v<Element>, Element, float>;
    LaunchPad* pad;
    size_t size;
    std::vector<Element> host;
    Element* data;
    DeviceArray(LaunchPad* p, const std::vector<Value>& values)
        : pad(p),
          size(values.size()),
          host(size),
          data(p ? p->allocate<Element>(size, "test") : host.data()) {
        for (size_t i = 0; i < size; i++) host[i] = Element(values[i]);
        if (pad) pad->upload(data, host.data(), size * sizeof(Element));
    }
    DeviceArray(LaunchPad* p, size_t n)
        : DeviceArray(p, std::vector<Value>(n, std::numeric_limits<Value>::quiet_NaN())) {}
    template <class Contents>
    DeviceArray(LaunchPad& p, const Contents& contents) : DeviceArray(&p, contents) {}
    DeviceArray(const DeviceArray&) = delete;
    ~DeviceArray() {
        if (pad) pad->free(data);
    }
    std::vector<Value> values() const {
        std::vector<Element> now = host;
        if (pad) pad->download(now.data(), data, size * sizeof(Element));
        return std::vector<Value>(now.begin(), now.end());
    }
    operator Element*() const { return data; }
};

// Fails unless the relative L2 error of `got` is at most `tolerance`, and each element differs by at most
// 4 * tolerance times the largest magnitude of `want`. A NaN or infinity on either side fails.
inline void expect_close(const char* what, const std::vector<float>& got, const std::vector<float>& want,
                         double tolerance = 1e-5) {
    ASSERT_EQ(got.size(), want.size()) << what;
    double squares = 0, error_squares = 0, largest = 0;
    for (float w : want) largest = std::max(largest, std::abs(double(w)));
    ASSERT_TRUE(std::isfinite(largest)) << what;
    int shown = 0;
    for (size_t i = 0; i < want.size(); i++) {
        const double error = double(got[i]) - double(want[i]);
        squares += double(want[i]) * want[i];
        error_squares += error * error;
        if (!(std::abs(error) <= 4 * tolerance * largest + 1e-30) && shown++ < 5)
            ADD_FAILURE() << what << "[" << i << "] is " << got[i] << ", expected " << want[i];
    }
    EXPECT_TRUE(std::sqrt(error_squares) <= tolerance * std::sqrt(squares) + 1e-30)
        << what << ": relative L2 error " << std::sqrt(error_squares / squares);
}

// Calls check(pad, version, config) for each version and each of its configs in the first memory mode.
// Kernels do not depend on it, so the other modes run each version with its first config, and only in fp32.
// Kernels for fp16 are those for bf16 with another conversion of each element: they run with their first
// config, too. Block sizes that the device does not support are skipped.
template <class Real = float, class Versions, class Check>
void for_each_version(const Versions& versions, Check check) {
    using Config = std::remove_cvref_t<decltype(versions[0].configs[0])>;
    for (const auto& pad : test_pads())
        for (const auto& version : versions)
            for (const Config& config : version.configs) {
                if constexpr (std::is_same_v<Config, int>)
                    if (uint32_t(config) > pad->limits().max_block) continue;
                const bool first = &config == &version.configs[0];
                if (std::is_same_v<Real, fp16> && !first) continue;
                if (pad != test_pads()[0] && !(std::is_same_v<Real, float> && first)) continue;
                SCOPED_TRACE(format_string("%s, %s, %s memory, %s", version.name, config_name(config).c_str(),
                                           memory_mode_name(pad->memory_mode()), pad->device().name.c_str()));
                check(*pad, version, config);
            }
}

// Calls check(pad, launch) for the layer on the CPU, where `pad` is null, and for each version and config on
// the devices. launch(params) runs the layer or the version.
template <class Real = float, class Params, class Config, class Check>
void for_cpu_and_each_version(void (*layer)(LaunchPad*, const Params&),
                              const std::vector<KernelVersion<Params, Config>>& versions, Check check) {
    {
        SCOPED_TRACE("CPU");
        check(static_cast<LaunchPad*>(nullptr), [&](const Params& p) { layer(nullptr, p); });
    }
    for_each_version<Real>(versions, [&](LaunchPad& pad, auto& version, Config config) {
        check(&pad, [&](const Params& p) { version.launch(pad, p, config); });
    });
}

// What the layer makes of values that Real represents, compared with fp32's results: the CPU rounds these
// once.
template <class Real>
void expect_rounded(const LaunchPad* pad, const char* what, const std::vector<float>& got,
                    const std::vector<float>& want, double fp32_tolerance = 1e-5) {
    if (pad)
        expect_close(what, got, want, tolerance<Real>(fp32_tolerance));
    else
        EXPECT_EQ(got, rounded<Real>(want)) << what;
}
