// What the layer tests share: a launchpad for each memory mode of the test device, random inputs, tensors on
// the device that start as NaN, and a comparison that NaN cannot pass.
//
// LLMC_TEST_DEVICE names the device (as --device does); "none" leaves only the CPU parts of the tests.
// Without it the first Vulkan device is taken, a software one included. Validation is on unless
// LAUNCHPAD_VALIDATION=0.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>

#include "llmc/launchpad.h"
#include "llmc/vulkan.h"

inline std::string test_device() {
    const char* name = getenv("LLMC_TEST_DEVICE");
    return name && *name ? name : "0";
}

using LaunchPads = std::vector<std::unique_ptr<LaunchPad>>;

// The device under the validation layer, with every check of the launchpad's own.
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
    for (MemoryMode mode : {MemoryMode::unified, MemoryMode::mapped, MemoryMode::staged}) {
        LaunchPadOptions options = test_options();
        options.memory = mode;
        try {
            made.push_back(std::make_unique<LaunchPad>(options));
        } catch (const Error& error) {
            // a discrete GPU has no unified memory; anything else is a failure
            if (mode != MemoryMode::unified || !strstr(error.what(), "unified memory")) throw;
        }
    }
    return made;
}

inline LaunchPads& kept_test_pads() {
    static LaunchPads pads = make_test_pads();
    return pads;
}

// One launchpad for each memory mode that the device can have, made at first use; empty where
// LLMC_TEST_DEVICE=none.
inline const LaunchPads& test_pads() { return kept_test_pads(); }

// Closes them before main() returns: the statics of drivers and layers may go before the tests' own.
struct CloseTestPads : testing::Environment {
    void TearDown() override { kept_test_pads().clear(); }
};
inline testing::Environment* const close_test_pads = testing::AddGlobalTestEnvironment(new CloseTestPads);

// The storage types: a layer's tests are TYPED_TESTs over them. Tensors are held as floats that T represents
// exactly (random_values<T>, rounded<T>), so that one reference in fp32 or double serves every type, within
// tolerance<T>().
using RealTypes = testing::Types<float, bf16, fp16>;

template <class T>
std::vector<float> rounded(std::vector<float> values) {
    for (float& v : values) v = float(T(v));
    return values;
}

// Relative L2 error: that of fp32, or what rounding results to T makes (2^-9 and 2^-12 at most, each) and a
// rounded intermediate result or two.
template <class T>
double tolerance(double fp32 = 1e-5) {
    return std::max(fp32, std::is_same_v<T, bf16> ? 4e-3 : std::is_same_v<T, fp16> ? 5e-4 : 0.0);
}

template <class T = float>
std::vector<float> random_values(size_t n, uint32_t seed, float scale = 1.0f) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal(0.0f, scale);
    std::vector<float> values(n);
    for (float& v : values) v = normal(generator);
    return rounded<T>(values);
}

// Arrays of T from floats, and back.
template <class T>
std::vector<T> from_floats(const std::vector<float>& values) {
    std::vector<T> result(values.size());
    for (size_t i = 0; i < values.size(); i++) result[i] = T(values[i]);
    return result;
}
template <class T>
std::vector<float> to_floats(const std::vector<T>& values) {
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

// An array in the launchpad's memory, with given values or, for outputs, n NaNs. Values are floats on the
// host, whatever T is, or ints.
template <class T>
struct DeviceArray {
    using Value = std::conditional_t<std::is_integral_v<T>, T, float>;
    LaunchPad& pad;
    T* data;
    size_t size;
    DeviceArray(LaunchPad& p, const std::vector<Value>& values)
        : pad(p), data(p.allocate<T>(values.size(), "test")), size(values.size()) {
        std::vector<T> host(size);
        for (size_t i = 0; i < size; i++) host[i] = T(values[i]);
        pad.upload(data, host.data(), size * sizeof(T));
    }
    DeviceArray(LaunchPad& p, size_t n)
        : DeviceArray(p, std::vector<Value>(n, std::numeric_limits<Value>::quiet_NaN())) {}
    DeviceArray(const DeviceArray&) = delete;
    ~DeviceArray() { pad.free(data); }
    std::vector<Value> values() const {
        std::vector<T> host(size);
        pad.download(host.data(), data, size * sizeof(T));
        return std::vector<Value>(host.begin(), host.end());
    }
    operator T*() const { return data; }
};

// Fails unless got equals want: relative L2 error of the whole, and each element within `tolerance` times the
// largest magnitude of want. A NaN or infinity on either side fails.
inline void expect_close(const char* what, const std::vector<float>& got, const std::vector<float>& want,
                         double tolerance = 1e-5) {
    ASSERT_EQ(got.size(), want.size()) << what;
    double squares = 0, error_squares = 0, largest = 0;
    for (float w : want) largest = std::max(largest, std::abs(double(w)));
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

// Some partial results (slices,N,C) of a product, and what it is when it was finished: their sum, in fp32 and
// in their order, plus bias (C) unless that is empty, rounded to T.
template <class T>
struct SlicedProduct {
    int slices;
    std::vector<float> partials, bias, value;
    SlicedProduct(int slice_count, int N, int C, bool has_bias)
        : slices(slice_count),
          partials(random_values<float>(size_t(slices) * N * C, 11)),
          bias(random_values<T>(C, 12)),
          value(size_t(N) * C) {
        for (size_t i = 0; i < value.size(); i++) {
            for (int slice = 0; slice < slices; slice++) value[i] += partials[slice * value.size() + i];
            if (has_bias) value[i] += bias[i % C];
        }
        value = rounded<T>(value);
    }
};

// Calls check(pad, version, block_size) for each version and each of its block sizes, in each memory mode; in
// the first one alone for the 16-bit types, since kernels know nothing of modes.
template <class T = float, class Versions, class Check>
void for_each_version(const Versions& versions, Check check) {
    for (const auto& pad : test_pads())
        for (const auto& version : versions)
            for (int block_size : version.block_sizes) {
                if (uint32_t(block_size) > pad->limits().max_block) continue;
                if (!std::is_same_v<T, float> && pad != test_pads()[0]) continue;
                SCOPED_TRACE(format_string("%s, block size %d, %s memory, %s", version.name, block_size,
                                           memory_mode_name(pad->memory_mode()), pad->device().name.c_str()));
                const int messages = validation_message_count();
                check(*pad, version, block_size);
                EXPECT_EQ(validation_message_count(), messages) << "the validation layer printed messages";
            }
}
