// Every SPIR-V module that a device without cooperative matrices needs can be translated to the Metal shading
// language by SPIRV-Cross, which MoltenVK contains. Skipped without spirv-cross, unless CI is set.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <optional>

#include "tests/run_program.h"

static const std::filesystem::path modules = BINARY_DIR "/shaders";

// MSL 2.3 (macOS 11) is the first with 64-bit integers in buffers, as which kernels pass addresses.
static ProgramResult translate(const std::filesystem::path& module) {
    return run_program({"spirv-cross", "--msl", "--msl-version", "20300", module.string()});
}

static bool has_spirv_cross() { return program_succeeds({"spirv-cross", "--help"}); }

// The folder that a module's source is in; none: the module is left over from an earlier build.
static std::optional<std::string> folder_of(const std::string& module) {
    for (const char* folder :
         {"shaders", "shaders/probe", "shaders/cooperative_matrix", "shaders/cooperative_matrix/fp32",
          "shaders/probe/cooperative_matrix", "dev/vulkan/baselines", "dev/report"})
        for (const char* type : {"_half_fp32", "_fp32", "_bf16", "_fp16"}) {
            if (!module.ends_with(type)) continue;
            const std::string kernel = module.substr(0, module.size() - strlen(type));
            const std::filesystem::path top = SOURCE_DIR;
            if (std::filesystem::exists(top / folder / (kernel + ".comp"))) return folder;
        }
    return std::nullopt;
}

TEST(Metal, TranslatesEveryKernelWithoutCooperativeMatrices) {
    if (!has_spirv_cross()) {
        if (getenv("CI")) FAIL() << "this is CI, but spirv-cross is missing";
        GTEST_SKIP() << "no spirv-cross: run dev/setup.sh vendor-compilers";
    }
    std::vector<std::filesystem::path> files;
    for (const std::filesystem::path& folder : {modules, std::filesystem::path(BINARY_DIR "/baselines"),
                                                std::filesystem::path(BINARY_DIR "/report_shaders")})
        for (const auto& file : std::filesystem::directory_iterator(folder)) files.push_back(file.path());
    int translated = 0, others = 0;
    for (const std::filesystem::path& file : files) {
        if (file.extension() != ".spv") continue;
        const std::optional<std::string> folder = folder_of(file.stem().string());
        if (!folder) continue;
        if (folder->find("cooperative_matrix") != std::string::npos) {
            others++;
            continue;
        }
        const ProgramResult result = translate(file);
        EXPECT_EQ(result.status, 0) << file.filename() << ": " << result.err;
        EXPECT_TRUE(contains(result.out, "kernel void main0(")) << file.filename();
        translated++;
    }
    EXPECT_GT(translated, 150);
    EXPECT_GT(others, 0);
}

// What docs/devices.md lists as impossible still is.
TEST(Metal, DoesNotTranslateCooperativeMatrices) {
    if (!has_spirv_cross()) GTEST_SKIP() << "no spirv-cross";
    const auto module = modules / "matmul5_nt_fp16.spv";
    ASSERT_TRUE(std::filesystem::exists(module));
    EXPECT_NE(translate(module).status, 0);
}
