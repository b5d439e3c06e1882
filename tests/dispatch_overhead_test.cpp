// build/dispatch_overhead: its tables on a software device and on the CPU alone, and detection of a wrong
// result; and the chain of dev/report/chain.h: all variants against a plain reference in double precision, at
// odd sizes.
#include <cmath>
#include <map>

#include "dev/report/chain.h"
#include "shaders/args.h"
#include "tests/layer_test.h"
#include "tests/message_of.h"
#include "tests/report_program.h"

// --- the chain ---

static std::vector<float> reference_chain(const Chain& chain, int steps) {
    const size_t n = size_t(chain.n);
    std::vector<double> states(chain.start.begin(), chain.start.end()), next(states.size());
    for (int step = 0; step < steps; step++) {
        for (size_t e = 0; e < states.size(); e++) {
            const size_t i = e % n;
            const double* s = &states[e - i];
            double x = 0;
            for (size_t k = 0; k < n; k++) x += double(chain.weight[i * n + k]) * s[k];
            x = std::tanh(x + double(chain.inputs[size_t(step % CHAIN_PERIOD) * n + i]));
            x *= double(chain.gain[i]);
            x += double(chain.leak[i]) * (s[i] - x);
            next[e] = x / (1 + std::fabs(x));
        }
        states.swap(next);
    }
    return {states.begin(), states.end()};
}

struct ChainShape {
    int n, batch;
};
static const ChainShape chain_shapes[] = {{1, 1}, {5, 3}, {16, 1}, {33, 8}, {67, 1}, {130, 2}};

TEST(Chain, CpuAgreesWithTheReference) {
    for (const ChainShape shape : chain_shapes)
        for (const int threads : {1, 2}) {
            const Chain chain = make_chain(shape.n, shape.batch);
            std::vector<float> states = chain.start;
            run_chain_cpu(chain, states, 0, 7, threads);  // an odd number, then continues
            EXPECT_LT(chain_error(states, reference_chain(chain, 7)), 1e-5) << shape.n << " " << shape.batch;
            run_chain_cpu(chain, states, 7, 13, threads);
            EXPECT_LT(chain_error(states, reference_chain(chain, 20)), 1e-5) << shape.n << " " << shape.batch;
        }
}

// A wrong number of steps or a wrong order would be noticed: the inputs differ from step to step.
TEST(Chain, StepsDiffer) {
    const Chain chain = make_chain(33, 2);
    const std::vector<float> states = reference_chain(chain, 200);
    for (int more = 1; more < CHAIN_PERIOD; more++)
        EXPECT_GT(chain_error(reference_chain(chain, 200 + more), states), 0.1) << more;
    for (float v : states) EXPECT_LT(std::fabs(v), 1);
}

TEST(Chain, GpuVariantsAgreeWithTheReference) {
    for (const auto& pad : test_pads())
        for (const ChainShape shape : chain_shapes) {
            const Chain chain = make_chain(shape.n, shape.batch);
            for (const ChainVariant variant : chain_variants) {
                ASSERT_TRUE(ChainOnGpu::possible(*pad, chain, variant));
                ChainOnGpu gpu(*pad, chain, variant, CHAIN_PERIOD);
                for (int repeat = 0; repeat < 2; repeat++) {  // restart() resets everything
                    gpu.restart();
                    gpu.run(2 * CHAIN_PERIOD);
                    EXPECT_LT(chain_error(gpu.download(), reference_chain(chain, 2 * CHAIN_PERIOD)), 1e-4)
                        << chain_variant_name(variant) << ", n = " << shape.n << ", batch " << shape.batch;
                }
            }
        }
}

// Mesa's software devices silently end loops after 65,535 iterations, so long chains take several dispatches.
TEST(Chain, LongChainsInOneWorkgroup) {
    if (test_pads().empty()) GTEST_SKIP() << "no Vulkan device";
    LaunchPad& pad = *test_pads()[0];
    const Chain chain = make_chain(150, 1);
    const int steps = 250 * CHAIN_PERIOD;
    ChainOnGpu gpu(pad, chain, ChainVariant::many_steps, steps);
    gpu.restart();
    gpu.run(steps);
    EXPECT_LT(chain_error(gpu.download(), reference_chain(chain, steps)), 1e-4);
}

TEST(Chain, ErrorsAreReported) {
    EXPECT_EQ(chain_error({1, -4}, {1, -4}), 0);
    EXPECT_DOUBLE_EQ(chain_error({1, -4}, {1.5, -4}), 0.125);
    EXPECT_TRUE(std::isnan(chain_error({1, NAN}, {1, 1})));
    EXPECT_TRUE(std::isnan(chain_error({1, 1}, {NAN, 1})));
    EXPECT_TRUE(std::isnan(chain_error({0, 0}, {0, 0})));
    EXPECT_TRUE(std::isnan(chain_error({1}, {1, 1})));
    if (test_pads().empty()) return;
    LaunchPad& pad = *test_pads()[0];
    const Chain chain = make_chain(3, 1);
    EXPECT_NE(
        message_of([&] { ChainOnGpu(pad, chain, ChainVariant::fused, CHAIN_PERIOD + 1); }).find("multiple"),
        std::string::npos);
    ChainOnGpu gpu(pad, chain, ChainVariant::fused, CHAIN_PERIOD);
    EXPECT_NE(message_of([&] { gpu.run(CHAIN_PERIOD + 1); }).find("multiple"), std::string::npos);
    const Chain large = make_chain(int(pad.limits().shared_bytes / 128), 32);
    EXPECT_FALSE(ChainOnGpu::possible(pad, large, ChainVariant::many_steps));
    EXPECT_TRUE(ChainOnGpu::possible(pad, large, ChainVariant::fused));
}

// --- the program ---

static ProgramResult run_overhead(std::vector<std::string> more) {
    std::vector<std::string> argv = {BINARY_DIR "/dispatch_overhead", "--quick"};
    argv.insert(argv.end(), more.begin(), more.end());
    return run_program(argv);
}

static std::map<std::string, Table> run_tables(const std::string& device) {
    std::map<std::string, Table> tables;
    for (const Table& table : run_report("dispatch_overhead", device).tables) tables[table.name] = table;
    return tables;
}

static void expect_chain_rows(const Table& table, bool device) {
    const size_t variant = column_of(table, "variant"), n = column_of(table, "n"),
                 step = column_of(table, "step"), speed_up = column_of(table, "speed-up"),
                 error = column_of(table, "error"), steps = column_of(table, "steps");
    EXPECT_EQ(table.columns[step].unit, "us");
    std::map<int64_t, double> cpu;
    std::map<std::string, int> counts;
    for (const auto& row : table.rows) {
        counts[row[variant].text()]++;
        EXPECT_GT(row[step].number(), 0);
        EXPECT_EQ(row[steps].integer() % CHAIN_PERIOD, 0);
        if (row[variant] == "CPU") {
            cpu[row[n].integer()] = row[step].number();
            EXPECT_TRUE(row[speed_up].is_null() && row[error].is_null());
        } else {
            const double expected = cpu.at(row[n].integer());
            EXPECT_NEAR(row[speed_up].number(), expected / row[step].number(), 1e-6 * expected);
            EXPECT_LE(row[error].number(), 1e-3);
        }
    }
    EXPECT_GE(counts["CPU"], 3);
    for (const ChainVariant each : chain_variants)
        EXPECT_EQ(counts[chain_variant_name(each)], device ? counts["CPU"] : 0) << chain_variant_name(each);
}

TEST(DispatchOverhead, OnTheCpuAlone) {
    const auto tables = run_tables("cpu");
    ASSERT_EQ(tables.size(), 2u);
    expect_chain_rows(tables.at("chain_vector"), false);
    expect_chain_rows(tables.at("chain_batch"), false);
}

TEST(DispatchOverhead, OnADevice) {
    if (test_pads().empty()) GTEST_SKIP() << "no Vulkan device";
    const auto tables = run_tables(test_device());
    ASSERT_EQ(tables.size(), 4u);
    expect_chain_rows(tables.at("chain_vector"), true);
    expect_chain_rows(tables.at("chain_batch"), true);
    const Table &dispatches = tables.at("dispatches"), &crossover = tables.at("crossover");
    EXPECT_EQ(crossover.rows.size(), 8u);  // four variants, two batches
    EXPECT_NE(tables.at("chain_vector").note.find("Faster than the CPU: "), std::string::npos);
    std::map<std::string, std::vector<int64_t>> counts;
    for (const auto& row : dispatches.rows) {
        counts[row[column_of(dispatches, "way")].text()].push_back(
            row[column_of(dispatches, "dispatches")].integer());
        const bool synchronous = row[0] == "synchronous";
        for (const char* name : {"gpu", "wall", "host"}) {
            const size_t column = column_of(dispatches, name);
            EXPECT_EQ(dispatches.columns[column].unit, "us");
            EXPECT_EQ(row[column].is_null(), synchronous && strcmp(name, "wall"))
                << row[0].text() << " " << name;
            EXPECT_GT(row[column].is_null() ? 1.0 : row[column].number(), 0) << row[0].text() << " " << name;
        }
    }
    EXPECT_EQ(counts.size(), 5u);
    for (const auto& [way, found] : counts) {
        ASSERT_GE(found.size(), 3u) << way;
        for (size_t i = 0, count = 1; i < found.size(); i++, count *= 10)
            EXPECT_EQ(found[i], int64_t(count)) << way;
    }
}

TEST(DispatchOverhead, AWrongResultIsDetected) {
    if (test_pads().empty()) GTEST_SKIP() << "no Vulkan device";
    TemporaryFolder folder;
    for (const ChainVariant variant : {ChainVariant::unfused, ChainVariant::many_steps}) {
        const ProgramResult result = run_overhead(
            {"--device", test_device(), "--spoil", chain_variant_name(variant), "--json", folder / "a.json"});
        EXPECT_EQ(result.status, 1);
        EXPECT_NE(result.err.find(chain_variant_name(variant)), std::string::npos) << result.err;
        EXPECT_NE(result.err.find("differs from the CPU"), std::string::npos) << result.err;
        EXPECT_EQ(count_lines(result.err), 1) << result.err;
        EXPECT_FALSE(std::filesystem::exists(folder / "a.json"));
    }
    EXPECT_EQ(run_overhead({"--help"}).out.find("--spoil"), std::string::npos);
}
