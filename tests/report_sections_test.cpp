// The report's measurements: sections that have too little time, fail, or measure a wrong result; every
// section on the CPU and on the test device; and the checks and kernels that they use.
#include <cmath>
#include <set>

#include "dev/report/report_shaders.h"
#include "dev/report/sections.h"
#include "dev/report/sweep.h"
#include "llmc/kernels/check.h"
#include "shaders/args.h"
#include "tests/layer_test.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

// --- running sections ---

static void sleep_seconds(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// Measures "0", "1", ... for so many seconds each.
static SectionKind sleeping(const char* name, double share, int count, double seconds) {
    return {name, share, [=](ReportRun&) {
                Section section = {"sleeps", {{"t", "Things", {{"what", "", true}}}}};
                for (int i = 0; i < count; i++)
                    section.measurements.push_back({std::to_string(i), 1, [=]() -> Rows {
                                                        sleep_seconds(seconds);
                                                        return {{"t", {i}}};
                                                    }});
                section.finish = [](std::vector<Table>& tables) {
                    tables[0].note = std::to_string(tables[0].rows.size());
                };
                return section;
            }};
}

static Report measured(const std::vector<SectionKind>& kinds, double seconds, int* saved = nullptr) {
    testing::internal::CaptureStdout();
    const Report report = measure_sections({.device = "cpu", .seconds = seconds}, kinds, "the command",
                                           [&](const Report&) { saved ? (*saved)++ : 0; });
    testing::internal::GetCapturedStdout();
    return report;
}

// All the time is used: a section that does not fit into its share continues after the others.
TEST(ReportSections, WhatWasLeftOutIsMeasuredIfTimeIsLeft) {
    int saved = 0;
    const Report report = measured({sleeping("first", 1, 6, 0.4), sleeping("second", 9, 2, 0.01)}, 5, &saved);
    const ReportPart& part = report.parts[0];
    EXPECT_TRUE(part.left_out.empty()) << part.left_out.size();
    ASSERT_EQ(part.tables[0].rows.size(), 6u);
    for (int i = 0; i < 6; i++) EXPECT_EQ(part.tables[0].rows[size_t(i)][0], Cell(i));
    EXPECT_EQ(part.tables[0].note, "6");
    EXPECT_EQ(report.parts[1].tables[0].rows.size(), 2u);
    EXPECT_GE(saved, 3);
}

// A measurement that takes longer than others, such as the first, which compiles, does not stand for all.
TEST(ReportSections, ASlowMeasurementDoesNotEndItsSection) {
    SectionKind kind = sleeping("first", 1, 8, 0.01);
    const auto make = kind.make;
    kind.make = [=](ReportRun& run) {
        Section section = make(run);
        section.measurements[0].measure = []() -> Rows {
            sleep_seconds(0.6);
            return {{"t", {0}}};
        };
        return section;
    };
    EXPECT_EQ(measured({kind}, 3).parts[0].tables[0].rows.size(), 8u);
}

// What does not fit is named, and either measured or named.
TEST(ReportSections, WhatDoesNotFitIsNamed) {
    const ReportPart part = measured({sleeping("slow", 1, 20, 0.3)}, 3).parts[0];
    EXPECT_EQ(part.error, "");
    ASSERT_FALSE(part.left_out.empty());
    EXPECT_EQ(part.left_out.back(), "19");
    EXPECT_EQ(part.left_out.size() + part.tables[0].rows.size(), 20u);
    EXPECT_EQ(part.tables[0].rows[0][0], Cell(0));
}

TEST(ReportSections, AnErrorEndsItsSectionAlone) {
    SectionKind wrong = sleeping("wrong", 1, 1, 0);
    const auto make = wrong.make;
    wrong.make = [=](ReportRun& run) {
        Section section = make(run);
        section.measurements.push_back({"bad", 1, []() -> Rows { fail("wrong at <50>"); }});
        return section;
    };
    const Report report = measured({wrong, sleeping("right", 1, 2, 0)}, 100);
    EXPECT_EQ(report.parts[0].error, "wrong at <50>");
    EXPECT_EQ(report.parts[0].tables[0].rows.size(), 1u);  // measured before
    EXPECT_EQ(report.parts[1].error, "");
    EXPECT_EQ(report.parts[1].tables[0].rows.size(), 2u);
    EXPECT_EQ(find_fact(report.parts[1].device->host, "version").text(), PROJECT_VERSION);
}

// --- every section ---

// The devices on which to run: the CPU, and the test device unless that is "none".
static Words devices() { return test_device() == "none" ? Words{"cpu"} : Words{"cpu", test_device()}; }

// A quick section, whose rated values must be positive or null.
static ReportPart quick(const std::string& device, const std::function<Section(ReportRun&)>& make) {
    ReportRun run;
    run.quick = true;
    if (device != "cpu") run.pad = std::make_unique<LaunchPad>(test_options());
    Section section = make(run);
    make_measurements(section, run);
    ReportPart part;
    collect(section, part);
    for (const Table& table : part.tables) {
        EXPECT_FALSE(table.rows.empty()) << table.name;
        for (const std::vector<Cell>& row : table.rows)
            for (size_t i = 0; i < row.size(); i++)
                EXPECT_TRUE(table.columns[i].better == Better::neither || !row[i].is_number() ||
                            (row[i].number() > 0 && std::isfinite(row[i].number())))
                    << table.name << ", " << table.columns[i].name;
    }
    for (const Plot& plot : part.plots) table_of(part, plot);
    return part;
}

static const Cell& cell_of(Table& table, size_t row, const std::string& column) {
    return table.rows.at(row).at(find_column(table, column));
}

static size_t count_null(Table& table, const std::string& column) {
    size_t count = 0;
    for (size_t row = 0; row < table.rows.size(); row++) count += cell_of(table, row, column).is_null();
    return count;
}

TEST(ReportPeak, MeasuresWhatTheDeviceHas) {
    for (const std::string& device : devices()) {
        ReportPart part = quick(device, peak_section);
        const bool gpu = device != "cpu";
        std::set<std::string> rates;
        for (const char* name : {"arithmetic", "bandwidth"}) {
            Table& table = table_named(part.tables, name);
            for (size_t row = 0; row < table.rows.size(); row++) {
                const Cell& rate = cell_of(table, row, "rate");
                if (rate.is_null()) continue;
                EXPECT_LE(cell_of(table, row, "min").number(), rate.number());
                EXPECT_GE(cell_of(table, row, "max").number(), rate.number());
                rates.insert(table.rows[row][0].text() + " " + table.rows[row][1].text());
            }
        }
        Words expected = {"CPU fp32 FMA", "CPU in place (read + write)", "CPU copy (read + write)"};
        for (const char* name :
             {"fp32 FMA", "copy (read + write)", "shared memory (read)", "host to device", "device to host"})
            if (gpu) expected.push_back(std::string("GPU ") + name);
        for (const std::string& name : expected) EXPECT_TRUE(rates.count(name)) << device << ": " << name;
        // rates and times agree
        for (const auto& [name, passes] : {std::pair("copy_by_size", 2), {"transfer_by_size", 1}})
            for (const Table& table : part.tables)
                for (const std::vector<Cell>& row : table.rows)
                    if (table.name == name) {
                        EXPECT_NEAR(row[2].number() * row[3].number() * 1e3 / row[1].number(), passes, 1e-6);
                    }
        if (!gpu) continue;
        Table& dispatches = table_named(part.tables, "dispatches");
        EXPECT_EQ(dispatches.rows.size(), 3 * 5u);     // five ways, 1, 10 and 100 dispatches
        EXPECT_EQ(count_null(dispatches, "gpu"), 3u);  // synchronous
        EXPECT_EQ(count_null(dispatches, "wall"), 0u);
    }
}

TEST(ReportSweeps, MeasureAndCompareEachSize) {
    for (const std::string& device : devices()) {
        const bool gpu = device != "cpu";
        ReportPart gemms = quick(device, [](ReportRun& run) {
            return matmul_section(run, {.sizes = {24, 50}, .precisions = {"fp32", "bf16", "fp16"}});
        });
        EXPECT_EQ(gemms.tables[0].rows.size(), gpu ? 12u : 6u);
        EXPECT_EQ(count_null(gemms.tables[0], "of peak"), 0u);
        ReportPart others = quick(device, [](ReportRun& run) {  // two periods of the inputs
            return elementwise_section(run, {.sizes = {1000, 1.5e6}, .precisions = {"fp32"}});
        });
        EXPECT_EQ(others.tables[0].rows.size(), gpu ? 12u : 6u);
        // arrays in a cache are not limited by memory bandwidth
        EXPECT_EQ(count_null(others.tables[0], "of copy bandwidth"), others.tables[0].rows.size());
        if (!gpu) continue;
        EXPECT_EQ(count_null(gemms.tables[1], "relative error"), 0u);
        EXPECT_EQ(count_null(others.tables[1], "relative error"), 0u);
        EXPECT_TRUE(contains(gemms.tables[1].note, "bf16: crossover size queued: "));
        EXPECT_TRUE(contains(others.tables[1].note, "GELU, fp32: crossover size queued: "));
    }
}

// A page names one peak for each quantity: the one that its section of peaks measured.
TEST(ReportSweeps, ReferToThePeaksOfTheRun) {
    ReportPart part = quick("cpu", [](ReportRun& run) {
        run.peaks.cpu = {.copy_rate = 1e11, .fma_rate = 123e12, .bf16_matrix_rate = 246e12};
        return matmul_section(run, {.sizes = {24}, .precisions = {"fp32"}});
    });
    EXPECT_TRUE(contains(part.tables[0].note, "CPU 123 TFLOP/s in fp32, 246 in bf16"));
    EXPECT_NEAR(cell_of(part.tables[0], 0, "of peak").number(),
                100 * cell_of(part.tables[0], 0, "rate").number() / 123, 1e-6);
}

TEST(ReportSweeps, AWrongResultIsAnError) {
    for (const std::string& device : devices())
        for (const char* type : {"fp32", "bf16"}) {
            if (device == "cpu") continue;
            const std::string message = message_of([&] {
                quick(device, [&](ReportRun& run) {
                    return matmul_section(run, {.sizes = {24, 50}, .precisions = {type}, .wrong_at = 50});
                });
            });
            const std::string says = std::string(type) + " GEMM of size 50: wrong result of the GPU: the ";
            EXPECT_TRUE(message.starts_with(says)) << message;
        }
}

TEST(ReportSweeps, CrossoverSizes) {
    // the CPU takes `size` seconds, the GPU 200; in any order
    EXPECT_EQ(crossover_text({{1000, 200, 1000}, {10, 200, 10}, {100, 200, 100}}),
              "200 (GPU slower at 100, faster at 1000)");
    // a win at a small size does not count if the GPU is slower at a larger one
    EXPECT_EQ(crossover_text({{1, 1, 2}, {2, 3, 2}, {4, 5, 4}, {8, 6, 8}, {16, 7, 16}}),
              "5.4 (GPU slower at 4, faster at 8)");
    EXPECT_EQ(crossover_text({{10, 5, 5}, {20, 5, 10}}), "10 (GPU slower at 10, faster at 20)");
    EXPECT_EQ(crossover_text({{50, 1, 2}, {100, 1, 3}}), "below 50 (GPU faster at every size)");
    EXPECT_EQ(crossover_text({{50, 1, 2}, {1e9, 4, 3}}), "none (GPU slower up to 1e+09, the largest size)");
    for (const std::vector<TimePair>& none :
         {std::vector<TimePair>{}, {{10, NAN, 1}, {20, 1, 0}, {30, 1, NAN}}})
        EXPECT_EQ(crossover_text(none), "unknown (no size was measured on both GPU and CPU)");
}

TEST(ReportSweeps, WhatTakesTooLongIsRejected) {
    TimeBudget budget = {2.0};
    EXPECT_TRUE(budget.allows(1e9));
    EXPECT_FALSE(budget.allows(1e12));
    budget.took(1e9, 1e-3);
    EXPECT_TRUE(budget.allows(1e12));
    EXPECT_FALSE(budget.allows(3e12));
    budget.took(1e3, 1);    // a small call says nothing about large ones
    budget.took(1e3, NAN);  // not measured
    EXPECT_TRUE(budget.allows(1e12));
}

// Cases that do not fit into memory are named in the note; the others are measured.
TEST(ReportTraining, MeasuresEachCase) {
    const std::string tiny = "custom:layers=1,heads=1,channels=32,max_seq_len=32,vocab=100";
    for (const std::string& device : devices()) {
        ReportPart part = quick(device, [&](ReportRun& run) {
            std::vector<TrainingCase> cases = {{tiny, 2, 16, "fp32"}};
            if (!run.pad) cases.push_back({tiny, 16000000, 32, "fp32"});
            return training_section(run, cases);
        });
        Table& table = part.tables[0];
        ASSERT_EQ(table.rows.size(), 1u);
        EXPECT_EQ(table.rows[0][0].text() + ", " + table.rows[0][1].text(),
                  "0.018M (1 layer, 32 channels), 2x16");
        for (const char* column : {"rate", "step", "MFU", "memory"})
            EXPECT_TRUE(cell_of(table, 0, column).is_number()) << column;
        EXPECT_NEAR(cell_of(table, 0, "loss").number(), std::log(100), 0.5);  // barely trained
        EXPECT_NEAR(cell_of(table, 0, "rate").number() * 1e-3 * cell_of(table, 0, "step").number(), 32, 1e-6);
        if (device == "cpu") {
            EXPECT_TRUE(table.note.find("batch 16000000x32, fp32 was skipped: it needs ") !=
                        std::string::npos)
                << table.note;
        }
    }
}

// --- the program bench ---

TEST(Bench, MeasuresKernelsAndTheCpu) {
    if (test_device() == "none") GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    const TemporaryFolder folder;
    const std::string json = folder / "bench.json";
    const auto bench = [](const Words& options) { return run_program(with({bin("bench")}, options)); };
    const ProgramResult run = bench({"--device", test_device(), "--filter",
                                     "gelu_forward/(gelu_forward2/fp32/block:64|cpu/fp32)", "--json", json});
    expect_ok(run, "gelu_forward2/fp32/block:64/", "gelu_forward/cpu/fp32/", " GB/s ", " % of peak");
    EXPECT_FALSE(contains(run.out, "bf16"));
    const ProgramResult cpu = bench({"--device", "cpu", "--filter", "gelu_forward"});
    expect_ok(cpu, "gelu_forward/cpu/fp32/");
    EXPECT_FALSE(contains(cpu.out, "gelu_forward1"));
    expect_ok(run_program("report --compare", json, json), "the same within 2 % in 4;");
    for (const auto& [filter, says] : {std::pair("no such row", "--filter no such row: no row has such a"),
                                       std::pair("(", "--filter (: ")})
        expect_refusal(bench({"--filter", filter, "--device", "cpu"}), says);
}

// --- checks ---

TEST(Difference, NonFiniteValuesExceedEveryLimit) {
    Difference known;
    const std::vector<float> want = {3, -4, 0, 0}, got = {3, -4, 0, 1};
    add_difference(known, got.data(), want.data(), 4, 2.5);
    EXPECT_DOUBLE_EQ(known.relative(), 0.2);
    EXPECT_DOUBLE_EQ(known.largest, 0.4);
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

// --- kernels of the section of peaks: the compiler removed no work ---

static std::vector<float> run_kernel(LaunchPad& pad, size_t n,
                                     const std::function<void(uint64_t address)>& run) {
    float* outp = pad.allocate<float>(n, "peak");
    std::vector<float> got(n, NAN);
    pad.upload(outp, got.data(), n * sizeof(float));
    run(pad.at(outp, n));
    pad.download(got.data(), outp, n * sizeof(float));
    pad.free(outp);
    return got;
}

TEST(PeakKernels, DoAllTheirWork) {
    use_report_shaders();
    for (const auto& pad : test_pads()) {
        const std::vector<float> sums = run_kernel(*pad, 512, [&](uint64_t outp) {
            pad->dispatch("peak_fma", {2}, {256}, PeakFmaArgs{outp, 3});
        });
        for (size_t i = 0; i < sums.size(); i++) {
            double sum = 0;
            for (int chain = 0; chain < 16; chain++) {
                double a = chain;
                for (int step = 0; step < 3 * 16; step++)
                    a = a * double(1.0f + 1e-7f * float(i % 256)) + 1e-7;
                sum += a;
            }
            ASSERT_NEAR(sums[i], sum, 1e-2) << i;
        }
        const std::vector<float> shared = run_kernel(*pad, 256, [&](uint64_t outp) {
            pad->dispatch("peak_shared", {2}, {128}, PeakFmaArgs{outp, 5});
        });
        for (const float value : shared) ASSERT_EQ(value, 4 * 5 * 28);  // 28 = 0 + ... + 7
    }
}

// Each accumulator receives 16 / (down * across) products per iteration, each K times a power of two, so
// totals are exact. Other operands' results depend on the device's layout of the components.
template <class Real>
static void expect_fragment_products(LaunchPad& pad, uint32_t down, uint32_t across, int operands) {
    const FragmentShape shape = pad.limits().fragment<Real>();
    if (!shape) return;
    const uint32_t lanes = pad.limits().subgroup_size, groups = 2, block = 2 * lanes, iterations = 3;
    const std::vector<float> got = run_kernel(pad, groups * block, [&](uint64_t outp) {
        pad.dispatch<Real>(
            "peak_matrix", {groups},
            {block, shape.M, shape.N, shape.K, uint32_t(shape.conversion), down, across, uint32_t(operands)},
            PeakFmaArgs{outp, int(iterations)});
    });
    double per_product = 0;
    for (uint32_t i = 0; i < down; i++)
        for (uint32_t j = 0; j < across; j++)
            per_product += std::exp2(-double(i)) * std::exp2(-double(down + j));
    const double expected = per_product * shape.M * shape.N * shape.K * iterations * (16.0 / (down * across));
    for (size_t first = 0; first < got.size(); first += lanes) {
        double total = 0;
        for (size_t i = first; i < first + lanes; i++) total += double(got[i]);
        const bool known = operands == POWERS_OF_TWO;
        EXPECT_TRUE(std::isfinite(total) && total != 0) << total;
        EXPECT_NEAR(total, known ? expected : total, 1e-5 * expected)
            << real_name<Real>() << " " << down << "x" << across;
    }
}

TEST(PeakKernels, CooperativeMatricesMultiply) {
    if (test_pads().empty()) GTEST_SKIP() << "no Vulkan device";
    LaunchPad& pad = *test_pads()[0];
    if (!pad.limits().fp16_fragment && !pad.limits().bf16_fragment) GTEST_SKIP() << "no cooperative matrices";
    for (const auto& [down, across, operands] : {std::tuple(4u, 4u, POWERS_OF_TWO),
                                                 {2u, 4u, POWERS_OF_TWO},
                                                 {2u, 2u, POWERS_OF_TWO},
                                                 {4u, 4u, SCATTERED_OPERANDS},
                                                 {4u, 4u, UNIFORM_OPERANDS}}) {
        expect_fragment_products<fp16>(pad, down, across, operands);
        expect_fragment_products<bf16>(pad, down, across, operands);
    }
}
