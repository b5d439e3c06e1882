// Runs a program in a test and collects its output: run_program("prepare_data --help"). No shell is involved;
// standard input is empty. Also helpers for files and for the program's output.
#pragma once
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "llmc/base/os.h"
#include "llmc/base/process.h"
#include "tests/contains.h"

using Words = std::vector<std::string>;

struct ProgramResult {
    int status;       // exit status; 128 + signal number if a signal killed it
    std::string out;  // standard output
    std::string err;  // standard error
};

// Number of lines in the text, including an unterminated last line.
inline int count_lines(const std::string& text) {
    int lines = 0;
    for (char c : text) lines += c == '\n';
    return lines + (!text.empty() && text.back() != '\n');
}

inline int count_of(const std::string& text, const std::string& part) {
    int count = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) count++;
    return count;
}

// A signal to send to the program, either once it has printed some text or after some time.
struct SendSignal {
    int number = 0;  // 0: none
    std::string when_printed;
    double after_seconds = 0;
};

// A test that a script runs in the background ignores SIGINT, and so would the programs that it interrupts.
inline const auto sigint_before = std::signal(SIGINT, SIG_DFL);

// Runs argv[0] (a path, or a name in PATH) with the arguments argv[1...] and waits for it to exit. Reads both
// streams until both are closed, so a program that fills one of them does not hang.
inline ProgramResult run_program(Words argv, SendSignal signal = {}, FILE* input = nullptr) {
    for (const char* name : {"GTEST_SHARD_INDEX", "GTEST_TOTAL_SHARDS"}) unsetenv(name);  // this test's own
    Process program(argv, input);
    ProgramResult result = {127, "", ""};
    const auto start = std::chrono::steady_clock::now();
    const bool by_time = signal.number && signal.when_printed.empty();
    const auto seconds_left = [&] {
        const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
        return signal.after_seconds - passed.count();
    };
    while (
        program.read(result.out, result.err, by_time && signal.number ? std::max(0.0, seconds_left()) : 60)) {
        const bool due =
            by_time ? seconds_left() <= 1e-3 : result.out.find(signal.when_printed) != std::string::npos;
        if (signal.number && due) program.send(std::exchange(signal.number, 0));
    }
    result.status = program.wait();
    return result;
}

// Success, and a standard output that contains the parts.
template <class... Parts>
void expect_ok(const ProgramResult& result, const Parts&... parts) {
    ASSERT_EQ(result.status, 0) << result.out << result.err;
    for (const std::string& part : Words{parts...}) EXPECT_TRUE(contains(result.out, part));
}

// What a program printed that succeeded.
inline std::string output_of(const ProgramResult& result) {
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    return result.out;
}

// One line, which contains the parts.
template <class... Parts>
void expect_refusal(const ProgramResult& result, const Parts&... parts) {
    EXPECT_EQ(result.status, 1) << result.out;
    EXPECT_EQ(count_lines(result.err), 1) << result.err;
    for (const std::string& part : Words{parts...}) EXPECT_TRUE(contains(result.err, part));
}

// Each of these command lines is refused, and nothing is printed; the line begins with the program's name.
inline void expect_refusals(const std::string& program, const std::vector<Words>& command_lines) {
    for (const Words& options : command_lines) {
        Words command = {program};
        for (const std::string& option : options) command.push_back(option);
        const ProgramResult result = run_program(command);
        const std::string name = std::filesystem::path(program).filename().string();
        const bool is_right = result.status == 1 && result.out.empty() && count_lines(result.err) == 1 &&
                              result.err.starts_with(name + ": ");
        EXPECT_TRUE(is_right) << testing::PrintToString(command) << "\n" << result.out << result.err;
    }
}

// Whether the program is there and ends with status 0, as {"mpirun", "--version"} does.
inline bool program_succeeds(Words argv) {
    try {
        return run_program(std::move(argv)).status == 0;
    } catch (const std::system_error&) {
        return false;  // it cannot be started
    }
}

// The words of a text, for command lines whose words have no blanks.
inline Words words_of(const std::string& text) {
    std::istringstream words(text);
    return {std::istream_iterator<std::string>(words), {}};
}
// A command line of literals, which are words with blanks between them, and of strings, which are a word
// each: args("-x 3 -o", folder, "-s 0").
template <size_t size>
void add_words(Words& all, const char (&literal)[size]) {
    for (std::string& word : words_of(literal)) all.push_back(std::move(word));
}
inline void add_words(Words& all, const std::string& word) { all.push_back(word); }
template <class... Parts>
Words args(const Parts&... parts) {
    Words all;
    (add_words(all, parts), ...);
    return all;
}
inline std::string bin(const std::string& program) { return BINARY_DIR "/" + program; }

// A program of this project, such as run_program("eval -m 2 -e", model).
template <size_t size, class... Parts>
ProgramResult run_program(const char (&command)[size], const Parts&... parts) {
    Words words = args(command, parts...);
    words[0] = bin(words[0]);
    return run_program(words);
}

// Both; options of the first, with their values, give way to those of the same name in the second. After
// mpirun's ":", another command begins.
inline Words with(const Words& options, const Words& more) {
    const auto is_option = [](const std::string& word) {
        return word.size() > 1 && word[0] == '-' && (word[1] == '-' || isalpha(uint8_t(word[1])));
    };
    Words all;
    const auto colon = std::find(options.rbegin(), options.rend(), ":");
    const size_t first = more.empty() || more[0] == ":" ? options.size() : size_t(options.rend() - colon);
    for (size_t i = 0; i < options.size(); i++) {
        const bool gives_way = i >= first && is_option(options[i]) &&
                               std::find(more.begin(), more.end(), options[i]) != more.end();
        if (!gives_way) all.push_back(options[i]);
        if (gives_way && i + 1 < options.size() && !is_option(options[i + 1])) i++;
    }
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

// So many texts, such as lines, with their numbers.
inline std::string numbered(int count, const std::string& before, const std::string& after) {
    std::string text;
    for (int i = 0; i < count; i++) text += before + std::to_string(i) + after;
    return text;
}

// For `env`, before programs that use MPI: its library leaks. Otherwise as in the preset "sanitize".
inline const char* const WITHOUT_LEAK_CHECK = "ASAN_OPTIONS=detect_leaks=0:exitcode=99";

// The losses that train_gpt2 prints, as in "step    3/12 | loss 4.123456 |"; main.log has fewer digits.
inline std::vector<double> printed_losses(const std::string& out) {
    std::vector<double> found;
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) {
        int step, steps;
        double loss;
        if (sscanf(line.c_str(), "step %d/%d | loss %lf", &step, &steps, &loss) == 3) found.push_back(loss);
    }
    return found;
}

// The seed of a random test, which a variable of the environment may give.
inline unsigned printed_seed(const char* variable, unsigned otherwise = std::random_device()()) {
    const char* given = getenv(variable);
    const unsigned seed = given ? unsigned(strtoul(given, nullptr, 10)) : otherwise;
    printf("%s=%u\n", variable, seed);
    return seed;
}

// TMPDIR if it is set, else a folder in memory if there is room for a package's root: tests write hundreds of
// checkpoints, and flushing them to a disk takes longer than all else.
inline std::filesystem::path temporary_folders() {
    const std::filesystem::path memory = "/dev/shm";
    const bool has_room =
        access("/dev/shm", W_OK) == 0 && std::filesystem::space(memory).available > 2'000'000'000;
    return !getenv("TMPDIR") && has_room ? memory : std::filesystem::temp_directory_path();
}

// A new folder for one test's files; the destructor deletes it with its contents.
struct TemporaryFolder {
    std::string path;
    TemporaryFolder() {
        std::random_device random;
        do path = (temporary_folders() / ("test-" + std::to_string(random()))).generic_string();
        while (!std::filesystem::create_directory(path));
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    std::string operator/(const std::string& name) const { return path + "/" + name; }
};

// A fixture: tests of one folder each.
struct InFolder : testing::Test {
    TemporaryFolder folder;
};

inline void copy_folder(const std::string& from, const std::string& to) {
    std::filesystem::remove_all(to);
    std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
}

// With the text as standard input.
inline ProgramResult run_with_input(Words argv, const std::string& text) {
    TemporaryFolder folder;
    FILE* const file = fopen((folder / "input").c_str(), "w+b");
    if (!file || fwrite(text.data(), 1, text.size(), file) != text.size() || fflush(file) != 0)
        throw std::runtime_error("cannot write standard input");
    rewind(file);
    ProgramResult result = run_program(std::move(argv), {}, file);
    fclose(file);
    return result;
}
