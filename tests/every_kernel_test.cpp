// Every shader is among the kernels that compile_kernels builds: a new one that is in no table of versions,
// or whose launcher is not called there, is compiled for no vendor's device.
#include "dev/report/every_kernel.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "llmc/layers/tensor_core.h"
#include "tests/launchpad_test.h"

template <class Real>
static void add_names(std::set<std::string>& names, LaunchPad& pad) {
    const ModelConfig config = parse_descriptor("custom:layers=2,heads=2,channels=128,max_seq_len=1024");
    const auto commands = [&] {
        give_default_commands<Real>(pad, config, {2, 64});  // few rows take kernels of their own
        give_all_versions<Real>(pad, config, {2, 1024});
    };
    for (const auto& [key, constants] : pad.dry_run(commands).kernels) {
        const std::string name = key.substr(0, key.find('\0'));
        names.insert(name.substr(0, name.find("_fp32")));
        names.insert(name.substr(0, name.find("_bf16")));
        names.insert(name.substr(0, name.find("_fp16")));
    }
}

TEST(EveryKernel, IsCompiled) {
    if (test_pads().empty()) GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    LaunchPadOptions options = test_options();
    options.compile_only = true;
    LaunchPad pad(options);
    std::set<std::string> names;
    add_names<float>(names, pad);
    if (pad.limits().fragment<fp16>()) add_names<fp16>(names, pad);
    std::vector<std::string> folders = {"/shaders", "/dev/vulkan/baselines"};
    if (pad.limits().fragment<fp16>()) folders.push_back("/shaders/cooperative_matrix");
    if (pad.limits().fp32_pieces()) folders.push_back("/shaders/cooperative_matrix/fp32");
    for (const std::string& folder : folders)
        for (const auto& entry : std::filesystem::directory_iterator(SOURCE_DIR + folder)) {
            std::string name = entry.path().stem().string();
            if (is_tensor_core_gemm(name) && !pad.limits().fragment<fp16>()) continue;
            if (name.starts_with("matmul7") && pad.limits().fp16_pieces) name += "_half";
            if (entry.path().extension() != ".comp") continue;
            EXPECT_TRUE(names.count(name)) << name << ": call its launcher in dev/report/every_kernel.cpp";
        }
}
