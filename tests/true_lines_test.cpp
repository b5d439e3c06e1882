// What a newcomer gives in vain, twice or too late is said, and lines about a run are true.
#include <gtest/gtest.h>

#include <filesystem>

#include "llmc/base/file.h"
#include "llmc/base/utf8.h"
#include "llmc/data/hellaswag.h"
#include "llmc/files/checkpoint.h"
#include "tests/tiny_run.h"

#ifndef _WIN32
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>

#include "llmc/base/os.h"

#define WITH_LIBEDIT 0
#include "llmc/run/line_editor.cpp"  // as it is built without that library
#endif

// A folder with texts of 24 kB, questions and answers, and a trained model.
struct TrueLines : ::testing::Test {
    TemporaryFolder folder;
    const std::string model = "custom:layers=1,heads=2,channels=16";

    void SetUp() override {
        const std::string text = numbered(1000, "once upon a time, line ", "\n\n");
        std::string chat;
        for (int i = 0; i < 100; i++) {
            const std::string n = std::to_string(i);
            chat += R"({"prompt": "What is )" + n + R"(?", "completion": "It is )" + n + "\"}\n";
        }
        write_whole_file(folder / "a.txt", {text});
        write_whole_file(folder / "b.txt", {text, "other\n"});
        write_whole_file(folder / "it's.txt", {text});
        write_whole_file(folder / "chat.jsonl", {chat});
    }
    ProgramResult run(const std::string& name, const Words& options) const {
        return run_program(
            with({"env", "-C", folder.path, BINARY_DIR "/" + name, "--device", "cpu"}, options));
    }
    ProgramResult train(const std::string& options, const Words& more = {}) const {
        return run("train_gpt2", with(with({"-e", model}, words_of(options)), more));
    }
};

TEST_F(TrueLines, ATextThatIsGivenTwiceIsRefused) {
    std::filesystem::create_directories(folder / "d/sub");
    write_whole_file(folder / "d/own.txt", {read_whole_file(folder / "a.txt"), "own\n"});
    std::filesystem::create_hard_link(folder / "a.txt", folder / "d/sub/hard.txt");
    std::filesystem::create_symlink("a.txt", folder / "link.txt");
    const Words twice[] = {{"a.txt", "a.txt"},
                           {"a.txt", "./d/../a.txt"},
                           {"a.txt", "link.txt"},
                           {"d", "a.txt"},
                           {"a.txt", "d"},
                           {"d", "d/"},
                           {"d", "d/sub"},
                           {"*.txt", "a.txt"},
                           {"b.txt", folder / "b.txt"}};
    for (const Words& texts : twice) {
        SCOPED_TRACE(testing::PrintToString(texts));
        Words options;
        for (const std::string& text : texts) options.insert(options.end(), {"--text", text});
        expect_refusal(train("-x 1 -o r", options), " is given twice");
        EXPECT_FALSE(file_exists(folder / "r"));
        expect_refusal(run("prepare_data", with({"--out", "p", "--name", "n"}, texts)), " is given twice");
    }
    expect_refusal(train("-x 1 -o r --text a.txt:0.5 --text d:0.5"), "d/sub/hard.txt is given twice");
    expect_refusal(run("prepare_data", args("--out p --name n --field x --field x a.txt")),
                   "--field x is given twice");
    std::filesystem::create_symlink("own.txt", folder / "d/z.txt");
    const ProgramResult once = run("prepare_data", {"--out", "p", "--name", "n", "d"});
    EXPECT_EQ(once.status, 0) << once.err;
    EXPECT_TRUE(contains(once.err, "1 entry was left out of folders; the first: d/z.txt is d/own.txt again"));
    EXPECT_FALSE(contains(run("prepare_data", {"--out", "p", "--name", "n", "a.txt", "b.txt"}).out, "note"));
}

TEST_F(TrueLines, WhatHasNoEffectIsSaid) {
    const auto note = [&](const std::string& name, const Words& options) {
        const ProgramResult result = run(name, options);
        EXPECT_EQ(result.status, 0) << result.err;
        return result.err;
    };
    expect_ok(train("--text a.txt -x 1 -t 32 -s 0 -o r"));
    const Words prepare = {"--out", "p", "--name", "n"};
    EXPECT_TRUE(
        contains(note("prepare_data", with(prepare, {"--seed", "3", "a.txt"})), "note: --seed has no"));
    EXPECT_FALSE(
        contains(note("prepare_data", with(prepare, args("--seed 3 --val-fraction 0.1 a.txt"))), "--seed"));
    const Words greedy = {"-e", "r", "-n", "2", "--temperature", "0", "--top-k", "3", "--seed", "3", "o"};
    EXPECT_EQ(count_of(note("generate", greedy), "has no effect: --temperature 0 always"), 2);
    const std::string likeliest = " has no effect: --top-k 1 always";
    EXPECT_EQ(
        count_of(note("generate", words_of("-e r -n 2 --top-k 1 --temperature 2 --top-p 0.5 --min-p 0.1 "
                                           "--seed 3 o")),
                 likeliest),
        4);
    EXPECT_TRUE(contains(note("generate", words_of("-e r -n 2 --device cpu --no-tensor-cores o")),
                         "note: --no-tensor-cores has no effect: it is for GPUs"));
    EXPECT_EQ(note("generate", args("-e r -n 2 --top-k 3 o")).find("no effect"), std::string::npos);
    HellaSwagExample example = {0, {1, 6, 11}, {{{16, 5}, {21, 2}, {3, 4}, {5, 1}}}};
    write_hellaswag(folder / "h.bin", {example});
    EXPECT_EQ(count_of(note("eval", words_of("-e r --hellaswag h.bin -m 3 --tokenizer bytes")), " has no "),
              2);
    const Words split = {"--split-documents", "blank-line"};
    expect_refusal(run("prepare_data", with(with(prepare, split), {"chat.jsonl"})),
                   "--split-documents is for");
    expect_refusal(train("--text chat.jsonl -o c", split), "--split-documents is for plain text");
    expect_refusal(train("--text chat.jsonl:0.5 --text a.txt:0.5 --template b.txt -o c", split), "b.txt");
    expect_ok(train("--text chat.jsonl:0.5 --text a.txt:0.5 -o c -x 1 -s 0", split));
    expect_ok(run("eval", args("-e r --text chat.jsonl")));  // the model's documents ended at blank lines
    expect_refusal(run("eval", with({"-e", "r", "--text", "chat.jsonl"}, split)), "--split-documents is for");
}

TEST_F(TrueLines, ARunWithoutStepsIsPlannedAsOne) {
    const ProgramResult none = train("--text a.txt -x 0 -t 32 -o r -g 8");
    expect_ok(none, "; 0 steps read ", "--warmup-steps 0 ", "with the last model",
              "tokens per step, 0 steps");
    EXPECT_FALSE(contains(none.out, " minutes"));
    EXPECT_EQ(none.err, "");
    const ProgramResult pass = train("--text a.txt --epochs 0 -t 32 -b 16 -o r -s 0 --dry-run=memory");
    EXPECT_TRUE(contains(pass.out, "= 512 tokens per step, 4")) << pass.out;  // one pass
    expect_ok(train("--text a.txt -x 1 -t 32 -o s -s 0"));
    expect_ok(run("train_gpt2", words_of("-o s -y 1 --start-over --minutes 9")),
              "--minutes has no effect: --start-over takes the run's options");
}

// Before anything is prepared.
TEST_F(TrueLines, WhatIsMissingIsSaidFirst) {
    expect_refusal(train("--text a.txt -x 1 -h 1 -o r --hellaswag-file none.bin"), "cannot open none.bin");
    write_hellaswag(folder / "h.bin", {{0, {300}, {{{16, 5}, {21, 2}, {3, 4}, {5, 1}}}}});
    expect_refusal(train("--text a.txt -x 1 -h 1 -o r --hellaswag-file h.bin"), "has token 300, but");
    write_whole_file(folder / "a.rtf", {"{\\rtf1\\ansi ", read_whole_file(folder / "a.txt"), "}"});
    expect_refusal(train("--text a.rtf -x 1 -o r"), "a.rtf is not text: it is RTF");
    std::filesystem::create_directories(folder / "rtf");
    std::filesystem::rename(folder / "a.rtf", folder / "rtf/a.rtf");
    expect_refusal(train("--text rtf -x 1 -o r"), "the folder rtf has no text file; rtf/a.rtf is not text");
    expect_refusal(train("--text a.txt -x 1 -o r -t 5000"), "and a batch of 1 x 5000 has 5000: use shorter");
    expect_refusal(train("--text a.txt -x 1 -o r --patience 3 -v 0"), "counts validations, and -v is 0");
    EXPECT_FALSE(file_exists(folder / "r"));
    expect_ok(train("--text a.txt -x 2 -t 32 -b 2 -o r -s 0"));  // the rule for texts gives --patience
    expect_refusal(run("train_gpt2", words_of("-o r -y 1 -x 3 -v 0")), "-v is 0; --patience 0 needs none");
    expect_ok(run("train_gpt2", words_of("-o r -y 1 -x 3 -v 0 --patience 0")));
}

// Files of somebody else are texts, whatever names and fields they have.
TEST_F(TrueLines, WhatOnlyTheProgramsWriteIsLeftOut) {
    std::filesystem::create_directories(folder / "t/run");
    std::filesystem::create_directories(folder / "t/model");
    const std::string text = read_whole_file(folder / "a.txt");
    for (const char* name : {"run/options.toml", "run/main.log", "run/a.md", "model/config.json",
                             "model/a.md", "model/model.safetensors", "lease.json", "loss.svg", "a.txt"})
        write_whole_file(folder / ("t/" + std::string(name)), {name, "\n", text});
    write_whole_file(folder / "t/nats.json", {"{\n  \"nats_per_token\": 1.25\n}\n"});
    write_whole_file(folder / "t/tokens.json", {"{\n  \"added_tokens\": [],\n  \"version\": \"1.0\"\n}\n"});
    EXPECT_EQ(run("prepare_data", {"--out", "p", "--name", "n", "t"}).err, "");
    expect_ok(train("--text a.txt -x 1 -t 32 -s 0 -o runs/a"));
    expect_ok(run("train_gpt2", words_of("-e runs/a --export hf hf")));
    expect_refusal(run("generate", words_of("-e runs o")), "name one inside it, such as -e runs/a");
    expect_refusal(run("train_gpt2", words_of("--plot runs/a t/a.txt")), "--plot t/a.txt: it is a file");
    expect_ok(run("train_gpt2", words_of("--plot runs/a runs/a")));
    write_whole_file(folder / "runs/b.txt", {text});
    std::filesystem::rename(folder / "hf", folder / "runs/hf");
    EXPECT_TRUE(contains(run("prepare_data", {"--out", "p", "--name", "n", "runs"}).err,
                         "3 entries were left out of folders; the first: runs/"));
}

// A run would add to them, and the next one would move them or leave them out.
TEST_F(TrueLines, FoldersOfSomebodyElseStayHis) {
    const std::string text = read_whole_file(folder / "a.txt"), home = folder / "home";
    const auto train_here = [&](const Words& more) {
        return run_program(with(with({"env", "-C", home, program, "--device", "cpu", "-e", model}, more),
                                words_of("-x 1 -t 32 -s 0 -o .")));
    };
    std::filesystem::create_directories(home + "/tokens");
    write_whole_file(home + "/a.txt", {text});
    write_whole_file(home + "/tokens/b.txt", {text});
    for (const char* of : {".", "a.txt", "stories"})
        expect_refusal(train_here({"--text", of}), "./tokens is there, and a run would write to it: move it");
    EXPECT_EQ(names_in(home), (Words{"a.txt", "tokens"}));
    EXPECT_EQ(names_in(home + "/tokens"), Words{"b.txt"});
    std::filesystem::rename(home + "/tokens", home + "/tensorboard");
    expect_refusal(train_here({"--text", ".", "--tensorboard"}), "./tensorboard is there, and a run would");
    for (int start = 0; start < 2; start++) expect_ok(train_here({"--text", "."}));
    EXPECT_EQ(names_in(home + "/tensorboard"), Words{"b.txt"});
    expect_ok(train_here({"--text", "."}), "has not changed: its tokens");
    for (const char* name : {"metrics.csv", "loss.svg"}) {
        std::filesystem::remove_all(folder / "other");
        std::filesystem::create_directories(folder / "other");
        write_whole_file(folder / ("other/" + std::string(name)), {text});
        expect_refusal(train(std::string("--text other -o other -x 1")), std::string(name) + " is an input");
    }
}

// A run of llm.c records neither the model that it began with nor the tokens of a step.
TEST_F(TrueLines, OfARunOfLlmcIsSaidWhatItRecords) {
    expect_ok(run("prepare_data", words_of("--out p --name n --val-tokens 2000 a.txt")));
    const Words data = words_of("-i p/n_train.bin -j p/n_val.bin -t 32 -b 2 -s 0 -o r");
    expect_ok(run("train_gpt2", with(data, {"-e", model, "-x", "2"})));
    for (const char* name : {"options.toml", "run_00000002.json", "metrics.csv"})
        std::filesystem::remove(folder / ("r/" + std::string(name)));
    const ProgramResult resumed = run("train_gpt2", with(data, words_of("-y 1 -x 3")));
    expect_ok(resumed, "model: r/model_00000002.bin, 1 layer, ");
    EXPECT_FALSE(contains(resumed.out, "and had")) << resumed.out;
    EXPECT_TRUE(contains(read_whole_file(folder / "r/options.toml"), "r/model_00000002.bin\"\n"));
    expect_refusal(run("train_gpt2", words_of("-o r -y 1 -x 4 -a 1")), "-a 1: the run in r has -a 0 and");
    std::filesystem::copy(folder / "r", folder / "t");
    for (const char* name : {"options.toml", "run_00000003.json"})
        std::filesystem::remove(folder / ("t/" + std::string(name)));
    const std::string of_text =
        output_of(run("train_gpt2", words_of("--text b.txt -y 1 -o t -x 4 -s 0 --dry-run")));
    EXPECT_TRUE(contains(of_text, "model: t/model_00000003.bin, 1 layer, 2 heads, 16 channels"));
    EXPECT_FALSE(contains(of_text, "custom:"));
    std::filesystem::remove(folder / "r/run_00000003.json");
    EXPECT_TRUE(
        contains(run("generate", words_of("-e r o")).err, "-e r/model_00000003.bin takes this model"));
    EXPECT_EQ(run("generate", words_of("-e r/model_00000003.bin -n 3 o")).status, 0);
}

TEST_F(TrueLines, ThePromptThatIsSuggestedIsOfTheText) {
    const std::pair<std::string, std::string> texts[] = {
        {"\"Es war einmal\" %\n", " \"war\" continues"},
        {"\xe6\x98\x94\xe3\x80\x85\xe3\x81\x82\xe3\x82\x8b\xe3\x81\xa8\xe3\x81\x93\xe3\x82\x8d%\n",
         " \"\xe6\x98\x94\xe3\x80\x85\xe3\x81\x82\xe3\x82\x8b\xe3\x81\xa8\xe3\x81\x93\xe3\x82\x8d\" cont"},
        {"1;2;$(3)%\n", "-e r writes a text with"}};
    for (const auto& [line, says] : texts) {
        std::string text;
        for (int i = 0; i < 3000; i++) text += line.substr(0, line.find('%')) + std::to_string(i) + "\n";
        write_whole_file(folder / "line.txt", {text});
        expect_ok(train("--text line.txt -x 1 -t 32 -s 0 -o r"), says);
    }
}

#ifndef _WIN32
TEST_F(TrueLines, APipeIsReadOnce) {
    for (const char* name : {"/dev/stdin", "/dev/fd/0", "-"}) {
        const std::string command = "cd " + folder.path + " && cat a.txt | " + BINARY_DIR +
                                    "/prepare_data --out p --name n - " + name;
        expect_refusal(run_program({"bash", "-c", command}), "is given twice: it can be read once");
    }
    const std::string redirected =
        "cd " + folder.path + " && " + BINARY_DIR + "/prepare_data --out p --name n - a.txt < a.txt";
    expect_refusal(run_program({"bash", "-c", redirected}),
                   "standard input (-) is the file a.txt, which is given, too: leave one out");
    write_whole_file(folder / "q.jsonl", {numbered(9, R"({"prompt": "a", "completion": "b)", "\"}\n")});
    for (const char* again : {"prepare_data --out p --name q --template <(echo '{user} {assistant}') q.jsonl",
                              "train_gpt2 --text a.txt --devices cpu,cpu --config <(echo seed=1)"})
        expect_refusal(run_program({"bash", "-c", "cd " + folder.path + " && " BINARY_DIR "/" + again}),
                       "can be read once, and ", ": save it in a file");
}
#endif

TEST_F(TrueLines, ARunInTheCurrentFolderStartsOver) {
    expect_ok(train("--text a.txt -x 1 -t 32 -s 0 -o ."));
    expect_ok(train("-o . -y 1 --start-over -x 1 -s 0"));
}

// Bytes of another encoding, and what looks like a weight.
TEST_F(TrueLines, AnyFolderHoldsARunThatResumes) {
    for (const std::string name :
         {"caf\xe9", "\xff\xfe\x80", "\xf4\x8f\xbf\xbf", "t:0.5", "12:30:00", "a\"'\\\t\xe9"}) {
        SCOPED_TRACE(name);
        const std::string home = folder / name;
        std::filesystem::create_directories(home + "/r");
        std::filesystem::copy(folder / "a.txt", home + "/" + name);
        Words command = {"env", "-C", home, program, "--device", "cpu", "-e", model};
        expect_ok(run_program(with(command, {"--text", "./" + name, "-x", "1", "-s", "0", "-o", "./r:0.5"})),
                  "plot: r:0.5/loss.svg");
        command.resize(6);
        const ProgramResult again = run_program(with(command, args("-o", home + "/r:0.5", "-y 1 -x 2 -s 0")));
        expect_ok(again, "2/2 | loss");
        EXPECT_FALSE(contains(again.out, "cannot be read"));  // the text, whose name is recorded
        EXPECT_EQ(find_not_utf8(read_whole_file(home + "/r:0.5/options.toml")), std::string::npos);
        EXPECT_TRUE(file_exists(home + "/r:0.5/DONE_00000002"));
    }
}

// Commands to copy, also of folders whose names have blanks, begin with what packages install.
TEST_F(TrueLines, CommandsAreThoseOfThePackage) {
    expect_ok(train("--text", {"it's.txt", "-x", "1", "-t", "32", "-s", "0", "-o", "q r"}));
    std::filesystem::create_directories(folder / "e m");
    const auto expect_command = [&](const std::string& name, const std::string& installed,
                                    const Words& options, const std::string& command) {
        std::filesystem::create_symlink(BINARY_DIR "/" + name, folder / installed);
        const Words words = {"env", "-C", folder.path, "./" + installed};
        expect_refusal(run_program(with(words, options)), command);
    };
    expect_command("eval", "vulkan-gpt2-eval", {"-e", "e m", "--text", "a.txt"},
                   "(vulkan-gpt2-train -o 'e m' writes");
    expect_command("generate", "vulkan-gpt2-generate", {"-e", "q r", "--question", "hi"},
                   "; vulkan-gpt2-train -e 'q r' --text chat.jsonl teaches");
    expect_command("prepare_data", "vulkan-gpt2-prepare-data",
                   {"--out", ".", "--name", "x", "a.txt", "chat.jsonl"},
                   "a.txt is plain text: vulkan-gpt2-train mixes them");
    std::filesystem::remove_all(folder / "q r/tokens");
    expect_command("train_gpt2", "vulkan-gpt2-train", {"-o", "q r", "-y", "1", "-x", "2"},
                   "vulkan-gpt2-train -e 'q r' --text '" + folder / "it'\\''s.txt' -o FOLDER");
}

// What follows the last step is cut: the run has ended all the same.
TEST_F(TrueLines, ASignalInTheLastSampleLeavesACompleteRun) {
    const Words command = with(args("env -C", folder.path, program, "--device cpu -e", model),
                               words_of("--text a.txt -t 32 -x 2 -o r -g 100000000"));
    const ProgramResult stopped = run_program(command, {SIGINT, "---\n"});
    EXPECT_EQ(stopped.status, 128 + SIGINT) << stopped.err;
    EXPECT_TRUE(contains(stopped.out, "; the run is complete: "));
    EXPECT_TRUE(contains(stopped.out, "continues a text with the best model"));
    expect_ok(run("train_gpt2", words_of("-o r -y 1 -s 0")), "the run has already done its 2 steps");
    const ProgramResult before = run_program(with(command, words_of("-s 1 -o s")), {SIGINT, "---\n"});
    EXPECT_TRUE(contains(before.out, "s -y 1 resumes from here"));
}

// What a line says of a checkpoint is what the folder holds.
TEST(Lines, LinesSayWhatHappened) {
    const Data data;
    int counts[2] = {};
    for (const char* rate : {"3e-4", "1"})  // the last validation is the best one, or an earlier one
        for (const char* keeps : {"--keep-best", "--no-keep-best"})
            for (const char* save : {"1", "3", "5"}) {
                const std::string folder = data / format_string("run%s_%s_%s", keeps, save, rate);
                const std::string result =
                    output_of(data.run(with({"-o", folder, "-n", save, "-l", rate, keeps},
                                            words_of("-x 5 -s 0 -v 2 -nk 2 --device cpu"))));
                const size_t line = result.find("validation loss: best");
                ASSERT_NE(line, std::string::npos) << result;
                const std::string said = result.substr(line);
                int step = -1;
                ASSERT_EQ(sscanf(said.c_str() + said.find(" at step "), " at step %d", &step), 1) << said;
                const bool is_there = std::filesystem::exists(done_path(folder, step));
                EXPECT_TRUE(contains(said, is_there ? ", saved;" : ", not saved;"));
                counts[is_there]++;
                const ProgramResult eval =
                    run_program("eval -e", folder, "-i", data.val, "-b 1 -t 16 --device cpu");
                ASSERT_EQ(eval.status, 0) << eval.err;
                EXPECT_EQ((eval.out + eval.err).find("the last one, too") != std::string::npos, step == 5)
                    << eval.out << eval.err;
            }
    EXPECT_GT(counts[0], 0);
    EXPECT_GT(counts[1], 0);
}

// A run that is extended says how its learning rate jumps, and how to continue at that of its last step: with
// each schedule, each optimizer and each way to say how long the run is.
TEST(Lines, AnExtendedRunSaysItsRate) {
    const Data data;
    const struct {
        const char *options, *longer, *rates;
    } cases[] = {
        {"-k cosine -x 4 -q 0.1", "-x 20", "-l 0.00232 -u 0 "},
        {"-k linear -x 4 -q 0", "-x 20", "-l 0.0025 -u 0 "},
        {"-k wsd --epochs 2 -q 0.1", "-x 20", "-l 0.00265 -u 0 "},
        {"-k linear -q 0.1", "--epochs 2", "-l 0.00229 -u 0 "},
        {"-k cosine -u 1 -q 0.1", "-x 20 -k constant -q 1", "-l 0.0016 -u 0 "},
        {"-k cosine -q 0.1", "-d 51", "-l 0.00145 -u 0 "},  // an epoch of shorter steps
        {"--optimizer muon -k linear -x 4 -q 0.1", "-x 20", "-l 0.00325 -u 0 "},
        {"--optimizer muon --muon-lr 0.2 -k cosine -q 0.1", "-x 20", "-l 0.00145 -u 0 --muon-lr 0.0289 "},
        {"--muon-lr 0.2 --optimizer muon -k wsd -q 0.1", "-x 20 -l 0.1",
         "-l 0.00364 -u 0 --muon-lr 0.0727 "}};
    const auto rates_of = [](const ProgramResult& run) {
        Words found;
        const std::string out = output_of(run);
        for (size_t at = 0; (at = out.find("| lr ", at)) != out.npos; at++)
            found.push_back(out.substr(at, 13));
        return found;
    };
    for (const auto& [options, longer, rates] : cases) {
        const std::string folder = data / options;
        const Words rates_before = rates_of(
            data.run(with(words_of(options), with({"-i", data.val, "-o", folder},
                                                  words_of("-d 102 -l 0.01 -s 0 -v 0 --device cpu")))));
        copy_folder(folder, folder + "2");
        const auto extend = [&](const std::string& run, const std::string& more) {
            return run_program(with(args(program, "-y 1 -o", run), words_of(more)));
        };
        const std::string jumps = output_of(extend(folder, longer));
        const size_t advice = jumps.find("-k constant -l ");
        ASSERT_NE(advice, std::string::npos) << options << jumps;
        const std::string words = jumps.substr(advice, jumps.find("continues", advice) - advice);
        EXPECT_EQ(words, std::string("-k constant ") + rates) << options;
        const ProgramResult goes_on = extend(folder + "2", "-x 30 " + words);
        EXPECT_FALSE(contains(goes_on.out, "the learning rate follows")) << options;
        EXPECT_EQ(rates_of(goes_on).at(0), rates_before.back()) << options;
    }
}

TEST(Lines, OneStepIsNoSteps) {
    const Data data;
    const std::string folder = data / "run";
    const Words options = {"-s", "0", "-v", "0", "--device", "cpu", "-o", folder};
    const auto run = [&](const Words& more) {
        const ProgramResult result = data.run(with(options, more));
        for (const char* wrong : {" 1 steps", " 1 updates"})
            EXPECT_FALSE(contains(result.out + result.err, wrong)) << result.out << result.err;
        return result;
    };
    expect_ok(run(words_of("-x 1 -u 2 -k linear -q 0")), "tokens per step, 1 step\n");
    expect_ok(run(words_of("-y 1")), "the run has already done its 1 step;");
    expect_refusal(run(words_of("-y 1 -x 0")), "has already done 1 step:");
    expect_ok(run(words_of("-y 1 -x 3 -u 0")),
              "over 3 steps: it is 0.0002 at step 2, and was 0.00015 at step 1; ");
    expect_refusal(run(words_of("-x 9 -l 1000 -c 1 --max-nonfinite-updates 1")),
                   "the last update was skipped");
}

TEST(Lines, HellaswagInVainNeedsNoFile) {
    const Data data;
    expect_ok(data.run(words_of("-x 1 -s 0 -v 0 -h 1 --hellaswag-file none --device cpu")),
              "--hellaswag has no effect: -v is 0");
}

#ifndef _WIN32
// Each key is typed once the program has answered the one before, or shown nothing for half a second.
static std::string shown_by_line_editor(const Words& keys) {
    int terminal = -1;
    const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
    if (child == 0) {
        while (const auto line = read_typed_line("> ")) printf("[%s]\n", line->c_str());
        _exit(puts("end") < 0 || fflush(stdout));
    }
    std::string shown;
    char chunk[4096];
    bool has_answered = false;
    int tenths = 0;  // of a second without a sign of life
    for (size_t next = 0; child > 0 && tenths < 300;) {
        pollfd waiting = {terminal, POLLIN, 0};
        if (poll(&waiting, 1, 100) > 0) {
            const ssize_t count = read(terminal, chunk, sizeof chunk);
            if (count <= 0) break;
            shown.append(chunk, size_t(count));
            has_answered = true;
            tenths = 0;
        } else if (tenths++; next < keys.size() && (has_answered || (next > 0 && tenths == 5))) {
            EXPECT_EQ(write(terminal, keys[next].data(), keys[next].size()), ssize_t(keys[next].size()));
            next++;
            has_answered = false;
            tenths = 0;
        }
    }
    if (child < 0) return "";
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(terminal);
    std::erase(shown, '\r');
    return shown;
}

TEST(LineEditor, ControlDEndsALineOrTheInput) {
    if (shown_by_line_editor({"\x04"}).empty()) GTEST_SKIP() << "no pseudo-terminal";
    EXPECT_EQ(shown_by_line_editor({"\x04"}), "> \nend\n");
    EXPECT_EQ(shown_by_line_editor({"ab", "\x04", "\x04", "c\n", "\x04"}), "> ab\n[ab]\n> c\n[c]\n> \nend\n");
    EXPECT_EQ(shown_by_line_editor({"\x03", "\x04"}), "> ^C\nend\n");
    EXPECT_EQ(shown_by_line_editor({"ab", "\x03", "c\n", "\x04"}), "> ab^Cc\n[c]\n> \nend\n");
}
#endif
