// The peaks of a device: a kernel that copies and those that multiply and add in registers.
#include "llmc/peak.h"

#include <chrono>

#include "shaders/args.h"

double seconds_per_launch(LaunchPad& pad, const std::function<void()>& launch, double at_least) {
    for (int repeats = 1;; repeats *= 2) {
        const double seconds = pad.gpu_seconds([&] {
            for (int i = 0; i < repeats; i++) launch();
        });
        if (seconds >= at_least || repeats >= 1 << 14) return seconds / repeats;
    }
}

void warm_up(LaunchPad& pad, const std::function<void()>& launch, double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    do {
        for (int i = 0; i < 4; i++) launch();
        pad.commit(true);
    } while (std::chrono::steady_clock::now() < end);
}

// outp has room for a float of each invocation.
template <class T>
static double matrix_rate(LaunchPad& pad, float* outp, int groups, int rounds) {
    const MatrixShape shape = pad.limits().matrix<T>();
    if (!shape) return 0;
    const uint32_t subgroups = 4, block = subgroups * pad.limits().subgroup_size;
    const PeakFmaArgs args = {pad.at(outp, size_t(groups) * block), rounds};
    const double seconds = seconds_per_launch(pad, [&] {
        pad.dispatch<T>("peak_matrix", {uint64_t(groups)}, {block, shape.M, shape.N, shape.K}, args);
    });
    const double products = 16.0 * rounds * groups * subgroups;  // 16 fragments a subgroup and round
    return 2.0 * shape.M * shape.N * shape.K * products / seconds;
}

Peaks measure_peaks(LaunchPad& pad) {
    const bool small = pad.device().type == DeviceType::software;
    const int n = small ? 1 << 20 : 1 << 26;  // vec4: 16 MiB or 1 GiB, past every cache
    const int groups = small ? 64 : 1 << 14, rounds = small ? 64 : 1024;
    float* to = pad.allocate<float>(size_t(n) * 4, "peak copy");
    float* from = pad.allocate<float>(size_t(n) * 4, "peak copy");
    pad.fill(from, 0x3f800000, size_t(n) * 16);
    auto copy = [&] {
        PeakCopyArgs args = {pad.at(to, size_t(n) * 4), pad.at(from, size_t(n) * 4), n};
        pad.dispatch("peak_copy", {blocks(n, 256)}, {256}, args);
    };
    auto fma = [&] {
        PeakFmaArgs args = {pad.at(to, size_t(groups) * 256), rounds};
        pad.dispatch("peak_fma", {uint64_t(groups)}, {256}, args);
    };
    Peaks peaks;
    warm_up(pad, copy, 0.6);
    peaks.copy_rate = 32.0 * n / seconds_per_launch(pad, copy);
    peaks.fma_rate = 128.0 * rounds * groups * 256 / seconds_per_launch(pad, fma);
    peaks.bf16_matrix_rate = matrix_rate<bf16>(pad, to, groups, rounds);
    peaks.fp16_matrix_rate = matrix_rate<fp16>(pad, to, groups, rounds);
    pad.free(to);
    pad.free(from);
    return peaks;
}
