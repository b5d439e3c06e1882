// Loops of kernels with just more iterations than a software device allows an invocation: the result is right
// or the launch is refused. Every kernel whose loop depends on the problem is in the table, or in a list with
// the reason why its loops are short.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>

#include "llmc/base/file.h"
#include "llmc/layers/attention.h"
#include "llmc/layers/classifier.h"
#include "llmc/layers/decode_attention.h"
#include "llmc/layers/encoder.h"
#include "llmc/layers/layernorm.h"
#include "llmc/layers/matmul.h"
#include "tests/layer_test.h"

// The limit of Mesa's software devices.
static const int most = 65534;

// Runs it, unless the launch is refused.
template <class Launch>
static bool runs(Launch launch) {
    try {
        launch();
        return true;
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("too long for"), std::string::npos) << error.what();
        return false;
    }
}

static void encoder(LaunchPad& pad, int B, int T, int C, int token_every) {
    std::vector<int> inp = random_integers(size_t(B) * T, 1, 5);
    for (size_t i = 0; i < inp.size(); i += token_every) inp[i] = 2;
    std::vector<int> buckets(encoder_bucket_ints(B * T));
    build_encoder_buckets(buckets.data(), inp.data(), B * T);
    const std::vector<float> dout = random_values(inp.size() * C, 2, 0.01f);
    std::vector<float> dwte(5 * C), dwpe(size_t(T) * C);
    DeviceArray<float> gpu_dout(pad, dout), gpu_dwte(pad, dwte), gpu_dwpe(pad, dwpe);
    DeviceArray<int> gpu_buckets(pad, buckets);
    encoder_backward<float>(nullptr, {dwte.data(), dwpe.data(), dout.data(), buckets.data(), B, T, C});
    if (!runs([&] { encoder_backward<float>(&pad, {gpu_dwte, gpu_dwpe, gpu_dout, gpu_buckets, B, T, C}); }))
        return;
    expect_close("dwte", gpu_dwte.values(), dwte, 1e-4);
    expect_close("dwpe", gpu_dwpe.values(), dwpe, 1e-4);
}

static void sum(LaunchPad& pad, int n) {
    const std::vector<float> losses(n, 0.5f);
    DeviceArray<float> gpu_losses(pad, losses);
    for (auto& version : sum_losses_versions()) {
        DeviceArray<float> total(pad, std::vector<float>{1});
        if (runs([&] { version.launch(pad, {total, gpu_losses, n, 1.0f / float(n)}, 32); })) {
            EXPECT_NEAR(total.values()[0], 1.5, 1e-4);
        }
    }
}

static void layernorm(LaunchPad& pad, int rows, int C) {
    const size_t n = size_t(rows) * C;
    const std::vector<float> inp = random_values(n, 1), dout = random_values(n, 2),
                             weight = random_values(C, 3);
    std::vector<float> out(n), mean(rows), rstd(rows), dinp(n), dweight(C), dbias(C);
    DeviceArray<float> gpu_inp(pad, inp), gpu_dout(pad, dout), gpu_weight(pad, weight);
    layernorm_forward<float>(nullptr, {out.data(), mean.data(), rstd.data(), inp.data(), nullptr, nullptr,
                                       weight.data(), weight.data(), rows, C});
    layernorm_backward<float>(nullptr, {dinp.data(), dweight.data(), dbias.data(), nullptr, dout.data(),
                                        inp.data(), weight.data(), mean.data(), rstd.data(), rows, C});
    for (auto& version : layernorm_forward_versions<float>()) {
        DeviceArray<float> gpu_out(pad, n), gpu_mean(pad, rows), gpu_rstd(pad, rows);
        if (runs([&] {
                version.launch(
                    pad,
                    {gpu_out, gpu_mean, gpu_rstd, gpu_inp, nullptr, nullptr, gpu_weight, gpu_weight, rows, C},
                    32);
            }))
            expect_close(version.name, gpu_out.values(), out, 1e-5);
    }
    DeviceArray<float> gpu_mean(pad, mean), gpu_rstd(pad, rstd);
    for (auto& version : layernorm_backward_versions<float>()) {
        DeviceArray<float> gpu_dinp(pad, n), gpu_dweight(pad, std::vector<float>(C)),
            gpu_dbias(pad, std::vector<float>(C));
        if (!runs([&] {
                version.launch(pad,
                               {gpu_dinp, gpu_dweight, gpu_dbias, nullptr, gpu_dout, gpu_inp, gpu_weight,
                                gpu_mean, gpu_rstd, rows, C},
                               32);
            }))
            continue;
        expect_close(version.name, gpu_dinp.values(), dinp, 1e-4);
        expect_close(version.name, gpu_dweight.values(), dweight, 1e-4);
    }
}

static void classify(LaunchPad& pad, int V) {
    const std::vector<float> logits = random_values(V, 1);
    std::vector<float> want = logits;
    float loss = 0;
    const int target = V - 2;
    fused_classifier<float>(nullptr, {want.data(), &loss, &target, 1, 1, V, V, true});
    DeviceArray<int> targets(pad, std::vector<int>{target});
    for (auto& version : fused_classifier_versions<float>()) {
        DeviceArray<float> gpu_logits(pad, logits), losses(pad, 1);
        if (!runs([&] { version.launch(pad, {gpu_logits, losses, targets, 1, 1, V, V, true}, 32); }))
            continue;
        EXPECT_NEAR(losses.values()[0], loss, 1e-4);
        expect_close(version.name, gpu_logits.values(), want, 1e-4);
    }
}

static void attention_of_one_token(LaunchPad& pad, int keys) {
    const int C = 64;
    const std::vector<float> qkv = random_values(size_t(keys) * 3 * C, 1);
    std::vector<float> want(C);
    const int position = keys - 1;
    decode_attention<float>(nullptr, {want.data(), qkv.data(), &position, 1, keys, C, 1});
    DeviceArray<float> gpu_qkv(pad, qkv);
    DeviceArray<int> positions(pad, std::vector<int>{position});
    for (auto& version : decode_attention_versions<float>()) {
        DeviceArray<float> out(pad, C);
        if (runs([&] { version.launch(pad, {out, gpu_qkv, positions, 1, keys, C, 1}, 16); }))
            expect_close(version.name, out.values(), want, 1e-4);
    }
}

static void gemms(LaunchPad& pad, int K) {
    const std::vector<float> inp = random_values(K, 1), weight = random_values(K, 2), zeros(K);
    float want = 0;
    matmul_forward_cpu<float>(
        {.out = &want, .inp = inp.data(), .weight = weight.data(), .num_rows = 1, .C = K, .OC = 1});
    DeviceArray<float> gpu_inp(pad, inp), gpu_weight(pad, weight), out(pad, 1);
    const double tolerance = 1e-4 * std::sqrt(double(K));
    if (runs([&] {
            matmul_forward<float>(
                &pad, {.out = out, .inp = gpu_inp, .weight = gpu_weight, .num_rows = 1, .C = K, .OC = 1});
        })) {
        EXPECT_NEAR(out.values()[0], want, tolerance);
    }
    DeviceArray<float> dweight(pad, std::vector<float>(1)), dbias(pad, std::vector<float>(1));
    if (runs([&] {
            matmul_backward_parameters<float>(&pad, {.dweight = dweight,
                                                     .dbias = dbias,
                                                     .dout = gpu_weight,
                                                     .inp = gpu_inp,
                                                     .num_rows = K,
                                                     .C = 1,
                                                     .OC = 1});
        })) {
        EXPECT_NEAR(dweight.values()[0], want, tolerance);
    }
}

TEST(LongLoops, AreRightOrRefused) {
    if (test_pads().empty()) GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    LaunchPad& pad = *test_pads()[0];
    encoder(pad, most + 7, 1, 3, 2);
    encoder(pad, 700, 1001, 1, 1);
    sum(pad, 32 * most + 5);
    layernorm(pad, most + 7, 3);
    layernorm(pad, 2, 32 * most / 3 + 32);
    classify(pad, 32 * most / 2 + 65);
    attention_of_one_token(pad, most + 7);
    gemms(pad, most + 7);
    gemms(pad, 8 * most + 9);
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
