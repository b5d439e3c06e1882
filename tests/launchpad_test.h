// Shared by the tests of the launchpad. They use two kernels: peak_copy copies n vec4, and sum_losses2 does
// total[0] += scale * sum(values).
#pragma once
#include "llmc/base/ceil_div.h"
#include "shaders/args.h"
#include "tests/layer_test.h"
#include "tests/message_of.h"

// Calls check(pad) in each memory mode.
template <class Check>
void for_each_mode(Check check) {
    for (const auto& pad : test_pads()) {
        SCOPED_TRACE(
            format_string("%s memory, %s", memory_mode_name(pad->memory_mode()), pad->device().name.c_str()));
        check(*pad);
    }
}

inline void add_to(LaunchPad& pad, float* total, const float* values, int n, float scale = 1.0f) {
    const SumLossesArgs args = {pad.at(total, 1), pad.at(values, n), n, scale};
    pad.dispatch("sum_losses2", {1}, {1}, args);
}

inline void copy_vec4(LaunchPad& pad, float* to, const float* from, int vec4s, uint32_t block) {
    const PeakCopyArgs args = {pad.at(to, size_t(vec4s) * 4), pad.at(from, size_t(vec4s) * 4), vec4s};
    pad.dispatch("peak_copy", {ceil_div(vec4s, block)}, {block}, args,
                 Work{32.0 * vec4s, 5.0 * vec4s});  // an arbitrary number of flops
}

// Options of a new launchpad on the same device, in the same memory mode.
inline LaunchPadOptions fresh_options(const LaunchPad& like) {
    LaunchPadOptions options = test_options();
    options.memory = like.memory_mode();
    return options;
}
