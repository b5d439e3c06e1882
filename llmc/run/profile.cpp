#include "llmc/run/profile.h"

#include <cstdio>

#include "llmc/launchpad/peak.h"

void print_profile(LaunchPad& pad) {
    const std::vector<KernelTime> times = pad.take_kernel_times();
    Peaks peaks;
    try {
        peaks = measure_peaks(pad);
    } catch (const DeviceLost&) {
        throw;
    } catch (const Error& error) {  // the model leaves too little memory
        printf("could not measure the device's peaks: %s\n", error.what());
    }
    double total = 0;
    for (const KernelTime& t : times) total += t.seconds;
    printf("%-40s %9s %12s %7s %9s %9s %7s\n", "kernel", "calls", "ms", "share", "TFLOP/s", "GB/s",
           "of peak");
    for (const KernelTime& t : times) {
        const double flops = t.work.flops / t.seconds, bytes = t.work.bytes / t.seconds;
        const double matrix = t.name.ends_with("bf16")   ? peaks.bf16_matrix_rate
                              : t.name.ends_with("fp16") ? peaks.fp16_matrix_rate
                                                         : 0;
        const double compute_peak = flops > peaks.fma_rate && matrix > 0 ? matrix : peaks.fma_rate;
        const double peak = flops > 0 ? compute_peak : peaks.copy_rate;
        const double of_peak = peak > 0 ? (flops > 0 ? flops : bytes) / peak : 0;
        auto cell = [](const char* format, double value, bool known) {
            return known ? format_string(format, value) : std::string("-");
        };
        printf("%-40s %9llu %12.3f %6.1f%% %9s %9s %7s\n", t.name.c_str(),
               static_cast<unsigned long long>(t.calls), t.seconds * 1e3, 100 * t.seconds / total,
               cell("%.3f", flops / 1e12, flops > 0).c_str(), cell("%.1f", bytes / 1e9, bytes > 0).c_str(),
               cell("%.1f%%", 100 * of_peak, of_peak > 0 && (flops == 0 || of_peak <= 1)).c_str());
    }
    printf("%-40s %9s %12.3f\npeaks: copy %.1f GB/s, fp32 FMA %.3f TFLOP/s", "total", "", total * 1e3,
           peaks.copy_rate / 1e9, peaks.fma_rate / 1e12);
    if (peaks.bf16_matrix_rate > 0)
        printf(", bf16 cooperative matrices %.3f TFLOP/s", peaks.bf16_matrix_rate / 1e12);
    if (peaks.fp16_matrix_rate > 0)
        printf(", fp16 cooperative matrices %.3f TFLOP/s", peaks.fp16_matrix_rate / 1e12);
    printf("\n");
}
