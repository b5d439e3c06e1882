// The check of products, on right ones and on ones that are wrong in one place, and the program, which must
// fail where a result is wrong.
#include <functional>

#include "dev/report/matmul_check.h"
#include "dev/report/sweep.h"
#include "llmc/matmul.h"
#include "tests/layer_test.h"
#include "tests/message_of.h"
#include "tests/report_program.h"

// A product (N,OC) over C and what the CPU gives.
template <class T>
struct Case {
    int N, C, OC;
    std::vector<T> inp, weight, want;
    Case(int n, int c, int oc) : N(n), C(c), OC(oc), inp(n * c), weight(oc * c), want(n * oc) {
        fill_random(inp.data(), inp.size(), 1);
        fill_random(weight.data(), weight.size(), 2);
        matmul_forward_cpu<T>(want.data(), inp.data(), weight.data(), nullptr, N, C, OC);
    }
    // The message of the check of a result, with all of `want` or without; empty where it is found right.
    std::string message(const std::vector<T>& out, bool with_want) const {
        return message_of([&] {
            check_matmul<T>(matmul_errors(out.data(), with_want ? want.data() : nullptr, inp.data(),
                                          weight.data(), N, C, OC),
                            N, C, OC);
        });
    }
};

template <class T>
struct MatmulCheck : testing::Test {};
TYPED_TEST_SUITE(MatmulCheck, RealTypes);

TYPED_TEST(MatmulCheck, RightProductsPass) {
    for (const auto& [N, C, OC] : {std::array{1, 1, 1}, {33, 17, 65}, {100, 300, 200}}) {
        const Case<TypeParam> c(N, C, OC);
        EXPECT_EQ(c.message(c.want, true), "");
        EXPECT_EQ(c.message(c.want, false), "");
    }
}

// One element off by the usual magnitude, anywhere, also in rows that are not compared.
TYPED_TEST(MatmulCheck, OneWrongElementIsFound) {
    const Case<TypeParam> c(150, 64, 1500);
    const double usual = root_mean_square(c.want.data(), c.want.size());
    for (size_t at : {size_t(0), c.want.size() / 3, c.want.size() * 2 / 3, c.want.size() - 1}) {
        std::vector<TypeParam> out = c.want;
        out[at] = TypeParam(float(out[at]) + float(usual));
        for (bool with_want : {true, false}) EXPECT_NE(c.message(out, with_want), "") << at << with_want;
    }
}

// Of the wrong kinds that kernels come up with: a tile never written, a tile of zeros, two columns exchanged,
// a result of another row.
TYPED_TEST(MatmulCheck, WrongTilesAreFound) {
    using T = TypeParam;
    const Case<T> c(128, 40, 96);
    const auto change = [&](const std::function<T(int, int)>& value) {
        std::vector<T> out = c.want;
        for (int i = 64; i < 96; i++)
            for (int j = 32; j < 64; j++) out[i * c.OC + j] = value(i, j);
        return out;
    };
    for (bool with_want : {true, false}) {
        const auto wrong = [&](const std::function<T(int, int)>& value) {
            return c.message(change(value), with_want);
        };
        EXPECT_EQ(wrong([&](int i, int j) { return c.want[i * c.OC + j]; }), "");
        EXPECT_NE(wrong([&](int, int) { return T(NAN); }), "");
        EXPECT_NE(wrong([&](int, int) { return T(INFINITY); }), "");
        EXPECT_NE(wrong([&](int, int) { return T(0.0f); }), "");
        EXPECT_NE(wrong([&](int i, int j) { return c.want[i * c.OC + (j ^ 1)]; }), "");
        EXPECT_NE(wrong([&](int i, int j) { return c.want[(i - 1) * c.OC + j]; }), "");
    }
    EXPECT_NE(c.message(std::vector<T>(c.want.size(), T(NAN)), false), "");
    EXPECT_NE(c.message(std::vector<T>(c.want.size(), T(0.0f)), false), "");
}

// The checksum alone sees an element in a row that is not among those compared, at the largest size of the
// sweep: a row of 8192 whose elements are rounded has an error of 1/7 of what one wrong element makes.
TYPED_TEST(MatmulCheck, ChecksumSeesOneElementOfALongRow) {
    const Case<TypeParam> c(3, 16, 8192);
    const double limit = difference_limits<TypeParam>().largest;
    EXPECT_LT(checksum_error(c.want.data(), c.inp.data(), c.weight.data(), c.N, c.C, c.OC), limit / 2);
    std::vector<TypeParam> out = c.want;
    plant_wrong_element(out.data(), out.size());
    EXPECT_GT(checksum_error(out.data(), c.inp.data(), c.weight.data(), c.N, c.C, c.OC), limit);
}

TEST(MatmulCheck, MessageNamesTypeSizeErrorAndLimit) {
    EXPECT_EQ(message_of([] {
                  check_matmul<bf16>({0.25, 0.001, 0.001, 7}, 7, 7, 7);
              }),
              "bf16 product of size 7: the GPU's result is wrong: its relative L2 error is 0.25, the limit "
              "0.00391");
    EXPECT_NE(message_of([] { check_matmul<float>({NAN, 0, 0, 7}, 7, 7, 7); }), "");
    EXPECT_NE(message_of([] { check_matmul<float>({0, NAN, 0, 7}, 7, 7, 7); }), "");
    EXPECT_NE(message_of([] { check_matmul<float>({0, 0, NAN, 7}, 7, 7, 7); }), "");
    EXPECT_EQ(message_of([] { check_matmul<float>({0, 0, 0, 7}, 7, 7, 7); }), "");
}

TEST(TimeBudget, LeavesOutWhatTakesTooLong) {
    TimeBudget budget = {2.0};
    EXPECT_TRUE(budget.allows(1e9));
    EXPECT_FALSE(budget.allows(1e12));
    budget.took(1e9, 1e-3);
    EXPECT_TRUE(budget.allows(1e12));
    EXPECT_FALSE(budget.allows(3e12));
    budget.took(1e3, 1);  // a call of little work says nothing of large ones
    EXPECT_TRUE(budget.allows(1e12));
}

TEST(MatmulSweep, GivesFiguresForEachTypeAndSize) {
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
        for (const char* column : {"CPU", "GPU", "GPU, single", "speed-up"})
            expect_positive(compared, column);
        for (size_t row = 0; row < 6; row++)
            EXPECT_LT(cell_of(compared, row, "largest error").get<double>(), 8e-3);
        for (const char* type : {"fp32", "bf16", "fp16"})
            EXPECT_NE(compared.note.find(std::string(type) + ", one after another: "), std::string::npos)
                << compared.note;
    }
}

// A wrong result of the GPU ends the program with one line.
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
                                      " product of size 50: the GPU's result is wrong"),
                      0u)
                << result.err;
            EXPECT_NE(result.err.find("the limit"), std::string::npos) << result.err;
            EXPECT_EQ(count_lines(result.err), 1) << result.err;
            EXPECT_FALSE(std::filesystem::exists(folder / "run.json"));
        }
    }
}

TEST(MatmulSweep, RefusesBadOptions) {
    for (const auto& [option, value] :
         {std::pair{"--sizes", "0"}, {"--sizes", "fifty"}, {"--precision", "fp8"}}) {
        const ProgramResult result =
            run_program({BINARY_DIR "/matmul_sweep", "--device", "cpu", option, value});
        EXPECT_EQ(result.status, 1) << option << result.err;
        EXPECT_EQ(count_lines(result.err), 1) << result.err;
    }
}
