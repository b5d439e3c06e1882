// The program test_gpt2: passes on PyTorch's references on every device, and fails where a number is off.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "tests/run_program.h"

static const std::string program = BINARY_DIR "/test_gpt2";
static const std::string reference = SOURCE_DIR "/tests/reference/tiny";
static const std::string shared_reference = SOURCE_DIR "/../shared/reference/";

static std::vector<std::string> devices() {
    const char* name = getenv("LLMC_TEST_DEVICE");
    if (name && !strcmp(name, "none")) return {"cpu"};
    return {"cpu", name && *name ? name : "0"};
}

static ProgramResult check(const std::string& device, const std::string& model, const std::string& state,
                           const std::string& losses) {
    return run_program({program, "--device", device, "--losses", losses, model, state});
}

TEST(test_gpt2, passes_on_the_reference_that_comes_with_the_source) {
    for (const std::string& device : devices()) {
        const ProgramResult result =
            check(device, reference + ".bin", reference + "_debug_state.bin", reference + "_losses.txt");
        EXPECT_EQ(result.status, 0) << device << "\n" << result.out << result.err;
        EXPECT_EQ(result.out.find("FAIL"), std::string::npos) << result.out;
        EXPECT_EQ(result.err.find("validation:"), std::string::npos) << result.err;
    }
}

TEST(test_gpt2, passes_on_the_shared_references) {
    if (!std::filesystem::exists(shared_reference))
        GTEST_SKIP() << "no ../shared/reference beside the source";
    for (const std::string& device : devices())
        for (const char* name : {"odd48", "even64"}) {
            const std::string base = shared_reference + name;
            const ProgramResult result =
                check(device, base + ".bin", base + "_debug_state_f64.bin", base + "_losses.txt");
            EXPECT_EQ(result.status, 0) << name << " on " << device << "\n" << result.out << result.err;
        }
}

static std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
}

// The state with one float changed, counted from the end of the file.
static std::string changed_state(const TemporaryFolder& folder, size_t floats_from_end, float value) {
    std::string bytes = read_file(reference + "_debug_state.bin");
    memcpy(bytes.data() + bytes.size() - 4 * floats_from_end, &value, 4);
    std::ofstream(folder / "state.bin", std::ios::binary) << bytes;
    return folder / "state.bin";
}

TEST(test_gpt2, fails_where_a_number_is_off) {
    TemporaryFolder folder;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (float value : {1.0f, nan, std::numeric_limits<float>::infinity()}) {  // of the last gradient
        const ProgramResult result =
            check("cpu", reference + ".bin", changed_state(folder, 1, value), reference + "_losses.txt");
        EXPECT_EQ(result.status, 1) << value << "\n" << result.out;
    }
    std::string losses = read_file(reference + "_losses.txt");
    const size_t last_space = losses.find_last_of(' ');
    losses.replace(last_space + 1, 3, "1.2");
    std::ofstream(folder / "losses.txt") << losses;
    EXPECT_EQ(check("cpu", reference + ".bin", reference + "_debug_state.bin", folder / "losses.txt").status,
              1);
}

TEST(test_gpt2, bad_input_gives_one_line_and_status_1) {
    TemporaryFolder folder;
    const std::string state = read_file(reference + "_debug_state.bin");
    std::ofstream(folder / "truncated.bin", std::ios::binary) << state.substr(0, state.size() - 4);
    std::ofstream(folder / "trailing.bin", std::ios::binary) << state << "1234";
    std::ofstream(folder / "wrong.bin", std::ios::binary) << "xxxx" << state.substr(4);
    std::string token = state;
    const int large = 1 << 20;
    memcpy(token.data() + 1024, &large, 4);
    std::ofstream(folder / "token.bin", std::ios::binary) << token;
    std::ofstream(folder / "losses.txt") << "0 1.5\n";
    const std::string model = reference + ".bin", good = reference + "_debug_state.bin";
    const std::vector<std::vector<std::string>> cases = {
        {model, folder / "truncated.bin"},
        {model, folder / "trailing.bin"},
        {model, folder / "wrong.bin"},
        {model, folder / "token.bin"},
        {model, folder / "missing.bin"},
        {folder / "missing.bin", good},
        {good, model},
        {model},
        {"--losses", folder / "losses.txt", model, good},
        {"--device", "99", model, good},
        {"--no-such-flag"},
    };
    for (const std::vector<std::string>& options : cases) {
        std::vector<std::string> argv = {program};
        argv.insert(argv.end(), options.begin(), options.end());
        const ProgramResult result = run_program(argv);
        SCOPED_TRACE(options.back());
        EXPECT_EQ(result.status, 1) << result.out << result.err;
        EXPECT_EQ(count_lines(result.err), 1) << result.err;
    }
}
