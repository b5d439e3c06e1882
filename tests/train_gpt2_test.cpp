// The program train_gpt2: losses fall and repeat bit for bit, devices agree, checkpoints hold what was
// trained, and each kind of bad input gives one line and status 1.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <sstream>

#include "llmc/checkpoint.h"
#include "llmc/token_file.h"
#include "tests/run_program.h"

static const std::string program = BINARY_DIR "/train_gpt2";
static const std::string tiny = "custom:layers=2,heads=2,channels=24,max_seq_len=32,vocab=67";

static void write_tokens(const std::string& path, size_t count, int vocab) {
    std::vector<uint16_t> tokens(count);
    for (size_t i = 0; i < count; i++)
        tokens[i] = uint16_t((i * 5 + i / 9 % 3) % size_t(vocab));  // learnable
    write_token_shard(path, tokens.data(), count);
}

static std::string device() {  // as the layer tests choose it
    const char* name = getenv("LLMC_TEST_DEVICE");
    return name && *name ? name : "0";
}

struct Data : TemporaryFolder {
    std::string train = *this / "train.bin", val = *this / "val.bin";
    Data() {
        write_tokens(train, 4000, 67);
        write_tokens(val, 700, 67);
    }
    ProgramResult run(std::vector<std::string> options) const {
        options.insert(options.begin(), {program, "-i", train, "-j", val, "-e", tiny, "-b", "3", "-t", "17"});
        return run_program(options);
    }
    std::vector<double> losses(const std::string& output) const {  // of main.log's training lines
        std::ifstream log(output + "/main.log");
        std::vector<double> found;
        for (std::string line; std::getline(log, line);) {
            int step;
            double loss;
            if (sscanf(line.c_str(), "s:%d trl:%lf", &step, &loss) == 2) found.push_back(loss);
        }
        return found;
    }
};

static std::string read_text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
}

static const std::vector<std::string> schedule = {"-x", "30", "-l", "0.01", "-s",  "0",  "-v",
                                                  "15", "-n", "30", "-c",   "0.1", "-d", "102"};

static std::vector<std::string> with(std::vector<std::string> options, const std::vector<std::string>& more) {
    options.insert(options.end(), more.begin(), more.end());
    return options;
}

// Steps' losses as printed, "step    3/12 | loss 4.123456 |": six digits more than main.log has.
static std::vector<double> printed_losses(const std::string& out) {
    std::vector<double> found;
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) {
        int step, steps;
        double loss;
        if (sscanf(line.c_str(), "step %d/%d | loss %lf", &step, &steps, &loss) == 3) found.push_back(loss);
    }
    return found;
}

TEST(train_gpt2, losses_fall_and_repeat_bit_for_bit_on_the_cpu) {
    Data data;
    const ProgramResult first = data.run(with(schedule, {"--device", "cpu", "-o", data / "a"}));
    ASSERT_EQ(first.status, 0) << first.err;
    const ProgramResult second = data.run(with(schedule, {"--device", "cpu", "-o", data / "b"}));
    ASSERT_EQ(second.status, 0) << second.err;
    const std::vector<double> losses = data.losses(data / "a");
    ASSERT_EQ(losses.size(), 30u);
    EXPECT_NEAR(losses[0], std::log(67), 0.3);
    EXPECT_LT(losses.back(), losses[0] - 0.3);
    EXPECT_EQ(read_text(data / "a/main.log"), read_text(data / "b/main.log"));
    EXPECT_EQ(read_text(model_path(data / "a", 30)), read_text(model_path(data / "b", 30)));
    EXPECT_EQ(read_text(optimizer_path(data / "a", 30)), read_text(optimizer_path(data / "b", 30)));
    EXPECT_EQ(find_latest_checkpoint(data / "a"), 30);
}

TEST(train_gpt2, a_gpu_agrees_with_the_cpu_and_repeats_bit_for_bit) {
    if (device() == "none") GTEST_SKIP() << "LLMC_TEST_DEVICE=none: no Vulkan device is to be used";
    Data data;
    const ProgramResult cpu = data.run(with(schedule, {"--device", "cpu"}));
    const ProgramResult gpu = data.run(with(schedule, {"--device", device(), "-o", data / "a"}));
    const ProgramResult again = data.run(with(schedule, {"--device", device(), "-o", data / "b"}));
    ASSERT_EQ(cpu.status, 0) << cpu.err;
    ASSERT_EQ(gpu.status, 0) << gpu.err;
    ASSERT_EQ(again.status, 0) << again.err;
    EXPECT_EQ(gpu.err.find("validation:"), std::string::npos) << gpu.err;
    const std::vector<double> a = printed_losses(cpu.out), b = printed_losses(gpu.out);
    ASSERT_EQ(a.size(), 30u);
    ASSERT_EQ(b.size(), 30u);
    for (size_t i = 0; i < a.size(); i++) EXPECT_NEAR(a[i], b[i], 1e-3) << "step " << i;
    EXPECT_EQ(read_text(data / "a/main.log"), read_text(data / "b/main.log"));
    EXPECT_EQ(read_text(model_path(data / "a", 30)), read_text(model_path(data / "b", 30)));
}

TEST(train_gpt2, a_checkpoint_continues_where_the_loss_was) {
    Data data;
    const ProgramResult first = data.run(with(schedule, {"--device", "cpu", "-o", data / "a"}));
    ASSERT_EQ(first.status, 0) << first.err;
    const ProgramResult second =
        run_program({program, "-i", data.train, "-j", data.val, "-e", model_path(data / "a", 30), "-b", "3",
                     "-t", "17", "-x", "0", "-s", "0", "--device", "cpu"});
    ASSERT_EQ(second.status, 0) << second.err;
    auto last_val = [](const std::string& out) { return out.substr(out.rfind("val loss"), 17); };
    EXPECT_EQ(last_val(first.out), last_val(second.out));
}

TEST(train_gpt2, accumulating_gradients_equals_a_larger_batch) {
    // -a takes the same first batch each time, so both runs see the same tokens only if nothing else differs
    Data data;
    auto run = [&](const std::string& b, const std::string& d) {
        return printed_losses(
            run_program({program, "-j", data.val, "-e", tiny,   "-b", b,   "-t", "16", "-d",       d,    "-a",
                         "1",     "-x", "4",      "-l", "0.01", "-s", "0", "-v", "0",  "--device", "cpu"})
                .out);
    };
    const std::vector<double> once = run("2", "32"), twice = run("2", "64");
    ASSERT_EQ(once.size(), 4u);
    ASSERT_EQ(twice.size(), 4u);
    for (size_t i = 0; i < 4; i++) EXPECT_NEAR(once[i], twice[i], 2e-5) << "step " << i;
}

TEST(train_gpt2, samples_text) {
    Data data;
    const ProgramResult result = data.run({"-x", "1", "-s", "1", "-g", "40", "-v", "0", "--device", "cpu"});
    ASSERT_EQ(result.status, 0) << result.err;
    const size_t begin = result.out.find("generating:\n---\n"), end = result.out.rfind("\n---\n");
    ASSERT_NE(begin, std::string::npos) << result.out;
    std::istringstream words(result.out.substr(begin + 16, end - begin - 16));
    int tokens = 0;
    for (int token; words >> token; tokens++) {
        EXPECT_GE(token, 0);
        EXPECT_LT(token, 67);
    }
    EXPECT_EQ(tokens, 40);
}

TEST(train_gpt2, lists_devices_and_helps) {
    const ProgramResult help = run_program({program, "--help"});
    EXPECT_EQ(help.status, 0);
    for (const char* flag : {"-i,",         "-j,",   "-e,", "-o,", "-b,", "-t,",      "-d,",
                             "-x,",         "-k,",   "-l,", "-u,", "-q,", "-c,",      "-v,",
                             "-m,",         "-s,",   "-g,", "-n,", "-a,", "--device", "--list-devices",
                             "--tokenizer", "--seed"})
        EXPECT_NE(help.out.find(flag), std::string::npos) << flag;
    EXPECT_EQ(run_program({program, "--version"}).status, 0);
}

TEST(train_gpt2, bad_input_gives_one_line_and_status_1) {
    Data data;
    write_tokens(data / "large.bin", 4000, 5000);  // tokens past the vocabulary
    write_tokens(data / "short.bin", 20, 67);
    const std::string good = read_text(data.train);
    auto write = [&](const std::string& name, const std::string& contents) {
        std::ofstream(data / name, std::ios::binary) << contents;
        return data / name;
    };
    const std::string truncated = write("truncated.bin", good.substr(0, good.size() - 1));
    const std::string trailing = write("trailing.bin", good + "x");
    std::string bytes = good;
    bytes[0] = 'x';
    const std::string wrong = write("wrong.bin", bytes);
    const std::string empty = write("empty.bin", "");
    struct Case {
        std::vector<std::string> options;
        const char* says;
    };
    const std::vector<Case> cases = {
        {{"-i", data / "nothing*.bin"}, "nothing"},
        {{"-i", truncated}, "truncated"},
        {{"-i", trailing}, "trailing"},
        {{"-i", wrong}, "wrong"},
        {{"-i", empty}, "empty"},
        {{"-i", data / "large.bin"}, "vocabulary"},
        {{"-i", data / "short.bin"}, "tokens"},
        {{"-e", "d13"}, "d13"},
        {{"-e", "nonsense"}, "nonsense"},
        {{"-e", data / "missing.bin"}, "missing.bin"},
        {{"-e", data.train}, "train.bin"},
        {{"-e", "custom:layers=2,heads=0,channels=24,max_seq_len=32"}, "heads"},
        {{"-e", "custom:layers=2,heads=5,channels=24,max_seq_len=32"}, "heads"},
        {{"-e", "custom:layers=0,heads=2,channels=24,max_seq_len=32"}, "layers"},
        {{"-t", "33"}, "max_seq_len"},
        {{"-t", "0"}, "sequence-length"},
        {{"-b", "foo"}, "batch-size"},
        {{"-b", "-1"}, "batch-size"},
        {{"-d", "100"}, "multiple"},
        {{"-k", "sine"}, "lr-scheduler"},
        {{"-l", "fast"}, "learning-rate"},
        {{"-l", "-1"}, "learning-rate"},
        {{"-v", "-1"}, "val-every"},
        {{"--device", "99"}, "99"},
        {{"--device", "no such gpu"}, "no such gpu"},
        {{"--tokenizer", data / "missing.bin"}, "missing.bin"},
        {{"--tokenizer", data.train}, "train.bin"},
        {{"--tokenizer", "bytes"}, "257 tokens"},
        {{"--seed", "-1"}, "seed"},
        {{"--no-such-flag"}, "no-such-flag"},
        {{"-o", data.train}, "train.bin"},
    };
    for (const Case& c : cases) {
        std::vector<std::string> options = {program, "-x", "1", "-s", "0", "-v", "0", "--device", "cpu"};
        auto given = [&](const char* flag) {
            return std::find(c.options.begin(), c.options.end(), flag) != c.options.end();
        };
        if (!given("-i")) options.insert(options.end(), {"-i", data.train});
        if (!given("-e")) options.insert(options.end(), {"-e", tiny});
        if (!given("-b")) options.insert(options.end(), {"-b", "3"});
        if (!given("-t")) options.insert(options.end(), {"-t", "17"});
        if (given("--device"))
            options.erase(std::find(options.begin(), options.end(), "--device"),
                          std::find(options.begin(), options.end(), "--device") + 2);
        const ProgramResult result = run_program(with(options, c.options));
        SCOPED_TRACE(c.options.back());
        EXPECT_EQ(result.status, 1) << result.out << result.err;
        EXPECT_EQ(count_lines(result.err), 1) << result.err;
        EXPECT_NE(result.err.find(c.says), std::string::npos) << result.err;
    }
    const ProgramResult none = run_program({program});
    EXPECT_EQ(none.status, 1);
    EXPECT_EQ(count_lines(none.err), 1) << none.err;
}
