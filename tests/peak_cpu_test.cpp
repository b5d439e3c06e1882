// The measured peaks of the CPU.
#include "dev/report/peak_cpu.h"

#include <gtest/gtest.h>

TEST(CpuPeaks, AreMeasured) {
    const double fma = cpu_fma_rate(0.001), bf16 = cpu_bf16_rate(0.001), memory = cpu_memory_rate();
    EXPECT_TRUE(fma > 1e6 && fma < 1e15) << fma;
    EXPECT_TRUE(bf16 == 0 || (bf16 > 1e6 && bf16 < 1e15)) << bf16;
    EXPECT_TRUE(memory > 1e6 && memory < 1e14) << memory;
}
