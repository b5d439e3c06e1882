// Differences between results, and the program that measures memory-bound operations.
#include "dev/report/difference.h"
#include "tests/layer_test.h"
#include "tests/message_of.h"
#include "tests/report_program.h"

TEST(Difference, KnownValues) {
    const std::vector<float> want = {3, -4, 0, 0}, got = {3, -4, 0, 1};
    Difference difference;
    add_difference(difference, got.data(), want.data(), 2, 2.5);
    EXPECT_EQ(difference.relative(), 0);
    EXPECT_EQ(difference.largest, 0);
    add_difference(difference, got.data() + 2, want.data() + 2, 2, 2.5);
    EXPECT_DOUBLE_EQ(difference.relative(), 0.2);
    EXPECT_DOUBLE_EQ(difference.largest, 0.4);
    EXPECT_DOUBLE_EQ(root_mean_square(want.data(), 4), 2.5);
}

TEST(Difference, NonFiniteValuesExceedEveryLimit) {
    for (float bad : {NAN, INFINITY, -INFINITY})
        for (int side : {0, 1}) {
            std::vector<float> values[2] = {{1, 2, 3}, {1, 2, 3}};
            values[side][1] = bad;
            Difference difference;
            add_difference(difference, values[0].data(), values[1].data(), 3, 1);
            EXPECT_NE(message_of([&] { check_limit("it", "error", difference.largest, 1e30); }), "");
            EXPECT_NE(message_of([&] { check_limit("it", "error", difference.relative(), 1e30); }), "");
        }
    EXPECT_EQ(message_of([] { check_limit("it", "error", 1e-3, 1e-3); }), "");
    EXPECT_EQ(message_of([] { check_limit("add of 7", "error", 0.5, 1e-3); }),
              "add of 7: wrong result of the GPU: the error is 0.5, the limit is 0.001");
}

// Results may be rounded differently: one unit in the last place passes, two do not.
template <class Real>
struct Rounding : testing::Test {};
TYPED_TEST_SUITE(Rounding, RealTypes);
TYPED_TEST(Rounding, OneUnitPasses) {
    const float unit = std::is_same_v<TypeParam, bf16>   ? 0x1p-7f
                       : std::is_same_v<TypeParam, fp16> ? 0x1p-10f
                                                         : 0x1p-23f;
    const TypeParam one(1.0f), next(1.0f + unit), wrong(1.01f + 2 * unit);
    for (const auto& [value, good] : {std::pair{next, true}, {wrong, false}}) {
        Difference difference;
        add_difference(difference, &value, &one, 1, 0);
        EXPECT_EQ(difference.largest <= difference_limits<TypeParam>().largest, good) << difference.largest;
    }
}

TEST(ElementwiseSweep, MeasuresEachOperation) {
    for (const std::string& device : report_devices()) {
        const ReportFile file = run_report("elementwise_sweep", device, {"--sizes", "1000,5000"});
        ASSERT_EQ(file.printed.status, 0);
        const bool gpu = device != "cpu";
        for (const char* name : {"elementwise_fp32", "elementwise_bf16"}) {
            const Table& rates = file.table(name);
            EXPECT_EQ(rates.rows.size(), gpu ? 12u : 6u);
            for (const char* column : {"time", "rate"}) expect_positive(rates, column);
            for (size_t row = 0; row < rates.rows.size(); row++)  // arrays in a cache are not limited by it
                EXPECT_TRUE(cell_of(rates, row, "of copy bandwidth").is_null());
        }
        if (!gpu) continue;
        const Table& compared = file.table("elementwise_compared");
        ASSERT_EQ(compared.rows.size(), 12u);
        for (const char* column : {"CPU", "GPU, queued", "GPU, synchronous", "speed-up"})
            expect_positive(compared, column);
        for (const char* what : {"add, fp32", "GELU, bf16", "residual + LayerNorm, bf16"})
            EXPECT_NE(compared.note.find(std::string(what) + ": crossover size queued: "), std::string::npos)
                << compared.note;
    }
}

TEST(ElementwiseSweep, LargeArraysHaveAShareOfCopyBandwidth) {
    const ReportFile file =
        run_report("elementwise_sweep", "cpu", {"--sizes", "1000000,17000000", "--precision", "fp32"});
    ASSERT_EQ(file.printed.status, 0);
    const Table& rates = file.table("elementwise_fp32");
    int shares = 0;
    for (size_t row = 0; row < rates.rows.size(); row++) {
        const bool large = cell_of(rates, row, "elements").number() > 1e6;
        const bool measured = cell_of(rates, row, "rate").is_number();  // the time of a quick run is short
        EXPECT_EQ(cell_of(rates, row, "of copy bandwidth").is_number(), large && measured) << row;
        shares += large && measured;
    }
    if (shares == 0) GTEST_SKIP() << "this machine is too slow or too busy for a quick run of large arrays";
}

// More than one period of the inputs, on the GPU only, to save time.
TEST(ElementwiseSweep, ComparesManyPeriods) {
    if (report_devices().size() < 2) GTEST_SKIP() << "no Vulkan device";
    const ReportFile file =
        run_report("elementwise_sweep", report_devices()[1], {"--sizes", "3000000", "--precision", "fp32"});
    ASSERT_EQ(file.printed.status, 0);
    const Table& compared = file.table("elementwise_compared");
    for (size_t row = 0; row < compared.rows.size(); row++) {
        ASSERT_TRUE(cell_of(compared, row, "largest error").is_number());
        EXPECT_LT(cell_of(compared, row, "largest error").number(), 1e-5);
    }
}
