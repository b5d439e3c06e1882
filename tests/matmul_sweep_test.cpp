// The checks of GEMM results, on correct results and on results with errors, and the program, which must fail
// if a result is wrong.
#include <array>
#include <functional>

#include "dev/report/matmul_check.h"
#include "dev/report/sweep.h"
#include "llmc/layers/matmul.h"
#include "tests/layer_test.h"
#include "tests/message_of.h"
#include "tests/report_program.h"

// A GEMM and the CPU's result.
template <class Real>
struct Case {
    int num_rows, C, OC;
    std::vector<Real> inp, weight, want;
    Case(int rows, int c, int oc)
        : num_rows(rows), C(c), OC(oc), inp(rows * c), weight(oc * c), want(rows * oc) {
        fill_random(inp.data(), inp.size(), 1);
        fill_random(weight.data(), weight.size(), 2);
        matmul_forward_cpu<Real>({.out = want.data(),
                                  .inp = inp.data(),
                                  .weight = weight.data(),
                                  .num_rows = num_rows,
                                  .C = C,
                                  .OC = OC});
    }
    GemmResult<Real> result(const std::vector<Real>& out) const {
        return {.out = out.data(),
                .inp = inp.data(),
                .weight = weight.data(),
                .num_rows = num_rows,
                .C = C,
                .OC = OC};
    }
    // The message of the check, given all of `want` or nothing; empty if it passes.
    std::string message(const std::vector<Real>& out, bool with_want) const {
        return message_of([&] {
            check_gemm<Real>(gemm_errors<Real>(result(out), with_want ? want.data() : nullptr), num_rows, C,
                             OC);
        });
    }
};

template <class Real>
struct MatmulCheck : testing::Test {};
TYPED_TEST_SUITE(MatmulCheck, RealTypes);

TYPED_TEST(MatmulCheck, CorrectResultsPass) {
    for (const auto& [num_rows, C, OC] : {std::array{1, 1, 1}, {33, 17, 65}, {100, 300, 200}}) {
        const Case<TypeParam> c(num_rows, C, OC);
        EXPECT_EQ(c.message(c.want, true), "");
        EXPECT_EQ(c.message(c.want, false), "");
    }
}

// One element off by the typical magnitude, anywhere, also in rows that are not compared.
TYPED_TEST(MatmulCheck, OneWrongElementIsFound) {
    const Case<TypeParam> c(150, 64, 1500);
    const double magnitude = root_mean_square(c.want.data(), c.want.size());
    for (size_t at : {size_t(0), c.want.size() / 3, c.want.size() * 2 / 3, c.want.size() - 1}) {
        std::vector<TypeParam> out = c.want;
        out[at] = TypeParam(float(out[at]) + float(magnitude));
        for (bool with_want : {true, false}) EXPECT_NE(c.message(out, with_want), "") << at << with_want;
    }
}

// Typical errors of kernels: a tile that is never written, a tile of zeros, swapped columns, results of
// another row.
TYPED_TEST(MatmulCheck, WrongTilesAreFound) {
    using Real = TypeParam;
    const Case<Real> c(128, 40, 96);
    const auto change = [&](const std::function<Real(int, int)>& value) {
        std::vector<Real> out = c.want;
        for (int i = 64; i < 96; i++)
            for (int j = 32; j < 64; j++) out[i * c.OC + j] = value(i, j);
        return out;
    };
    for (bool with_want : {true, false}) {
        const auto wrong = [&](const std::function<Real(int, int)>& value) {
            return c.message(change(value), with_want);
        };
        EXPECT_EQ(wrong([&](int i, int j) { return c.want[i * c.OC + j]; }), "");
        EXPECT_NE(wrong([&](int, int) { return Real(NAN); }), "");
        EXPECT_NE(wrong([&](int, int) { return Real(INFINITY); }), "");
        EXPECT_NE(wrong([&](int, int) { return Real(0.0f); }), "");
        EXPECT_NE(wrong([&](int i, int j) { return c.want[i * c.OC + (j ^ 1)]; }), "");
        EXPECT_NE(wrong([&](int i, int j) { return c.want[(i - 1) * c.OC + j]; }), "");
    }
    EXPECT_NE(c.message(std::vector<Real>(c.want.size(), Real(NAN)), false), "");
    EXPECT_NE(c.message(std::vector<Real>(c.want.size(), Real(0.0f)), false), "");
}

// In rows that are not compared, only the checksum finds a wrong element. At the largest size of the sweep,
// rounding a row of 8192 elements causes 1/7 of the error of one wrong element.
TYPED_TEST(MatmulCheck, ChecksumFindsOneElementOfALongRow) {
    const Case<TypeParam> c(3, 16, 8192);
    const double limit = difference_limits<TypeParam>().largest;
    EXPECT_LT(checksum_error(c.result(c.want)), limit / 2);
    std::vector<TypeParam> out = c.want;
    plant_wrong_element(out.data(), out.size());
    EXPECT_GT(checksum_error(c.result(out)), limit);
}

TEST(MatmulCheck, MessageNamesTypeSizeErrorAndLimit) {
    EXPECT_EQ(message_of([] {
                  check_gemm<bf16>({0.25, 0.001, 0.001, 7}, 7, 7, 7);
              }),
              "bf16 GEMM of size 7: wrong result of the GPU: the relative L2 error is 0.25, the limit is "
              "0.00391");
    EXPECT_NE(message_of([] { check_gemm<float>({NAN, 0, 0, 7}, 7, 7, 7); }), "");
    EXPECT_NE(message_of([] { check_gemm<float>({0, NAN, 0, 7}, 7, 7, 7); }), "");
    EXPECT_NE(message_of([] { check_gemm<float>({0, 0, NAN, 7}, 7, 7, 7); }), "");
    EXPECT_EQ(message_of([] { check_gemm<float>({0, 0, 0, 7}, 7, 7, 7); }), "");
}

TEST(TimeBudget, RejectsWhatTakesTooLong) {
    TimeBudget budget = {2.0};
    EXPECT_TRUE(budget.allows(1e9));
    EXPECT_FALSE(budget.allows(1e12));
    budget.took(1e9, 1e-3);
    EXPECT_TRUE(budget.allows(1e12));
    EXPECT_FALSE(budget.allows(3e12));
    budget.took(1e3, 1);  // a small call says nothing about large ones
    EXPECT_TRUE(budget.allows(1e12));
}

// A page names one peak for each quantity: the one that `peak` measured.
TEST(MatmulSweep, RefersToThePeaksOfTheReport) {
    TemporaryFolder folder;
    write_peaks(folder / "peak.json");
    const ReportFile file = run_report(
        "matmul_sweep", "cpu", {"--sizes", "24", "--precision", "fp32", "--peaks", folder / "peak.json"});
    ASSERT_EQ(file.printed.status, 0);
    const Table& rates = file.table("matmul");
    EXPECT_NE(rates.note.find("CPU 123 TFLOP/s in fp32, 246 in bf16"), std::string::npos) << rates.note;
    EXPECT_NEAR(cell_of(rates, 0, "of peak").number(), 100 * cell_of(rates, 0, "rate").number() / 123, 1e-6);
}

TEST(MatmulSweep, MeasuresEachTypeAndSize) {
    for (const std::string& device : report_devices()) {
        const ReportFile file =
            run_report("matmul_sweep", device, {"--sizes", "24,50", "--precision", "fp32,bf16,fp16"});
        ASSERT_EQ(file.printed.status, 0);
        const bool gpu = device != "cpu";
        const Table& rates = file.table("matmul");
        EXPECT_EQ(rates.rows.size(), gpu ? 12u : 6u);
        for (const char* column : {"time", "rate", "of peak"}) expect_positive(rates, column);
        if (!gpu) continue;
        const Table& compared = file.table("matmul_compared");
        ASSERT_EQ(compared.rows.size(), 6u);
        for (const char* column : {"CPU", "GPU, queued", "GPU, synchronous", "speed-up"})
            expect_positive(compared, column);
        for (size_t row = 0; row < 6; row++)
            EXPECT_LT(cell_of(compared, row, "largest error").number(), 8e-3);
        for (const char* type : {"fp32", "bf16", "fp16"})
            EXPECT_NE(compared.note.find(std::string(type) + " GEMM crossover size queued: "),
                      std::string::npos)
                << compared.note;
    }
}

// A wrong result of the GPU ends the program with an error of one line.
TEST(MatmulSweep, PlantedErrorFails) {
    for (const std::string& device : report_devices()) {
        if (device == "cpu") continue;
        for (const char* type : {"fp32", "bf16"}) {
            TemporaryFolder folder;
            const ProgramResult result =
                run_program({BINARY_DIR "/matmul_sweep", "--quick", "--device", device, "--sizes", "24,50",
                             "--precision", type, "--plant-error", "50", "--json", folder / "run.json"});
            EXPECT_EQ(result.status, 1);
            EXPECT_EQ(result.err.find(std::string("matmul_sweep: ") + type +
                                      " GEMM of size 50: wrong result of the GPU"),
                      0u)
                << result.err;
            EXPECT_NE(result.err.find("the limit is"), std::string::npos) << result.err;
            EXPECT_EQ(count_lines(result.err), 1) << result.err;
            EXPECT_FALSE(std::filesystem::exists(folder / "run.json"));
        }
    }
}

TEST(MatmulSweep, RejectsInvalidOptions) {
    for (const auto& [option, value] :
         {std::pair{"--sizes", "0"}, {"--sizes", "fifty"}, {"--precision", "fp8"}}) {
        const ProgramResult result =
            run_program({BINARY_DIR "/matmul_sweep", "--device", "cpu", option, value});
        EXPECT_EQ(result.status, 1) << option << result.err;
        EXPECT_EQ(count_lines(result.err), 1) << result.err;
    }
}
