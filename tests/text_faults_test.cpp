// Texts, and folders of texts: none is read in part or from the middle, and what is no text is left out and
// counted. tests/file_fault.cpp makes calls fail.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/lines.h"
#include "llmc/files/checkpoint.h"
#include "llmc/text/text_file.h"
#include "tests/journeys.h"
#include "tests/message_of.h"

namespace fs = std::filesystem;

static const int one_thread = setenv("OMP_NUM_THREADS", "1", 1);

TEST(TextFaults, ATextWhoseSeekFailsIsNotReadFromTheMiddle) {
    TemporaryFolder folder;
    write_text(folder / "short.txt", 2);
    expect_refusal(run_faulty(folder / "short.txt", {"FILE_FAULT=lseek:1+:EIO"},
                              preparation(folder / "short.txt", folder.path)),
                   "short.txt: Input/output error");
}

// A text that is cut while it is read is not read in part.
TEST(TextFaults, ATextThatBecomesShorterIsAnError) {
    const TemporaryFolder folder;
    const std::string path = folder / "text";
    write_text(path, 20000);
    TextFile file(path);
    fs::resize_file(path, 30000);
    std::string text(1 << 20, ' ');
    expect_error("became shorter", [&] { file.read(text.data(), text.size()); });
    // standard input may begin in the middle of a file
    expect_ok(run_program(
        {"bash", "-c",
         "(read line; exec " BINARY_DIR "/prepare_data - --out " + folder.path + " --name x) <" + path}));
}

// A run may lie in the folder of its text: its own files are no texts, whenever it was killed.
TEST(TextFaults, ARunNextToItsTextStartsAgainAfterAnyKill) {
    const TemporaryFolder folder;
    const std::string run = folder / "run", base = folder / "base";
    fs::create_directory(base);
    write_text(base + "/a.txt", 1000);
    const Words start = with({program, "--text", run, "-o", run},
                             words_of("-e custom:layers=1,heads=1,channels=8,max_seq_len=16 --tokenizer "
                                      "bytes -x 1 -b 2 -t 16 -s 0 --device cpu"));
    for (const char* what : {"a first run", "a run over an earlier one"}) {
        for (int n = 1, is_killed = 1; is_killed; n++) {
            SCOPED_TRACE(format_string("%s, rename %d", what, n));
            fs::remove_all(run);
            fs::copy(base, run, fs::copy_options::recursive);
            is_killed = run_faulty(run, {format_string("FILE_FAULT=rename:%d:kill", n)}, start).status != 0;
            EXPECT_TRUE(is_killed || n > 5);
            const ProgramResult again = run_program(start);
            expect_ok(again);
            EXPECT_FALSE(contains(again.out, "is not as it was"));
        }
        fs::remove_all(base);
        fs::copy(run, base, fs::copy_options::recursive);
    }
}

// A run on a text, and a start on another text in its folder.
struct OverAnEarlierRun : ::testing::Test {
    const TemporaryFolder folder;
    const std::string run = folder / "run", other = folder / "other";
    const Words shape = words_of("-e custom:layers=1,heads=1,channels=8,max_seq_len=16"),
                small = words_of("-x 1 -b 2 -t 16 -s 0"), into = {program, "-o", run, "--device"};

    void SetUp() override {
        write_text(folder / "text", 1000);
        write_text(other, 1001);
        expect_ok(start(with(with(args("cpu --text", folder / "text"), shape), small)));
        before = contents();
    }
    ProgramResult start(const Words& options, const Words& settings = {}) const {
        return run_faulty(run, settings, with(into, options));
    }
    // Of the run in a folder, without the tokens of a start that has not begun.
    std::map<std::string, std::string> contents(const std::string& subfolder = "") const {
        std::map<std::string, std::string> all;
        const fs::path top = run + subfolder;
        for (const auto& entry : fs::recursive_directory_iterator(top))
            if (const std::string name = entry.path().lexically_relative(top).generic_string();
                entry.is_regular_file() && !contains(name, ".vulkan-gpt2.new/"))
                all[name] = read_whole_file(entry.path().string());
        return all;
    }
    std::map<std::string, std::string> before;
};

// Whatever can be known before the first step is known before the earlier run moves.
TEST_F(OverAnEarlierRun, AStartThatFailsLeavesIt) {
    const std::string model = model_path(run, 1), nan = folder / "nan.bin", cut = folder / "cut.bin",
                      shards = folder / "x_train.bin";
    std::string weights = read_whole_file(model);
    weights.replace(1024, 4, "\xff\xff\xff\xff");  // the first, behind the header
    write_whole_file(nan, {weights});
    write_whole_file(cut, {weights.substr(0, 2000)});
    fs::copy_file(run + "/tokens/text_train.bin", shards);
    fs::copy_file(run + "/tokens/text.json", folder / "x.json");
    write_text(folder / "short", 10);
    struct Reason {
        Words options;
        std::string says;
        Words settings = {};
    };
    const Words text = args("cpu --text", other), large = words_of("-e gpt3:c12288 -b 2 -t 64 -x 1 -s 0");
    for (const Reason& reason :
         {Reason{with(args("cpu --text", folder / "nowhere"), shape), "nowhere: No such file"},
          {with(args("cpu --text", folder / "short"), shape), "training needs at least"},
          {with(text, large), "out of memory"},
          {with(args("cpu -i", shards), large), "out of memory"},
          {with(with(text, {"-e", nan, "--tokenizer", "bytes"}), small), "has diverged"},
          {with(with(text, {"-e", cut, "--tokenizer", "bytes"}), small), "cut.bin"},
          {with(with(text, {"--tokenizer", folder / "nowhere"}), shape), "no tokenizer file"},
          {with(with(args("99 --text", other), shape), small), "99"},
          {with(with(text, shape), words_of("-x 1 -b 2 -t 16 -d 1000")), "-d 1000 is not a multiple"},
          {with(with(text, shape), small), "free some space", {"FILE_FAULT_FREE=1000"}},
          {with(with(args("cpu -i", shards), shape), small), "free some space", {"FILE_FAULT_FREE=1000"}}}) {
        SCOPED_TRACE(joined(reason.options, " "));
        expect_refusal(start(reason.options, reason.settings), reason.says);
        EXPECT_EQ(contents(), before);
    }
    const ProgramResult next = start(with(with(text, shape), small));  // takes the tokens that are prepared
    expect_ok(next);
    EXPECT_TRUE(contains(next.out, "the text has not changed"));
    EXPECT_NE(contents()["tokens/text_train.bin"], before["tokens/text_train.bin"]);
    EXPECT_EQ(contents("/earlier_1"), before);
    expect_refusal(start(with(args("cpu --text", folder / "text"), large)), "out of memory");
    expect_ok(start(words_of("cpu -y 1 -x 2")));  // of the other text
    EXPECT_FALSE(fs::exists(run + "/tokens/next.vulkan-gpt2.new"));
}

// Killed at any moment, the next start finds it whole, with its tokens.
TEST_F(OverAnEarlierRun, AStartThatIsKilledSplitsNeitherRunNorTokens) {
    const Words again = with(with(args("cpu --text", other), shape), small);
    const std::string base = folder / "base";
    fs::rename(run, base);
    for (const char* call : {"rename", "unlink"})
        for (int n = 1, is_killed = 1; is_killed; n += getenv("FILE_FAULT_ALL") ? 1 : 2) {
            SCOPED_TRACE(call + std::string(" ") + std::to_string(n));
            fs::remove_all(run);
            fs::copy(base, run, fs::copy_options::recursive);
            is_killed = start(again, {format_string("FILE_FAULT=%s:%d:kill", call, n)}).status != 0;
            EXPECT_TRUE(is_killed || n > 6);
            expect_ok(start(again));
            EXPECT_EQ(contents("/earlier_1"), before);
            EXPECT_FALSE(fs::exists(run + "/tokens/next.vulkan-gpt2.new"));
            expect_ok(start(words_of("cpu -y 1 -x 2")));
        }
}

// Files that never end, have no size or turn to zeros are left out of a folder, and counted.
TEST(TextFaults, SpecialFilesInAFolderAreLeftOut) {
    TemporaryFolder folder;
    const std::string texts = folder / "texts";
    fs::create_directories(texts);
    write_text(texts + "/a.txt", 100);
    fs::create_symlink("/proc/kmsg", texts + "/kernel");
    fs::create_symlink("loop", texts + "/loop");
    ASSERT_EQ(mkfifo((texts + "/pipe").c_str(), 0600), 0);
    write_text(temporary_of(texts + "/b.txt"), 100);  // that a killed program left
    write_text(texts + "/turns.txt", 3000);
    const uint64_t text_bytes = fs::file_size(texts + "/turns.txt");
    fs::resize_file(texts + "/turns.txt", uint64_t(200) << 20);  // a hole
    const std::string lines = folder / "lines";
    fs::create_directory(lines);
    const std::string whole = numbered(500, "{\"text\": \"word ", "\"}\n");
    write_whole_file(lines + "/a.jsonl", {whole, "{\"text\": \"so", std::string(9000, '\0')});
    const ProgramResult of_lines = run_program(with(preparation(lines, folder.path), {"--field", "text"}));
    EXPECT_EQ(of_lines.status, 0) << of_lines.err;
    EXPECT_TRUE(contains(of_lines.err,
                         format_string("a.jsonl is not text, but zeros, from byte %zu on", whole.size())));
    const Words prepare = preparation(texts, folder.path),
                train = with({program, "--text", texts, "-o", folder / "run"},
                             words_of("-e custom:layers=1,heads=1,channels=8 --tokenizer bpe:300 -x 1 -b 2 "
                                      "-t 16 -s 0 --device cpu"));
    for (const Words& command : {prepare, with(prepare, {"--tokenizer", "bpe:300"}), train,
                                 args(bin("eval"), "--device cpu -e", folder / "run", "--text", texts)}) {
        SCOPED_TRACE(command[0] + " " + command.back());
        const ProgramResult result = run_program(with({"timeout", "60"}, command));
        EXPECT_EQ(result.status, 0) << result.err;
        EXPECT_TRUE(contains(result.err, "note: 4 entries were left out of folders"));
        EXPECT_TRUE(contains(result.err, format_string("turns.txt is not text, but zeros, from byte %llu on",
                                                       (unsigned long long)text_bytes)));
    }
    // a byte of value 0 is this character there
    EXPECT_FALSE(contains(read_whole_file(folder / "x_tokenizer.json"), "\u0100\u0100"));
}

// The folder of the texts may hold all that the programs make. No second start reads it, nor complains.
TEST(TextFaults, WhatTheProgramsMadeIsNoText) {
    TemporaryFolder folder;
    write_text(folder / "a.txt", 1000);
    const std::string before = read_whole_file(folder / "a.txt");
    fs::current_path(folder.path);
    const Words train = words_of(BINARY_DIR
                                 "/train_gpt2 --text . -e custom:layers=1,heads=1,channels=8,max_seq_len=16 "
                                 "--tokenizer bytes -b 2 -t 16 -s 0 --device cpu --tensorboard -x"),
                prepare = words_of(BINARY_DIR "/prepare_data . --out . --name y --val-fraction 0.2");
    for (int again = 0; again < 2; again++)
        for (const Words& command :
             {prepare, with(prepare, {"--tokenizer", "bpe:270"}), with(train, {"2", "-o", "."}),
              with(train, {"2"}), words_of(BINARY_DIR "/make_corpus --stories 3 --out corpus.txt"),
              with(train, args("3 -o . -y 1")), words_of(BINARY_DIR "/train_gpt2 -e . --export hf hf"),
              words_of(BINARY_DIR "/train_gpt2 -e . --export gguf model.gguf"), with(prepare, {})}) {
            SCOPED_TRACE(command[0] + " " + command[1] + " " + command.back());
            const ProgramResult result = run_program(command);
            EXPECT_EQ(result.status, 0) << result.err;
            EXPECT_FALSE(contains(result.out + result.err, "is not as it was"));
            fs::remove("corpus.txt");
            if (command[0] != prepare[0]) continue;
            EXPECT_TRUE(contains(result.out, format_string("%zu bytes,", before.size())));
        }
    EXPECT_EQ(read_whole_file(folder / "a.txt"), before);
    fs::current_path("/");
}

// As nohup leaves it in the current folder.
TEST(TextFaults, WhatThisProgramPrintsIsNoText) {
    TemporaryFolder folder;
    const std::string texts = folder / "texts", log = texts + "/log";
    fs::create_directory(texts);
    write_text(texts + "/a.txt", 1000);
    for (const char* stream : {">>", "2>>"}) {
        write_whole_file(log, {"a line\n"});
        const std::string command = "/prepare_data " + texts + " --out " + folder.path + " --name x ";
        const ProgramResult result = run_program({"bash", "-c", "exec " BINARY_DIR + command + stream + log});
        EXPECT_EQ(result.status, 0);
        EXPECT_TRUE(contains(result.err + read_whole_file(log), log + " is what this program prints"));
    }
}

// One line of over 32 MiB, with tokens that need no end of a word.
TEST(TextFaults, ALongLineIsReadAsBytes) {
    TemporaryFolder folder;
    for (const char letter : {'x', '\xe9'}) {
        const std::string line(34 << 20, letter);
        write_whole_file(folder / "plain", {line});
        expect_ok(run_program(preparation(folder / "plain", folder.path)),
                  format_string("%zu bytes,", line.size()));
    }
}

// An error is not taken for another file.
TEST(TextFaults, ALinkIsLeftOutOrTheErrorIsSaid) {
    TemporaryFolder folder;
    fs::create_directories(folder / "d");
    write_whole_file(folder / "d/a.txt", {std::string(3000, 'a'), "\n"});
    fs::create_symlink("a.txt", folder / "d/b.txt");
    int failed = 0;
    for (const std::string& number : words_of("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16")) {
        const ProgramResult result = run_faulty(folder / "d", {"FILE_FAULT=stat:" + number + ":EIO"},
                                                preparation(folder / "d", folder.path));
        failed += result.status != 0;
        EXPECT_TRUE(contains(result.err, result.status ? "Input/output error" : "1 entry was left out"))
            << number;
    }
    EXPECT_GT(failed, 3);
}
