// build/peak: its tables on a software device and on the CPU alone, and what it measures with.
#include <cmath>

#include "dev/report/results.h"
#include "llmc/file.h"
#include "llmc/peak_cpu.h"
#include "shaders/args.h"
#include "tests/layer_test.h"
#include "tests/run_program.h"

using nlohmann::json;

static std::vector<Table> run_peak(const std::string& device) {
    TemporaryFolder folder;
    const ProgramResult result =
        run_program({BINARY_DIR "/peak", "--quick", "--device", device, "--json", folder / "peak.json"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(result.out.find("alidation"), std::string::npos) << result.out;
    std::vector<Table> tables;
    const json file = json::parse(read_whole_file(folder / "peak.json"));
    for (const json& table : file.at("tables")) tables.push_back(table_from_json(table, "peak.json"));
    check_plots(
        [&] {
            std::vector<Plot> plots;
            for (const json& plot : file.at("plots")) plots.push_back(plot_from_json(plot, "peak.json"));
            return plots;
        }(),
        tables, "peak.json");
    return tables;
}

static const Table* find_table(const std::vector<Table>& tables, const std::string& name) {
    for (const Table& table : tables)
        if (table.name == name) return &table;
    return nullptr;
}

// Cells of column `name`, by the text of the row's key columns.
static std::map<std::string, Cell> column_by_key(const Table& table, const std::string& name) {
    std::map<std::string, Cell> cells;
    for (const std::vector<Cell>& row : table.rows) {
        std::string key;
        const Cell* value = nullptr;
        for (size_t i = 0; i < table.columns.size(); i++) {
            if (table.columns[i].key)
                key.append(key.empty() ? "" : "|").append(cell_text(row[i], table.columns[i]));
            if (table.columns[i].name == name) value = &row[i];
        }
        EXPECT_NE(value, nullptr) << table.name << " has no column " << name;
        EXPECT_TRUE(cells.emplace(key, value ? *value : Cell()).second)
            << table.name << ": " << key << " twice";
    }
    return cells;
}

static std::string unit_of(const Table& table, const std::string& name) {
    for (const Column& column : table.columns)
        if (column.name == name) return column.unit;
    return "no such column";
}

// Every figure is positive; the median lies between least and most; as many repetitions as there were.
static void expect_spreads(const Table& table, const std::string& value) {
    const auto median = column_by_key(table, value), least = column_by_key(table, "least"),
               most = column_by_key(table, "most"), repetitions = column_by_key(table, "repetitions");
    for (const auto& [key, cell] : median) {
        if (cell.is_null()) {
            EXPECT_TRUE(least.at(key).is_null() && repetitions.at(key).is_null())
                << table.name << ": " << key;
            continue;
        }
        EXPECT_GT(cell.get<double>(), 0) << table.name << ": " << key;
        EXPECT_LE(least.at(key).get<double>(), cell.get<double>()) << table.name << ": " << key;
        EXPECT_GE(most.at(key).get<double>(), cell.get<double>()) << table.name << ": " << key;
        EXPECT_GE(repetitions.at(key).get<int>(), 1) << table.name << ": " << key;
    }
}

static void expect_positive(const Table& table, const std::string& name) {
    for (const auto& [key, cell] : column_by_key(table, name))
        EXPECT_GT(cell.is_number() ? cell.get<double>() : -1, 0) << table.name << ": " << key;
}

// rate (GB/s) and time (us) of a table by size say the same of `passes` times the bytes.
static void expect_rates_of_times(const Table& table, double passes) {
    const auto rates = column_by_key(table, "rate"), times = column_by_key(table, "time");
    size_t row = 0;
    for (const std::vector<Cell>& cells : table.rows) {
        const double bytes = cells[1], rate = cells[2], time = cells[3];
        EXPECT_NEAR(rate * time * 1e3 / (passes * bytes), 1, 1e-6) << table.name << ", row " << row++;
    }
}

TEST(ReportPeak, OnTheCpuAlone) {
    const std::vector<Table> tables = run_peak("cpu");
    const Table *arithmetic = find_table(tables, "arithmetic"), *bandwidth = find_table(tables, "bandwidth"),
                *copies = find_table(tables, "copy_by_size");
    ASSERT_TRUE(arithmetic && bandwidth && copies);
    EXPECT_EQ(tables.size(), 3u);
    EXPECT_EQ(unit_of(*arithmetic, "rate"), "TFLOP/s");
    EXPECT_EQ(unit_of(*bandwidth, "rate"), "GB/s");
    expect_spreads(*arithmetic, "rate");
    expect_spreads(*bandwidth, "rate");
    expect_positive(*copies, "rate");
    expect_rates_of_times(*copies, 2);
    const auto rates = column_by_key(*arithmetic, "rate");
    EXPECT_EQ(rates.count("CPU|fp32 multiply-add"), 1u);
    EXPECT_TRUE(rates.at("CPU|fp32 multiply-add").is_number());
    EXPECT_EQ(rates.at("CPU|bf16 pairs").is_number(), cpu_bf16_rate(0.001) > 0);
    for (const Table& table : tables)
        for (const auto& row : table.rows) EXPECT_NE(row[0], "GPU") << table.name;
}

TEST(ReportPeak, OnADevice) {
    if (test_pads().empty()) GTEST_SKIP() << "no Vulkan device";
    const LaunchPad& pad = *test_pads()[0];
    const std::vector<Table> tables = run_peak(test_device());
    for (const char* name : {"arithmetic", "bandwidth"}) {
        ASSERT_NE(find_table(tables, name), nullptr) << name;
        expect_spreads(*find_table(tables, name), "rate");
    }
    for (const char* name : {"copy_by_size", "transfer_by_size"}) {
        ASSERT_NE(find_table(tables, name), nullptr) << name;
        expect_positive(*find_table(tables, name), "rate");
        expect_rates_of_times(*find_table(tables, name), strcmp(name, "copy_by_size") ? 1 : 2);
    }
    ASSERT_NE(find_table(tables, "launches"), nullptr);
    expect_spreads(*find_table(tables, "launches"), "time");
    EXPECT_EQ(unit_of(*find_table(tables, "launches"), "time"), "us");
    EXPECT_EQ(find_table(tables, "launches")->rows.size(), 4u);
    const auto rates = column_by_key(*find_table(tables, "arithmetic"), "rate");
    EXPECT_TRUE(rates.at("GPU|fp32 multiply-add").is_number());
    EXPECT_EQ(rates.at("GPU|bf16 matrix cores").is_number(), bool(pad.limits().bf16_matrix));
    EXPECT_EQ(rates.at("GPU|fp16 matrix cores").is_number(), bool(pad.limits().fp16_matrix));
    const bool matrix = pad.limits().bf16_matrix || pad.limits().fp16_matrix;
    EXPECT_EQ(find_table(tables, "matrix_configurations") != nullptr, matrix);
    const auto bandwidth = column_by_key(*find_table(tables, "bandwidth"), "rate");
    for (const char* key : {"GPU|copy (read + write)", "GPU|shared memory of workgroups (read)",
                            "GPU|host to device", "GPU|device to host", "CPU|copy (read + write)"})
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

// What the kernels compute to keep the device busy is what their files say: nothing was left out.
TEST(ReportPeak, KernelsDoTheirWork) {
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
        pad.dispatch("peak_shared", {groups}, {128}, PeakFmaArgs{pad.at(outp, groups * 128), 5});
        pad.download(got.data(), outp, groups * 128 * sizeof(float));
        for (int i = 0; i < groups * 128; i++)
            ASSERT_EQ(got[size_t(i)], 4 * 5 * 28) << i;  // 28 = 0 + ... + 7
        pad.free(outp);
    }
}

// Each sum gets 16 / (down across) products a round of FK times a power of two, so totals are exact.
template <class T>
static void expect_matrix_products(LaunchPad& pad, uint32_t down, uint32_t across,
                                   int factors = POWERS_OF_TWO) {
    const MatrixShape shape = pad.limits().matrix<T>();
    const uint32_t lanes = pad.limits().subgroup_size, groups = 2, block = 2 * lanes, rounds = 3;
    float* outp = pad.allocate<float>(groups * block, "peak");
    std::vector<float> got(groups * block, NAN);
    pad.upload(outp, got.data(), got.size() * sizeof(float));
    pad.dispatch<T>("peak_matrix", {groups},
                    {block, shape.M, shape.N, shape.K, down, across, uint32_t(factors)},
                    PeakFmaArgs{pad.at(outp, got.size()), int(rounds)});
    pad.download(got.data(), outp, got.size() * sizeof(float));
    double per_product = 0;
    for (uint32_t i = 0; i < down; i++)
        for (uint32_t j = 0; j < across; j++)
            per_product += std::exp2(-double(i)) * std::exp2(-double(down + j));
    const double expected = per_product * shape.M * shape.N * shape.K * rounds * (16.0 / (down * across));
    for (size_t first = 0; first < got.size(); first += lanes) {
        double total = 0;
        for (size_t i = first; i < first + lanes; i++) total += double(got[i]);
        if (factors != POWERS_OF_TWO)  // its sums depend on where a device keeps the components
            EXPECT_TRUE(std::isfinite(total) && total != 0) << total;
        else
            EXPECT_NEAR(total, expected, 1e-5 * expected) << real_name<T>() << " " << down << "x" << across;
    }
    pad.free(outp);
}

TEST(ReportPeak, MatrixKernelMultiplies) {
    if (test_pads().empty()) GTEST_SKIP() << "no Vulkan device";
    LaunchPad& pad = *test_pads()[0];
    if (!pad.limits().fp16_matrix && !pad.limits().bf16_matrix) GTEST_SKIP() << "no matrix cores";
    for (const auto& [down, across] : {std::pair(4u, 4u), std::pair(2u, 4u), std::pair(2u, 2u)}) {
        if (pad.limits().fp16_matrix) expect_matrix_products<fp16>(pad, down, across);
        if (pad.limits().bf16_matrix) expect_matrix_products<bf16>(pad, down, across);
    }
    for (const int factors : {SCATTERED_FACTORS, UNIFORM_FACTORS}) {
        if (pad.limits().fp16_matrix) expect_matrix_products<fp16>(pad, 4, 4, factors);
        if (pad.limits().bf16_matrix) expect_matrix_products<bf16>(pad, 4, 4, factors);
    }
}
