// Measures the peaks of the test device, and checks that all memory is freed.
#include "llmc/launchpad/peak.h"

#include "tests/layer_test.h"

TEST(Peak, IsMeasured) {
    if (test_pads().empty()) GTEST_SKIP() << "no Vulkan device";
    LaunchPad& pad = *test_pads()[0];
    const uint64_t before = pad.allocated_bytes();
    const Peaks peaks = measure_peaks(pad);
    EXPECT_TRUE(peaks.copy_rate > 1e6 && peaks.copy_rate < 1e14) << peaks.copy_rate;
    EXPECT_TRUE(peaks.fma_rate > 1e6 && peaks.fma_rate < 1e16) << peaks.fma_rate;
    for (auto [shape, rate] : {std::pair(pad.limits().bf16_fragment, peaks.bf16_matrix_rate),
                               std::pair(pad.limits().fp16_fragment, peaks.fp16_matrix_rate)})
        EXPECT_TRUE(shape ? rate > 1e6 && rate < 1e17 : rate == 0) << rate;
    EXPECT_EQ(pad.allocated_bytes(), before);
}
