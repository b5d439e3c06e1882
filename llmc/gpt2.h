// GPT-2: the model and its memory, the forward pass, the backward pass; read it from top to bottom, then
// gpt2_update.h. Each layer function runs on the launchpad it is given, or on the CPU where that is null.
// train_gpt2 trains it, test_gpt2 checks it.
//
// Real is the type in which parameters, gradients and activations are stored: float, bf16 or fp16. Sums over
// rows, losses and the optimizer's numbers are float always.
#pragma once
#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "llmc/adamw.h"
#include "llmc/attention.h"
#include "llmc/classifier.h"
#include "llmc/encoder.h"
#include "llmc/gelu.h"
#include "llmc/global_norm.h"
#include "llmc/layernorm.h"
#include "llmc/loss_scaling.h"
#include "llmc/matmul.h"
#include "llmc/matmul_matrix.h"
#include "llmc/memory.h"
#include "llmc/model_config.h"
#include "llmc/residual.h"
#include "llmc/transpose.h"

// ---------------------------------------------------------------------------------------------------------------
// The model and its memory. B sequences of T tokens; C channels, NH heads, L layers, V tokens in the
// vocabulary, Vp with padding. Tensors that one layer fills and the backward pass needs are kept per layer;
// the others are shared.

template <class Real>
struct LayerActivations {
    float *ln1_mean, *ln1_rstd, *ln2_mean, *ln2_rstd;  // (B,T)
    Real* ln1;                                         // (B,T,C); shared where it is recomputed
    Real *qkv, *atty;                                  // (B,T,3C), (B,T,C)
    float* lse;                                        // (B,NH,T)
    Real* residual2;                                   // (B,T,C) after attention
    Real* ln2;                                         // (B,T,C); shared where it is recomputed
    Real *fch, *fch_gelu;                              // (B,T,4C) before and after GELU; likewise
    Real* residual3;                                   // (B,T,C) after the layer
};

// What the backward pass computes anew instead of keeping it: GELU, or GELU and both layer norms. Results are
// the same to the bit, but for bf16 on matrix cores, which round ties away from zero: one result of GELU in
// 2^16 may differ in its last bit.
enum Recompute { RECOMPUTE_NOTHING, RECOMPUTE_GELU, RECOMPUTE_GELU_AND_LAYERNORM };

// The weights of a layer that are matrices, as (outputs, inputs).
struct LayerMatrix {
    int tensor, out, in;
};
inline std::array<LayerMatrix, 4> layer_matrices(int C) {
    return {{{QKVW, 3 * C, C}, {ATTPROJW, C, C}, {FCW, 4 * C, C}, {FCPROJW, C, 4 * C}}};
}

// What becomes of the gradients of the linear layers' weights, wte among them: the first micro-step
// overwrites them, so that nobody has to zero the most of all memory, and later ones add to them. The other
// parameters' are added to always.
enum class Gradients { none, overwrite, add };
inline bool is_layer_weight(int tensor) {
    for (const LayerMatrix& m : layer_matrices(1))
        if (m.tensor == tensor) return true;
    return false;
}
inline bool is_overwritten(int tensor) { return tensor == WTE || is_layer_weight(tensor); }

template <class Real>
struct GPT2 {
    static constexpr bool is_16_bit = sizeof(Real) == 2;
    ModelConfig config;
    LaunchPad* pad;                       // null: the CPU
    std::vector<std::string> cpu_layers;  // layers that run on the CPU all the same, for debugging
    Memory memory;
    Real* params[NUM_PARAMETER_TENSORS];
    float* master[NUM_PARAMETER_TENSORS] = {};         // weights in fp32, which AdamW updates; null: none
    Real* grads[NUM_PARAMETER_TENSORS] = {};           // allocated for training alone, as are m and v
    std::vector<GradientSlice<Real>> gradient_slices;  // the memory of all grads
    float* m[NUM_PARAMETER_TENSORS] = {};
    float* v[NUM_PARAMETER_TENSORS] = {};
    // Gradients are those of the loss times this, so that small ones do not vanish in fp16; a power of two.
    float gradient_scale = std::is_same_v<Real, fp16> ? LossScaling::first : 1.0f;

    int B = 0, T = 0;  // largest batch that the activations hold
    Recompute recompute = RECOMPUTE_NOTHING;
    int *inputs = nullptr, *targets = nullptr, *buckets = nullptr;
    Real* encoded = nullptr;  // (B,T,C)
    std::vector<LayerActivations<Real>> layers;
    Real* branch = nullptr;  // (B,T,C) what a layer adds to the residual stream
    Real* lnf = nullptr;
    float *lnf_mean = nullptr, *lnf_rstd = nullptr;
    // Of a layer's weights (OC,C) the transposes (C,OC), which its forward pass makes before it reads them;
    // null: of none.
    Real* transposed[NUM_PARAMETER_TENSORS] = {};
    int logit_rows = 0;       // rows of logits that are in memory at a time
    Real* logits = nullptr;   // (logit_rows, Vp); becomes their gradient
    float* losses = nullptr;  // (B,T)
    // (B,T,C), (B,T,C), (B,T,4C): gradients, in the memory of lnf, branch and logits, which are used up by
    // then
    Real *dresidual = nullptr, *dbranch = nullptr, *dwide = nullptr;
    float *delta = nullptr, *scratch = nullptr;
    float* layernorm_scratch = nullptr;  // of its backward pass, which may read a product left in scratch
    float* dweight_scratch = nullptr;    // of the gradients of the parameters, which run beside others
    float* stats = nullptr;              // loss, gradient norm, clip factor of the step at hand
    float* norm_scratch = nullptr;
    AdamWStep* adamw = nullptr;  // read by the kernels: it changes every step, and they are recorded once

    // master_weights: keep an fp32 copy of the weights; in fp32 there is nothing to keep. only_count: to see
    // what memory it takes; it can then do nothing else.
    GPT2(const ModelConfig& c, LaunchPad* launchpad, bool master_weights, bool only_count = false);
    GPT2(const GPT2&) = delete;

    size_t layer_offset(int tensor, int l) const { return size_t(l) * parameter_layer_size(config, tensor); }
    const Real* weight(int tensor, int l = 0) const { return params[tensor] + layer_offset(tensor, l); }
    Real* grad(int tensor, int l = 0) const { return grads[tensor] + layer_offset(tensor, l); }

    bool on_cpu(const char* layer) const {
        return !pad || std::find(cpu_layers.begin(), cpu_layers.end(), layer) != cpu_layers.end();
    }
    // The launchpad that a layer runs on; null where it is to run on the CPU.
    LaunchPad* on(const char* layer) const {
        if (!on_cpu(layer)) return pad;
        if (pad) pad->commit(true);
        return nullptr;
    }
    // Scratch for a product that the layer `next` is to finish; none where that runs on the CPU, which
    // cannot.
    float* scratch_until(const char* next) const { return on_cpu(next) ? nullptr : scratch; }
};

template <class Real>
GPT2<Real>::GPT2(const ModelConfig& c, LaunchPad* launchpad, bool master_weights, bool only_count)
    : config(c), pad(launchpad), memory(launchpad) {
    memory.only_count = only_count;
    memory.kind = "parameters";
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++)
        params[i] = memory.allocate<Real>(parameter_size(config, i), parameter_info[i].name);
    memory.kind = "optimizer";
    for (int i = 0; i < NUM_PARAMETER_TENSORS && is_16_bit && master_weights; i++)
        master[i] = memory.allocate<float>(parameter_size(config, i), "master weights");
}

// Rows of logits in memory at a time: at most 1.25 GiB of them, since all of B=64, T=1024 would be 13 GB in
// fp32. 5632 rows of GPT-2 124M give a large GPU (132 multiprocessors) whole rounds of tiles in each of the
// head's products.
inline int choose_logit_rows(int rows, size_t row_bytes) {
    const int most = std::clamp(int((1280u << 20) / row_bytes), 1, 5632);
    return rows <= most ? rows : most >= 256 ? most / 256 * 256 : most;
}

// One layer's activations; `shared` has what all layers have in common.
template <class Real>
LayerActivations<Real> allocate_layer(Memory& memory, const LayerActivations<Real>& shared, size_t rows,
                                      size_t C, size_t NH) {
    LayerActivations<Real> a = shared;
    a.ln1_mean = memory.allocate<float>(rows, "ln1_mean");
    a.ln1_rstd = memory.allocate<float>(rows, "ln1_rstd");
    if (!a.ln1) a.ln1 = memory.allocate<Real>(rows * C, "ln1");
    a.qkv = memory.allocate<Real>(rows * 3 * C, "qkv");
    a.atty = memory.allocate<Real>(rows * C, "atty");
    a.lse = memory.allocate<float>(rows * NH, "lse");
    a.residual2 = memory.allocate<Real>(rows * C, "residual2");
    a.ln2_mean = memory.allocate<float>(rows, "ln2_mean");
    a.ln2_rstd = memory.allocate<float>(rows, "ln2_rstd");
    if (!a.ln2) a.ln2 = memory.allocate<Real>(rows * C, "ln2");
    a.fch = memory.allocate<Real>(rows * 4 * C, "fch");
    if (!a.fch_gelu) a.fch_gelu = memory.allocate<Real>(rows * 4 * C, "fch_gelu");
    a.residual3 = memory.allocate<Real>(rows * C, "residual3");
    return a;
}

// Allocates the gradients: neighbouring tensors in one piece of memory up to 1 GiB, so that a few kernels
// take their norm. Tensors begin at multiples of 64 bytes; the elements between them are zero for good.
template <class Real>
void allocate_gradients(GPT2<Real>& g) {
    const size_t unit = 64 / sizeof(Real), most = (size_t(1) << 30) / sizeof(Real);
    auto size = [&](int i) { return blocks(parameter_size(g.config, i), unit) * unit; };
    for (int first = 0; first < NUM_PARAMETER_TENSORS;) {
        int end = first;
        size_t n = 0;
        do n += size(end++);
        while (end < NUM_PARAMETER_TENSORS && n + size(end) <= most);
        Real* at = g.memory.template allocate<Real>(n, "gradients");
        g.memory.zero(at, n);
        g.gradient_slices.push_back({at, n});
        for (; first < end; first++) {
            g.grads[first] = at;
            at += size(first);
        }
    }
}

// Gradients of parameters and activations, AdamW's moments, scratch.
template <class Real>
void allocate_for_training(GPT2<Real>& g) {
    const ModelConfig& c = g.config;
    Memory& memory = g.memory;
    memory.kind = "gradients";
    allocate_gradients(g);
    memory.kind = "optimizer";
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) {
        const size_t n = parameter_size(c, i);
        g.m[i] = memory.allocate<float>(n, "AdamW's first moments");
        g.v[i] = memory.allocate<float>(n, "AdamW's second moments");
        memory.zero(g.m[i], n);
        memory.zero(g.v[i], n);
    }
    g.adamw = memory.allocate<AdamWStep>(1, "step");
    g.dresidual = g.lnf;
    g.dbranch = g.branch;
    g.dwide = g.logits;
    memory.kind = "scratch";
    const int N = g.B * g.T, C = c.channels;
    g.buckets = memory.allocate<int>(encoder_bucket_ints(N), "buckets");
    g.delta = memory.allocate<float>(size_t(N) * c.num_heads, "delta");
    size_t scratch = 1, dweight_scratch = 1;
    auto add_product = [&](int rows, int in, int out) {
        scratch = std::max({scratch, matmul_forward_scratch<Real>(g.pad, rows, in, out),
                            matmul_dinp_scratch<Real>(g.pad, rows, in, out)});
        dweight_scratch = std::max(dweight_scratch, matmul_dweight_scratch<Real>(g.pad, rows, in, out));
    };
    for (const LayerMatrix& m : layer_matrices(C)) add_product(N, m.in, m.out);
    add_product(g.logit_rows, C, c.padded_vocab_size);
    if (N % g.logit_rows)
        add_product(N % g.logit_rows, C, c.padded_vocab_size);  // the last chunk of the head
    g.scratch = memory.allocate<float>(scratch, "scratch");
    g.layernorm_scratch = memory.allocate<float>(std::max<size_t>(layernorm_backward_scratch(g.pad, N, C), 1),
                                                 "scratch of layer norms");
    g.dweight_scratch = memory.allocate<float>(dweight_scratch, "scratch of weight gradients");
    g.norm_scratch = memory.allocate<float>(
        std::max<size_t>(global_norm_scratch(g.pad, g.gradient_slices), 1), "norm partial sums");
}

// Memory for batches of up to B sequences of T tokens; `training` adds what gradients and the optimizer need.
template <class Real>
void gpt2_allocate(GPT2<Real>& g, int B, int T, bool training, Recompute recompute = RECOMPUTE_NOTHING) {
    const ModelConfig& c = g.config;
    if (T > c.max_seq_len)
        fail("sequence length %d is more than the model's max_seq_len %d", T, c.max_seq_len);
    Memory& memory = g.memory;
    memory.kind = "activations";
    const size_t rows = size_t(B) * T, C = c.channels;
    g.B = B;
    g.T = T;
    g.recompute = recompute;
    g.inputs = memory.allocate<int>(rows, "inputs");
    g.targets = memory.allocate<int>(rows, "targets");
    g.encoded = memory.allocate<Real>(rows * C, "encoded");
    LayerActivations<Real> shared = {};
    if (recompute >= RECOMPUTE_GELU) shared.fch_gelu = memory.allocate<Real>(rows * 4 * C, "fch_gelu");
    if (recompute >= RECOMPUTE_GELU_AND_LAYERNORM)
        shared.ln1 = shared.ln2 = memory.allocate<Real>(rows * C, "ln1 and ln2");
    for (int l = 0; l < c.num_layers; l++)
        g.layers.push_back(allocate_layer(memory, shared, rows, C, c.num_heads));
    g.branch = memory.allocate<Real>(rows * C, "branch");
    g.lnf = memory.allocate<Real>(rows * C, "lnf");
    g.lnf_mean = memory.allocate<float>(rows, "lnf_mean");
    g.lnf_rstd = memory.allocate<float>(rows, "lnf_rstd");
    g.losses = memory.allocate<float>(rows, "losses");
    g.stats = memory.allocate<float>(4, "stats");
    memory.kind = "logits";
    g.logit_rows = choose_logit_rows(int(rows), sizeof(Real) * size_t(c.padded_vocab_size));
    const size_t logits = size_t(g.logit_rows) * c.padded_vocab_size;
    g.logits = memory.allocate<Real>(training ? std::max(logits, rows * 4 * C) : logits, "logits");
    for (const LayerMatrix& m : layer_matrices(c.channels))
        if (g.pad && transposing_pays<Real>(*g.pad, int(rows), m.in, m.out))
            g.transposed[m.tensor] = memory.allocate<Real>(size_t(m.in) * m.out, "transposed weights");
    if (training) allocate_for_training(g);
}

// ---------------------------------------------------------------------------------------------------------------
// The forward pass

template <class Real>
void transpose_weights(GPT2<Real>& g, int l) {
    const SideBySide group(g.pad);
    for (const LayerMatrix& m : layer_matrices(g.config.channels))
        if (g.transposed[m.tensor])
            transpose(g.on("matmul"), g.transposed[m.tensor], g.weight(m.tensor, l), m.out, m.in);
}

// From g.encoded (B,T,C) to the normalized output of the last layer, g.lnf. `begin_layer` is called before
// the commands of each layer.
template <class Real>
void gpt2_forward_layers(GPT2<Real>& g, int B, int T,
                         const std::function<void(int layer)>& begin_layer = nullptr) {
    const bool has_scratch = B == g.B && T == g.T;  // it was made for that many rows
    float *scratch = has_scratch ? g.scratch : nullptr,
          *until_residual = has_scratch ? g.scratch_until("residual") : nullptr;
    const int C = g.config.channels, NH = g.config.num_heads, L = g.config.num_layers, N = B * T;
    LayerActivations<Real>& first = g.layers[0];
    layernorm_forward(g.on("layernorm"), first.ln1, first.ln1_mean, first.ln1_rstd, g.encoded, g.weight(LN1W),
                      g.weight(LN1B), N, C);
    const Real* residual = g.encoded;
    for (int l = 0; l < L; l++) {
        if (begin_layer) begin_layer(l);
        transpose_weights(g, l);
        LayerActivations<Real>& a = g.layers[l];
        matmul_forward(g.on("matmul"), a.qkv, a.ln1, g.weight(QKVW, l), g.weight(QKVB, l), N, C, 3 * C,
                       scratch, g.transposed[QKVW]);
        attention_forward(g.on("attention"), a.atty, a.lse, a.qkv, B, T, C, NH);
        const PartialProduct<Real> attproj =
            matmul_forward_partial(g.on("matmul"), g.branch, a.atty, g.weight(ATTPROJW, l),
                                   g.weight(ATTPROJB, l), N, C, C, until_residual, g.transposed[ATTPROJW]);
        fused_residual_layernorm_forward(g.on("residual"), a.residual2, a.ln2, a.ln2_mean, a.ln2_rstd,
                                         residual, attproj, g.weight(LN2W, l), g.weight(LN2B, l), N, C);
        matmul_gelu_forward(g.on("matmul"), a.fch_gelu, a.fch, a.ln2, g.weight(FCW, l), g.weight(FCB, l), N,
                            C, 4 * C, scratch, g.transposed[FCW]);
        const PartialProduct<Real> fcproj =
            matmul_forward_partial(g.on("matmul"), g.branch, a.fch_gelu, g.weight(FCPROJW, l),
                                   g.weight(FCPROJB, l), N, 4 * C, C, until_residual, g.transposed[FCPROJW]);
        // the layer norm that follows is the next layer's first, or the final one
        const bool last = l + 1 == L;
        fused_residual_layernorm_forward(g.on("residual"), a.residual3, last ? g.lnf : g.layers[l + 1].ln1,
                                         last ? g.lnf_mean : g.layers[l + 1].ln1_mean,
                                         last ? g.lnf_rstd : g.layers[l + 1].ln1_rstd, a.residual2, fcproj,
                                         last ? g.weight(LNFW) : g.weight(LN1W, l + 1),
                                         last ? g.weight(LNFB) : g.weight(LN1B, l + 1), N, C);
        residual = a.residual3;
    }
}

// From g.inputs (B,T) to g.lnf.
template <class Real>
void gpt2_forward(GPT2<Real>& g, int B, int T) {
    encoder_forward(g.on("encoder"), g.encoded, g.inputs, g.weight(WTE), g.weight(WPE), B, T,
                    g.config.channels);
    gpt2_forward_layers(g, B, T);
}

// Logits, losses and, unless `gradients` is none, the gradients of the head, chunk by chunk of rows: all
// logits are never in memory at once. Adds loss_scale * sum of losses to g.stats[0]. Gradients are those of
// that sum times g.gradient_scale: into g.dbranch (of lnf) and wte's. `look` sees each chunk's logits (rows,
// Vp) before they turn into gradients.
template <class Real>
void gpt2_head(GPT2<Real>& g, int B, int T, float loss_scale, Gradients gradients,
               const std::function<void(int first_row, int rows)>& look = nullptr) {
    const int C = g.config.channels, V = g.config.vocab_size, Vp = g.config.padded_vocab_size, N = B * T;
    const bool training = gradients != Gradients::none;
    for (int first = 0; first < N; first += g.logit_rows) {
        const int rows = std::min(g.logit_rows, N - first);
        const Real* lnf = g.lnf + size_t(first) * C;
        matmul_forward<Real>(g.on("matmul"), g.logits, lnf, g.weight(WTE), nullptr, rows, C, Vp,
                             training ? g.scratch : nullptr);
        if (look) look(first, rows);
        fused_classifier(g.on("classifier"), g.logits, g.losses + first, g.targets + first,
                         loss_scale * g.gradient_scale, rows, V, Vp, training);
        if (!training) continue;
        const SideBySide group(g.pad);
        matmul_backward_parameters<Real>(g.on("matmul"), g.grad(WTE), nullptr, g.dweight_scratch, g.logits,
                                         lnf, rows, C, Vp, first > 0 || gradients == Gradients::add);
        matmul_backward_input<Real>(g.on("matmul"), g.dbranch + size_t(first) * C, g.scratch, g.logits,
                                    g.weight(WTE), rows, C, Vp);
    }
    sum_losses(g.on("classifier"), g.stats, g.losses, N, loss_scale);
}

// ---------------------------------------------------------------------------------------------------------------
// The backward pass: after gpt2_forward and gpt2_head, which was given the same `gradients`, every
// parameter's gradient is in g.grads, or has been added to what was there. g.dresidual is the gradient of the
// residual stream, from the last layer down to the embeddings.
template <class Real>
void gpt2_backward(GPT2<Real>& g, int B, int T, Gradients gradients) {
    const bool accumulate = gradients == Gradients::add;
    const int C = g.config.channels, NH = g.config.num_heads, L = g.config.num_layers, N = B * T;
    float* until_layernorm = g.scratch_until("layernorm");
    layernorm_backward<Real>(g.on("layernorm"), g.dresidual, g.grad(LNFW), g.grad(LNFB), g.layernorm_scratch,
                             nullptr, g.dbranch, g.layers[L - 1].residual3, g.weight(LNFW), g.lnf_mean,
                             g.lnf_rstd, N, C);
    auto parameters = [&](int weight, int bias, int l, const Real* dout, const Real* inp, int in, int out) {
        matmul_backward_parameters<Real>(g.on("matmul"), g.grad(weight, l), g.grad(bias, l),
                                         g.dweight_scratch, dout, inp, N, in, out, accumulate);
    };
    // What leads from gradient to gradient runs one after the other. The gradients of the parameters, which
    // nobody waits for, run beside those kernels that leave the most of a large GPU idle where rows are few.
    for (int l = L - 1; l >= 0; l--) {
        const LayerActivations<Real>& a = g.layers[l];
        const Real* residual = l ? g.layers[l - 1].residual3 : g.encoded;
        // in the memory of activations that are not needed any more by then
        Real *dresidual2 = a.residual3, *dqkv = a.fch;
        if (g.recompute >= RECOMPUTE_GELU) gelu_forward(g.on("gelu"), a.fch_gelu, a.fch, size_t(N) * 4 * C);
        matmul_backward_input<Real>(g.on("matmul"), g.dwide, g.scratch, g.dresidual, g.weight(FCPROJW, l), N,
                                    4 * C, C, a.fch);
        if (g.recompute >= RECOMPUTE_GELU_AND_LAYERNORM)
            layernorm_forward(g.on("layernorm"), a.ln2, a.ln2_mean, a.ln2_rstd, a.residual2,
                              g.weight(LN2W, l), g.weight(LN2B, l), N, C);
        const PartialProduct<Real> dln2 = matmul_backward_input_partial<Real>(
            g.on("matmul"), g.dbranch, until_layernorm, g.dwide, g.weight(FCW, l), N, C, 4 * C);
        {
            const SideBySide group(g.pad);
            layernorm_backward<Real>(g.on("layernorm"), dresidual2, g.grad(LN2W, l), g.grad(LN2B, l),
                                     g.layernorm_scratch, g.dresidual, dln2, a.residual2, g.weight(LN2W, l),
                                     a.ln2_mean, a.ln2_rstd, N, C);
            parameters(FCPROJW, FCPROJB, l, g.dresidual, a.fch_gelu, 4 * C, C);
        }
        matmul_backward_input<Real>(g.on("matmul"), g.dbranch, g.scratch, dresidual2, g.weight(ATTPROJW, l),
                                    N, C, C);
        {
            const SideBySide group(g.pad);
            attention_backward<Real>(g.on("attention"), dqkv, g.delta, g.dbranch, a.atty, a.lse, a.qkv, B, T,
                                     C, NH);
            parameters(FCW, FCB, l, g.dwide, a.ln2, C, 4 * C);
        }
        if (g.recompute >= RECOMPUTE_GELU_AND_LAYERNORM)
            layernorm_forward(g.on("layernorm"), a.ln1, a.ln1_mean, a.ln1_rstd, residual, g.weight(LN1W, l),
                              g.weight(LN1B, l), N, C);
        const PartialProduct<Real> dln1 = matmul_backward_input_partial<Real>(
            g.on("matmul"), g.dbranch, until_layernorm, dqkv, g.weight(QKVW, l), N, C, 3 * C);
        {
            const SideBySide group(g.pad);
            layernorm_backward<Real>(g.on("layernorm"), g.dresidual, g.grad(LN1W, l), g.grad(LN1B, l),
                                     g.layernorm_scratch, dresidual2, dln1, residual, g.weight(LN1W, l),
                                     a.ln1_mean, a.ln1_rstd, N, C);
            parameters(ATTPROJW, ATTPROJB, l, dresidual2, a.atty, C, C);
            parameters(QKVW, QKVB, l, dqkv, a.ln1, C, 3 * C);
        }
    }
    encoder_backward(g.on("encoder"), g.grad(WTE), g.grad(WPE), g.dresidual, g.buckets, B, T, C);
}

// The products of a training step on matrix cores, each shape once.
template <class Real>
std::vector<MatrixProduct> gpt2_matrix_products(const GPT2<Real>& g) {
    const int rows = g.B * g.T, C = g.config.channels, Vp = g.config.padded_vocab_size;
    std::vector<MatrixProduct> products;
    const bool left = true;  // to a layer norm
    auto add_layer = [&](int n, int in, int out, int forward, bool out_left, int backward, bool dinp_left) {
        if (!g.pad || !on_matrix_cores<Real>(*g.pad, in, out)) return;
        products.push_back(
            forward5_product(n, in, out, forward, out_left, transposing_pays<Real>(*g.pad, n, in, out)));
        products.push_back(dinp5_product(n, in, out, backward, dinp_left));
        products.push_back(dweight5_product(n, in, out, false));
    };
    add_layer(rows, C, 3 * C, EPILOGUE_BIAS, !left, EPILOGUE_NONE, left);
    add_layer(rows, C, C, EPILOGUE_BIAS, left, EPILOGUE_NONE, !left);
    add_layer(rows, C, 4 * C, EPILOGUE_GELU, !left, EPILOGUE_NONE, left);
    add_layer(rows, 4 * C, C, EPILOGUE_BIAS, left, EPILOGUE_GELU_SLOPE, !left);
    add_layer(g.logit_rows, C, Vp, EPILOGUE_NONE, !left, EPILOGUE_NONE, !left);
    return products;
}

// Those whose tiles are to be measured before training: none on the CPU and on software devices.
template <class Real>
std::vector<MatrixProduct> gpt2_unmeasured_products(const GPT2<Real>& g) {
    if (!g.pad || g.pad->device().type == DeviceType::software) return {};
    return unmeasured_tiles<Real>(*g.pad, gpt2_matrix_products(g));
}

// ---------------------------------------------------------------------------------------------------------------
// Batches

// Copies a batch to where the kernels look for it.
template <class Real>
void gpt2_set_batch(GPT2<Real>& g, const int* inputs, const int* targets, int count, bool training) {
    g.memory.upload(g.inputs, inputs, count);
    g.memory.upload(g.targets, targets, count);
    if (!training) return;
    std::vector<int> buckets(encoder_bucket_ints(count));
    build_encoder_buckets(buckets.data(), inputs, count);
    g.memory.upload(g.buckets, buckets.data(), buckets.size());
}

// ---------------------------------------------------------------------------------------------------------------
// Parameters from files or random numbers, and back. Master weights receive what was given, unrounded.

template <class Real>
WriteTensor parameter_writer(GPT2<Real>& g) {
    return [&g](int tensor, size_t offset, const float* values, size_t count) {
        g.memory.upload_floats(g.params[tensor] + offset, values, count);
        if (g.master[tensor]) g.memory.upload(g.master[tensor] + offset, values, count);
    };
}

template <class Real>
ReadTensor parameter_reader(const GPT2<Real>& g) {
    return [&g](int tensor, size_t offset, float* values, size_t count) {
        g.memory.download_floats(values, g.params[tensor] + offset, count);
    };
}
