// What users of Windows do: names in any case, backslashes, devices, wildcards, characters beyond U+FFFF,
// hidden files, and a console that other programs use afterwards.
#include <gtest/gtest.h>
#include <windows.h>

#include "llmc/base/file.h"
#include "llmc/base/os.h"
#include "llmc/base/paths.h"
#include "llmc/files/checkpoint.h"
#include "tests/tiny_run.h"

namespace fs = std::filesystem;

static std::string back(std::string path) {
    std::replace(path.begin(), path.end(), '/', '\\');
    return path;
}

static void write_text(const std::string& path, const std::string& word = "words") {
    std::string text;
    for (int i = 0; i < 300; i++) text += "some " + word + ", and the number " + std::to_string(i) + "\n\n";
    write_whole_file(path, {text});
}

static ProgramResult prepare(const Words& more) {
    return run_program(with({BINARY_DIR "/prepare_data"}, more));
}

static const Words short_run = words_of("-x 2 -b 2 -t 16 -s 0 -v 0 --device cpu");
static const std::string of_bytes = "custom:layers=1,heads=1,channels=8,max_seq_len=16,vocab=257";

using Windows = WithData;

TEST_F(Windows, NamesThatDifferInCaseAreOneFile) {
    fs::create_directories(data / "z");
    write_text(data / "z/Shakespeare_train.bin");
    const std::string text = read_whole_file(data / "z/Shakespeare_train.bin");
    EXPECT_EQ(
        prepare({"--out", data / "z", "--name", "shakespeare", data / "z/Shakespeare_train.bin"}).status, 1);
    EXPECT_EQ(read_whole_file(data / "z/Shakespeare_train.bin"), text);
    write_whole_file(data / "z/K_train_000001.bin", {"mine"});
    EXPECT_EQ(prepare({"--out", data / "z", "--name", "k", data / "z/Shakespeare_train.bin"}).status, 1);
    EXPECT_EQ(read_whole_file(data / "z/K_train_000001.bin"), "mine");

    const std::string run = data / "tr", upper = data / "TR/MODEL_00000002.BIN";
    const Words train = with({program, "-i", data.train, "-e", tiny, "-o", run}, short_run);
    fs::create_directories(run);
    for (const char* name : {"/Main.log", "/Metrics.csv", "/Options.toml"})
        write_whole_file(run + name, {"mine"});
    expect_ok(run_program(train));
    for (const char* name : {"/main.log", "/metrics.csv", "/options.toml"})
        EXPECT_EQ(read_whole_file(run + "/earlier_1" + name), "mine");

    const Words eval = {BINARY_DIR "/eval", "-i", data / "VAL.BIN", "-b", "1", "-t", "16", "--device", "cpu"};
    expect_ok(run_program(with(eval, {"-e", upper})));
    const std::string model = read_whole_file(model_path(run, 2));
    const ProgramResult result =
        run_program(with({program, "-i", data.train, "-e", back(upper), "-o", run}, short_run));
    EXPECT_TRUE(read_whole_file(model_path(run + (result.status ? "" : "/earlier_2"), 2)) == model)
        << result.err;
}

TEST_F(Windows, BackslashesSeparateNames) {
    write_text(data / "text");
    const std::string run = back(data / "new1/new2/r3");
    expect_ok(run_program(with({program, "-i", back(data.train), "-e", tiny, "-o", run}, short_run)));
    expect_ok(prepare({"--out", back(data / "pd/n/m"), "--name", "x", back(data / "text")}));
    EXPECT_TRUE(fs::exists(data / "pd/n/m/x_train.bin"));
    expect_ok(run_program(
        {program, "-e", of_bytes, "--tokenizer", "bytes", "--export", "hf", back(data / "x/y/hf")}));
    for (const char* name : {"..\\escaped", "../escaped", "C:escaped", "a\\b"})
        expect_refusal(prepare({"--out", data / "pd/n", "--name", name, data / "text"}),
                       "must not lead to another folder");
    write_whole_file(data / "m.safetensors.index.json",
                     {R"({"weight_map": {"wte.weight": "..\\secret.safetensors"}})"});
    ProgramResult result =
        run_program({program, "-e", data / "m.safetensors.index.json", "--export", "gguf", data / "x.gguf"});
    EXPECT_EQ(result.status, 1);
    EXPECT_FALSE(contains(result.err, "cannot open"));
    result = run_program({program, "-e", "runs\\nothere", "--export", "gguf", data / "x.gguf"});
    EXPECT_EQ(result.status, 1);
    EXPECT_FALSE(contains(result.err, "accepted are"));
    // no / after this prefix, but the program adds names with one
    expect_ok(run_program(with({program, "-i", data.train, "-e", tiny, "-o",
                                "\\\\?\\" + back(fs::absolute(data / "long").string()) + "/r"},
                               short_run)));
}

TEST_F(Windows, NulSwallows) {
    const std::string out =
        output_of(run_program({program, "-e", of_bytes, "--tokenizer", "bytes", "--export", "gguf", "NUL"}));
    EXPECT_LT(out.size(), 4000u);
    EXPECT_FALSE(contains(out, "GGUF"));
}

// CON prints on a real console, under each of its names, and reads what is typed there.
TEST_F(Windows, TheConsoleIsAFile) {
    const std::string log = data / "log";
    const auto on_screen = [&](const Words& command) {
        expect_ok(run_program(with({BINARY_DIR "/ctrl_c", "--screen", log, "typed"}, command)));
        std::string shown = read_whole_file(log);
        shown.erase(std::remove(shown.begin(), shown.end(), '\n'), shown.end());  // rows have 80 characters
        return shown;
    };
    const Words corpus = {BINARY_DIR "/make_corpus", "--stories", "1", "--out"};
    expect_ok(run_program(with(corpus, {data / "text"})));
    const std::string text = first_bytes(data / "text", 60);
    EXPECT_FALSE(contains(on_screen(with(corpus, {data / "text"})), text));
    for (const char* name : {"CON", "CONOUT$", ".\\con.txt"})
        EXPECT_TRUE(contains(on_screen(with(corpus, {name})), text)) << name;
    for (const char* name : {"con", "CONIN$", "-"}) {
        on_screen({BINARY_DIR "/prepare_data", "--out", data.path, "--name", "x", name});
        EXPECT_EQ(fs::file_size(data / "x_train.bin"), 1024 + 2 * (sizeof "typed\r\n" - 1 + 1)) << name;
        fs::remove(data / "x_train.bin");
    }
}

// Files and folders of a device's name, which Windows before 11 has in every folder: refused, or made.
TEST_F(Windows, DevicesAreNoFilesOfOutputs) {
    write_text(data / "text");
    for (const std::string name : {"con", "NUL", "aux", "Lpt1"}) {
        const std::string json = data / "pd/" + name + ".json", out = data / name;
        for (const Words& command : std::vector<Words>{
                 {BINARY_DIR "/prepare_data", "--out", data / "pd", "--name", name, data / "text"},
                 with({program, "-i", data.train, "-e", tiny, "-o", out}, short_run),
                 {program, "-e", of_bytes, "--tokenizer", "bytes", "--export", "hf", out}}) {
            const ProgramResult result = run_program(command);
            const bool is_shards = command[0] != program;
            EXPECT_EQ(result.status == 0, is_shards ? fs::is_regular_file(json) : fs::is_directory(out));
            EXPECT_EQ(count_lines(result.err), result.status == 0 ? 0 : 1) << result.err;
            EXPECT_FALSE(contains(result.err, "Input/output error"));
        }
    }
    expect_refusal(prepare({"--out", data / "pd", "--name", "ab:c", data / "text"}), "Invalid argument");
}

TEST_F(Windows, PathsMayHaveAnyCharacter) {
    const std::string folder =
        data / "\xf0\x9f\x98\x80 \xe2\x82\xac \xf0\xa0\x80\x8b";  // U+1F600, U+20AC, U+2000B
    create_folders(folder);
    write_text(folder + "/text \xf0\x9f\x98\x80.txt");
    expect_ok(prepare({"--out", folder, "--name", "x\xf0\x9f\x98\x80", folder + "/text*.txt"}));
    EXPECT_TRUE(file_exists(folder + "/x\xf0\x9f\x98\x80_train.bin"));
    const std::string run = folder + "/run\xf0\x9f\x98\x80";
    expect_ok(
        run_program(with({program, "-i", folder + "/*_train.bin", "-e", of_bytes, "-o", run}, short_run)));
    expect_ok(run_program({program, "-y", "1", "-o", run, "-x", "3"}));
    EXPECT_TRUE(file_exists(model_path(run, 3)));
    // as the current folder
    wchar_t before[32768];
    GetCurrentDirectoryW(32768, before);
    ASSERT_TRUE(SetCurrentDirectoryW(fs::path(folder).wstring().c_str()));
    const ProgramResult result = run_program({BINARY_DIR "/eval", "-e", "run\xf0\x9f\x98\x80", "-i",
                                              "x*_train.bin", "-b", "1", "-t", "16", "--device", "cpu"});
    SetCurrentDirectoryW(before);
    expect_ok(result);
}

TEST_F(Windows, PrintedCommandsAreOfThisSystem) {
    const std::string renamed = data / "vulkan-gpt2-train.exe", run = data / "my run";
    fs::copy_file(program + ".exe", renamed);
    for (const char* name : {"/a.txt", "/b.txt", "/c.txt"}) write_text(data.path + name);
    const std::string out =
        output_of(run_program(with({renamed, "--text", back(data / "*.txt"), "-o", back(run)}, short_run)));
    EXPECT_FALSE(contains(out, "'"));
    EXPECT_TRUE(contains(out, "vulkan-gpt2-generate -e \""));
}

// \\?\ goes before any whole path; \\server\share is alike.
TEST_F(Windows, PathsMayBeginWithTwoSeparators) {
    for (const std::string before : {"\\\\?\\", "//?/", "\\\\.\\"}) {
        const std::string name = before[0] == '/' ? "slashes" : before[2] == '?' ? "any" : "device";
        const std::string folder = before + back(fs::absolute(data / name).string());
        create_folders(folder);
        write_text(folder + "\\text.txt", std::string(60, 'w'));  // training needs 20 kB
        expect_ok(prepare({"--out", folder, "--name", "q", folder + "\\te*.txt"}));
        expect_ok(run_program({BINARY_DIR "/make_corpus", "--out", folder + "\\c.txt", "--stories", "9"}));
        const Words small = with(short_run, {"-e", of_bytes, "-o", folder + "\\run"});
        expect_ok(run_program(with({program, "--text", folder + "\\text.txt"}, small)));
        expect_ok(run_program({program, "-y", "1", "-o", folder + "\\run", "-x", "3"}));
        for (const char* file : {"q_train.bin", "c.json", "run/loss.svg", "run/tokens/text_train.bin"})
            EXPECT_TRUE(file_exists(data / (name + "/" + file))) << folder << file;
    }
    EXPECT_EQ(generic_text("\\\\server\\share\\a"), "//server/share/a");
    EXPECT_EQ(generic_text(absolute_path("//server/share/a/../b")), "//server/share/b");
    EXPECT_EQ(generic_text(absolute_path("\\\\.\\C:\\a\\..\\b")), "//./C:/b");
    EXPECT_EQ(generic_text(joined_path("C:\\a", "\\\\server\\b")), "//server/b");
}

TEST_F(Windows, ABackslashBeforeAQuoteIsDoubled) {
    EXPECT_EQ(shell_word("my dir\\"), "\"my dir\\\\\"");
    EXPECT_EQ(shell_word("a b\\c"), "\"a b\\c\"");
    EXPECT_EQ(shell_word("dir\\"), "dir\\");
}

TEST_F(Windows, WildcardsStandForNoHiddenFiles) {
    fs::create_directories(data / "notes");
    for (const char* name : {"c1.txt", "c2.txt", "desktop.txt"}) write_text(data / "notes/" + name, name);
    const std::string hidden = data / "notes/desktop.txt";
    SetFileAttributesW(fs::path(hidden).wstring().c_str(), FILE_ATTRIBUTE_HIDDEN);
    const bool hides = GetFileAttributesW(fs::path(hidden).wstring().c_str()) & FILE_ATTRIBUTE_HIDDEN;
    const auto tokens_of = [&](const std::string& text) {
        expect_ok(prepare({"--out", data.path, "--name", "x", text}));
        return fs::file_size(data / "x_train.bin");
    };
    const uintmax_t two = tokens_of(back(data / "notes/c*.txt"));
    if (!hides) GTEST_SKIP() << "the file system has no attributes";
    EXPECT_EQ(tokens_of(back(data / "notes/*.txt")), two);
    EXPECT_EQ(tokens_of(data / "notes"), two);
    EXPECT_GT(tokens_of(hidden), 1000u);  // named by somebody
}

TEST_F(Windows, TheConsoleKeepsItsCodePage) {
    const Words in_console = {BINARY_DIR "/ctrl_c", data / "log", "number"};
    const Words generate = args(bin("generate"), "-e", of_bytes, "--tokenizer bytes --device cpu");
    expect_ok(run_program(with(in_console, {program, "--version"})));
    EXPECT_EQ(run_program(with(in_console, {program, "--none"})).status, 1);
    expect_ok(run_program(with(in_console, with(generate, {"-n", "3", "text"}))));
    // ended by Ctrl-C, as Windows does it
    const Words endless = with(generate, {"-n", "100000000", "--ignore-end", "number"});
    EXPECT_NE(run_program(with(in_console, endless)).status, 77);
}

TEST_F(Windows, ControlDAndControlZEndWhatIsTyped) {
    for (const char* key : {"\x04", "\x1a"}) {
        const ProgramResult result = run_with_input({BINARY_DIR "/generate", "-e", of_bytes, "--tokenizer",
                                                     "bytes", "--device", "cpu", "-n", "3", "-i"},
                                                    "one\r\n" + std::string(key) + "\r\ntwo\r\n");
        EXPECT_EQ(result.status, 0) << result.err;
        EXPECT_TRUE(contains(result.err, "Control-Z and Enter"));
        EXPECT_EQ(count_lines(result.out), 1) << result.out;
    }
}

TEST_F(Windows, HintsNameNoProgramsOfOtherSystems) {
    write_whole_file(data / "utf32", {std::string_view("\xff\xfe\0\0a\0\0\0", 8)});
    const ProgramResult result = prepare({"--out", data.path, "--name", "x", data / "utf32"});
    EXPECT_EQ(result.status, 1);
    EXPECT_FALSE(contains(result.err, "iconv"));
    EXPECT_TRUE(contains(result.err, "UTF-32"));
}

// The zip holds the programs, these files and the documents.
TEST_F(Windows, TheReadmeOfTheZipKnowsEveryProgramAndLibrary) {
    const std::string folder = SOURCE_DIR "/cmake/", readme = read_whole_file(folder + "windows/README.txt"),
                      notices = read_whole_file(folder + "windows/NOTICES.txt"),
                      package = read_whole_file(folder + "package.cmake");
    for (const char* words : {"-train --text", "-generate -e", "-eval -e", "-prepare-data", "--export hf",
                              "-y 1", "-e gpt2 --text", "not signed", "1903", "https://", "docs\\README.md",
                              "--question", "wsl --install"})
        EXPECT_TRUE(contains(readme, words));
    for (const char* library : {"PCRE2", "zstd", "zlib", "xxHash", "JSON for Modern C++", "toml++",
                                "mingw-w64", "winpthreads", "libstdc++", "Vulkan-Headers"})
        EXPECT_TRUE(contains(notices, library));
    for (const char* file : {"windows/README.txt", "windows/NOTICES.txt", "README.md", "DIRECTORY docs"})
        EXPECT_TRUE(contains(package, file));
}
