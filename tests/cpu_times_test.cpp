// What the CPU versions' timers keep, and the CPU's measured peaks.
#include "llmc/cpu_times.h"

#include <gtest/gtest.h>

#include "llmc/gelu.h"
#include "llmc/matmul.h"
#include "llmc/peak_cpu.h"

TEST(CpuTimes, AreKeptWhenAskedFor) {
    const std::vector<float> x(32, 1.0f);
    std::vector<float> y(32);
    gelu_forward_cpu(y.data(), x.data(), x.size());
    EXPECT_TRUE(take_cpu_times().empty());
    keep_cpu_times(true);
    gelu_forward_cpu(y.data(), x.data(), x.size());
    gelu_forward_cpu(y.data(), x.data(), x.size());
    matmul_forward_cpu<float>(y.data(), x.data(), x.data(), nullptr, 2, 3, 4);
    keep_cpu_times(false);
    gelu_forward_cpu(y.data(), x.data(), x.size());
    const std::vector<KernelTime> times = take_cpu_times();
    ASSERT_EQ(times.size(), 2u);
    EXPECT_GE(times[0].seconds, times[1].seconds);
    for (const KernelTime& t : times) {
        const bool product = t.name == "matmul_forward 2 x 3 x 4";
        EXPECT_TRUE(product || t.name == "gelu_forward") << t.name;
        EXPECT_EQ(t.calls, product ? 1u : 2u);
        EXPECT_EQ(t.work.flops, product ? 48 : 0);
        EXPECT_EQ(t.work.bytes, product ? 0 : 2 * 2 * 4 * 32.0);
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
