// Runs with every combination of the options that write checkpoints or evaluate, killed at any file operation
// or stopped by a signal, and resumed: their files are bit-identical to an undisturbed run's. A sample of the
// combinations and kills is tested, with a printed seed; RESUME_GRID_ALL=1 tests all combinations.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "llmc/base/file.h"
#include "llmc/base/lines.h"
#include "llmc/data/hellaswag.h"
#include "llmc/files/checkpoint.h"
#include "tests/tiny_run.h"
#include "tests/token_shard.h"

static const int one_thread = setenv("OMP_NUM_THREADS", "1", 1);

struct Grid : testing::Test, Data {
    const std::string whole = *this / "whole", run = *this / "run", questions = *this / "hellaswag.bin";
    Grid() {
        std::vector<HellaSwagExample> examples;
        for (uint16_t i = 0; i < 5; i++)
            examples.push_back({i % 4, {1, 6, 11}, {{{16, i}, {21, 2}, {3, 4}, {5, uint16_t(i + 1)}}}});
        write_hellaswag(questions, examples);
        std::vector<uint16_t> noise(700);  // the loss rises, so that the best checkpoint is an early one
        for (size_t i = 0; i < noise.size(); i++) noise[i] = uint16_t(i * i * 31 % 61);
        write_token_shard(val, noise.data(), noise.size());
    }
    ProgramResult train(const std::string& folder, const Words& options, const Words& settings = {},
                        const SendSignal& signal = {}) const {
        const Words command = with({program, "-o", folder, "-i", train_data(), "-j", val}, options);
        return run_program(settings.empty() ? command : faulty(folder, settings, command), signal);
    }
    const std::string& train_data() const { return Data::train; }
    // How many file operations an undisturbed run has.
    long operations(const Words& options) const {
        const std::string log = *this / "calls";
        std::filesystem::remove(log);
        expect_ok(train(whole, options, {"FILE_FAULT_LOG=" + log}));
        return count_lines(read_whole_file(log));
    }
    void finish(const Words& options) const { expect_ok(train(run, with(options, {"-y", "1"}))); }
};

static void expect_same_files(const std::string& a, const std::string& b) {
    EXPECT_EQ(files_of(a), files_of(b));
    for (const std::string& name : files_of(a))
        EXPECT_TRUE(read_whole_file(a + "/" + name) == read_whole_file(b + "/" + name)) << name;
}

// Each value is on the grid of the other options or off it.
static std::vector<Words> combinations(const std::string& questions) {
    const std::vector<std::vector<Words>> choices = {
        {{"-n", "-1"}, {"-n", "3"}, {"-n", "4"}},
        {{"-v", "0"}, {"-v", "4"}, {"-v", "5"}, args("-v 5 --patience 1")},
        {{"-nk", "0"}, {"-nk", "1"}, {"-nk", "2"}},
        {{"-nm", "0"}, {"-nm", "5"}, {"-nm", "6"}},
        {{"--keep-best=true"}, {"--no-keep-best"}},
        {{"-s", "0"}, {"-s", "4"}, {"-s", "7"}},
        {{"-h", "0"}, {"-h", "1", "--hellaswag-file", questions}}};
    std::vector<Words> all = {args("-e", tiny, "-b 3 -t 17 -x 11 -m 2 -l 0.03 -g 5 --device cpu")};
    for (const std::vector<Words>& choice : choices) {
        std::vector<Words> longer;
        for (const Words& start : all)
            for (const Words& more : choice) longer.push_back(with(start, more));
        all = longer;
    }
    return all;
}

static std::vector<Words> sample_of_combinations(const std::string& questions, size_t size,
                                                 std::mt19937& random) {
    std::vector<Words> all = combinations(questions);
    std::erase_if(all, [](const Words& w) {  // which is refused: there is nothing to compare
        return std::count(w.begin(), w.end(), "--keep-best=true") && std::count(w.begin(), w.end(), "-v") &&
               *(std::find(w.begin(), w.end(), "-v") + 1) == "0";
    });
    if (getenv("RESUME_GRID_ALL")) return all;
    std::shuffle(all.begin(), all.end(), random);
    all.resize(size);
    return all;
}

TEST_F(Grid, KilledAnywhereARunEndsWithTheSameFiles) {
    std::mt19937 random(printed_seed("RESUME_GRID_SEED"));
    int kills = 0;
    for (const Words& options : sample_of_combinations(questions, 24, random)) {
        SCOPED_TRACE(joined(options, " "));
        std::filesystem::remove_all(whole);
        const long count = operations(options);
        for (int i = 0; i < 5; i++) {
            const std::string at = std::to_string(1 + random() % count);
            SCOPED_TRACE("operation " + at);
            std::filesystem::remove_all(run);
            kills += train(run, options, {"FILE_FAULT=any:" + at + ":kill"}).status == 128 + SIGKILL;
            finish(options);
            expect_same_files(whole, run);
            if (HasFailure()) return;
        }
    }
    EXPECT_GT(kills, 0);
    printf("%d kills\n", kills);
}

// With -nk, what was saved for the signal goes; without it, it stays.
TEST_F(Grid, StoppedBySignalsARunEndsWithTheSameFiles) {
    std::mt19937 random(printed_seed("RESUME_GRID_SEED"));
    for (const Words& options : sample_of_combinations(questions, 12, random)) {
        SCOPED_TRACE(joined(options, " "));
        std::filesystem::remove_all(whole);
        expect_ok(train(whole, options));
        for (const int signal : {SIGTERM, SIGUSR1}) {
            const std::string when = "step " + format_string("%4d", int(1 + random() % 10)) + "/";
            SCOPED_TRACE(when);
            std::filesystem::remove_all(run);
            train(run, options, {}, {signal, when, 0});
            finish(options);
            for (const int step : list_checkpoints(run))
                if (std::count(options.begin(), options.end(), "0") &&
                    !std::filesystem::exists(done_path(whole, step)))
                    delete_checkpoint(run, step);
            expect_same_files(whole, run);
            if (HasFailure()) return;
        }
    }
}

// The checkpoint that is saved for the signal holds random weights, which are not the best even if all later
// losses are higher.
TEST_F(Grid, StoppedBeforeTheFirstStepARunEndsWithTheSameFiles) {
    const std::vector<uint16_t> tokens(60000, 7);  // validation takes so long that the signal ends it
    write_token_shard(val, tokens.data(), tokens.size());
    const Words options = args("-e", tiny, "-b 3 -t 17 -x 4 -v 3 -m -1 -s 0 -l 0.1 -n 2 --device cpu");
    expect_ok(train(whole, options));
    train(run, options, {}, {SIGTERM, "validating", 0});
    ASSERT_EQ(list_checkpoints(run), std::vector<int>{0});
    finish(options);
    delete_checkpoint(run, 0);
    expect_same_files(whole, run);
}

// The end of the shorter run is not on the schedule of -v; its validation is not made again.
TEST_F(Grid, ALongerRunKeepsTheValidationOfAShorterOnesEnd) {
    const Words options = args("-e", tiny, "-b 3 -t 17 -v 5 -m 2 -s 0 -l 0.03 --device cpu");
    expect_ok(train(run, with(options, {"-x", "7"})));
    const std::string before = read_whole_file(run + "/main.log");
    const size_t at = before.find("s:7 tel:");
    ASSERT_NE(at, std::string::npos) << before;
    expect_ok(train(run, with(options, {"-x", "9", "-y", "1"})));
    const std::string after = read_whole_file(run + "/main.log");
    EXPECT_TRUE(contains(after, before.substr(at, before.find('\n', at) - at)));
    EXPECT_TRUE(contains(after, "s:9 tel:"));
}

// What is saved within a step was preceded by its sample, which the resumed run draws again.
TEST_F(Grid, StoppedWithinAStepARunEndsWithTheSameFiles) {
    write_tokens(Data::train, 60000, 67);
    const Words options = args("-e", tiny, "-b 1 -t 16 -d 8000 -x 4 -v 0 -s 1 -g 2 -n 3 -nk 1 --device cpu");
    expect_ok(train(whole, options));
    train(run, options, {}, {SIGTERM, " \n---\n", 0});
    ASSERT_EQ(list_checkpoints(run), std::vector<int>{1});  // its sample is complete
    finish(options);
    expect_same_files(whole, run);
}

// A validation whose shard is gone, and a sample that cannot be printed.
TEST_F(Grid, AnErrorBetweenStepsSavesThem) {
    write_tokens(Data::train, 60000, 67);
    const Words options =
        args("-e", tiny, "-b 1 -t 16 -d 8000 -x 13 -v 12 -s 12 -n 100 -g 5 -l 0.1 -m 2 --device cpu");
    const Words command = with({program, "-o", run, "-i", train_data(), "-j", val}, options);
    const auto expect_resumes = [&](const std::string& err, const std::string& reason) {
        EXPECT_EQ(count_lines(err), 1) << err;
        EXPECT_TRUE(contains(err, reason));
        EXPECT_TRUE(contains(err, "-y 1 resumes from step 12"));
        finish({});
        delete_checkpoint(run, 12);
        delete_checkpoint(whole, 12);
        expect_same_files(whole, run);
        std::filesystem::remove_all(run);
    };
    expect_ok(train(whole, options));
    {
        Process program_without_val(command);
        std::string out, err;
        while (program_without_val.read(out, err, 60))
            if (out.find("step    1/13") != std::string::npos && file_exists(val))
                rename_file(val, val + "x");
        EXPECT_EQ(program_without_val.wait(), 1) << out << err;
        rename_file(val + "x", val);
        expect_resumes(err, "cannot open " + val);
    }
    const ProgramResult full = run_program(with({"sh", "-c", "exec \"$@\" >/dev/full", "sh"}, command));
    EXPECT_EQ(full.status, 1) << full.err;
    expect_resumes(full.err, "No space left on device");
}
