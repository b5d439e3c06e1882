// Loops of kernels with just more iterations than a software device allows an invocation: the result is right
// or the launch is refused. Every kernel whose loop depends on the problem is in the table, or in a list with
// the reason why its loops are short.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "llmc/base/file.h"
#include "llmc/kernels/kernel_cases.h"
#include "llmc/layers/attention.h"
#include "tests/layer_test.h"
#include "tests/message_of.h"

// The limit of Mesa's software devices.
static const int most = 65534;

// Runs it, unless the launch is refused.
template <class Launch>
static bool runs(Launch launch) {
    try {
        launch();
        return true;
    } catch (const Error& error) {
        EXPECT_TRUE(contains(std::string(error.what()), "too long for")) << error.what();
        return false;
    }
}

// Runs a layer's versions in small workgroups, whose loops are longest, or what training calls of a GEMM.
static void check_layer(LaunchPad& pad, const std::string& row, const KernelShape& shape, int block = 32) {
    int rows = 0;
    for (const KernelCase& c : kernel_cases<float>(shape)) {
        if (!(c.layer + "/" + c.shape).starts_with(row)) continue;
        rows++;
        Operands host(nullptr);
        c.layer_run.prepare(host)();
        std::set<std::string> names;
        for (const KernelRun& run : c.versions)
            names.insert(run.name.substr(0, run.name.rfind(':') + 1) + std::to_string(block));
        for (const std::string& name : c.with_block ? names : std::set<std::string>{"training"}) {
            SCOPED_TRACE(name + " " + c.layer + " " + c.shape);
            Operands device(&pad);
            const auto launch = (c.with_block ? *c.with_block(name) : c.layer_run).prepare(device);
            if (!runs(launch)) continue;
            EXPECT_EQ(message_of([&] { device.compare(host, c.layer); }), "");
        }
    }
    EXPECT_GT(rows, 0) << row;
}

TEST(LongLoops, AreRightOrRefused) {
    if (test_pads().empty()) GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    LaunchPad& pad = *test_pads()[0];
    const KernelShape one = {.B = 1, .T = 1, .C = 1, .NH = 1, .V = 1, .Vp = 1};
    const auto with = [&](auto change) {
        KernelShape shape = one;
        change(shape);
        return shape;
    };
    check_layer(pad, "encoder_backward", {.B = most + 7, .T = 1, .C = 3, .NH = 1, .V = 2, .Vp = 2});
    check_layer(pad, "encoder_backward", {.B = 700, .T = 1001, .C = 1, .NH = 1, .V = 1, .Vp = 1});
    check_layer(pad, "sum_losses", with([](KernelShape& s) { s.B = 32 * most + 5; }));
    check_layer(pad, "layernorm", with([](KernelShape& s) { s.B = most + 7, s.C = 3; }));
    check_layer(pad, "layernorm", with([](KernelShape& s) { s.B = 2, s.C = 32 * most / 3 + 32; }));
    check_layer(pad, "fused_classifier", with([](KernelShape& s) { s.V = s.Vp = 32 * most / 2 + 65; }));
    check_layer(pad, "decode_attention/B:1/", with([](KernelShape& s) { s.T = most + 7, s.C = 64; }), 16);
    for (const int K : {most + 7, 8 * most + 9})
        for (const auto& [rows, C, OC] : {std::array{1, K, 1}, std::array{1, 1, K}, std::array{K, 1, 1}})
            check_layer(pad, "matmul", with([&, linear = std::pair(C, OC), n = rows](KernelShape& s) {
                            s.linear = {linear}, s.linear_rows = n;
                        }));
}

// Attention over so many keys takes too long to be run.
TEST(LongLoops, AttentionRefusesSequences) {
    for (const auto& pad : test_pads()) {
        if (pad->limits().max_iterations > uint32_t(most)) continue;
        const int T = 1 << 18, C = 4;
        DeviceArray<float> qkv(*pad, size_t(T) * 3 * C), out(*pad, size_t(T) * C), lse(*pad, T);
        for (auto& version : attention_forward_versions<float>())
            EXPECT_FALSE(runs([&] {
                version.launch(*pad, {.out = out, .lse = lse, .qkv = qkv, .B = 1, .T = T, .C = C, .NH = 1},
                               64);
            }));
    }
}

// Kernels outside the table whose loops are not unrolled, and why these are short.
static const std::map<std::string, const char*> short_loops = {
    {"adamw_update2", "the elements after the last pack"},
    {"dropout2", "the elements after the last pack"},
    {"gelu_backward2", "the elements after the last pack"},
    {"gelu_forward2", "the elements after the last pack"},
    {"layernorm_forward3", "a row in registers"},
    {"encoder_forward2", "a row"},
    {"encoder_backward2", "LONG_BUCKET positions of 65,536 tokens in 8,192 groups"},
    {"global_norm3", "a chunk of 16,384 elements"},
    {"global_norm_finish", "checked: 10^11 parameters"},
    {"gradient_sum2", "checked: 10^11 parameters"},
    {"layernorm_backward2_weight", "1,024 workgroups"},
    {"attention_backward_delta", "the packs of a head"},
    {"attention_backward2_dkv", "checked as the forward pass"},
    {"attention_backward2_dq", "checked as the forward pass"},
    {"attention_forward3", "checked: T / 16 tiles"},
    {"attention_forward4", "checked: T / 16 tiles"},
    {"attention_backward3_dkv", "checked: T / 16 tiles"},
    {"attention_backward3_dq", "checked: T / 16 tiles"},
    {"matmul6", "checked: split_k"},
    {"decode_linear1", "checked: the rows of a weight are shared out among 65,535 workgroups"},
    {"sample_token1", "checked: a token has 16 bits"},
    {"matmul5_reduce", "the splits of K"},
    {"matmul_sum", "the splits of K"},
    {"peak_fma", "what a measurement asks for"},
    {"peak_matrix", "what a measurement asks for"},
    {"matrix_layout", "a fragment"},
    {"muon_momentum1", "a chunk"},
    {"muon_normalize1", "a chunk, and the partial sums of a matrix"}};
static const std::vector<std::string> in_the_table = {"encoder_backward_position",
                                                      "encoder_backward2_long",
                                                      "sum_losses2",
                                                      "layernorm_forward2",
                                                      "layernorm_backward2",
                                                      "layernorm_backward3",
                                                      "fused_classifier3",
                                                      "decode_attention1",
                                                      "matmul3",
                                                      "matmul4",
                                                      "matmul_dbias2",
                                                      "attention_forward2"};

TEST(LongLoops, EveryKernelIsKnown) {
    static const std::regex loop("(^|\n) *(\\[\\[dont_unroll\\]\\] )?(for|while) \\(");
    for (const auto& entry : std::filesystem::recursive_directory_iterator(SOURCE_DIR "/shaders")) {
        if (entry.path().extension() != ".comp") continue;
        const std::string text = read_whole_file(entry.path().string()), name = entry.path().stem().string();
        if (!std::regex_search(text, loop)) continue;
        const bool is_tested = std::count(in_the_table.begin(), in_the_table.end(), name);
        EXPECT_NE(is_tested, short_loops.count(name) > 0)
            << name << " has a loop: bound it, see check_iterations(), and add it to a list";
    }
}
