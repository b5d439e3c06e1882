// What programs do to the outputs that a command line names: devices and pipes are written to, inputs and
// files of others are never replaced, and a program may write its own files again.
#include "llmc/base/output.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "llmc/base/file.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

namespace fs = std::filesystem;

static const int one_thread = setenv("OMP_NUM_THREADS", "1", 1);

static const std::string hellaswag_line =
    R"({"ctx": "a man", "endings": ["sits", "runs", "eats", "sleeps"], "label": 1})"
    "\n";

// A program that writes one file: `command` ends where the file is named.
struct Writer {
    std::string name, suffix;
    Words command;
    std::string input;  // that it reads; "": none
};

// Inputs of all writers in a folder, and the writers.
static std::vector<Writer> writers(const std::string& folder) {
    write_whole_file(folder + "/questions.jsonl", {hellaswag_line});
    std::vector<Writer> all = {
        {"make_corpus", ".txt", {BINARY_DIR "/make_corpus", "--stories", "3", "--out"}, ""},
        {"hellaswag",
         ".bin",
         {BINARY_DIR "/prepare_data", "hellaswag", folder + "/questions.jsonl", "--out"},
         folder + "/questions.jsonl"},
        {"gguf", ".gguf",
         args(
             bin("train_gpt2"),
             "-e custom:layers=1,heads=1,channels=8,max_seq_len=8,vocab=257 --tokenizer bytes --export gguf"),
         ""}};
    if (fs::exists(BINARY_DIR "/bench"))  // built with the benchmarks
        all.push_back(
            {"bench", ".json", args(bin("bench"), "--device cpu --filter sum_losses/cpu --json"), ""});
    return all;
}

static ProgramResult run_writer(const Writer& writer, const std::string& path) {
    Words command = writer.command;
    command.push_back(path);
    return run_program(command);
}

static ProgramResult run_shell(const Writer& writer, const std::string& path, const std::string& rest) {
    std::string command;
    for (const std::string& word : writer.command) command += "'" + word + "' ";
    return run_program({"bash", "-c", command + "'" + path + "' " + rest});
}

using Outputs = InFolder;

TEST_F(Outputs, DevicesAndPipesAreWrittenTo) {
    for (const Writer& writer : writers(folder.path)) {
        SCOPED_TRACE(writer.name);
        const std::string path = folder / (writer.name + writer.suffix), pipe = path + ".fifo";
        write_whole_file(path, {});                                       // as mktemp makes one
        for (int i = 0; i < 2; i++) expect_ok(run_writer(writer, path));  // also over its own file
        const bool is_json = writer.suffix == ".json";                    // with times, so each is another
        const auto is_complete = [&](const std::string& text) {
            const std::string file = read_whole_file(path);
            if (writer.suffix == ".gguf")  // which holds the file's name
                return text.starts_with("GGUF") && text.ends_with(file.substr(file.size() - 5000));
            return is_json ? text.starts_with('{') && text.ends_with("}\n") : text == file;
        };
        ASSERT_EQ(mknod((folder / "null").c_str(), S_IFCHR | 0600, makedev(1, 3)), 0);
        ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
        expect_ok(run_writer(writer, folder / "null"));
        EXPECT_TRUE(fs::is_character_file(folder / "null"));
        const std::string from_pipe = output_of(
            run_shell(writer, pipe, ">'" + path + ".log' & timeout 20 cat '" + pipe + "'; wait $!"));
        EXPECT_TRUE(is_complete(from_pipe)) << from_pipe;
        EXPECT_TRUE(fs::is_fifo(pipe));
        for (const char* name : {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"})
            for (const std::string& to :
                 {std::string("| cat"), ">'" + path + ".out'; cat '" + path + ".out'"}) {
                const std::string out = output_of(run_shell(writer, name, to));
                EXPECT_TRUE(is_complete(out)) << name << to << out;
            }
        const ProgramResult full = run_writer(writer, "/dev/full");
        expect_refusal(full, "/dev/full: No space left on device");
        EXPECT_FALSE(fs::exists("/dev/stdout.json") || fs::exists("/dev/null.json"));
        fs::remove(folder / "null");
    }
}

// Before it measures, or reads its input. An export creates the folder.
TEST_F(Outputs, AFolderThatIsMissingIsNoticedFirst) {
    for (Writer writer : writers(folder.path)) {
        if (writer.name == "gguf") continue;
        if (!writer.input.empty()) write_whole_file(writer.input, {"no question\n"});
        const ProgramResult result = run_writer(writer, folder / ("missing/x" + writer.suffix));
        EXPECT_EQ(result.status, 1) << writer.name;
        EXPECT_EQ(result.out, "") << writer.name;
        EXPECT_TRUE(contains(result.err, "cannot write " + folder / "missing/x"));
    }
}

// Files of somebody else, by all names, stay as they are.
TEST_F(Outputs, FilesOfOthersAreRefused) {
    for (const Writer& writer : writers(folder.path)) {
        SCOPED_TRACE(writer.name);
        for (const std::string& content :
             {std::string("my notes\n"), std::string("{\"a\": 1}\n"), std::string("{}"),
              std::string(5000, '\0'), std::string("GGUF, but a text"), hellaswag_line}) {
            const std::string path = folder / ("theirs" + writer.suffix),
                              link = folder / ("link" + writer.suffix);
            write_whole_file(path, {content});
            fs::create_symlink(path, link);
            for (const std::string& name : {path, link, folder / ("./theirs" + writer.suffix)}) {
                expect_refusal(run_writer(writer, name),
                               name + " is there, and this program has not written it");
                EXPECT_EQ(read_whole_file(path), content);
                EXPECT_TRUE(fs::is_symlink(link));
            }
            fs::remove(link);
        }
        fs::remove(folder / ("theirs" + writer.suffix));
        const std::string temporary = temporary_of(folder / ("theirs" + writer.suffix));
        write_whole_file(temporary, {"my notes\n"});
        EXPECT_EQ(run_writer(writer, folder / ("theirs" + writer.suffix)).status, 1);
        EXPECT_EQ(read_whole_file(temporary), "my notes\n");
        const ProgramResult directory = run_writer(writer, folder.path);
        expect_refusal(directory, "it is a directory");
    }
}

TEST_F(Outputs, InputsAreRefusedUnderAllNames) {
    fs::create_directory(folder / "sub");
    for (const Writer& writer : writers(folder.path)) {
        if (writer.input.empty()) continue;
        const std::string before = read_whole_file(writer.input);
        fs::create_symlink(writer.input, folder / "link");
        fs::create_symlink(folder.path, folder / "sub/folder");
        fs::create_hard_link(writer.input, folder / "hard");
        const std::string name = fs::path(writer.input).filename().string();
        for (const std::string& path :
             {writer.input, folder / "link", folder / "hard", folder / "sub/../link",
              folder / ("sub/folder/" + name), folder / (".//" + name)}) {
            expect_refusal(run_writer(writer, path), path + " is an input, too");
            EXPECT_EQ(read_whole_file(writer.input), before);
        }
    }
}

// The numbers beside a corpus.
TEST_F(Outputs, MakeCorpusLeavesOtherJsonAlone) {
    const Writer writer = writers(folder.path)[0];
    write_whole_file(folder / "notes.json", {"{\"mine\": 1}\n"});
    expect_refusal(run_writer(writer, folder / "notes.txt"), "notes.json is there");
    EXPECT_EQ(read_whole_file(folder / "notes.json"), "{\"mine\": 1}\n");
    EXPECT_FALSE(fs::exists(folder / "notes.txt"));
}

TEST_F(Outputs, MakeCorpusKeepsWhatIsSaidAboutShards) {
    const Writer writer = writers(folder.path)[0];
    expect_ok(run_writer(writer, folder / "c.txt"));
    expect_ok(run_program("prepare_data --out", folder.path, "--name c", folder / "c.txt"));
    expect_ok(run_writer(writer, folder / "c.txt"));
    const std::string json = read_whole_file(folder / "c.json");
    for (const char* name : {"\"shards\"", "\"tokenizer_of_shards\"", "\"nats_per_token\""})
        EXPECT_TRUE(contains(json, name));
}

TEST_F(Outputs, PrepareDataLeavesFilesOfOthersAlone) {
    write_whole_file(folder / "text", {"some text\n"});
    for (const char* name :
         {"x_train.bin", "x_val.bin", "x_train_000000.bin", "x_val_1234567.bin", "x.json", "x.tokenizer",
          "x_train_000009.bin.vulkan-gpt2.new", "x.vulkan-gpt2.lock", "x.json.vulkan-gpt2.tmp"}) {
        write_whole_file(folder / name, {"[\"mine\"]"});
        expect_refusal(run_program("prepare_data --out", folder.path, "--name x", folder / "text"),
                       std::string(name) + " is there");
        EXPECT_EQ(read_whole_file(folder / name), "[\"mine\"]");
        fs::remove(folder / name);
    }
    ASSERT_EQ(mkfifo((folder / "x_train.bin").c_str(), 0600), 0);
    EXPECT_TRUE(contains(run_program("prepare_data --out", folder.path, "--name x", folder / "text").err,
                         "x_train.bin: it is a device or a pipe"));
    fs::remove(folder / "x_train.bin");
    EXPECT_EQ(names_in(folder.path), Words{"text"});
    // an input that has the name of a shard
    expect_ok(run_program("prepare_data --out", folder.path, "--name x", folder / "text"));
    for (const char* name : {"x_train.bin", "x.json"}) {
        const std::string before = read_whole_file(folder / name);
        expect_refusal(run_program("prepare_data --out", folder.path, "--name x", folder / name));
        EXPECT_EQ(read_whole_file(folder / name), before);
    }
}

// A new run would move them, or remove those with a temporary name.
TEST_F(Outputs, InputsInTheFolderOfARunStay) {
    write_whole_file(folder / "text", {numbered(1000, "some words, and the number ", "\n\n")});
    expect_ok(run_program("prepare_data --out", folder.path, "--name x", folder / "text"));
    const Words common = with(
        {BINARY_DIR "/train_gpt2", "-o", folder / "run"},
        words_of("-e custom:layers=1,heads=1,channels=8,max_seq_len=16 -b 1 -t 16 -x 1 -s 0 --device cpu"));
    for (const char* name : {"model_00000001.bin", "tokenizer.bin", "main.log", "state_00000002_00000.bin",
                             "model_00000001.bin.vulkan-gpt2.tmp", "loss.svg"})
        for (const bool is_text : {false, true}) {
            SCOPED_TRACE(name);
            fs::remove_all(folder / "run");
            create_folders(folder / "run");
            const std::string input = folder / (std::string("run/") + name);
            fs::copy_file(is_text ? folder / "text" : folder / "x_train.bin", input);
            const std::string before = read_whole_file(input);
            const ProgramResult result = run_program(with(common, {is_text ? "--text" : "-i", input}));
            EXPECT_EQ(result.status, 1) << result.out;
            EXPECT_EQ(result.err.find("train_gpt2: " + input + " is an input with the name of a file of"), 0u)
                << result.err;
            EXPECT_EQ(names_in(folder / "run"), Words{name});
            EXPECT_TRUE(read_whole_file(input) == before);
        }
}

// Such as the model that is finetuned.
TEST_F(Outputs, ARunMovesOnceTheOneThatIsMadeOfItHasReadIt) {
    const std::string text = folder / "text", run = folder / "run";
    write_whole_file(text, {numbered(1000, "some words, and the number ", "\n\n")});
    const Words train = with({BINARY_DIR "/train_gpt2", "--text", text, "-o", run},
                             words_of("-b 1 -t 16 -x 1 -s 0 --device cpu"));
    const Words shape = words_of("-e custom:layers=1,heads=1,channels=8,max_seq_len=16");
    expect_ok(run_program(with(with(train, shape), {"--tokenizer", "bpe:300"})));
    write_whole_file(text, {numbered(1000, "other words, and the number ", "\n\n")});
    for (const Words& options :
         {with(shape, {"--tokenizer", run + "/tokenizer.bin"}), Words{"-e", run}, Words{"-e", run + ":last"}})
        expect_ok(run_program(with(train, options)));
    EXPECT_EQ(read_whole_file(run + "/tokenizer.bin"), read_whole_file(run + "/earlier_1/tokenizer.bin"));
    expect_ok(run_program({BINARY_DIR "/train_gpt2", "-o", run, "-y", "1", "-x", "2"}));
}

// The files that are written or removed together with shards.
TEST_F(Outputs, FilesOfOthersBesideShardsStay) {
    const std::string text = folder / "text";
    write_whole_file(text, {numbered(1000, "some words, and the number ", "\n\n")});
    const auto prepare = [&](const Words& options) {
        return run_program(with(args(bin("prepare_data"), "--out", folder.path, "--name x"), options));
    };
    const Words trains = {"--tokenizer", "bpe:300", text};
    expect_ok(prepare(trains));
    expect_refusal(prepare({folder / "x_tokenizer.json", "--as-text"}), "is an input, too");
    fs::rename(folder / "x.json", folder / "list");  // as if llm.c had written the shards
    expect_refusal(prepare({text}), "x_train.bin is there, and this program has not");
    fs::rename(folder / "list", folder / "x.json");
    for (const char* name : {"x_train_000001.bin", "x_val.bin", "x_val.mask"}) {  // which it does not list
        fs::copy(folder / "x_train.bin", folder / name);
        expect_refusal(prepare({text}), std::string(name) + " is there, and this program has not");
        EXPECT_EQ(read_whole_file(folder / name), read_whole_file(folder / "x_train.bin"));
        fs::remove(folder / name);
    }
    for (const char* name : {"x_tokenizer.json", "x_tokenizer.bin", "x.tokenizer"})
        for (const char* foreign : {"mine", R"({"shards": []})"}) {
            const std::string path = folder / name, before = read_whole_file(path);
            write_whole_file(path, {foreign});
            for (const Words& options : {trains, Words{text}})
                expect_refusal(prepare(options), std::string(name) + " is there, and this program has not");
            EXPECT_EQ(read_whole_file(path), foreign);
            write_whole_file(path, {before});
        }
    expect_ok(prepare(trains));
    expect_ok(prepare({text}));
    EXPECT_EQ(names_in(folder.path), (Words{"text", "x.json", "x.tokenizer", "x_train.bin"}));
}

// The locks of outputs that are written one after the other.
TEST_F(Outputs, LocksReplaceNoFileOfOthers) {
    const std::string shape = "custom:layers=1,heads=1,channels=8,max_seq_len=8,vocab=257";
    std::vector<std::pair<std::string, Words>> all = {
        {"hf/.export.vulkan-gpt2.lock", args(bin("train_gpt2"), "-e", shape, "--export hf", folder / "hf")}};
    if (fs::exists(BINARY_DIR "/report"))
        all.push_back({"report.vulkan-gpt2.lock",
                       args(bin("report"), "--device cpu --out", folder.path, "--only peak")});
    create_folders(folder / "hf");
    for (const auto& [name, command] : all) {
        write_whole_file(folder / name, {"my notes\n"});
        expect_refusal(run_program(command), name + " is there, and this program has not written it");
        EXPECT_EQ(read_whole_file(folder / name), "my notes\n");
    }
}

TEST_F(Outputs, TheProgramsOwnFilesAreNoDevices) {
    ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
    expect_error("is a device or a pipe", [&] { write_whole_file(folder / "pipe", {"text"}); });
    expect_error("Is a directory", [&] { FileWriter writer(folder.path); });
    EXPECT_TRUE(fs::is_fifo(folder / "pipe"));
}

TEST_F(Outputs, ALinkLeadsToItsTarget) {
    fs::create_directory(folder / "elsewhere");
    write_whole_file(folder / "elsewhere/file", {"old"});
    fs::create_symlink("elsewhere/file", folder / "link");
    write_whole_file(folder / "link", {"named"}, Target::named);
    EXPECT_TRUE(fs::is_symlink(folder / "link"));
    EXPECT_EQ(read_whole_file(folder / "elsewhere/file"), "named");
    write_whole_file(folder / "link", {"own"});
    EXPECT_FALSE(fs::is_symlink(folder / "link"));
    EXPECT_EQ(read_whole_file(folder / "elsewhere/file"), "named");
    for (const auto& [target, reason] : {std::pair("nowhere", "leads nowhere"), {"loop", strerror(ELOOP)}}) {
        fs::create_symlink(target, folder / "loop");
        const std::string message =
            message_of([&] { write_whole_file(folder / "loop", {"x"}, Target::named); });
        EXPECT_TRUE(contains(message, reason));
        EXPECT_TRUE(fs::is_symlink(folder / "loop"));
        fs::remove(folder / "loop");
    }
}
