#include "llmc/launchpad/peak.h"

#include <algorithm>

#include "llmc/base/ceil_div.h"
#include "llmc/base/clock.h"
#include "llmc/launchpad/memory.h"

double seconds_per_launch(LaunchPad& pad, const std::function<void()>& launch, double at_least) {
    for (int repeats = 1;; repeats *= 2) {
        const double seconds = pad.gpu_seconds([&] {
            for (int i = 0; i < repeats; i++) launch();
        });
        if (seconds >= at_least || repeats >= 1 << 14) return seconds / repeats;
    }
}

void warm_up(LaunchPad& pad, const std::function<void()>& launch, double seconds) {
    const double end = now() + seconds;
    do {
        for (int i = 0; i < 4; i++) launch();
        pad.commit(true);
    } while (now() < end);
}

Spread spread_of(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const size_t n = values.size();
    return {(values[(n - 1) / 2] + values[n / 2]) / 2, values.front(), values.back(), int(n)};
}

Spread repeated(int repeats, double seconds, const std::function<double()>& measure) {
    const double end = now() + seconds;
    std::vector<double> values;
    do values.push_back(measure());
    while (int(values.size()) < repeats && now() < end);
    return spread_of(std::move(values));
}

static bool is_software(const LaunchPad& pad) { return !pad.device().is_gpu(); }

// At the end of a launch, parts of the device idle for up to the time of one workgroup. Enough workgroups for
// 10 ms per launch make that negligible.
Spread group_rate(LaunchPad& pad, const GroupLoad& load, int repeats) {
    const bool small = is_software(pad);
    const uint64_t max_groups = small ? 1 << 12 : 1 << 16;
    Memory memory(&pad);
    float* outp = memory.allocate<float>(max_groups * load.block, "peak");
    const PeakFmaArgs args = {pad.at(outp, max_groups * load.block), load.iterations};
    uint64_t groups = small ? 8 : 1 << 10;
    auto launch = [&] { load.dispatch(groups, args); };
    warm_up(pad, launch, small ? 0 : 0.1);
    while (groups < max_groups && pad.gpu_seconds(launch) < 0.01) groups *= 4;
    return repeated(repeats, 1.0,
                    [&] { return load.work * load.iterations * double(groups) / pad.gpu_seconds(launch); });
}

Spread fma_rate(LaunchPad& pad, int repeats) {
    auto dispatch = [&](uint64_t groups, const PeakFmaArgs& args) {
        pad.dispatch("peak_fma", {groups}, {256}, args);
    };
    return group_rate(pad, {256, 512.0 * 256, is_software(pad) ? 16 : 256, dispatch}, repeats);
}

template <class Real>
Spread matrix_rate(LaunchPad& pad, const MatrixLoad& load, int repeats) {
    const FragmentShape shape = pad.limits().fragment<Real>();
    if (!shape) return {};
    const uint32_t block = uint32_t(load.subgroups) * pad.limits().subgroup_size;
    auto dispatch = [&](uint64_t groups, const PeakFmaArgs& args) {
        pad.dispatch<Real>("peak_matrix", {groups},
                           {block, shape.M, shape.N, shape.K, uint32_t(shape.conversion), uint32_t(load.down),
                            uint32_t(load.across), uint32_t(load.operands)},
                           args);
    };
    const double multiplies = 16.0 * load.subgroups;  // of fragments, in an iteration of a workgroup
    return group_rate(pad,
                      {block, 2.0 * shape.M * shape.N * shape.K * multiplies,
                       is_software(pad) ? load.iterations / 16 : load.iterations, dispatch},
                      repeats);
}
template Spread matrix_rate<bf16>(LaunchPad&, const MatrixLoad&, int);
template Spread matrix_rate<fp16>(LaunchPad&, const MatrixLoad&, int);

void raise_clock(LaunchPad& pad, double seconds) {
    if (is_software(pad)) return;
    Memory memory(&pad);
    const PeakFmaArgs args = {pad.at(memory.allocate<float>(1 << 20, "peak"), 1 << 20), 256};
    warm_up(
        pad, [&] { pad.dispatch("peak_fma", {1 << 11}, {256}, args); }, seconds);
}

size_t large_copy_bytes(const LaunchPad& pad) {
    if (is_software(pad)) return 16 << 20;
    const uint64_t bytes =
        std::min({uint64_t(1) << 30, pad.device().memory_bytes / 8, pad.limits().max_allocation});
    return bytes / 16 * 16;
}

Spread copy_rate(LaunchPad& pad, size_t bytes, bool overlapped, int repeats) {
    const size_t n = bytes / 4;
    Memory memory(&pad);
    float* to = memory.allocate<float>(n, "peak copy");
    float* from = memory.allocate<float>(n, "peak copy");
    pad.fill(from, 0x3f800000, bytes);
    const PeakCopyArgs args = {pad.at(to, n), pad.at(from, n), int(n / 4)};
    const int together = overlapped ? 16 : 1;
    auto copy = [&] {
        const ConcurrentGroup group(&pad);
        for (int i = 0; i < together; i++)
            pad.dispatch("peak_copy", {ceil_div(n / 4, 256)}, {256}, args, {.bytes = 2.0 * double(bytes)});
    };
    warm_up(pad, copy, is_software(pad) ? 0 : 0.05);
    return repeated(repeats, 1.0, [&] {
        return 2.0 * double(bytes) * together / seconds_per_launch(pad, copy, is_software(pad) ? 5e-3 : 0.02);
    });
}

Peaks measure_peaks(LaunchPad& pad) {
    Peaks peaks;
    raise_clock(pad);
    peaks.copy_rate = copy_rate(pad, large_copy_bytes(pad), false, 3).median;
    peaks.fma_rate = fma_rate(pad, 3).median;
    peaks.bf16_matrix_rate = matrix_rate<bf16>(pad, {}, 3).median;
    peaks.fp16_matrix_rate = matrix_rate<fp16>(pad, {}, 3).median;
    return peaks;
}
