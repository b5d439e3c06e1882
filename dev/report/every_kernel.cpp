#include "dev/report/every_kernel.h"

#include <optional>

#include "dev/vulkan/baselines/baselines.h"
#include "llmc/generate/text_generator.h"
#include "llmc/layers/decode_attention.h"
#include "llmc/layers/decode_linear.h"
#include "llmc/layers/gradient_sum.h"
#include "llmc/layers/tensor_core.h"
#include "llmc/model/train_step.h"

// --- what training takes ---

template <class Real>
static void give_training_commands(LaunchPad& pad, const ModelConfig& config, BatchShape shape,
                                   OptimizerKind kind, float dropout) {
    const auto [B, T] = shape;
    GPT2<Real> g(config, &pad);
    g.dropout = dropout;
    gpt2_allocate(g, B, T, true);
    Optimizer<Real> optimizer(config, g.memory, {.master_weights = true}, {.kind = kind});
    StepRunner<Real> runner = {.g = g, .optimizer = optimizer, .B = B, .T = T, .micro_steps = 2};
    runner.prepare();
    gpt2_forward(g, B, T);
    gpt2_head(g, B, T, 1, Gradients::accumulate);  // of a later micro-step
    gpt2_backward(g, B, T, Gradients::accumulate);
    TextGenerator<Real> generator(g, T, 1);
    generator.reader.read(0, std::vector<int>(size_t(T / 2), 0));
    generator.decode_step();
}

template <class Real>
void give_default_commands(LaunchPad& pad, const ModelConfig& config, BatchShape shape) {
    for (const OptimizerInfo& optimizer : all_optimizers())
        give_training_commands<Real>(pad, config, shape, optimizer.kind, 0);
    give_training_commands<Real>(pad, config, shape, OptimizerKind::adamw, 0.1f);
    pad.commit();
}

// --- all versions ---

// Launches every version in every config that the device's workgroups hold.
template <class Params>
static void give_versions(LaunchPad& pad, const std::vector<KernelVersion<Params>>& versions,
                          const Params& params) {
    for (const auto& version : versions)
        for (const int block : version.configs)
            if (uint32_t(block) <= pad.limits().max_block) version.launch(pad, params, block);
}

template <class Real>
struct VersionSizes {
    LaunchPad& pad;
    const ModelConfig& config;
    int B, T;
    Memory memory{&pad};
    int num_rows = B * T, C = config.channels, NH = config.num_heads;
    Real* reals(size_t n) { return memory.allocate<Real>(n, "operand"); }
    float* floats(size_t n) { return memory.allocate<float>(n, "operand"); }
    int* ints(size_t n) { return memory.allocate<int>(n, "operand"); }
};

// The tensor-core tiles that fit the device for a GEMM; whether the version can run at all.
template <class Real>
static std::vector<Tile> fitting_tiles(LaunchPad& pad, const GemmShape& gemm) {
    std::vector<Tile> tiles;
    if (!gemm_fragment<Real>(pad)) return tiles;
    for (const Tile of : tensor_core_tiles<Real>(gemm.layout)) {
        const std::vector<Tile> same = interchangeable_tiles<Real>(pad, gemm, {of, 1, gemm.K}, true);
        for (const Tile tile : same)
            if (tile == of) tiles.push_back(tile);
    }
    return tiles;
}

template <class Real, class Params>
static void give_matmul_versions(LaunchPad& pad, const std::vector<KernelVersion<Params, Tile>>& versions,
                                 const Params& params, const GemmShape& gemm) {
    GemmShape packed = gemm;
    packed.layout = GemmLayout::packed;
    for (const auto& version : versions) {
        const std::string_view name = version.name;
        const std::vector<Tile> tiles = name == "matmul6"           ? fitting_tiles<Real>(pad, packed)
                                        : is_tensor_core_gemm(name) ? fitting_tiles<Real>(pad, gemm)
                                                                    : version.configs;
        for (const Tile tile : tiles) {
            const uint32_t block = name.ends_with('3') && tile.m == 32 ? 256 : tile.m * tile.n;
            if (tile.m > 16 || block <= pad.limits().max_block) version.launch(pad, params, tile);
        }
    }
}

template <class Real>
static void give_matmul(VersionSizes<Real>& s, int C, int OC) {
    const size_t n = s.num_rows;
    Real *in = s.reals(n * C), *out = s.reals(n * OC), *weight = s.reals(size_t(C) * OC), *bias = s.reals(OC);
    give_matmul_versions<Real, MatmulForward<Real>>(
        s.pad, with_baselines(matmul_forward_versions<Real>()),
        {.out = out, .inp = in, .weight = weight, .bias = bias, .num_rows = s.num_rows, .C = C, .OC = OC},
        {GemmLayout::nt, s.num_rows, OC, C, EPILOGUE_BIAS});
    give_matmul_versions<Real, MatmulBackwardInput<Real>>(
        s.pad, with_baselines(matmul_dinp_versions<Real>()),
        {.dinp = in, .dout = out, .weight = weight, .num_rows = s.num_rows, .C = C, .OC = OC},
        {GemmLayout::nn, s.num_rows, C, OC, EPILOGUE_NONE});
    for (const bool accumulate : {false, true})
        give_matmul_versions<Real, MatmulBackwardParameters<Real>>(
            s.pad, with_baselines(matmul_dweight_versions<Real>()),
            {.dweight = weight,
             .dout = out,
             .inp = in,
             .num_rows = s.num_rows,
             .C = C,
             .OC = OC,
             .accumulate = accumulate},
            {GemmLayout::tn, OC, C, s.num_rows, accumulate ? EPILOGUE_ADD : EPILOGUE_NONE});
    give_versions<MatmulDbias<Real>>(s.pad, with_baselines(matmul_dbias_versions<Real>()),
                                     {.dbias = bias, .dout = out, .num_rows = s.num_rows, .OC = OC});
}

template <class Real>
static void give_attention(VersionSizes<Real>& s) {
    const size_t n = size_t(s.num_rows) * s.C;
    Real *qkv = s.reals(3 * n), *dqkv = s.reals(3 * n), *out = s.reals(n), *dout = s.reals(n);
    float* lse = s.floats(size_t(s.num_rows) * s.NH);
    give_versions<AttentionForward<Real>>(
        s.pad, with_baselines(attention_forward_versions<Real>()),
        {.out = out, .lse = lse, .qkv = qkv, .B = s.B, .T = s.T, .C = s.C, .NH = s.NH});
    give_versions<AttentionBackward<Real>>(s.pad, with_baselines(attention_backward_versions<Real>()),
                                           {.dqkv = dqkv,
                                            .delta = s.floats(size_t(s.num_rows) * s.NH),
                                            .dout = dout,
                                            .out = out,
                                            .lse = lse,
                                            .qkv = qkv,
                                            .B = s.B,
                                            .T = s.T,
                                            .C = s.C,
                                            .NH = s.NH});
}

template <class Real>
static void give_layernorm(VersionSizes<Real>& s) {
    const size_t n = size_t(s.num_rows) * s.C;
    Real *in = s.reals(n), *out = s.reals(n), *other = s.reals(n), *weight = s.reals(s.C),
         *bias = s.reals(s.C);
    float *mean = s.floats(s.num_rows), *rstd = s.floats(s.num_rows);
    for (const Real* added : {static_cast<const Real*>(nullptr), static_cast<const Real*>(other)})
        give_versions<LayerNormForward<Real>>(s.pad, with_baselines(layernorm_forward_versions<Real>()),
                                              {.out = out,
                                               .mean = mean,
                                               .rstd = rstd,
                                               .inp = in,
                                               .added = added,
                                               .sum = added ? s.reals(n) : nullptr,
                                               .weight = weight,
                                               .bias = bias,
                                               .num_rows = s.num_rows,
                                               .C = s.C});
    give_versions<LayerNormBackward<Real>>(s.pad, layernorm_backward_versions<Real>(),
                                           {.dinp = out,
                                            .dweight = weight,
                                            .dbias = bias,
                                            .added = nullptr,
                                            .dout = other,
                                            .inp = in,
                                            .weight = s.reals(s.C),
                                            .mean = mean,
                                            .rstd = rstd,
                                            .num_rows = s.num_rows,
                                            .C = s.C});
}

template <class Real>
static void give_elementwise(VersionSizes<Real>& s) {
    const size_t n = 4 * size_t(s.num_rows) * s.C;
    Real *in = s.reals(n), *out = s.reals(n);
    give_versions<GeluForward<Real>>(s.pad, with_baselines(gelu_forward_versions<Real>()),
                                     {.out = out, .inp = in, .n = n});
    give_versions<GeluBackward<Real>>(s.pad, with_baselines(gelu_backward_versions<Real>()),
                                      {.dinp = out, .inp = in, .dout = s.reals(n), .n = n});
    const uint32_t* key = s.memory.template allocate<uint32_t>(2, "key");
    give_versions<Dropout<Real>>(s.pad, with_baselines(dropout_versions<Real>()),
                                 {.out = out, .inp = in, .key = key, .site = 1, .rate = 0.1f, .n = n});
    give_versions<GradientSum<Real>>(s.pad, with_baselines(gradient_sum_versions<Real>()),
                                     {.out = out,
                                      .inp = in,
                                      .own = s.reals(n / 4),
                                      .n = n / 4,
                                      .stride = n / 4,
                                      .count = 4,
                                      .own_index = 0});
    const std::vector<GradientSlice<Real>> gradients = {{in, n}};
    give_versions<GlobalNorm<Real>>(s.pad, with_baselines(global_norm_versions<Real>()),
                                    {.norm_and_scale = s.floats(2), .gradients = gradients, .max_norm = 1});
}

template <class Real>
static AdamWUpdate<Real> wte_update(VersionSizes<Real>& s, size_t n) {
    return {.params = s.reals(n),
            .master = sizeof(Real) == 2 ? s.floats(n) : nullptr,
            .m = s.floats(n),
            .v = s.floats(n),
            .grads = s.reals(n),
            .n = n,
            .step = s.memory.template allocate<AdamWStep>(1, "step"),
            .weight_decay = 0.1f,
            .norm_and_scale = s.floats(2)};
}

// Two matrices, so that GEMMs are batched.
template <class Real>
static void give_muon(VersionSizes<Real>& s, int rows, int columns) {
    const size_t n = size_t(rows) * size_t(columns);
    const MuonMatrix<Real> matrix = {.params = s.reals(n),
                                     .master = sizeof(Real) == 2 ? s.floats(n) : nullptr,
                                     .m = s.floats(n),
                                     .grads = s.reals(n)};
    give_versions<MuonUpdate<Real>>(s.pad, muon_update_versions<Real>(),
                                    {.matrices = {matrix, matrix},
                                     .rows = rows,
                                     .columns = columns,
                                     .step = s.memory.template allocate<MuonStep>(1, "step"),
                                     .weight_decay = 0.1f,
                                     .norm_and_scale = s.floats(2)});
}

template <class Real>
static void give_tokens(VersionSizes<Real>& s) {
    const size_t n = s.num_rows, V = s.config.padded_vocab_size, C = s.C;
    Real *rows = s.reals(n * C), *wte = s.reals(V * C), *wpe = s.reals(s.T * C);
    int* tokens = s.ints(n);
    const EncoderForward<Real> forward = {
        .out = rows, .inp = tokens, .wte = wte, .wpe = wpe, .B = s.B, .T = s.T, .C = s.C};
    give_versions(s.pad, with_baselines(encoder_forward_versions<Real>()), forward);
    const AdamWUpdate<Real> update = wte_update(s, V * C);
    give_versions(s.pad, adamw_update_versions<Real>(), update);
    give_versions<EncoderBackward<Real>>(s.pad, with_baselines(encoder_backward_versions<Real>()),
                                         {.dwte = wte,
                                          .dwpe = wpe,
                                          .dout = rows,
                                          .buckets = s.ints(encoder_bucket_ints(s.num_rows)),
                                          .B = s.B,
                                          .T = s.T,
                                          .C = s.C});
    give_versions<FusedClassifier<Real>>(s.pad, with_baselines(fused_classifier_versions<Real>()),
                                         {.logits = s.reals(n * V),
                                          .losses = s.floats(n),
                                          .targets = tokens,
                                          .dloss = 1,
                                          .num_rows = s.num_rows,
                                          .V = s.config.vocab_size,
                                          .Vp = int(V),
                                          .write_gradients = true});
    give_versions<SumLosses>(s.pad, with_baselines(sum_losses_versions()),
                             {.total = s.floats(1), .losses = s.floats(n), .n = s.num_rows, .scale = 1});
}

// What a token of a few texts takes: a linear layer with its LayerNorm and one without, and attention.
template <class Real>
static void give_decoding(VersionSizes<Real>& s) {
    const int texts = 8, C = s.C;
    Real *rows = s.reals(size_t(texts) * 4 * C), *weight = s.reals(size_t(4) * C * C);
    const int* positions = s.ints(texts);
    DecodeLinear<Real> linear = {.out = rows,
                                 .stream = s.floats(size_t(texts) * C),
                                 .gain = s.reals(C),
                                 .shift = s.reals(C),
                                 .weight = weight,
                                 .text_stride = size_t(4) * C,
                                 .num_texts = texts,
                                 .C = C,
                                 .OC = 4 * C,
                                 .epilogue = DecodeEpilogue::gelu};
    give_versions(s.pad, decode_linear_versions<Real>(), linear);
    linear.inp = rows;
    linear.C = 4 * C;
    linear.OC = C;
    linear.epilogue = DecodeEpilogue::add;
    give_versions(s.pad, decode_linear_versions<Real>(), linear);
    give_versions<DecodeAttention<Real>>(s.pad, decode_attention_versions<Real>(),
                                         {.out = rows,
                                          .cache = s.reals(size_t(texts) * s.T * 3 * C),
                                          .positions = positions,
                                          .num_texts = texts,
                                          .T = s.T,
                                          .C = C,
                                          .NH = s.NH});
}

template <class Real>
void give_all_versions(LaunchPad& pad, const ModelConfig& config, BatchShape shape) {
    VersionSizes<Real> s = {pad, config, shape.B, shape.T};
    give_matmul(s, s.C, 3 * s.C);
    give_matmul(s, 4 * s.C, s.C);
    give_attention(s);
    give_decoding(s);
    give_layernorm(s);
    give_elementwise(s);
    give_tokens(s);
    give_muon(s, s.C, 4 * s.C);
    give_muon(s, 4 * s.C, s.C);
    pad.commit();
}

#define INSTANTIATE(Real)                                                                  \
    template void give_default_commands<Real>(LaunchPad&, const ModelConfig&, BatchShape); \
    template void give_all_versions<Real>(LaunchPad&, const ModelConfig&, BatchShape);
FOR_EACH_REAL(INSTANTIATE)
#undef INSTANTIATE
