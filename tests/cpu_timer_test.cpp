// The times that CpuTimer keeps, and the measured peaks of the CPU.
#include "llmc/cpu/cpu_timer.h"

#include <gtest/gtest.h>

#include "dev/report/peak_cpu.h"
#include "llmc/layers/gelu.h"
#include "llmc/layers/matmul.h"

TEST(CpuTimer, KeepsTimesOnRequest) {
    const std::vector<float> x(32, 1.0f);
    std::vector<float> y(32);
    const GeluForward<float> gelu = {.out = y.data(), .inp = x.data(), .n = x.size()};
    gelu_forward(nullptr, gelu);
    EXPECT_TRUE(take_cpu_times().empty());
    keep_cpu_times(true);
    gelu_forward(nullptr, gelu);
    gelu_forward(nullptr, gelu);
    matmul_forward_cpu<float>(
        {.out = y.data(), .inp = x.data(), .weight = x.data(), .num_rows = 2, .C = 3, .OC = 4});
    keep_cpu_times(false);
    gelu_forward(nullptr, gelu);
    const std::vector<KernelTime> times = take_cpu_times();
    ASSERT_EQ(times.size(), 2u);
    EXPECT_GE(times[0].seconds, times[1].seconds);
    for (const KernelTime& t : times) {
        const bool is_gemm = t.name == "matmul_forward 2 x 3 x 4";
        EXPECT_TRUE(is_gemm || t.name == "gelu_forward") << t.name;
        EXPECT_EQ(t.calls, is_gemm ? 1u : 2u);
        EXPECT_EQ(t.work.flops, is_gemm ? 48 : 0);
        EXPECT_EQ(t.work.bytes, is_gemm ? 0 : 2 * 2 * 4 * 32.0);
        EXPECT_GT(t.seconds, 0);
    }
    EXPECT_TRUE(take_cpu_times().empty());
}

TEST(CpuPeaks, AreMeasured) {
    const double fma = cpu_fma_rate(0.001), bf16 = cpu_bf16_rate(0.001), memory = cpu_memory_rate();
    EXPECT_TRUE(fma > 1e6 && fma < 1e15) << fma;
    EXPECT_TRUE(bf16 == 0 || (bf16 > 1e6 && bf16 < 1e15)) << bf16;
    EXPECT_TRUE(memory > 1e6 && memory < 1e14) << memory;
}
