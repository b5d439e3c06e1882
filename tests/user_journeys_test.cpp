// What a newcomer does, from text to generated text, with the programs as they are: the tokenizer travels
// with data and model, a run's folder is a model, and messages name the option and what to do.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <random>
#include <regex>
#include <set>

#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/data/sidecar.h"
#include "llmc/files/checkpoint.h"
#include "llmc/files/model_file.h"
#include "llmc/files/model_source.h"
#include "llmc/text/tokenizer.h"
#include "llmc/text/tokenizer_info.h"
#include "tests/message_of.h"
#include "tests/tiny_run.h"
#include "tests/token_shard.h"

// A tokenizer of 256 bytes, two merges and end-of-text.
static void write_small_tokenizer(const std::string& path) {
    Tokenizer tokenizer = open_tokenizer("bytes");
    tokenizer.tokens.insert(tokenizer.tokens.end() - 1, {"on", "once"});
    tokenizer.tokens.insert(tokenizer.tokens.begin() + 257, "ce");
    tokenizer.end_of_text = tokenizer.vocab_size() - 1;
    write_tokenizer(tokenizer, path);
}

// A folder with a text, its shards as bytes (data/my_*.bin) and with a small tokenizer (data/bpe_*.bin).
struct Journey : ::testing::Test {
    TemporaryFolder folder;
    const std::string shape = "custom:layers=1,heads=2,channels=16,max_seq_len=32";

    void SetUp() override {
        write_whole_file(folder / "my.txt", {numbered(400, "once upon a time, line ", "\n")});
        write_small_tokenizer(folder / "small.bin");
        prepare("my", {});
        prepare("bpe", {"--tokenizer", folder / "small.bin"});
    }
    void prepare(const std::string& name, const Words& options) {
        expect_ok(run_program(with(args(bin("prepare_data"), "--out", folder / "data", "--name", name,
                                        "--val-tokens 600", folder / "my.txt"),
                                   options)));
    }
    std::string data(const std::string& file) const { return folder / ("data/" + file); }
    Words trainer(const std::string& name, const Words& options) const {
        return with(args(bin("train_gpt2"), "--device cpu -i", data(name + "_train.bin"), "-j",
                         data(name + "_val.bin"), "-e", shape, "-b 2 -t 16 -x 4 -s 0"),
                    options);
    }
    ProgramResult train(const std::string& name, const Words& options) const {
        return run_program(trainer(name, options));
    }
    void expect_refused(const Words& command, const Words& parts) const {
        const ProgramResult result = run_program(command);
        expect_refusal(result);
        for (const std::string& part : parts) EXPECT_TRUE(contains(result.err, part));
    }
    void damage(const std::string& path) const {
        std::string bytes = read_whole_file(path);
        bytes[bytes.size() - 2] ^= 1;
        write_whole_file(path, {bytes});
    }
};

TEST_F(Journey, AModelTakesItsVocabularyFromTheData) {
    for (const auto& [name, vocabulary] : std::vector<std::pair<std::string, std::string>>{
             {"my", "vocabulary 257,"}, {"bpe", "vocabulary 260,"}}) {
        const ProgramResult run = train(name, args("-o", folder / name, "-n 4 -s 4"));
        ASSERT_EQ(run.status, 0) << run.err;
        EXPECT_TRUE(contains(run.out, vocabulary));
        EXPECT_EQ(run.err, "");
        const Words told = {"-e", "custom:layers=1,heads=2,channels=16,max_seq_len=32,vocab=300",
                            "--dry-run"};
        EXPECT_TRUE(contains(train(name, told).out, "vocabulary 300,"));
        const std::string text =
            output_of(run_program("generate -e", folder / name, "--device cpu -n 5 once"));
        EXPECT_TRUE(text.starts_with("once")) << text;
        expect_ok(run_program("eval -e", folder / name, "--device cpu -i", data(name + "_val.bin"), "-m 2"),
                  " bits per byte");
    }
}

// Tokens that the tokenizer lacks are never drawn: of 300 alike, 43 are such. A model's file that says
// nothing about its tokenizer takes the one that is named.
TEST_F(Journey, TextNeverHasTokensThatTheTokenizerLacks) {
    const std::string run = output_of(train(
        "my", args("-e", shape + ",vocab=300", "-o", folder / "run", "-n 4 -s 4 -g 200 --temperature 1000")));
    EXPECT_TRUE(contains(run, "generating:"));
    std::filesystem::copy(folder / "run/model_00000004.bin", folder / "bare.bin");
    for (const Words& model : std::vector<Words>{{folder / "run"},
                                                 {folder / "bare.bin", "--tokenizer", "bytes"},
                                                 {folder / "run", "--samples", "3"}}) {
        const ProgramResult text = run_program(with(
            args(bin("generate"), "--device cpu -n 200 --temperature 1000 --ignore-end once -e"), model));
        EXPECT_EQ(text.status, 0) << text.err;
        EXPECT_TRUE(contains(text.err, "200 written") || contains(text.err, "600 written")) << text.err;
    }
    const ProgramResult exported = run_program("train_gpt2 --export hf", folder / "hf", "-e", folder / "run");
    EXPECT_TRUE(contains(exported.out, "vocab.json")) << exported.err;
    expect_ok(run_program("train_gpt2 -o", folder / "run", "-y 1 -x 5 --device cpu"));
}

TEST_F(Journey, TheTokenizerTravelsWithDataAndModel) {
    std::filesystem::remove(folder / "small.bin");
    rename_file(folder / "data", folder / "moved");
    const ProgramResult run = run_program("train_gpt2 --device cpu -i", folder / "moved/bpe_train.bin", "-e",
                                          shape, "-b 2 -t 16 -x 2 -s 0 -n 2 -o", folder / "run");
    ASSERT_EQ(run.status, 0) << run.err;
    std::filesystem::remove_all(folder / "moved");
    rename_file(folder / "run", folder / "elsewhere");
    const ProgramResult text =
        run_program("generate -e", folder / "elsewhere/model_00000002.bin", "--device cpu -n 5 once");
    EXPECT_EQ(text.status, 0) << text.err;
    EXPECT_TRUE(contains(text.err, "2 tokens read"));  // end-of-text and "once"
}

TEST_F(Journey, ARunKeepsItsTokenizerWhereThatOfItsDataIsGone) {
    expect_ok(run_program("train_gpt2 --device cpu -i", folder / "data/bpe_train.bin", "-e", shape,
                          "-b 2 -t 16 -x 2 -s 0 -o", folder / "run"));
    std::filesystem::remove(folder / "data/bpe.tokenizer");
    expect_ok(run_program("train_gpt2 -y 1 -x 4 --device cpu -o", folder / "run"));
    expect_ok(run_program("train_gpt2 --device cpu -i", folder / "data/bpe_train.bin", "-e", folder / "run",
                          "-b 2 -t 16 -x 1 -s 0 -o", folder / "tuned"));
    for (const char* model : {"run", "tuned"}) {
        const ProgramResult text = run_program("generate -e", folder / model, "--device cpu -n 5 once");
        EXPECT_TRUE(text.status == 0 && contains(text.err, "2 tokens read")) << text.err;
    }
}

TEST_F(Journey, AnotherTokenizerIsRefusedByName) {
    expect_ok(train("my", {"-o", folder / "run", "-n", "4"}));
    const Words both = {"bpe_", "tokenizer small.bin (260 tokens)", "tokenizer bytes (257 tokens)"};
    expect_refused(trainer("bpe", {"-e", folder / "run"}), both);
    expect_refused(trainer("my", {"-i", data("bpe_train.bin")}), {"bpe.json", "my.json", "small.bin"});
    expect_refused(trainer("my", {"--tokenizer", folder / "small.bin"}), {"small.bin", "bytes"});
    expect_refused(trainer("bpe", {"-o", folder / "run", "-y", "1"}), both);
    expect_refused({bin("eval"), "-e", folder / "run", "--device", "cpu", "-i", data("bpe_val.bin")}, both);
    expect_refused({bin("generate"), "-e", folder / "run", "--tokenizer", folder / "small.bin", "x"},
                   {"small.bin"});
    // a model's file that says nothing about its tokenizer
    std::filesystem::copy(folder / "run/model_00000004.bin", folder / "bare.bin");
    expect_refused(trainer("bpe", {"-e", folder / "bare.bin"}),
                   {"small.bin (260 tokens)", "vocabulary of 257"});
    expect_refused(args(bin("generate"), "--device cpu -e", folder / "bare.bin", "--tokenizer",
                        folder / "small.bin", "x"),
                   {"small.bin has 260 tokens", "bare.bin has only 257"});
}

TEST_F(Journey, ShardsWithoutASidecarWorkWithAWarning) {
    std::filesystem::remove(data("my.json"));
    const ProgramResult bytes = train("my", {"-x", "1", "-v", "0"});
    EXPECT_EQ(bytes.status, 0) << bytes.err;
    EXPECT_TRUE(contains(bytes.out, "vocabulary 50257,"));
    EXPECT_TRUE(contains(bytes.err, "warning: ") && contains(bytes.err, "no token reaches 257")) << bytes.err;
    write_tokens(folder / "llmc.bin", 1000, 400);
    const ProgramResult others = train("my", {"-x", "1", "-v", "0", "-i", folder / "llmc.bin"});
    EXPECT_EQ(others.status, 0) << others.err;
    EXPECT_EQ(others.err, "");
}

TEST_F(Journey, ASidecarKeepsWhatElseIsInTheFile) {
    for (const char* shard : {"my_train.bin", "my_val.bin"}) std::filesystem::remove(data(shard));
    write_whole_file(data("my.json"), {"{\"seed\": 7, \"nats_per_token\": 1}"});
    prepare("my", {});
    const std::string text = read_whole_file(data("my.json"));
    EXPECT_TRUE(contains(text, "\"seed\": 7") && contains(text, "\"vocab_size\": 257")) << text;
    write_whole_file(data("my.json"), {"not JSON"});
    expect_refused({bin("prepare_data"), "--out", folder / "data", "--name", "my", folder / "my.txt"},
                   {"my.json is there, and this program has not written it"});
    EXPECT_EQ(read_whole_file(data("my.json")), "not JSON");
}

TEST_F(Journey, ExportsAModelThatHuggingFacesToolsLoad) {
    expect_ok(train("bpe", {"-o", folder / "run", "-n", "4"}));
    expect_ok(run_program("train_gpt2 -e", folder / "run", "--export hf", folder / "hf"));
    for (const char* file : {"model.safetensors", "config.json", "generation_config.json", "README.md",
                             "tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json"})
        EXPECT_TRUE(file_exists(folder / "hf" + "/" + file)) << file;
    EXPECT_EQ(read_whole_file(folder / "hf/merges.txt"), "#version: 0.2\no n\nc e\non ce\n");
    auto text = [&](const std::string& model) {
        return run_program({bin("generate"), "-e", model, "--device", "cpu", "-n", "9", "once more"}).out;
    };
    EXPECT_EQ(text(folder / "hf"), text(folder / "run"));
    expect_refused({bin("train_gpt2"), "--export", "hf", folder / "other"}, {"--export", "-e"});
    EXPECT_FALSE(file_exists(folder / "other"));

    // tokenizer.json, as the library writes it
    write_whole_file(folder / "hf/tokenizer.json",
                     {R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},)",
                      R"("model": {"merges": [["o", "n"], ["c", "e"], "on ce"], "vocab": )",
                      read_whole_file(folder / "hf/vocab.json"), "}}"});
    remove_file(folder / "hf/vocab.json");
    EXPECT_EQ(text(folder / "hf"), text(folder / "run"));
}

// --- a run's folder is a model ---

// Between finding and reading a checkpoint, the run that trains replaces it.
TEST_F(Journey, AModelThatARunDeletesIsFoundAgain) {
    const std::string run = folder / "run";
    expect_ok(train("my", {"-o", run, "-n", "1", "-v", "0"}));
    ModelSource model = find_model(run);
    Words read;
    read_found_model(model, [&] {
        read.push_back(model.path);
        if (read.size() < 3) delete_checkpoint(run, 5 - int(read.size()));
        EXPECT_EQ(read_model_file_header(model.path).channels, 16);
    });
    EXPECT_EQ(read, (Words{model_path(run, 4), model_path(run, 3), model_path(run, 2)}));
    EXPECT_EQ(message_of([&] { read_found_model(model, [] { fail("damaged"); }); }), "damaged");
}

TEST_F(Journey, ARunsFolderIsItsNewestGoodCheckpoint) {
    expect_ok(train("my", args("-o", folder / "run", "-n 2 -l 0.1")));
    const Words rest = {"--device", "cpu", "-n", "9", "once"};
    auto generate = [&](const std::string& model) {
        return run_program(with({bin("generate"), "-e", model}, rest));
    };
    const std::string newest = generate(folder / "run/model_00000004.bin").out,
                      older = generate(folder / "run/model_00000002.bin").out;
    EXPECT_EQ(generate(folder / "run").out, newest);
    ASSERT_NE(newest, older);
    damage(folder / "run/model_00000004.bin");
    const ProgramResult fallback = generate(folder / "run");
    EXPECT_EQ(fallback.out, older);
    EXPECT_TRUE(contains(fallback.err, "checkpoint of step 4 is broken"));
    expect_ok(train("my", {"-e", folder / "run", "-x", "1"}));

    const std::string broken = folder / "run/model_00000004.bin";
    const Words message = {"model_00000004.bin is damaged"};
    expect_refused(with({bin("generate"), "-e", broken}, rest), message);
    expect_refused({bin("eval"), "-e", broken, "--device", "cpu", "-i", data("my_val.bin")}, message);
    expect_refused(trainer("my", {"-e", broken}), message);
    expect_refused({bin("train_gpt2"), "-e", broken, "--export", "hf", folder / "hf"}, message);
    expect_refused(with({bin("generate"), "-e", folder / "data"}, rest), {"no complete checkpoint"});
    const std::pair<const char*, const char*> others[] = {
        {"pytorch_model-00001-of-00002.bin", "PK\3\4"}, {"model.ckpt", "\x80\2"}, {"model.gguf", "GGUF"}};
    for (const auto& [name, start] : others) {
        create_folders(folder / name + ".d");
        write_whole_file(folder / name + ".d/" + name, {start, "..."});
        const std::string says = start == std::string("GGUF") ? " is a GGUF file" : " is a file of PyTorch";
        for (const std::string& model : {folder / name + ".d", folder / name + ".d/" + name})
            expect_refused(with({bin("generate"), "-e", model}, rest), {name + says});
    }
    expect_refused(with({bin("generate"), "-e", folder / "nowhere"}, rest), {"no such file or folder"});
}

// The folder that -e named is needed once.
TEST_F(Journey, ATunedRunResumesWithoutItsBase) {
    expect_ok(train("my", {"-o", folder / "base", "-n", "4"}));
    expect_ok(train("my", {"-e", folder / "base", "-o", folder / "tuned", "-n", "2", "-x", "2"}));
    std::filesystem::remove_all(folder / "base");
    expect_ok(run_program("train_gpt2 -y 1 -o", folder / "tuned", "-x 4"));
    EXPECT_EQ(find_latest_checkpoint(folder / "tuned").step, 4);
}

TEST_F(Journey, PathsInAnOptionsFileAreRelativeToIt) {
    create_folders(folder / "configs");
    const std::string rest = "\nmodel=\"" + shape + "\"\nbatch-size=2\nsequence-length=16\nmax-steps=1\n";
    write_whole_file(folder / "configs/new.toml", {"train-data=\"../data/my_train.bin\"", rest});
    write_whole_file(folder / "configs/old.toml", {"train-data=\"data/my_train.bin\"", rest});
    const ProgramResult relative = run_program(
        args("env -C /", bin("train_gpt2"), "--device cpu --config", folder / "configs/new.toml"));
    EXPECT_EQ(relative.status, 0) << relative.err;
    const ProgramResult old =
        run_program(args("env -C", folder.path, bin("train_gpt2"),
                         "--device cpu --config configs/old.toml"));  // relative to the current folder
    EXPECT_EQ(old.status, 0) << old.err;
    expect_ok(train("my", {"-o", folder / "configs/base", "-n", "4"}));  // a model beside the file
    write_whole_file(folder / "configs/model.toml",
                     {"train-data=\"../data/my_train.bin\" # in \"bytes\"\n",
                      "model=\"base\"\nbatch-size=2\nsequence-length=16\n", "max-steps=1 # one # step\n"});
    expect_ok(run_program(
        args("env -C /", bin("train_gpt2"), "--device cpu --config", folder / "configs/model.toml")));
    create_folders(folder / "configs/custom:layers=1,heads=2,channels=16,max_seq_len=32");  // no model
    expect_ok(run_program(
        {"env", "-C", "/", bin("train_gpt2"), "--device", "cpu", "--config", folder / "configs/new.toml"}));
}

// Nothing to learn: the validation loss rises.
static void write_noise(const std::string& path) {
    std::mt19937 random(1);
    std::vector<uint16_t> noise(600);
    for (uint16_t& token : noise) token = uint16_t(random() % 257);
    write_token_shard(path, noise.data(), noise.size());
    const std::string sidecar = sidecar_of(path);  // lists the shard that was there
    nlohmann::json members = parse_json_object(read_whole_file(sidecar), sidecar);
    members.erase("shards");
    write_whole_file(sidecar, {json_text(members)});
}

TEST_F(Journey, KeepBestKeepsTheCheckpointWithTheLowestLoss) {
    write_noise(data("my_val.bin"));
    const Words options = {"-o", folder / "run", "-n", "5", "-nk", "1", "-v", "3", "-l", "0.02", "-x", "20"};
    const std::string run = output_of(train("my", with(options, {"--keep-best"})));
    EXPECT_TRUE(contains(run, "at step 3, saved; last "));
    EXPECT_EQ(list_checkpoints(folder / "run"), (std::vector<int>{20, 3})) << run;
    for (const char* part : {"val loss ", " | training loss ", " | best "}) EXPECT_TRUE(contains(run, part));
    const Words best = {folder / "run", "taking the best checkpoint, of step 3, with validation loss "},
                last = {folder / "run:last", "taking the last checkpoint, of step 20"};
    for (const Words& model : {best, last})
        for (const Words& use : {Words{bin("generate"), "-n", "1", "once"},
                                 Words{bin("eval"), "-i", data("my_val.bin"), "-t", "16"},
                                 Words{bin("train_gpt2"), "--export", "hf", folder / "hf"}}) {
            const ProgramResult used = run_program(with(use, {"-e", model[0], "--device", "cpu"}));
            EXPECT_TRUE(contains(used.out + used.err, model[1]));
        }
    for (const char* other : {":best", ":first", ":", ":20"})
        expect_refused({bin("generate"), "-e", folder / "run" + other, "x"},
                       {"after a run's folder comes :last, or nothing for its best checkpoint"});
    const ProgramResult patient = train("my", with(options, {"-o", folder / "patient", "--patience", "2"}));
    EXPECT_TRUE(contains(patient.out,
                         "the run ends after 2 validations without a better one (--patience); "
                         "-y 1 --patience 0 continues it\n"));
    EXPECT_EQ(list_checkpoints(folder / "patient").front(), 9);
    expect_ok(run_program("train_gpt2 -y 1 --patience 0 -o", folder / "patient"));
    EXPECT_EQ(list_checkpoints(folder / "patient").front(), 20);
    expect_ok(train("my", with(options, {"-y", "1", "-x", "25"})));  // remembers it
    EXPECT_EQ(list_checkpoints(folder / "run"), (std::vector<int>{25, 3}));
    expect_refused(trainer("my", {"--keep-best"}), {"--keep-best", "-o"});
}

// The best model is that of step 0, and learning at this rate destroys it.
TEST_F(Journey, TheLastSampleIsOfTheBestModel) {
    expect_ok(train("my", args("-o", folder / "base", "-l 0.01 -x 30")));
    const auto sample_of = [&](const std::string& rate) {
        const std::string run = output_of(train("my", args("-e", folder / "base", "-o", folder / "run", "-l",
                                                           rate, "-k constant -v 2 -s 4 -g 30")));
        const size_t start = run.find("generating:");
        EXPECT_TRUE(contains(run, "sample of the best model, of step 0:\ngenerating:"));
        return run.substr(start, run.find("---", start + 20) - start);
    };
    EXPECT_EQ(sample_of("10"), sample_of("0"));
}

// What else an export prints goes to standard error.
TEST_F(Journey, AModelOnStandardOutputIsOnlyTheModel) {
    expect_ok(train("my", {"-o", folder / "run"}));
    const ProgramResult to_pipe = run_program("train_gpt2 -e", folder / "run", "--export gguf /dev/stdout");
    EXPECT_EQ(to_pipe.status, 0) << to_pipe.err;
    EXPECT_EQ(to_pipe.out.substr(0, 4), "GGUF");
    EXPECT_TRUE(contains(to_pipe.err, "taking the best checkpoint"));
}

// With or without -n.
TEST_F(Journey, ARunSavesAtItsEnd) {
    const auto saved = [&](const std::string& name, const Words& options) {
        const std::string run = output_of(train("my", with({"-v", "0", "-o", folder / name}, options)));
        EXPECT_EQ(contains(run, "note: this run saves nothing, since -n is 0\n"), name == "none");
        return list_checkpoints(folder / name);
    };
    using Steps = std::vector<int>;
    EXPECT_EQ(saved("without", {}), Steps{4});
    EXPECT_EQ(saved("longer", {"-n", "100"}), Steps{4});
    EXPECT_EQ(saved("shorter", {"-n", "3"}), (Steps{4, 3}));
    EXPECT_EQ(saved("none", {"-n", "0"}), Steps{});
    const std::string unsaved = train("my", {}).out,
                      note = "note: this run saves nothing, since there is no -o\n";
    EXPECT_LT(unsaved.find(note), unsaved.find("step    1/4")) << unsaved;
}

// The loss falls, so every validation saves an extra checkpoint. It takes no other one's place, and stays if
// -nm keeps its step.
TEST_F(Journey, KeepBestDeletesNothingThatStaysWithoutIt) {
    const std::string run = folder / "run";
    const auto kept = [&](const Words& options) {
        std::filesystem::remove_all(run);
        expect_ok(train("my", with({"-o", run, "-v", "2", "-m", "2", "-x", "19", "-l", "0.003"}, options)));
        return list_checkpoints(run);
    };
    const std::vector<int> newest = {19, 10};
    EXPECT_EQ(kept({"-n", "10", "-nk", "2", "--no-keep-best"}), newest);
    EXPECT_EQ(kept({"-n", "10", "-nk", "2", "--keep-best"}), newest);  // the last step is the best
    EXPECT_EQ(kept(args("-n 100 -nm 4 --keep-best")), (std::vector<int>{19, 16, 12, 8, 4}));
    EXPECT_EQ(kept({"-n", "10", "-nk", "1", "-v", "6", "--keep-best"}), (std::vector<int>{19}));
    const ProgramResult worse =  // the last step was the best one
        train("my", args("-o", run, "-y 1 -x 28 -l 0.5 -k constant"));
    ASSERT_EQ(worse.status, 0) << worse.err;
    EXPECT_EQ(list_checkpoints(run), (std::vector<int>{28, 19})) << worse.out;
}

// A run killed at an extra checkpoint resumes there, and validates its step again, on other data.
TEST_F(Journey, AnExtraCheckpointSurvivesItsResume) {
    const std::string run = folder / "run", text = data("text_val.bin");
    std::filesystem::copy_file(data("my_val.bin"), text);
    write_noise(data("my_val.bin"));
    const auto resume_at_7 = [&](const Words& options) {
        std::filesystem::remove_all(run);
        const Words first = {"-o", run, "-n", "100", "-v", "7", "-l", "0.02", "-x", "12", "--keep-best"};
        expect_ok(train("my", first));
        EXPECT_EQ(list_checkpoints(run), (std::vector<int>{12, 7}));
        delete_checkpoint(run, 12);
        expect_ok(train("my", with(args("-o", run, "-y 1 -j", text, "-v 7"), options)),
                  "the best step so far, 7, is forgotten");
        return list_checkpoints(run);
    };
    EXPECT_EQ(resume_at_7({"-x", "8", "-l", "0.9", "-k", "constant"}), (std::vector<int>{8, 7}));
    EXPECT_EQ(resume_at_7({"-x", "14"}), (std::vector<int>{14}));  // better, so 7 goes: it is still extra
}

// Characters of shell patterns and of TOML in the name of the folder; also from another working directory.
TEST_F(Journey, ARunResumesInAFolderOfAnyName) {
    const std::string place = folder / "my [new]* \\project #2";
    create_folders(place);
    std::filesystem::rename(folder / "data", place + "/data");
    const Words in_place = {"env", "-C", place, bin("train_gpt2"), "--device", "cpu", "-o", "run"};
    for (const char* shards : {"data/my_train*.bin", "data/my_train.bin"}) {
        expect_ok(run_program(with(in_place, args("-i", shards, "-e", shape, "-b 2 -t 16 -x 4 -n 4"))));
        const std::string elsewhere = output_of(
            run_program(args("env -C /", bin("train_gpt2"), "--device cpu -o", place + "/run", "-y 1 -x 5")));
        EXPECT_FALSE(contains(elsewhere, "train-data is"));
        expect_ok(run_program(with(in_place, {"-y", "1", "-x", "6", "-i", shards})));
    }
}

// File names that JSON cannot hold.
TEST_F(Journey, ATokenizerIsFoundWhateverItsName) {
    prepare("caf\xe9", {"--tokenizer", folder / "small.bin"});
    const ProgramResult run = train("caf\xe9", {"-o", folder / "run", "-n", "4"});
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_TRUE(read_whole_file(folder / "run/tokenizer.bin") == read_whole_file(folder / "small.bin"));
}

// The exported model names the token that ends a text, which need not be the last of its vocabulary, and has
// no tokenizer but its own.
TEST_F(Journey, AnExportDescribesItsTokenizer) {
    const std::string hf = folder / "hf";
    const auto export_run = [&](const std::string& model) {
        return output_of(run_program("train_gpt2 -e", folder / model, "--export hf", hf, "--device cpu"));
    };
    expect_ok(train("my", {"-e", shape + ",vocab=300", "-o", folder / "padded", "-n", "4"}));
    export_run("padded");
    EXPECT_TRUE(contains(read_whole_file(hf + "/config.json"), "\"eos_token_id\": 256"));
    EXPECT_TRUE(file_exists(hf + "/vocab.json"));
    std::filesystem::copy_file(data("my_train.bin"), folder / "plain_train.bin");  // names no tokenizer
    expect_ok(train("my", {"-i", folder / "plain_train.bin", "-j", "", "-e", shape + ",vocab=400", "-o",
                           folder / "plain", "-n", "4"}));
    export_run("plain");
    EXPECT_FALSE(file_exists(hf + "/vocab.json"));
    EXPECT_TRUE(contains(read_whole_file(hf + "/config.json"), "\"eos_token_id\": 399"));
    expect_ok(train("my", {"-o", folder / "bytes", "-n", "4"}));
    export_run("bytes");
    std::filesystem::rename(hf, folder / "unusable");
    write_whole_file(folder / "unusable/tokenizer.json", {"{}"});  // vocab.json may have other ids
    expect_ok(train("bpe", {"-o", folder / "lost", "--tokenizer", folder / "small.bin", "-n", "4"}));
    std::filesystem::remove(folder / "lost/tokenizer.bin");
    for (const char* model : {"unusable", "lost"}) {
        const ProgramResult refused = run_program("train_gpt2 -e", folder / model, "--export hf", hf);
        EXPECT_EQ(refused.status, 1);  // it does not guess another one
        EXPECT_TRUE(contains(refused.err, "--export needs another one")) << refused.err;
    }
}

TEST_F(Journey, ARunInTheFolderOfItsModelKeepsTheTokenizer) {
    const Words options = {"-i", folder / "plain_train.bin", "-j", "", "-o", folder / "run", "-n", "4"};
    std::filesystem::copy_file(data("bpe_train.bin"), folder / "plain_train.bin");  // names no tokenizer
    expect_ok(train("bpe", with(options, {"--tokenizer", folder / "small.bin"})));
    expect_ok(train("bpe", with(options, {"-e", folder / "run"})), "earlier_1");
    EXPECT_TRUE(read_whole_file(folder / "run/tokenizer.bin") == read_whole_file(folder / "small.bin"));
}

TEST_F(Journey, MetricsCountTheTokensOfAllBatchSizes) {
    expect_ok(train("my", {"-o", folder / "run", "-n", "4"}));  // 4 steps of 32 tokens
    for (const Words& more : {args("-b 4 -x 6"), args("-b 1 -x 7")})
        expect_ok(train("my", with({"-o", folder / "run", "-y", "1"}, more)));
    const std::string metrics = read_whole_file(folder / "run/metrics.csv");
    for (const auto& [step, tokens] : std::map<int, int>{{3, 128}, {4, 192}, {5, 256}, {6, 272}})
        EXPECT_TRUE(std::regex_search(metrics, std::regex("\n" + std::to_string(step) + ",[^\n]*,,," +
                                                          "[0-9.]+," + std::to_string(tokens) + ",\n")))
            << step << "\n"
            << metrics;
}

// Without -x, the run ends after an epoch, whose number of steps depends on the batch.
TEST_F(Journey, AnEpochThatIsShorterThanTheRunSaysSo) {
    expect_ok(train("my", args("-o", folder / "run", "-x 200 -n 200 -v 0")));
    expect_refused(trainer("my", args("-o", folder / "run", "-y 1 -b 8 -x -1")),
                   {"has already done 200 steps, and an epoch has ", "say with -x"});
}

// With this seed, the state of the random numbers would be 0, and so would they all.
TEST_F(Journey, EverySeedDrawsDifferentTokens) {
    const std::string run = output_of(train("my", args("--seed 18446744073709550321 -s 4 --temperature 9")));
    const std::string before = "generating:\n---\n";
    const size_t begin = run.find(before) + before.size(), end = run.find("\n---\n", begin);
    const std::string text = run.substr(begin, end - begin);
    EXPECT_GT(std::set<char>(text.begin(), text.end()).size(), 10u) << text;
}

// --- manners ---

TEST(TokenizerInfo, OfANameThatEndsLikeASplit) {
    EXPECT_EQ(sidecar_of("d/web_val_train_000001.bin"), "d/web_val.json");
    EXPECT_EQ(sidecar_of("d/web_val.bin"), "d/web.json");
}

TEST_F(Journey, MessagesNameTheOptionAndTheNearest) {
    const std::pair<Words, const char*> cases[] = {
        {{"words"}, "unexpected argument 'words': each text is given with --text"},
        {{"-o", folder / "my.txt"}, "my.txt is a file: name a folder"},
        {{"--export", "hf"}, "--export needs 2 values: hf DIR | gguf FILE"},
        {{"-e", "gpt2"}, "`data/download.sh gpt2 gpt2` downloads it to data/gpt2, for -e data/gpt2"},
        {{"-e", "nowhere/gpt2-xl/"}, "`data/download.sh gpt2 gpt2-xl` downloads it"},
    };
    for (const auto& [options, part] : cases) expect_refused(trainer("my", options), {part});
    expect_refused(args(bin("prepare_data"), "--out /proc/no --name x", folder / "my.txt"),
                   {"prepare_data: cannot create directory /proc/no: "});
    expect_refused(words_of(bin("generate") + " -e d1 One day"),
                   {"unexpected argument 'day': a prompt of several words needs quotes"});
    expect_refused({bin("eval"), "--simd", "avx9"}, {"--simd: avx9 is none of auto, "});
    const ProgramResult warned = train("my", {"-u", "9"});
    EXPECT_TRUE(contains(warned.err, "warning: -u 9: the warm-up is longer than the run of 4 steps"));
}

TEST_F(Journey, ATildeIsTheHomeFolderInEveryProgram) {
    const Words env = {"env", "HOME=" + folder.path, "USERPROFILE=" + folder.path};  // the latter on Windows
    const auto run = [&](const Words& command) { return run_program(with(env, command)); };
    EXPECT_EQ(run({bin("make_corpus"), "--out=~/stories.txt", "--bytes", "9000"}).err, "");
    EXPECT_EQ(run({bin("make_corpus"), "--check=~/stories.txt"}).err, "");
    const Words out = {bin("prepare_data"), "--out=~/shards", "--val-tokens", "600", "--name"};
    EXPECT_EQ(run(with(out, {"one", "--tokenizer=~/small.bin", "~/stories.txt"})).err, "");
    write_whole_file(folder / "list", {folder / "stories.txt"});
    EXPECT_EQ(run(with(out, {"two", "--files-from=~/list"})).err, "");
    const ProgramResult trained = run(args(bin("train_gpt2"), "--device cpu -i ~/shards/two_train*.bin -e",
                                           shape, "-b 2 -t 16 -x 1 -s 0 --output=~/run"));
    EXPECT_EQ(trained.err, "");
    for (const Words& use : {Words{bin("generate"), "-n", "1", "--file=~/list"},
                             Words{bin("generate"), "-n", "1", "--prompts=~/list"},
                             Words{bin("eval"), "--data=~/shards/two_val.bin", "-t", "16"},
                             Words{bin("train_gpt2"), "--export", "gguf", "~/model.gguf"},
                             Words{bin("train_gpt2"), "--export", "hf", "~/hf"}}) {
        expect_ok(run(with(use, {"--device", "cpu", "--model=~/run:last"})));
    }
    for (const char* made : {"shards/one_val.bin", "shards/two_val.bin", "model.gguf", "hf/config.json"})
        EXPECT_TRUE(file_exists(folder / made)) << made;
}

TEST_F(Journey, EveryProgramHasTheUsualOptions) {
    for (const char* name : {"train_gpt2", "eval", "generate", "prepare_data", "make_corpus", "test_gpt2"}) {
        const std::string help = output_of(run_program({bin(name), "-h"}));
        EXPECT_EQ(run_program({bin(name), "--help"}).out, help) << name;
        for (const char* option : {"--help", "--version", "--threads", "--simd", "--device"})
            EXPECT_TRUE(contains(help, option)) << name;
        EXPECT_FALSE(contains(help, "NONNEGATIVE")) << name;
        const std::string version = run_program({bin(name), "--version"}).out;
        EXPECT_TRUE(version.starts_with(std::string(name) + " ") && contains(version, "commit ")) << version;
        EXPECT_EQ(count_lines(version), 1) << version;
    }
}

TEST_F(Journey, ProgramsWithoutKernelsRunOnTheCpu) {
    const Words make = {bin("make_corpus"), "--out", folder / "corpus.txt", "--bytes", "100", "--device"};
    expect_ok(run_program(with(make, {"cpu"})));
    expect_refused(with(make, {"0"}), {"--device", "auto", "cpu"});
}

TEST_F(Journey, DryRunNeedsNoData) {
    const std::string run =
        output_of(run_program("train_gpt2 --dry-run --device cpu -e", shape, "-b 2 -t 16"));
    for (const char* part : {"data: none", "the largest batch that fits is -b ", "tokens/s"})
        EXPECT_TRUE(contains(run, part));
    EXPECT_FALSE(contains(run, "epochs"));
    EXPECT_FALSE(contains(run, "takes about an hour"));
}

TEST_F(Journey, ADryRunOnABusyMachineSaysSo) {
    const std::string busy =
        "for i in $(seq $((4 * $(nproc)))); do (while :; do :; done) & done; \"$@\"; kill $(jobs -p)";
    const ProgramResult run =
        run_program(with({"bash", "-c", busy, "bash"},
                         args(bin("train_gpt2"), "--dry-run --device cpu -e", shape, "-b 2 -t 16")));
    EXPECT_TRUE(contains(run.out, "note: other programs use the CPUs, too")) << run.err;
}

TEST_F(Journey, AnEstimateOfHoursSaysWhatTakesLess) {
    const Words plan = args(bin("train_gpt2"), "--dry-run --device cpu -e", shape, "-b 2 -t 16");
    const ProgramResult run = run_program(with(plan, {"-x", "1000000000"}));
    EXPECT_TRUE(std::regex_search(run.out, std::regex("note: -x [0-9]+ takes about an hour; less time for")))
        << run.out << run.err;
}

TEST_F(Journey, LinesAndOptimizerOptionsHaveAnEffect) {
    const ProgramResult usual = train("my", args("-x 6 -v 0"));
    EXPECT_EQ(printed_losses(usual.out).size(), 6u);
    const ProgramResult few = train("my", {"-x", "6", "-v", "0", "--log-every", "4"});
    EXPECT_EQ(printed_losses(few.out).size(), 2u) << few.out;  // steps 4 and 6
    for (const Words& change : std::vector<Words>{
             {"--beta1", "0.5"}, {"--beta2", "0.5"}, {"--eps", "0.1"}, args("--grad-clip 0.01 --eps 0.01")}) {
        const std::string changed = output_of(train("my", with({"-x", "6", "-v", "0"}, change)));
        EXPECT_NE(printed_losses(changed), printed_losses(usual.out)) << change[0];
    }
    const Words steps = args("-x 6 -v 6 -s 6");
    const ProgramResult whole = train("my", steps), dropping = train("my", with(steps, {"--dropout", "0.4"}));
    EXPECT_NE(printed_losses(dropping.out), printed_losses(whole.out));
    auto first_validation = [](const std::string& out) {  // of the untrained model: nothing is dropped there
        const size_t at = out.find("val loss");
        return at == std::string::npos ? "none in " + out : out.substr(at, out.find('\n', at) - at);
    };
    EXPECT_EQ(first_validation(dropping.out), first_validation(whole.out));
}
