// Programs on the drivers of GPUs that are not there. Skipped where dev/setup.sh vendor-compilers has
// not been run.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "dev/vulkan/compile_kernel.h"
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

static ProgramResult compile_for(const std::string& device, Words options) {
    return run_program(with({with_device, device, program, "--default-only"}, options));
}

static CompiledKernel named(std::map<std::string, double> statistics) {
    CompiledKernel k;
    k.statistics = std::move(statistics);
    name_statistics(k);
    return k;
}

// As the drivers reported them for gelu_forward2.
TEST(driver_statistics, of_nvk_have_names_of_their_own) {
    const CompiledKernel newer = named({{"Code size", 2592},
                                        {"Max warps/SM", 48},
                                        {"Number of GPRs", 24},
                                        {"SLM size", 16},
                                        {"Spills to memory", 4},
                                        {"Spills to reg", 9}});
    EXPECT_EQ(newer.registers, 24);
    EXPECT_EQ(newer.spills, 4);
    EXPECT_EQ(newer.scratch_bytes, 16);
    EXPECT_EQ(newer.code_bytes, 2592);
    EXPECT_EQ(newer.subgroups_per_unit, 12);
    const CompiledKernel older = named({{"Code Size", 2592}, {"Number of GPRs", 24}, {"SLM Size", 16}});
    EXPECT_EQ(older.registers, 24);
    EXPECT_EQ(older.spills, -1);
    EXPECT_EQ(older.scratch_bytes, 16);
    EXPECT_EQ(older.code_bytes, 2592);
}

TEST(driver_statistics, of_anv_count_spills_under_two_names) {
    EXPECT_EQ(named({{"Max live registers", 230}, {"Spill Count", 3}}).spills, 3);
    EXPECT_EQ(named({{"Max live registers", 230}, {"Spills", 9}}).spills, 9);
}

class compile_kernels : public testing::TestWithParam<const char*> {};

// All default kernels of d12 in fp32, bf16 and fp16.
TEST_P(compile_kernels, default_kernels_compile_without_spills) {
    if (!has_drivers()) GTEST_SKIP() << WITHOUT;
    const std::string result = output_of(compile_for(GetParam(), {"--csv", "--no-spills"}));
    EXPECT_TRUE(contains(result, "kernel,constants,default,registers,spills"));
    for (const char* precision : {"fp32", "bf16", "fp16"})
        EXPECT_TRUE(contains(result, std::string("\nattention_backward2_dkv_") + precision));
    if (std::string(GetParam()) == "navi31") {
        EXPECT_TRUE(contains(result, "\nmatmul5_nt_fp16,")) << "it has cooperative matrices";
    }
}
INSTANTIATE_TEST_SUITE_P(devices, compile_kernels,
                         testing::Values("navi21", "navi31", "gfx1201", "dg2", "bmg"),
                         [](const auto& test) { return std::string(test.param); });

// The numbers of the values that a listing's line, or a part of it, names: %12:v[3].
static Words values_in(const std::string& line, size_t from, size_t to) {
    Words values;
    for (size_t at = from; (at = line.find('%', at)) < to; at++)
        values.push_back(line.substr(at, line.find(':', at) - at));
    return values;
}

// AMD's v_cvt_pkrtz truncates and hides overflow, so what it converts must come from round_half(): the choice
// between infinity and a value that got its sign back. Returns the lines of other conversions.
static std::string unrounded_conversions(const std::string& listings, int& conversions) {
    struct Value {
        std::string line, first;  // that defines it; the first value that this reads
    };
    std::map<std::string, Value> known;  // of a kernel
    std::string unrounded;
    std::istringstream lines(listings);
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("shader: ")) known.clear();
        const size_t is = line.find(" = ");
        if (is == line.npos) continue;
        const Words read = values_in(line, is, line.size());
        if (line.find(" v_cvt_pkrtz", is) != line.npos) {
            conversions++;
            for (const std::string& value : read) {
                const Value& choice = known[value];
                const std::string& with_sign = known[choice.first].line;
                const bool is_rounded = choice.line.find(" v_cndmask_b32 ") != line.npos &&
                                        (with_sign.find(" v_bfi_b32 ") != line.npos ||
                                         with_sign.find(" v_and_or_b32 ") != line.npos);
                if (!is_rounded) unrounded += line + "\n";
            }
        }
        for (const std::string& value : values_in(line, 0, is))
            known[value] = {line, read.empty() ? "" : read[0]};
    }
    return unrounded;
}

TEST(vendor_compilers, conversions_of_what_was_not_rounded_are_found) {
    int conversions = 0;
    const auto unrounded = [&](const std::string& operand) {
        return unrounded_conversions(
            "\t v1: %1:v[1] = v_bfi_b32 %9:s[1], %2:v[1], %3:v[2]\n"
            "\t v1: %4:v[1] = v_cndmask_b32 %1:v[1], %2:v[1], %5:vcc\n"
            "\t v1: (precise)%6:v[1] = v_mul_f32 %4:v[1], %1:v[1]\n"
            "\t v1: %7:v[1] = v_cvt_pkrtz_f16_f32 %4:v[1], " +
                operand + "\n",
            conversions);
    };
    EXPECT_EQ(unrounded("0"), "");
    for (const char* operand : {"%6:v[1]", "%8:v[3]", "%1:v[1]"}) EXPECT_NE(unrounded(operand), "");
    EXPECT_EQ(conversions, 4);
}

struct radv : compile_kernels {};

TEST_P(radv, truncates_only_what_was_rounded) {
    if (!has_drivers()) GTEST_SKIP() << WITHOUT;
    const std::string device = GetParam();
    const ProgramResult result = run_program(args("env RADV_DEBUG=shaders", with_device, device, program,
                                                  "--default-only --csv --precision fp16"));
    EXPECT_EQ(result.status, 0);
    int conversions = 0;
    const std::string unrounded = unrounded_conversions(result.err, conversions);
    EXPECT_TRUE(unrounded.empty()) << count_lines(unrounded) << " lines:\n" << unrounded.substr(0, 1000);
    EXPECT_GT(conversions, 100);
}
INSTANTIATE_TEST_SUITE_P(devices, radv, testing::Values("navi21", "navi31", "gfx1201"),
                         [](const auto& test) { return std::string(test.param); });

// A table that a user attaches to an issue says which compiler made it.
TEST(compile_kernels_program, the_table_names_the_driver_and_its_version) {
    if (!has_drivers()) GTEST_SKIP() << WITHOUT;
    const std::pair<const char*, const char*> drivers[] = {{"navi21", ", radv Mesa "},
                                                           {"dg2", ", Intel open-source Mesa driver Mesa "}};
    for (const auto& [device, driver] : drivers) {
        const std::string table =
            output_of(compile_for(device, args("--precision fp32 --kernels gelu_forward2")));
        EXPECT_TRUE(contains(table.substr(0, table.find('\n')), driver));
    }
}

// No kernel that training takes spills: here the compiler is told to.
TEST(compile_kernels_program, a_spill_in_a_default_kernel_is_an_error_on_request) {
    if (!has_drivers()) GTEST_SKIP() << WITHOUT;
    const ProgramResult result =
        run_program(args("env INTEL_DEBUG=spill_fs", with_device, "bmg", program,
                         "--default-only --precision fp32 --kernels gelu_forward2 --no-spills"));
    EXPECT_EQ(result.status, 1);
    EXPECT_TRUE(contains(result.err, " kernels that training takes spill registers"));
}

TEST(ListDevices, TellsVendorsApart) {
    if (!has_drivers()) GTEST_SKIP() << WITHOUT;
    const std::pair<const char*, const char*> expected[] = {
        {"navi21", "fp16 none (lacks VK_KHR_cooperative_matrix)"},
        {"navi31", "fp16 16x16x16"},
        {"navi31", "subgroups of 32 (the device has 32 to 64), workgroups of 1024, 64 KiB"},
        {"bmg", "subgroups of 16 (the device has 16 to 32), kernels for few registers"},
        {"dg2", "fp16 none (not used: too few registers)"},
    };
    for (const auto& [device, part] : expected) {
        const std::string result =
            output_of(run_program({with_device, device, BINARY_DIR "/train_gpt2", "--list-devices"}));
        EXPECT_TRUE(contains(result, part)) << device;
    }
}
