// build/dispatch_overhead: its tables on a software device and on the CPU alone, a wrong result found; and
// the chain of dev/report/chain.h: all forms against a plain reference in double precision, at odd sizes.
#include <cmath>

#include "dev/report/chain.h"
#include "dev/report/results.h"
#include "llmc/file.h"
#include "shaders/args.h"
#include "tests/layer_test.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

using nlohmann::json;

// --- the chain ---

static std::vector<float> reference_chain(const Chain& chain, int rounds) {
    const size_t n = size_t(chain.n);
    std::vector<double> states(chain.start.begin(), chain.start.end()), next(states.size());
    for (int round = 0; round < rounds; round++) {
        for (size_t e = 0; e < states.size(); e++) {
            const size_t i = e % n;
            const double* s = &states[e - i];
            double x = 0;
            for (size_t k = 0; k < n; k++) x += double(chain.weight[i * n + k]) * s[k];
            x = std::tanh(x + double(chain.inputs[size_t(round % CHAIN_PERIOD) * n + i]));
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
            run_chain_cpu(chain, states, 0, 7, threads);  // an odd number, then on from there
            EXPECT_LT(chain_error(states, reference_chain(chain, 7)), 1e-5) << shape.n << " " << shape.batch;
            run_chain_cpu(chain, states, 7, 13, threads);
            EXPECT_LT(chain_error(states, reference_chain(chain, 20)), 1e-5) << shape.n << " " << shape.batch;
        }
}

// Neither a number of rounds nor their order could change unnoticed: inputs differ from round to round.
TEST(Chain, RoundsDiffer) {
    const Chain chain = make_chain(33, 2);
    const std::vector<float> states = reference_chain(chain, 200);
    for (int more = 1; more < CHAIN_PERIOD; more++)
        EXPECT_GT(chain_error(reference_chain(chain, 200 + more), states), 0.1) << more;
    for (float v : states) EXPECT_LT(std::fabs(v), 1);
}

TEST(Chain, GpuFormsAgreeWithTheReference) {
    for (const auto& pad : test_pads())
        for (const ChainShape shape : chain_shapes) {
            const Chain chain = make_chain(shape.n, shape.batch);
            for (const ChainForm form : chain_forms) {
                ASSERT_TRUE(ChainOnGpu::possible(*pad, chain, form));
                ChainOnGpu gpu(*pad, chain, form, CHAIN_PERIOD);
                for (int repeat = 0; repeat < 2; repeat++) {  // restart() leaves nothing of the run before
                    gpu.restart();
                    gpu.run(2 * CHAIN_PERIOD);
                    EXPECT_LT(chain_error(gpu.download(), reference_chain(chain, 2 * CHAIN_PERIOD)), 1e-4)
                        << chain_form_name(form) << ", n = " << shape.n << ", batch " << shape.batch;
                }
            }
        }
}

// Mesa's software devices end loops silently after 65,535 turns: many rounds in one workgroup are several
// dispatches.
TEST(Chain, LongChainsInOneWorkgroup) {
    if (test_pads().empty()) GTEST_SKIP() << "no Vulkan device";
    LaunchPad& pad = *test_pads()[0];
    const Chain chain = make_chain(150, 1);
    const int rounds = 250 * CHAIN_PERIOD;
    ChainOnGpu gpu(pad, chain, ChainForm::workgroup, rounds);
    gpu.restart();
    gpu.run(rounds);
    EXPECT_LT(chain_error(gpu.download(), reference_chain(chain, rounds)), 1e-4);
}

TEST(Chain, ErrorsAreSeen) {
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
        message_of([&] { ChainOnGpu(pad, chain, ChainForm::fused, CHAIN_PERIOD + 1); }).find("multiple"),
        std::string::npos);
    ChainOnGpu gpu(pad, chain, ChainForm::fused, CHAIN_PERIOD);
    EXPECT_NE(message_of([&] { gpu.run(CHAIN_PERIOD + 1); }).find("multiple"), std::string::npos);
    const Chain large = make_chain(int(pad.limits().shared_bytes / 128), 32);
    EXPECT_FALSE(ChainOnGpu::possible(pad, large, ChainForm::workgroup));
    EXPECT_TRUE(ChainOnGpu::possible(pad, large, ChainForm::fused));
}

// --- the program ---

static ProgramResult run_overhead(std::vector<std::string> more) {
    std::vector<std::string> argv = {BINARY_DIR "/dispatch_overhead", "--quick"};
    argv.insert(argv.end(), more.begin(), more.end());
    return run_program(argv);
}

static std::map<std::string, Table> run_tables(const std::string& device) {
    TemporaryFolder folder;
    const ProgramResult result = run_overhead({"--device", device, "--json", folder / "a.json"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    std::map<std::string, Table> tables;
    const json file = json::parse(read_whole_file(folder / "a.json"));
    for (const json& table : file.at("tables")) {
        const Table read = table_from_json(table, "a.json");
        tables[read.name] = read;
    }
    return tables;
}

static size_t column_of(const Table& table, const std::string& name) {
    for (size_t i = 0; i < table.columns.size(); i++)
        if (table.columns[i].name == name) return i;
    ADD_FAILURE() << table.name << " has no column " << name;
    return 0;
}

static void expect_chain_rows(const Table& table, bool device) {
    const size_t form = column_of(table, "form"), n = column_of(table, "n"),
                 round = column_of(table, "round"), speed_up = column_of(table, "speed-up"),
                 error = column_of(table, "error"), rounds = column_of(table, "rounds");
    EXPECT_EQ(table.columns[round].unit, "us");
    std::map<int, double> cpu;
    std::map<std::string, int> counts;
    for (const auto& row : table.rows) {
        counts[row[form]]++;
        EXPECT_GT(row[round].get<double>(), 0);
        EXPECT_EQ(row[rounds].get<int>() % CHAIN_PERIOD, 0);
        if (row[form] == "CPU") {
            cpu[row[n]] = row[round];
            EXPECT_TRUE(row[speed_up].is_null() && row[error].is_null());
        } else {
            EXPECT_NEAR(row[speed_up].get<double>(), cpu.at(row[n]) / row[round].get<double>(),
                        1e-6 * cpu.at(row[n]));
            EXPECT_LE(row[error].get<double>(), 1e-3);
        }
    }
    EXPECT_GE(counts["CPU"], 3);
    for (const ChainForm each : chain_forms)
        EXPECT_EQ(counts[chain_form_name(each)], device ? counts["CPU"] : 0) << chain_form_name(each);
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
    EXPECT_EQ(crossover.rows.size(), 8u);  // four forms, two batches
    EXPECT_NE(tables.at("chain_vector").note.find("The GPU wins: "), std::string::npos);
    std::map<std::string, std::vector<int>> counts;
    for (const auto& row : dispatches.rows) {
        counts[row[column_of(dispatches, "way")]].push_back(row[column_of(dispatches, "dispatches")]);
        const bool alone = row[0] == "submitted and waited for, each";
        for (const char* name : {"gpu", "wall", "host"}) {
            const size_t column = column_of(dispatches, name);
            EXPECT_EQ(dispatches.columns[column].unit, "us");
            EXPECT_EQ(row[column].is_null(), alone && strcmp(name, "wall")) << row[0] << " " << name;
            EXPECT_GT(row[column].is_null() ? 1.0 : row[column].get<double>(), 0) << row[0] << " " << name;
        }
    }
    EXPECT_EQ(counts.size(), 5u);
    for (const auto& [way, found] : counts) {
        ASSERT_GE(found.size(), 3u) << way;
        for (size_t i = 0, count = 1; i < found.size(); i++, count *= 10)
            EXPECT_EQ(found[i], int(count)) << way;
    }
}

TEST(DispatchOverhead, AWrongResultIsFound) {
    if (test_pads().empty()) GTEST_SKIP() << "no Vulkan device";
    TemporaryFolder folder;
    for (const ChainForm form : {ChainForm::unfused, ChainForm::workgroup}) {
        const ProgramResult result = run_overhead(
            {"--device", test_device(), "--spoil", chain_form_name(form), "--json", folder / "a.json"});
        EXPECT_EQ(result.status, 1);
        EXPECT_NE(result.err.find(chain_form_name(form)), std::string::npos) << result.err;
        EXPECT_NE(result.err.find("differs from the CPU"), std::string::npos) << result.err;
        EXPECT_EQ(count_lines(result.err), 1) << result.err;
        EXPECT_FALSE(std::filesystem::exists(folder / "a.json"));
    }
    EXPECT_EQ(run_overhead({"--help"}).out.find("--spoil"), std::string::npos);
}
