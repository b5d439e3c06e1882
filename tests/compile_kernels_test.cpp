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

struct Expected {
    const char *device, *precision;
};

class compile_kernels : public testing::TestWithParam<Expected> {};

// Of d12's shapes, whose kernels the smaller model shares. Attention and GEMMs are those that spilled.
TEST_P(compile_kernels, attention_and_gemms_of_training_do_not_spill) {
    if (!has_drivers()) GTEST_SKIP() << WITHOUT;
    const auto [device, precision] = GetParam();
    for (const char* kernels : {"attention_forward2", "attention_backward2", "matmul_dinp3"}) {
        const ProgramResult result =
            compile_for(device, {"--no-spills", "--precision", precision, "--kernels", kernels});
        EXPECT_EQ(result.status, 0) << device << " " << kernels << ": " << result.err;
    }
}
INSTANTIATE_TEST_SUITE_P(devices, compile_kernels,
                         testing::Values(Expected{"navi21", "fp32"}, Expected{"navi31", "bf16"},
                                         Expected{"gfx1201", "bf16"}, Expected{"dg2", "fp16"},
                                         Expected{"bmg", "bf16"}),
                         [](const auto& test) { return test.param.device; });

TEST(compile_kernels_program, every_default_kernel_compiles) {
    if (!has_drivers()) GTEST_SKIP() << WITHOUT;
    const ProgramResult result = compile_for("navi31", {"--csv", "--precision", "fp16"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("kernel,constants,default,registers,spills"), std::string::npos);
    EXPECT_NE(result.out.find("\nmatmul5_nt_fp16,"), std::string::npos) << "fp16 has cooperative matrices";
    EXPECT_NE(result.out.find("\nattention_backward2_dkv_fp16,"), std::string::npos);
}

TEST(compile_kernels_program, a_spill_in_a_default_kernel_is_an_error_on_request) {
    if (!has_drivers()) GTEST_SKIP() << WITHOUT;
    const ProgramResult result =
        compile_for("bmg", {"--precision", "fp32", "--kernels", "cached_attention_forward1", "--no-spills"});
    EXPECT_EQ(result.status, 1);
    EXPECT_NE(result.err.find("1 kernels that training takes spill registers"), std::string::npos)
        << result.err;
}
