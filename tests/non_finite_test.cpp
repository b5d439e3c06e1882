// NaN and infinity in one element of each input of each kernel version: wherever the CPU's result is not
// finite, the GPU's is not either, so that no kernel hides a fault of the model from the training step. In
// fp32, whose code the other storage types share.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <regex>
#include <set>

#include "llmc/base/file.h"
#include "llmc/layers/attention.h"
#include "llmc/layers/classifier.h"
#include "llmc/layers/decode_attention.h"
#include "llmc/layers/decode_linear.h"
#include "llmc/layers/dropout.h"
#include "llmc/layers/encoder.h"
#include "llmc/layers/gelu.h"
#include "llmc/layers/gradient_sum.h"
#include "llmc/layers/layernorm.h"
#include "llmc/layers/matmul.h"
#include "tests/layer_test.h"

// A layer, all of whose tensors are fp32.
template <class Params, class Config = int>
struct Layer {
    std::vector<KernelVersion<Params, Config>> versions;
    void (*cpu)(const Params&);
    std::vector<size_t> sizes;  // of the tensors, the inputs first
    size_t num_inputs;
    std::vector<int> integers;                    // tokens, targets and the like
    std::function<Params(float**, int*)> params;  // of the tensors and the integers
    bool infinity = true;                         // is not to be lost, either
};

template <auto layer, class Params>
static void on_cpu(const Params& params) {
    layer(nullptr, params);
}

using Tensors = std::vector<std::vector<float>>;

template <class Params, class Config>
static Tensors run_on_cpu(const Layer<Params, Config>& layer, Tensors tensors) {
    std::vector<float*> pointers;
    for (std::vector<float>& tensor : tensors) pointers.push_back(tensor.data());
    std::vector<int> integers = layer.integers;
    layer.cpu(layer.params(pointers.data(), integers.data()));
    return tensors;
}

template <class Params, class Config, class Version>
static Tensors run_on(LaunchPad& pad, const Layer<Params, Config>& layer, const Version& version,
                      Config config, const Tensors& tensors) {
    std::vector<std::unique_ptr<DeviceArray<float>>> arrays;
    std::vector<float*> pointers;
    for (const std::vector<float>& tensor : tensors) {
        arrays.push_back(std::make_unique<DeviceArray<float>>(pad, tensor));
        pointers.push_back(*arrays.back());
    }
    DeviceArray<int> integers(pad, layer.integers);
    version.launch(pad, layer.params(pointers.data(), integers), config);
    Tensors results;
    for (const auto& array : arrays) results.push_back(array->values());
    return results;
}

static void expect_not_finite_where(const Tensors& want, const Tensors& got) {
    for (size_t t = 0; t < want.size(); t++)
        for (size_t i = 0; i < want[t].size(); i++)
            if (!std::isfinite(want[t][i]) && std::isfinite(got[t][i])) {
                ADD_FAILURE() << "tensor " << t << "[" << i << "] is " << got[t][i] << ", on the CPU "
                              << want[t][i];
                break;
            }
}

template <class Params, class Config>
static void check(const Layer<Params, Config>& layer) {
    Tensors tensors;
    for (size_t size : layer.sizes) tensors.push_back(random_values(size, uint32_t(tensors.size() + 1)));
    for (size_t input = 0; input < layer.num_inputs; input++)
        for (const auto& [bad, sixths] : {std::pair{NAN, 1}, {-NAN, 3}, {NAN, 5}, {INFINITY, 3}}) {
            if (std::isinf(bad) && !layer.infinity) continue;
            Tensors broken = tensors;
            const size_t at = layer.sizes[input] * size_t(sixths) / 6;  // of attention: in v, k and q
            broken[input][at] = bad;
            SCOPED_TRACE(format_string("%f in tensor %zu at %zu", double(bad), input, at));
            const Tensors want = run_on_cpu(layer, broken);
            bool spreads = false;
            for (size_t t = layer.num_inputs; t < want.size(); t++)
                spreads |=
                    std::any_of(want[t].begin(), want[t].end(), [](float v) { return !std::isfinite(v); });
            EXPECT_TRUE(spreads || !std::isnan(bad)) << "no result depends on it";
            for_each_version(layer.versions, [&](LaunchPad& pad, auto& version, Config config) {
                expect_not_finite_where(want, run_on(pad, layer, version, config, broken));
            });
        }
}

static const int ROWS = 5, C = 32, OC = 24;
static const size_t INP = size_t(ROWS) * C, OUT = size_t(ROWS) * OC, WEIGHT = size_t(OC) * C;

TEST(NonFinite, LayerNormForward) {
    check(Layer<LayerNormForward<float>>{layernorm_forward_versions<float>(),
                                         on_cpu<layernorm_forward<float>>,
                                         {INP, C, C, INP, ROWS, ROWS},
                                         3,
                                         {0},
                                         [](float** t, int*) {
                                             return LayerNormForward<float>{.out = t[3],
                                                                            .mean = t[4],
                                                                            .rstd = t[5],
                                                                            .inp = t[0],
                                                                            .weight = t[1],
                                                                            .bias = t[2],
                                                                            .num_rows = ROWS,
                                                                            .C = C};
                                         }});
}

TEST(NonFinite, LayerNormBackward) {
    check(Layer<LayerNormBackward<float>>{layernorm_backward_versions<float>(),
                                          on_cpu<layernorm_backward<float>>,
                                          {INP, INP, INP, C, ROWS, ROWS, INP, C, C},
                                          6,
                                          {0},
                                          [](float** t, int*) {
                                              return LayerNormBackward<float>{.dinp = t[6],
                                                                              .dweight = t[7],
                                                                              .dbias = t[8],
                                                                              .added = t[0],
                                                                              .dout = t[1],
                                                                              .inp = t[2],
                                                                              .weight = t[3],
                                                                              .mean = t[4],
                                                                              .rstd = t[5],
                                                                              .num_rows = ROWS,
                                                                              .C = C};
                                          }});
}

TEST(NonFinite, Gelu) {
    check(Layer<GeluForward<float>>{
        gelu_forward_versions<float>(), on_cpu<gelu_forward<float>>, {INP, INP}, 1, {0}, [](float** t, int*) {
            return GeluForward<float>{.out = t[1], .inp = t[0], .n = INP};
        }});
    check(Layer<GeluBackward<float>>{gelu_backward_versions<float>(),
                                     on_cpu<gelu_backward<float>>,
                                     {INP, INP, INP},
                                     2,
                                     {0},
                                     [](float** t, int*) {
                                         return GeluBackward<float>{
                                             .dinp = t[2], .inp = t[0], .dout = t[1], .n = INP};
                                     },
                                     false});  // the slope there is 1
}

TEST(NonFinite, Residual) {
    check(Layer<LayerNormForward<float>>{layernorm_forward_versions<float>(),
                                         on_cpu<layernorm_forward<float>>,
                                         {INP, INP, C, C, INP, INP, ROWS, ROWS},
                                         4,
                                         {0},
                                         [](float** t, int*) {
                                             return LayerNormForward<float>{.out = t[5],
                                                                            .mean = t[6],
                                                                            .rstd = t[7],
                                                                            .inp = t[0],
                                                                            .added = t[1],
                                                                            .sum = t[4],
                                                                            .weight = t[2],
                                                                            .bias = t[3],
                                                                            .num_rows = ROWS,
                                                                            .C = C};
                                         }});
}

TEST(NonFinite, Dropout) {
    check(Layer<Dropout<float>>{
        dropout_versions<float>(), on_cpu<dropout<float>>, {INP, INP}, 1, {1, 2}, [](float** t, int* key) {
            return Dropout<float>{.out = t[1],
                                  .inp = t[0],
                                  .key = reinterpret_cast<uint32_t*>(key),
                                  .site = 0,
                                  .rate = 0.01f,
                                  .n = INP};
        }});
}

TEST(NonFinite, Encoder) {
    const std::vector<int> tokens = {3, 1, 3, 0, 2};
    const size_t VOCABULARY = 4;
    check(Layer<EncoderForward<float>>{
        encoder_forward_versions<float>(),
        on_cpu<encoder_forward<float>>,
        {VOCABULARY * C, INP, INP},
        2,
        tokens,
        [](float** t, int* inp) {
            return EncoderForward<float>{
                .out = t[2], .inp = inp, .wte = t[0], .wpe = t[1], .B = 1, .T = ROWS, .C = C};
        }});
    std::vector<int> buckets(encoder_bucket_ints(ROWS));
    build_encoder_buckets(buckets.data(), tokens.data(), ROWS);
    check(Layer<EncoderBackward<float>>{
        encoder_backward_versions<float>(),
        on_cpu<encoder_backward<float>>,
        {INP, VOCABULARY * C, INP},
        1,
        buckets,
        [](float** t, int* sorted) {
            return EncoderBackward<float>{
                .dwte = t[1], .dwpe = t[2], .dout = t[0], .buckets = sorted, .B = 1, .T = ROWS, .C = C};
        }});
}

TEST(NonFinite, Matmul) {
    check(Layer<MatmulForward<float>, Tile>{
        matmul_forward_versions<float>(),
        matmul_forward_cpu<float>,
        {INP, WEIGHT, OC, OUT},
        3,
        {0},
        [](float** t, int*) {
            return MatmulForward<float>{
                .out = t[3], .inp = t[0], .weight = t[1], .bias = t[2], .num_rows = ROWS, .C = C, .OC = OC};
        }});
    check(Layer<MatmulBackwardInput<float>, Tile>{
        matmul_dinp_versions<float>(),
        matmul_dinp_cpu<float>,
        {OUT, WEIGHT, INP},
        2,
        {0},
        [](float** t, int*) {
            return MatmulBackwardInput<float>{
                .dinp = t[2], .dout = t[0], .weight = t[1], .num_rows = ROWS, .C = C, .OC = OC};
        }});
    check(Layer<MatmulBackwardParameters<float>, Tile>{matmul_dweight_versions<float>(),
                                                       matmul_dweight_cpu<float>,
                                                       {OUT, INP, WEIGHT},
                                                       2,
                                                       {0},
                                                       [](float** t, int*) {
                                                           return MatmulBackwardParameters<float>{
                                                               .dweight = t[2],
                                                               .dout = t[0],
                                                               .inp = t[1],
                                                               .num_rows = ROWS,
                                                               .C = C,
                                                               .OC = OC,
                                                               .accumulate = true};
                                                       }});
    check(Layer<DecodeLinear<float>>{decode_linear_versions<float>(),
                                     on_cpu<decode_linear<float>>,
                                     {C, WEIGHT, OC, OC},
                                     3,
                                     {0},
                                     [](float** t, int*) {
                                         return DecodeLinear<float>{.out = t[3],
                                                                    .stream = nullptr,
                                                                    .inp = t[0],
                                                                    .weight = t[1],
                                                                    .bias = t[2],
                                                                    .num_texts = 1,
                                                                    .C = C,
                                                                    .OC = OC};
                                     }});
}

TEST(NonFinite, MatmulBias) {
    check(Layer<MatmulDbias<float>>{
        matmul_dbias_versions<float>(), matmul_dbias_cpu<float>, {OUT, OC}, 1, {0}, [](float** t, int*) {
            return MatmulDbias<float>{.dbias = t[1], .dout = t[0], .num_rows = ROWS, .OC = OC};
        }});
}

TEST(NonFinite, Attention) {
    check(Layer<AttentionForward<float>>{
        attention_forward_versions<float>(),
        attention_forward_cpu<float>,
        {3 * INP, INP, 2 * ROWS},
        1,
        {0},
        [](float** t, int*) {
            return AttentionForward<float>{
                .out = t[1], .lse = t[2], .qkv = t[0], .B = 1, .T = ROWS, .C = C, .NH = 2};
        }});
    check(Layer<AttentionBackward<float>>{attention_backward_versions<float>(),
                                          attention_backward_cpu<float>,
                                          {INP, INP, 2 * ROWS, 3 * INP, 3 * INP, 2 * ROWS},
                                          4,
                                          {0},
                                          [](float** t, int*) {
                                              return AttentionBackward<float>{.dqkv = t[4],
                                                                              .delta = t[5],
                                                                              .dout = t[0],
                                                                              .out = t[1],
                                                                              .lse = t[2],
                                                                              .qkv = t[3],
                                                                              .B = 1,
                                                                              .T = ROWS,
                                                                              .C = C,
                                                                              .NH = 2};
                                          }});
    check(Layer<DecodeAttention<float>>{decode_attention_versions<float>(),
                                        on_cpu<decode_attention<float>>,
                                        {3 * INP, C},
                                        1,
                                        {ROWS - 1},
                                        [](float** t, int* position) {
                                            return DecodeAttention<float>{.out = t[1],
                                                                          .cache = t[0],
                                                                          .positions = position,
                                                                          .num_texts = 1,
                                                                          .T = ROWS,
                                                                          .C = C,
                                                                          .NH = 2};
                                        }});
}

TEST(NonFinite, Classifier) {
    check(Layer<FusedClassifier<float>>{fused_classifier_versions<float>(),
                                        on_cpu<fused_classifier<float>>,
                                        {INP, ROWS},
                                        1,
                                        {0, 1, 2, 3, 4},
                                        [](float** t, int* targets) {
                                            return FusedClassifier<float>{.logits = t[0],
                                                                          .losses = t[1],
                                                                          .targets = targets,
                                                                          .dloss = 1,
                                                                          .num_rows = ROWS,
                                                                          .V = C - 1,
                                                                          .Vp = C,
                                                                          .write_gradients = true};
                                        }});
    check(Layer<SumLosses>{sum_losses_versions(), on_cpu<sum_losses>, {INP, 1}, 1, {0}, [](float** t, int*) {
                               return SumLosses{.total = t[1], .losses = t[0], .n = int(INP), .scale = 1};
                           }});
}

TEST(NonFinite, GradientSum) {
    check(Layer<GradientSum<float>>{
        gradient_sum_versions<float>(),
        on_cpu<gradient_sum<float>>,
        {INP, C, C},
        2,
        {0},
        [](float** t, int*) {
            return GradientSum<float>{
                .out = t[2], .inp = t[0], .own = t[1], .n = C, .stride = C, .count = ROWS, .own_index = 1};
        }});
}

// The optimizer: its own tests feed it values that are not finite.
static const std::set<std::string> tested_elsewhere = {"adamw_update", "muon_update", "global_norm"};

TEST(NonFinite, EveryLayerIsHere) {
    static const std::regex table(" (\\w+)_versions\\(\\);");
    const std::string here = read_whole_file(SOURCE_DIR "/tests/non_finite_test.cpp");
    for (const char* folder : {"/llmc/layers", "/llmc/generate"})
        for (const auto& entry : std::filesystem::directory_iterator(std::string(SOURCE_DIR) + folder)) {
            const std::string text = read_whole_file(entry.path().string());
            for (std::sregex_iterator found(text.begin(), text.end(), table), end; found != end; ++found) {
                const std::string name = (*found)[1];
                const bool is_here = std::regex_search(here, std::regex("[ {(]" + name + "_versions[<(]"));
                EXPECT_NE(is_here, tested_elsewhere.count(name) > 0)
                    << name << ": add it to a test, or say why not";
            }
        }
}
