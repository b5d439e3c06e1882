// The program test_gpt2: passes on PyTorch's references on every device, and fails if a value is wrong.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "llmc/base/file.h"
#include "tests/run_program.h"

static const std::string program = BINARY_DIR "/test_gpt2";
static const std::string reference = SOURCE_DIR "/tests/reference/tiny";
static const std::string shared_reference = SOURCE_DIR "/../shared/reference/";

static Words devices() {
    const char* name = getenv("LLMC_TEST_DEVICE");
    if (name && !strcmp(name, "none")) return {"cpu"};
    return {"cpu", name && *name ? name : "0"};
}

static ProgramResult check(const std::string& device, const std::string& model, const std::string& state,
                           const std::string& losses, const std::string& precision = "fp32") {
    return run_program("test_gpt2 --device", device, "--precision", precision, "--losses", losses, model,
                       state);
}

static const char* const precisions[] = {"fp32", "bf16", "fp16"};

using test_gpt2 = InFolder;

// Concurrent kernels are also started last to first: none may need what another one writes.
TEST_F(test_gpt2, passes_on_the_reference_that_comes_with_the_source) {
    for (const char* reversed : {"0", "1"})
        for (const std::string& device : devices())
            for (const std::string precision : precisions) {
                if (device == "cpu" && *reversed == '1') continue;
                setenv("LAUNCHPAD_REVERSE_GROUPS", reversed, 1);
                const ProgramResult result = check(device, reference + ".bin", reference + "_debug_state.bin",
                                                   reference + "_losses.txt", precision);
                EXPECT_EQ(result.status, 0) << device << "\n" << result.out << result.err;
                EXPECT_FALSE(contains(result.out, "FAIL"));
                EXPECT_TRUE(contains(result.out, " in " + precision + "\n"));
                EXPECT_FALSE(contains(result.err, "validation:"));
            }
    unsetenv("LAUNCHPAD_REVERSE_GROUPS");
}

class SharedReference : public testing::TestWithParam<std::string> {};

TEST_P(SharedReference, Passes) {
    const std::string name = GetParam(), base = shared_reference + name;
    if (!std::filesystem::exists(shared_reference))
        GTEST_SKIP() << "no ../shared/reference beside the source";
    for (const std::string& device : devices())
        for (const std::string precision : precisions) {
            if (device != "cpu" && name == "even64" && precision == "bf16") continue;
            expect_ok(
                check(device, base + ".bin", base + "_debug_state_f64.bin", base + "_losses.txt", precision));
        }
}

INSTANTIATE_TEST_SUITE_P(test_gpt2, SharedReference, testing::Values("odd48", "even64"));

// The state with one float changed, counted from the end of the file.
static std::string changed_state(const TemporaryFolder& folder, size_t floats_from_end, float value) {
    std::string bytes = read_whole_file(reference + "_debug_state.bin");
    memcpy(bytes.data() + bytes.size() - 4 * floats_from_end, &value, 4);
    write_whole_file(folder / "state.bin", {bytes});
    return folder / "state.bin";
}

TEST_F(test_gpt2, fails_if_a_value_is_wrong) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (float value : {1.0f, nan, std::numeric_limits<float>::infinity()})  // the last gradient
        EXPECT_EQ(check("cpu", reference + ".bin", changed_state(folder, 1, value), reference + "_losses.txt")
                      .status,
                  1);
    std::string losses = read_whole_file(reference + "_losses.txt");
    const size_t last_space = losses.find_last_of(' ');
    losses.replace(last_space + 1, 3, "1.2");
    write_whole_file(folder / "losses.txt", {losses});
    EXPECT_EQ(check("cpu", reference + ".bin", reference + "_debug_state.bin", folder / "losses.txt").status,
              1);
}

// Errors as large as the rounding of one type must fail in a more precise type: weights rounded to bf16 fail
// in fp16 and fp32. A slightly wrong loss fails in bf16.
TEST_F(test_gpt2, has_limits_of_its_own_for_each_precision) {
    std::string model = read_whole_file(reference + ".bin");
    for (size_t i = 1024; i < model.size(); i += 4) {  // rounds all weights down to bf16
        model[i] = 0;
        model[i + 1] = 0;
    }
    write_whole_file(folder / "model.bin", {model});
    const std::string state = reference + "_debug_state.bin", losses = reference + "_losses.txt";
    EXPECT_EQ(check("cpu", folder / "model.bin", state, losses, "fp32").status, 1);
    EXPECT_EQ(check("cpu", folder / "model.bin", state, losses, "fp16").status, 1);
    expect_ok(check("cpu", folder / "model.bin", state, losses, "bf16"));
    std::string wrong = read_whole_file(losses);
    wrong.replace(wrong.find_last_of(' ') + 1, 5, "4.765");  // 0.25 % more than the last loss
    write_whole_file(folder / "losses.txt", {wrong});
    EXPECT_EQ(check("cpu", reference + ".bin", state, folder / "losses.txt", "bf16").status, 1);
}

TEST_F(test_gpt2, bad_input_gives_one_line_and_status_1) {
    const std::string state = read_whole_file(reference + "_debug_state.bin");
    write_whole_file(folder / "truncated.bin", {state.substr(0, state.size() - 4)});
    write_whole_file(folder / "trailing.bin", {state, "1234"});
    write_whole_file(folder / "wrong.bin", {"xxxx", state.substr(4)});
    std::string token = state;
    const int large = 1 << 20;
    memcpy(token.data() + 1024, &large, 4);
    write_whole_file(folder / "token.bin", {token});
    write_whole_file(folder / "losses.txt", {"0 1.5\n"});
    const std::string model = reference + ".bin", good = reference + "_debug_state.bin";
    expect_refusals(program, {{model, folder / "truncated.bin"},
                              {model, folder / "trailing.bin"},
                              {model, folder / "wrong.bin"},
                              {model, folder / "token.bin"},
                              {model, folder / "missing.bin"},
                              {folder / "missing.bin", good},
                              {good, model},
                              {model},
                              {"--losses", folder / "losses.txt", model, good},
                              {"--device", "99", model, good},
                              {"--precision", "fp8", model, good}});
}
