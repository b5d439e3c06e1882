// build/peak: its tables on a software device and on the CPU alone, and the kernels it measures with.
#include <cmath>
#include <map>

#include "dev/report/peak_cpu.h"
#include "dev/report/report_shaders.h"
#include "shaders/args.h"
#include "tests/layer_test.h"
#include "tests/report_program.h"

static ReportFile run_peak(const std::string& device) {
    const ReportFile file = run_report("peak", device);
    EXPECT_EQ(file.printed.out.find("alidation"), std::string::npos) << file.printed.out;
    return file;
}

// The cells of column `name`, by the texts of the key columns, joined by "|".
static std::map<std::string, Cell> column_by_key(const Table& table, const std::string& name) {
    std::map<std::string, Cell> cells;
    for (const std::vector<Cell>& row : table.rows) {
        std::string key;
        for (size_t i = 0; i < table.columns.size(); i++)
            if (table.columns[i].key)
                key.append(key.empty() ? "" : "|").append(cell_text(row[i], table.columns[i]));
        EXPECT_TRUE(cells.emplace(key, row[column_of(table, name)]).second)
            << table.name << ": " << key << " twice";
    }
    return cells;
}

static std::string unit_of(const Table& table, const std::string& name) {
    return table.columns[column_of(table, name)].unit;
}

// Every value is positive, the median lies between minimum and maximum, and there was at least one
// repetition.
static void expect_spreads(const Table& table, const std::string& value) {
    const auto median = column_by_key(table, value), min = column_by_key(table, "min"),
               max = column_by_key(table, "max"), repetitions = column_by_key(table, "repetitions");
    for (const auto& [key, cell] : median) {
        if (cell.is_null()) {
            EXPECT_TRUE(min.at(key).is_null() && repetitions.at(key).is_null()) << table.name << ": " << key;
            continue;
        }
        EXPECT_GT(cell.number(), 0) << table.name << ": " << key;
        EXPECT_LE(min.at(key).number(), cell.number()) << table.name << ": " << key;
        EXPECT_GE(max.at(key).number(), cell.number()) << table.name << ": " << key;
        EXPECT_GE(repetitions.at(key).integer(), 1) << table.name << ": " << key;
    }
}

// The columns rate (GB/s) and time (us) of a table by size agree, for `passes` times the bytes.
static void expect_rates_of_times(const Table& table, double passes) {
    const auto rates = column_by_key(table, "rate"), times = column_by_key(table, "time");
    size_t row = 0;
    for (const std::vector<Cell>& cells : table.rows) {
        const double bytes = cells[1].number(), rate = cells[2].number(), time = cells[3].number();
        EXPECT_NEAR(rate * time * 1e3 / (passes * bytes), 1, 1e-6) << table.name << ", row " << row++;
    }
}

TEST(ReportPeak, OnTheCpuAlone) {
    const ReportFile file = run_peak("cpu");
    const Table &arithmetic = file.table("arithmetic"), &bandwidth = file.table("bandwidth"),
                &copies = file.table("copy_by_size");
    EXPECT_EQ(file.tables.size(), 3u);
    EXPECT_EQ(unit_of(arithmetic, "rate"), "TFLOP/s");
    EXPECT_EQ(unit_of(bandwidth, "rate"), "GB/s");
    expect_spreads(arithmetic, "rate");
    expect_spreads(bandwidth, "rate");
    expect_positive(copies, "rate");
    expect_rates_of_times(copies, 2);
    const auto rates = column_by_key(arithmetic, "rate");
    EXPECT_EQ(rates.count("CPU|fp32 FMA"), 1u);
    EXPECT_TRUE(rates.at("CPU|fp32 FMA").is_number());
    EXPECT_EQ(rates.at("CPU|bf16 dot product").is_number(), cpu_bf16_rate(0.001) > 0);
    for (const Table& table : file.tables)
        for (const auto& row : table.rows) EXPECT_NE(row[0].text(), "GPU") << table.name;
}

TEST(ReportPeak, OnADevice) {
    if (test_pads().empty()) GTEST_SKIP() << "no Vulkan device";
    const LaunchPad& pad = *test_pads()[0];
    const ReportFile file = run_peak(test_device());
    for (const char* name : {"arithmetic", "bandwidth"}) expect_spreads(file.table(name), "rate");
    for (const char* name : {"copy_by_size", "transfer_by_size"}) {
        expect_positive(file.table(name), "rate");
        expect_rates_of_times(file.table(name), strcmp(name, "copy_by_size") ? 1 : 2);
    }
    const Table& launches = file.table("launches");
    expect_spreads(launches, "time");
    EXPECT_EQ(unit_of(launches, "time"), "us");
    EXPECT_EQ(launches.rows.size(), 4u);
    const auto rates = column_by_key(file.table("arithmetic"), "rate");
    const Limits& limits = pad.limits();
    EXPECT_TRUE(rates.at("GPU|fp32 FMA").is_number());
    EXPECT_EQ(rates.at("GPU|bf16 cooperative matrices").is_number(), bool(limits.bf16_fragment));
    EXPECT_EQ(rates.at("GPU|fp16 cooperative matrices").is_number(), bool(limits.fp16_fragment));
    const bool cooperative_matrices = limits.bf16_fragment || limits.fp16_fragment;
    EXPECT_EQ(file.find("matrix_configurations") != nullptr, cooperative_matrices);
    const auto bandwidth = column_by_key(file.table("bandwidth"), "rate");
    for (const char* key : {"GPU|copy (read + write)", "GPU|shared memory (read)", "GPU|host to device",
                            "GPU|device to host", "CPU|copy (read + write)"})
        EXPECT_TRUE(bandwidth.count(key) && bandwidth.at(key).is_number()) << key;
}

TEST(ReportPeak, SpreadsAreMedians) {
    const Spread odd = spread_of({3, 1, 2}), even = spread_of({4, 1, 3, 2});
    EXPECT_EQ(odd.median, 2);
    EXPECT_EQ(even.median, 2.5);
    EXPECT_EQ(even.least, 1);
    EXPECT_EQ(even.most, 4);
    EXPECT_EQ(even.count, 4);
    int calls = 0;
    EXPECT_EQ(repeated(5, 100, [&] { return double(++calls); }).count, 5);
    EXPECT_EQ(repeated(5, 0, [&] { return double(++calls); }).count, 1);
}

// The kernels compute what their files say: the compiler removed no work.
TEST(ReportPeak, KernelsDoAllTheirWork) {
    for (const auto& made : test_pads()) {
        LaunchPad& pad = *made;
        const int groups = 3;
        float* outp = pad.allocate<float>(groups * 256, "peak");
        std::vector<float> got(groups * 256, NAN);
        pad.upload(outp, got.data(), got.size() * sizeof(float));
        pad.dispatch("peak_fma", {groups}, {256}, PeakFmaArgs{pad.at(outp, got.size()), 3});
        pad.download(got.data(), outp, got.size() * sizeof(float));
        for (size_t i = 0; i < got.size(); i++) {
            double sum = 0;
            for (int chain = 0; chain < 16; chain++) {
                double a = chain;
                const double x = double(1.0f + 1e-7f * float(i % 256));
                for (int step = 0; step < 3 * 16; step++) a = a * x + 1e-7;
                sum += a;
            }
            ASSERT_NEAR(got[i], sum, 1e-2) << i;
        }
        std::fill(got.begin(), got.end(), NAN);
        pad.upload(outp, got.data(), got.size() * sizeof(float));
        use_report_shaders();
        pad.dispatch("peak_shared", {groups}, {128}, PeakFmaArgs{pad.at(outp, groups * 128), 5});
        pad.download(got.data(), outp, groups * 128 * sizeof(float));
        for (int i = 0; i < groups * 128; i++)
            ASSERT_EQ(got[size_t(i)], 4 * 5 * 28) << i;  // 28 = 0 + ... + 7
        pad.free(outp);
    }
}

// Each accumulator receives 16 / (down * across) products per iteration, each K times a power of two, so
// totals are exact.
template <class Real>
static void expect_fragment_products(LaunchPad& pad, uint32_t down, uint32_t across,
                                     int operands = POWERS_OF_TWO) {
    const FragmentShape shape = pad.limits().fragment<Real>();
    const uint32_t lanes = pad.limits().subgroup_size, groups = 2, block = 2 * lanes, iterations = 3;
    float* outp = pad.allocate<float>(groups * block, "peak");
    std::vector<float> got(groups * block, NAN);
    pad.upload(outp, got.data(), got.size() * sizeof(float));
    pad.dispatch<Real>(
        "peak_matrix", {groups},
        {block, shape.M, shape.N, shape.K, uint32_t(shape.conversion), down, across, uint32_t(operands)},
        PeakFmaArgs{pad.at(outp, got.size()), int(iterations)});
    pad.download(got.data(), outp, got.size() * sizeof(float));
    double per_product = 0;
    for (uint32_t i = 0; i < down; i++)
        for (uint32_t j = 0; j < across; j++)
            per_product += std::exp2(-double(i)) * std::exp2(-double(down + j));
    const double expected = per_product * shape.M * shape.N * shape.K * iterations * (16.0 / (down * across));
    for (size_t first = 0; first < got.size(); first += lanes) {
        double total = 0;
        for (size_t i = first; i < first + lanes; i++) total += double(got[i]);
        if (operands != POWERS_OF_TWO)  // the result depends on the device's layout of the components
            EXPECT_TRUE(std::isfinite(total) && total != 0) << total;
        else
            EXPECT_NEAR(total, expected, 1e-5 * expected)
                << real_name<Real>() << " " << down << "x" << across;
    }
    pad.free(outp);
}

TEST(ReportPeak, CooperativeMatrixKernelMultiplies) {
    if (test_pads().empty()) GTEST_SKIP() << "no Vulkan device";
    LaunchPad& pad = *test_pads()[0];
    if (!pad.limits().fp16_fragment && !pad.limits().bf16_fragment) GTEST_SKIP() << "no cooperative matrices";
    for (const auto& [down, across] : {std::pair(4u, 4u), std::pair(2u, 4u), std::pair(2u, 2u)}) {
        if (pad.limits().fp16_fragment) expect_fragment_products<fp16>(pad, down, across);
        if (pad.limits().bf16_fragment) expect_fragment_products<bf16>(pad, down, across);
    }
    for (const int operands : {SCATTERED_OPERANDS, UNIFORM_OPERANDS}) {
        if (pad.limits().fp16_fragment) expect_fragment_products<fp16>(pad, 4, 4, operands);
        if (pad.limits().bf16_fragment) expect_fragment_products<bf16>(pad, 4, 4, operands);
    }
}
