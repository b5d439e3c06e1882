// Runs of train_gpt2 that are stopped, killed, damaged or changed, and then resumed: either bit-identical to
// an uninterrupted run, or refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "llmc/base/file.h"
#include "llmc/files/checkpoint.h"
#include "llmc/options/option_files.h"
#include "llmc/run/run_folder.h"
#include "tests/tiny_run.h"

// Tiny models gain nothing from threads, and these tests start hundreds of programs.
static const int one_thread = setenv("OMP_NUM_THREADS", "1", 1);

// 12 steps, checkpoints at 4, 8 and 12, validation and samples in between.
static const Words twelve = words_of("-x 12 -n 4 -v 5 -s 6 -g 8 -l 0.01 -u 3 -q 0.1 -c 0.1 -d 102");

// Makes the folder look as if the run was killed before it wrote a checkpoint after `step`.
static void cut_after(const std::string& folder, int step) {
    for (int later : list_checkpoints(folder))
        if (later > step) delete_checkpoint(folder, later);
}

// Expects bit-identical checkpoint files and logs, except for metrics.csv, which has the speed.
static void expect_same_run(const std::string& a, const std::string& b, int step) {
    for (auto path : {model_path, optimizer_path, run_path}) {
        ASSERT_TRUE(std::filesystem::exists(path(a, step))) << path(a, step);
        EXPECT_TRUE(read_whole_file(path(a, step)) == read_whole_file(path(b, step))) << path(b, step);
    }
    EXPECT_EQ(read_whole_file(a + "/main.log"), read_whole_file(b + "/main.log"));
}

// The last sample of text.
static std::string last_sample(const std::string& out) {
    const size_t at = out.rfind("generating:"), end = out.find("\n---\n", at + 16);
    return at == std::string::npos ? "" : out.substr(at, end - at);
}

using Resume = WithData;

TEST_F(Resume, IsBitIdentical) {
    struct Case {
        const char* what;
        Words options;
        bool on_device = false;  // whose kernels take long to compile
    };
    const std::vector<Case> cases = {
        {"fp32", {}},
        {"bf16", {"--precision", "bf16"}, true},
        {"bf16 without master weights", args("--precision bf16 -w 0")},
        {"fp16", {"--precision", "fp16"}},
        {"dropout", {"--dropout", "0.2"}, true},
        {"outliers", args("-sl 3 -sg 3")},
        {"muon", {"--optimizer", "muon"}},
        {"muon in bf16", args("--optimizer muon --precision bf16")},
        {"muon in fp16 without master weights", args("--optimizer muon --precision fp16 -w 0")},
        {"one batch", {"-a", "1"}}};
    const std::string a = data / "a", b = data / "b";
    for (const std::string& where : devices())
        for (const Case& c : cases) {
            if (where != "cpu" && !c.on_device) continue;
            SCOPED_TRACE(std::string(c.what) + " on " + where);
            const std::string whole =
                output_of(data.run(with(with(twelve, {"--device", where, "-o", a}), c.options)));
            for (int step : {4, 8}) {
                copy_folder(a, b);
                cut_after(b, step);
                const std::string rest = output_of(resume(b));
                expect_same_run(a, b, 12);
                EXPECT_NE(last_sample(whole), "");
                EXPECT_EQ(last_sample(rest), last_sample(whole));
                EXPECT_EQ(printed_losses(rest).size(), size_t(12 - step));
                if (where != "cpu") break;
            }
            std::filesystem::remove_all(a);
        }
}

// The loss scale of fp16 starts too large here, so that it changes within the first steps.
TEST_F(Resume, KeepsTheLossScale) {
    const std::string a = data / "a", b = data / "b";
    const Words options = words_of("-b 1 -t 1 -x 20 -n 1 -s 0 -v 0 -l 0.01 --device cpu --precision fp16");
    const std::string whole = output_of(data.run(with(options, {"-o", a})));
    ASSERT_TRUE(contains(whole, "the update was skipped"));
    for (int step : {1, 2, 3, 4, 7}) {
        copy_folder(a, b);
        cut_after(b, step);
        expect_ok(resume(b));
        expect_same_run(a, b, 20);
    }
}

TEST_F(Resume, ASignalWithoutAFolderSavesNothing) {
    const ProgramResult unsaved =
        run_program(args(program, "-i", data.train, "-e", tiny, "-b 3 -t 17 -x 100000 --device cpu"),
                    {SIGINT, "step    3/", 0});
    EXPECT_EQ(unsaved.status, 128 + SIGINT) << unsaved.out << unsaved.err;
    EXPECT_TRUE(contains(unsaved.out, "nothing was saved"));
}

// If the newest checkpoint is damaged, a line names it and the run resumes from the one before.
TEST_F(Resume, SkipsABrokenCheckpoint) {
    const std::string a = data / "a", b = data / "b";
    expect_ok(data.run(with(twelve, {"--device", "cpu", "-o", a})));
    auto flip = [](const std::string& path, double where) {  // one bit
        std::string bytes = read_whole_file(path);
        bytes[size_t(where * double(bytes.size() - 1))] ^= 1;
        std::ofstream(path, std::ios::binary) << bytes;
    };
    struct Damage {
        const char* names;
        std::function<void()> make;
    };
    const std::vector<Damage> damages = {
        {"model_00000008.bin", [&] { flip(model_path(b, 8), 0.7); }},
        {"model_00000008.bin", [&] { flip(model_path(b, 8), 0.0); }},
        {"model_00000008.bin", [&] { std::filesystem::resize_file(model_path(b, 8), 5000); }},
        {"model_00000008.bin", [&] { std::filesystem::resize_file(model_path(b, 8), 0); }},
        {"model_00000008.bin", [&] { std::filesystem::remove(model_path(b, 8)); }},
        {"state_00000008_00000.bin", [&] { flip(optimizer_path(b, 8), 0.3); }},
        {"state_00000008_00000.bin", [&] { flip(optimizer_path(b, 8), 1.0); }},
        {"state_00000008_00000.bin", [&] { std::filesystem::remove(optimizer_path(b, 8)); }},
        {"run_00000008.json", [&] { flip(run_path(b, 8), 0.5); }},
        {"run_00000008.json", [&] { std::filesystem::resize_file(run_path(b, 8), 0); }},
        {"run_00000008.json", [&] { std::ofstream(run_path(b, 8)) << "{\"checksum\": 3, \"content\": []}"; }},
    };
    for (const Damage& damage : damages) {
        copy_folder(a, b);
        cut_after(b, 8);
        damage.make();
        expect_ok(resume(b), "checkpoint of step 8 is broken", damage.names, "at step 4");
        expect_same_run(a, b, 12);
    }
    copy_folder(a, b);
    cut_after(b, 4);
    flip(model_path(b, 4), 0.5);
    expect_refusal(resume(b), "no checkpoint in");
    EXPECT_TRUE(std::filesystem::exists(optimizer_path(b, 4)));  // nothing was overwritten
}

TEST_F(Resume, StartsWithoutACheckpointAndStopsAfterTheLastStep) {
    const std::string a = data / "a", b = data / "b";
    expect_ok(data.run(with(twelve, {"--device", "cpu", "-o", a})));
    expect_ok(data.run(with(twelve, {"--device", "cpu", "-o", b, "-y", "1"})), "starts at step 0");
    expect_same_run(a, b, 12);
    const ProgramResult done = resume(b);
    expect_ok(done);
    EXPECT_TRUE(contains(done.out, "note: the run has already done its 12 steps"));
    EXPECT_TRUE(printed_losses(done.out).empty());
    EXPECT_FALSE(contains(done.out, "wrote checkpoint"));
    expect_same_run(a, b, 12);
}

// Models and logs that no complete checkpoint explains are not overwritten.
TEST_F(Resume, AStartThatWouldDestroyIsRefused) {
    const std::string a = data / "a", b = data / "b", earlier = b + "/earlier_1";
    expect_ok(data.run(with(twelve, {"--device", "cpu", "-o", a})));
    const auto without = [&](const Words& starts) {
        copy_folder(a, b);
        for (const auto& entry : std::filesystem::directory_iterator(b))
            for (const std::string& start : starts)
                if (entry.path().filename().string().starts_with(start))
                    std::filesystem::remove(entry.path());
    };
    const std::vector<Words> removed = {
        {"DONE"},
        {"DONE", "main.log", "metrics.csv", "options"},
        {"DONE", "model", "state", "main.log", "metrics.csv", "options"},
        {"DONE", "model", "state", "run"},             // the log goes beyond the first checkpoint
        {"DONE", "model", "state", "run", "options"},  // somebody's logs
        {"DONE", "model", "state", "run", "options", "main.log"},
        {"DONE", "model", "state", "run", "options", "metrics.csv"},
        {"DONE", "model", "state", "run", "options", "metrics.csv", "main.log"}};  // somebody's tokenizer
    for (const Words& names : removed) {
        SCOPED_TRACE(names.back());
        without(names);
        if (names.back() == "main.log") write_whole_file(b + "/tokenizer.bin", {"a tokenizer"});
        std::map<std::string, std::string> before;
        for (const auto& entry : std::filesystem::directory_iterator(b))
            before[entry.path().filename().string()] = read_whole_file(entry.path().string());
        const Words start = with(twelve, {"--device", "cpu", "-o", b, "-y", "1"});
        expect_refusal(data.run(start), "--start-over");
        for (const auto& [name, text] : before) EXPECT_TRUE(read_whole_file(b + "/" + name) == text) << name;
        expect_ok(data.run(with(start, {"--start-over"})));
        expect_same_run(a, b, 12);
        for (const auto& [name, text] : before)
            EXPECT_TRUE(read_whole_file(earlier + "/" + name) == text) << name;
    }
}

TEST_F(Resume, NeedsOnlyLlmcsFiles) {
    const std::string a = data / "a", b = data / "b";
    expect_ok(data.run(with(twelve, {"--device", "cpu", "-o", a})));
    copy_folder(a, b);
    cut_after(b, 8);
    for (int step : {4, 8}) std::filesystem::remove(run_path(b, step));
    std::filesystem::remove(options_path(b));
    expect_ok(data.run(with(twelve, args("--device cpu -o", b, "-y 1 -s 0"))), "llm.c's files alone");
    expect_bit_identical(a, b, 12);
}

TEST_F(Resume, MovesAnEarlierRunAside) {
    const std::string a = data / "a", earlier = a + "/earlier_1";
    expect_ok(data.run(with(twelve, {"--device", "cpu", "-o", a})));
    const std::string log = read_whole_file(a + "/main.log");
    std::ofstream(a + "/mine.txt") << "mine";
    expect_ok(data.run({"-x", "2", "-n", "2", "-s", "0", "-v", "0", "--device", "cpu", "-o", a}), earlier);
    EXPECT_EQ(list_checkpoints(a), (std::vector<int>{2}));
    EXPECT_EQ(list_checkpoints(earlier), (std::vector<int>{12, 8, 4}));
    EXPECT_EQ(read_whole_file(earlier + "/main.log"), log);
    EXPECT_TRUE(std::filesystem::exists(a + "/mine.txt"));
    EXPECT_TRUE(contains(read_whole_file(a + "/options.toml"), "max-steps=2"));
    expect_ok(data.run({"-x", "1", "-s", "0", "-v", "0", "--device", "cpu", "-o", a}));
    EXPECT_EQ(list_checkpoints(a + "/earlier_2"), (std::vector<int>{2}));
    // a run that cannot start moves nothing
    EXPECT_EQ(data.run(args("-x 1 -e d100 --device cpu -o", a)).status, 1);
    EXPECT_FALSE(std::filesystem::exists(a + "/earlier_3"));
}

TEST_F(Resume, TwoProgramsDoNotShareAFolder) {
    const std::string a = data / "a";
    {
        RunFolder held;  // like another program's
        held.open(a);
        expect_refusal(data.run({"-x", "1", "--device", "cpu", "-o", a}), "another train_gpt2");
    }
    const ProgramResult killed =
        data.run(args("-x 100000 -s 0 -v 0 --device cpu -o", a), {SIGKILL, "step    3/", 0});
    EXPECT_EQ(killed.status, 128 + SIGKILL);
    expect_ok(data.run(args("-x 1 -s 0 --device cpu -o", a)));  // the killed program's lock is gone
}

// A resumed run accepts these changes of options.
TEST_F(Resume, AcceptsTheseChanges) {
    const std::string a = data / "a", b = data / "b";
    const Words bf16 = {"--precision", "bf16"};
    expect_ok(data.run(with(twelve, {"--device", "cpu", "-o", a, "--precision", "bf16"})));
    const std::vector<Words> changes = {
        {"-b", "1"},   {"-b", "6"},      args("-b 1 -t 6"),       args("-b 2 -t 32 -d 128"),
        {"-d", "204"}, {"-w", "0"},      {"--precision", "fp32"}, {"--precision", "fp16"},
        {"-x", "20"},  {"-k", "linear"}, {"-l", "0.001"},         {"-n", "3"},
        {"-j", ""},    {"-r", "2"}};
    for (const Words& change : changes) {
        SCOPED_TRACE(change[0] + " " + change[1]);
        copy_folder(a, b);
        cut_after(b, 8);
        const std::string result = output_of(resume(b, change));
        const std::vector<double> losses = printed_losses(result), before = data.losses(a);
        ASSERT_GE(losses.size(), 4u);
        EXPECT_NEAR(losses[0], before[8], 0.1);  // it continues at the same loss
        EXPECT_TRUE(contains(result, ", and was "));
    }
}

// A change of precision loses nothing that it can keep: 16 bits with master weights become fp32 without
// rounding.
TEST_F(Resume, AnotherPrecisionStartsFromTheUnroundedWeights) {
    const std::string a = data / "a", b = data / "b";
    expect_ok(data.run(with(twelve, {"--device", "cpu", "-o", a, "--precision", "bf16", "-x", "4"})));
    std::vector<float> master, weights;
    read_moments(optimizer_path(a, 4), read_model_header(model_path(a, 4)),
                 [&](Moment moment, int, size_t, const float* values, size_t n) {
                     if (moment == MASTER_WEIGHTS) master.insert(master.end(), values, values + n);
                 });
    auto weights_after = [&](const std::string& precision) {
        copy_folder(a, b);
        expect_ok(resume(b, {"--precision", precision, "-x", "5", "-n", "5", "-l", "0", "-c", "0"}));
        weights.clear();
        read_model(model_path(b, 5), [&](int, size_t, const float* values, size_t n) {
            weights.insert(weights.end(), values, values + n);
        });
    };
    weights_after("fp32");
    EXPECT_TRUE(weights == master);
    weights_after("fp16");
    ASSERT_EQ(weights.size(), master.size());
    for (size_t i = 0; i < weights.size(); i++)
        ASSERT_NEAR(weights[i], master[i], 1e-3 * std::abs(master[i]) + 1e-7);
}

TEST_F(Resume, RefusesTheseChanges) {
    const std::string a = data / "a";
    write_tokens(data / "other.bin", 3000, 67);
    expect_ok(data.run(with(twelve, {"--device", "cpu", "-o", a})));
    const std::string log = read_whole_file(a + "/main.log");
    expect_refusal(resume(a, {"-e", "custom:layers=3,heads=2,channels=24,max_seq_len=32,vocab=67"}),
                   "began with -e", "continues its own model");
    expect_refusal(resume(a, {"--seed", "7"}), "--seed 42");
    expect_refusal(resume(a, {"-i", data / "other.bin"}), "train.bin");
    expect_refusal(resume(a, {"-a", "1"}), "-a 1: the run in ");
    expect_refusal(resume(a, {"-x", "8"}), "already done 12 steps");
    expect_refusal(resume(a, {"-t", "33", "-d", "-1"}), "max_seq_len");
    expect_refusal(resume(a, {"-d", "100"}), "multiple");
    EXPECT_EQ(read_whole_file(a + "/main.log"), log);
    EXPECT_EQ(list_checkpoints(a), (std::vector<int>{12, 8, 4}));
    // llm.c writes neither options nor run_*.json
    for (const auto& entry : std::filesystem::directory_iterator(a)) {
        const std::string name = entry.path().filename().string();
        if (name.ends_with(".toml") || name.ends_with(".json")) std::filesystem::remove(entry.path());
    }
    expect_refusal(
        data.run(with(twelve, args("--device cpu -o", a,
                                   "-y 1 -e custom:layers=3,heads=2,channels=24,max_seq_len=32,vocab=67"))),
        "is not the model in", "2 layers");
}

// Of as many tokens: the one that is being read is missed, the other is not.
TEST_F(Resume, SwappedShardsAreNoted) {
    const std::string a = data / "a", folder = data / "shards/";
    std::filesystem::create_directory(folder);
    for (const char* name : {"x.bin", "y.bin"}) write_tokens(folder + name, 3000, 67);
    data.train = folder + "*.bin";
    expect_ok(data.run(with(twelve, {"--device", "cpu", "-o", a})));
    int noted = 0, refused = 0;
    for (const std::string name : {"x.bin", "y.bin"}) {
        std::filesystem::rename(folder + name, data / name);
        write_tokens(folder + "z.bin", 3000, 61);
        const ProgramResult result = data.run(with(twelve, {"--device", "cpu", "-o", a, "-y", "1"}));
        noted += result.out.find("the shards of -i are others, or have another order") != std::string::npos;
        refused += result.err.find("stopped in the training shard " + name) != std::string::npos;
        std::filesystem::rename(data / name, folder + name);
        remove_file(folder + "z.bin");
    }
    EXPECT_EQ(noted, 1);
    EXPECT_EQ(refused, 1);
}

TEST_F(Resume, AcceptsMoreShards) {
    const std::string a = data / "a";
    std::filesystem::create_directory(data / "shards");
    std::filesystem::rename(data.train, data / "shards/b.bin");
    data.train = data / "shards/*.bin";
    expect_ok(data.run(with(twelve, {"--device", "cpu", "-o", a})));
    write_tokens(data / "shards/a.bin", 3000, 67);
    const ProgramResult result = resume(a, {"-x", "60"});  // past the end of the first shard
    EXPECT_TRUE(
        contains(result.out, "the shards of -i have 7000 tokens, and had 4000 when the run was saved"));
    expect_ok(result);
    EXPECT_EQ(printed_losses(result.out).size(), 48u);
}
