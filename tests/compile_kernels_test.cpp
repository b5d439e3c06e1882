// compile_kernels on the drivers of GPUs that are not there. Skipped where dev/setup.sh vendor-compilers has
// not been run.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/run_program.h"

static const std::string with_device = SOURCE_DIR "/.tools/bin/with-device";
static const std::string program = BINARY_DIR "/compile_kernels";

// with-device runs programs without the system's layers, and those with sanitizers not at all.
static const int without_validation = setenv("LAUNCHPAD_VALIDATION", "0", 1);

static bool has_drivers() {
    const char* device = getenv("LLMC_TEST_DEVICE");
    return std::filesystem::exists(with_device) && !(device && std::string(device) == "none");
}
static const char* const WITHOUT =
    "no vendor drivers (dev/setup.sh vendor-compilers), or LLMC_TEST_DEVICE=none";

static ProgramResult compile_for(const std::string& device, std::vector<std::string> options) {
    options.insert(options.begin(), {with_device, device, program, "--default-only"});
    return run_program(options);
}

class compile_kernels : public testing::TestWithParam<const char*> {};

// All default kernels of d12 in fp32, bf16 and fp16.
TEST_P(compile_kernels, default_kernels_compile_without_spills) {
    if (!has_drivers()) GTEST_SKIP() << WITHOUT;
    const ProgramResult result = compile_for(GetParam(), {"--csv", "--no-spills"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("kernel,constants,default,registers,spills"), std::string::npos);
    for (const char* precision : {"fp32", "bf16", "fp16"})
        EXPECT_NE(result.out.find(std::string("\nattention_backward2_dkv_") + precision), std::string::npos);
    if (std::string(GetParam()) == "navi31") {
        EXPECT_NE(result.out.find("\nmatmul5_nt_fp16,"), std::string::npos) << "it has cooperative matrices";
    }
}
INSTANTIATE_TEST_SUITE_P(devices, compile_kernels,
                         testing::Values("navi21", "navi31", "gfx1201", "dg2", "bmg"),
                         [](const auto& test) { return std::string(test.param); });

// A head of 128 elements does not fit in Intel's registers.
TEST(compile_kernels_program, a_spill_in_a_default_kernel_is_an_error_on_request) {
    if (!has_drivers()) GTEST_SKIP() << WITHOUT;
    const ProgramResult result =
        compile_for("bmg", {"--model", "custom:layers=1,heads=1,channels=128,max_seq_len=64,vocab=64",
                            "--precision", "fp32", "--kernels", "cached_attention_forward1", "--no-spills"});
    EXPECT_EQ(result.status, 1);
    EXPECT_NE(result.err.find("1 kernels that training takes spill registers"), std::string::npos)
        << result.err;
}
