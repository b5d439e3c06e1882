// fp32 on SwiftShader, an implementation of Vulkan apart from Mesa's, which `dev/setup.sh swiftshader`
// unpacks: subgroups of 4, neither 64-bit integers nor 16-bit storage, and functions such as exp2() that drop
// NaN.
#include <algorithm>
#include <filesystem>

#include "llmc/files/checkpoint.h"
#include "tests/other_device.h"
#include "tests/token_shard.h"

struct SwiftShader : OtherDevice {
    SwiftShader() : OtherDevice("swiftshader") {}
};

// All tests but those of 16-bit types, which are the second and third of the storage types or alone in a
// suite such as AdamWRandom, those of tensor cores, and one that takes a minute for its many workgroups.
static const std::string fp32 = "-*/1.*:*/2.*:*Random/*:*Matrix*:*GridsAreFolded";

struct SwiftShaderLayer : SwiftShader, testing::WithParamInterface<std::string> {};

// The tests of layers, of generating, and of what consists of these.
static Words tests_of_layers() {
    Words names = {"non_finite", "train_step"};
    for (const char* folder : {"/llmc/layers", "/llmc/generate"})
        for (const auto& entry : std::filesystem::directory_iterator(std::string(SOURCE_DIR) + folder))
            if (const std::string name = entry.path().stem().string();
                entry.path().extension() == ".h" &&
                std::filesystem::exists(SOURCE_DIR "/tests/" + name + "_test.cpp"))
                names.push_back(name);
    std::ranges::sort(names);
    return names;
}

TEST_P(SwiftShaderLayer, fp32) { expect_success(GetParam() + "_test", fp32); }

INSTANTIATE_TEST_SUITE_P(all, SwiftShaderLayer, testing::ValuesIn(tests_of_layers()),
                         [](const auto& name) { return name.param; });

TEST_F(SwiftShader, model_matches_pytorch) {
    const std::string reference = SOURCE_DIR "/tests/reference/tiny";
    run("test_gpt2", {"--device", device_option(), "--losses", reference + "_losses.txt", reference + ".bin",
                      reference + "_debug_state.bin"});
}

TEST_F(SwiftShader, refuses_16_bits_by_name) {
    if (!device.empty()) GTEST_SKIP() << "a device that may have them";
    const std::string reference = SOURCE_DIR "/tests/reference/tiny";
    for (const std::string precision : {"bf16", "fp16"}) {
        const ProgramResult result = run_program(
            {wrapper, BINARY_DIR "/test_gpt2", "--device", "0", "--precision", precision, "--losses",
             reference + "_losses.txt", reference + ".bin", reference + "_debug_state.bin"});
        EXPECT_EQ(result.status, 1);
        EXPECT_TRUE(
            contains(result.err, "lacks storageBuffer16BitAccess, which bf16 and fp16 need: use fp32"));
    }
}

// Training, then a text: both agree with the CPU's.
TEST_F(SwiftShader, training_and_texts_agree_with_the_cpu) {
    TemporaryFolder folder;
    const std::string data = folder / "train.bin";
    std::vector<uint16_t> tokens(4000);
    for (size_t i = 0; i < tokens.size(); i++) tokens[i] = uint16_t((i * 5 + i / 9 % 3) % 257);
    write_token_shard(data, tokens.data(), tokens.size());
    std::vector<double> losses[2];
    std::string texts[2];
    for (int i = 0; i < 2; i++) {
        const std::string where = i ? device_option() : "cpu", output = folder / where;
        const ProgramResult trained =
            run("train_gpt2", args("-i", data,
                                   "-e custom:layers=2,heads=2,channels=32,max_seq_len=32,vocab=257 -b 2 -t "
                                   "17 -x 20 -l 0.001 -s 0 -n 20 -o",
                                   output, "--device", where));
        losses[i] = printed_losses(trained.out);
        texts[i] =
            run("generate", {"-e", model_path(output, 20), "--device", where, "-n", "40", "To be"}).out;
    }
    ASSERT_EQ(losses[0].size(), 20u);
    ASSERT_EQ(losses[1].size(), 20u);
    for (size_t i = 0; i < 20; i++) EXPECT_NEAR(losses[1][i], losses[0][i], 5e-6) << "step " << i;
    EXPECT_FALSE(texts[0].empty());
    EXPECT_EQ(texts[1], texts[0]);
}
