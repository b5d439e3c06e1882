// Everything that uses cooperative matrices, in fp16: GEMMs, attention, the whole model, training; and GEMMs
// of fp32 operands split into fp16 pieces, since no software device has bf16 fragments. The tests start
// programs on the device that LLMC_TEST_DEVICE names, under the validation layer. By default, that is the
// software device that `dev/setup.sh newer-mesa` unpacks, with fragments of 8x8x8; the distribution's Mesa
// has no cooperative matrices.
#include "llmc/base/file.h"
#include "llmc/files/checkpoint.h"
#include "tests/other_device.h"
#include "tests/token_shard.h"

struct CooperativeMatrix : OtherDevice {
    CooperativeMatrix() : OtherDevice("newer-mesa") {}
    // Runs the fp16 tests (index 2 of the storage types) whose names begin with Matrix.
    void run_tests(const std::string& program, const std::string& suite) const {
        expect_success(program, suite + "/2.Matrix*");
    }
};

TEST_F(CooperativeMatrix, gemms) { run_tests("matmul_test", "Matmul"); }

TEST_F(CooperativeMatrix, fp32_gemms) {
    setenv("LAUNCHPAD_FP16_PIECES", "1", 1);
    const std::string not_for_fp32 =
        "*PackTheWeight:*PackedWeight:*PackedTogether:*ShortIterations:*RoundedToNearest";
    expect_success("matmul_test", "Matmul/0.Matrix*:MatmulFp32*:-" + not_for_fp32);
    expect_success("train_step_test", "TrainStep/0.Matrix*");
    unsetenv("LAUNCHPAD_FP16_PIECES");
}

TEST_F(CooperativeMatrix, every_kernel) {
    setenv("LAUNCHPAD_FP16_PIECES", "1", 1);
    expect_success("kernel_cases_test", "KernelTable.*");
    unsetenv("LAUNCHPAD_FP16_PIECES");
}

// In training these are bf16 GEMMs; fp16 is too imprecise for Muon.
TEST_F(CooperativeMatrix, muon) {
    setenv("LAUNCHPAD_FP16_PIECES", "1", 1);
    expect_success("muon_test", "MuonTyped/*.Matrix*");
    unsetenv("LAUNCHPAD_FP16_PIECES");
}

TEST_F(CooperativeMatrix, attention) { run_tests("attention_test", "AttentionGpu"); }

TEST_F(CooperativeMatrix, step) { run_tests("train_step_test", "TrainStep"); }

TEST_F(CooperativeMatrix, peak) {
    const ProgramResult kernel =
        run("report_sections_test", {"--gtest_filter=PeakKernels.CooperativeMatrices*"});
    EXPECT_TRUE(contains(kernel.out, "[  PASSED  ] 1 test"));
    TemporaryFolder folder;
    const ProgramResult measured =
        run("report", {"--quick", "--device", device_option(), "--only", "peak", "--out", folder.path});
    EXPECT_TRUE(contains(measured.out, "Cooperative matrices (tensor cores), by kernel configuration"));
}

// The channels of this model are multiples of 8, so its GEMMs use cooperative matrices. Its head size is not
// a multiple of 16, so attention does not.
TEST_F(CooperativeMatrix, model_matches_pytorch) {
    const std::string reference = SOURCE_DIR "/tests/reference/tiny";
    run("test_gpt2", {"--device", device_option(), "--precision", "fp16", "--losses",
                      reference + "_losses.txt", reference + ".bin", reference + "_debug_state.bin"});
}

// With heads of 16 channels, all GEMMs and attention use cooperative matrices. Losses agree with the CPU
// within a few rounding errors of fp16 (2^-11, of losses about 5). Models are bit-identical with any
// recomputation setting.
TEST_F(CooperativeMatrix, training_agrees_with_the_cpu_and_recomputation_is_bit_identical) {
    TemporaryFolder folder;
    const std::string data = folder / "train.bin";
    std::vector<uint16_t> tokens(4000);
    for (size_t i = 0; i < tokens.size(); i++) tokens[i] = uint16_t((i * 5 + i / 9 % 3) % 67);
    write_token_shard(data, tokens.data(), tokens.size());
    auto options = [&](const std::string& where, const std::string& recompute) {
        return args("-i", data,
                    "-e custom:layers=2,heads=2,channels=32,max_seq_len=32,vocab=67 -b 2 -t 17 -x 8 -l 0.01 "
                    "-s 0 -n 8 -r",
                    recompute, "-o", folder / recompute, "--device", where, "--precision fp16");
    };
    const ProgramResult on_cpu = run("train_gpt2", options("cpu", "0"));
    const std::vector<double> cpu = printed_losses(on_cpu.out);
    ASSERT_EQ(cpu.size(), 8u) << on_cpu.out;
    EXPECT_LT(cpu.back(), cpu.front() - 0.05);
    std::string first_model, first_optimizer;
    for (const char* recompute : {"0", "1", "2", "3"}) {
        const ProgramResult gpu = run("train_gpt2", options(device_option(), recompute));
        const std::vector<double> losses = printed_losses(gpu.out);
        ASSERT_EQ(losses.size(), 8u) << gpu.out << gpu.err;
        for (size_t i = 0; i < 8; i++) EXPECT_NEAR(losses[i], cpu[i], 0.005) << "step " << i;
        const std::string model = read_whole_file(model_path(folder / recompute, 8)),
                          optimizer = read_whole_file(optimizer_path(folder / recompute, 8));
        ASSERT_FALSE(model.empty());
        ASSERT_FALSE(optimizer.empty());
        if (first_model.empty()) {
            first_model = model;
            first_optimizer = optimizer;
        }
        EXPECT_TRUE(model == first_model) << "the model differs with -r " << recompute;
        EXPECT_TRUE(optimizer == first_optimizer) << "the optimizer state differs with -r " << recompute;
    }
}
