// Trains GPT-2 on the CPU or on a Vulkan device. From top to bottom: the model and its memory, the forward
// pass, the backward pass, the update, evaluation and sampling, the options, the loop.
//
//     train_gpt2 -i 'data/corpus/corpus_train.bin' -j 'data/corpus/corpus_val.bin' -e d6 -b 4 -t 64 -x 100
//
// Real is the type in which parameters, gradients and activations are stored: float, bf16 or fp16. Sums over
// rows, losses and the optimizer's numbers are float always.
//
// Each layer function runs on the launchpad it is given, or on the CPU where that is null; this file has no
// Vulkan call in it. test_gpt2.cpp includes it, with TESTING defined, to check the same stack.
#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "llmc/adamw.h"
#include "llmc/attention.h"
#include "llmc/checkpoint.h"
#include "llmc/classifier.h"
#include "llmc/dataloader.h"
#include "llmc/encoder.h"
#include "llmc/gelu.h"
#include "llmc/global_norm.h"
#include "llmc/initialize.h"
#include "llmc/layernorm.h"
#include "llmc/log.h"
#include "llmc/loss_scaling.h"
#include "llmc/matmul.h"
#include "llmc/memory.h"
#include "llmc/model_config.h"
#include "llmc/peak.h"
#include "llmc/residual.h"
#include "llmc/sampler.h"
#include "llmc/schedulers.h"
#include "llmc/tokenizer.h"

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

template <class Real>
struct GPT2 {
    static constexpr bool is_16_bit = sizeof(Real) == 2;
    ModelConfig config;
    LaunchPad* pad;                       // null: the CPU
    std::vector<std::string> cpu_layers;  // layers that run on the CPU all the same, for debugging
    Memory memory;
    Real* params[NUM_PARAMETER_TENSORS];
    float* master[NUM_PARAMETER_TENSORS] = {};  // weights in fp32, which AdamW updates; null: none
    Real* grads[NUM_PARAMETER_TENSORS] = {};    // allocated for training alone, as are m and v
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
    int logit_rows = 0;       // rows of logits that are in memory at a time
    Real* logits = nullptr;   // (logit_rows, Vp); becomes their gradient
    float* losses = nullptr;  // (B,T)
    // (B,T,C), (B,T,C), (B,T,4C): gradients, in the memory of lnf, branch and logits, which are used up by
    // then
    Real *dresidual = nullptr, *dbranch = nullptr, *dwide = nullptr;
    float *delta = nullptr, *scratch = nullptr;
    float* stats = nullptr;  // loss, gradient norm, clip factor of the step at hand
    float* norm_scratch = nullptr;
    AdamWStep* adamw = nullptr;  // read by the kernels: it changes every step, and they are recorded once

    // master_weights: keep an fp32 copy of the weights; in fp32 there is nothing to keep.
    GPT2(const ModelConfig& c, LaunchPad* launchpad, bool master_weights);
    GPT2(const GPT2&) = delete;

    size_t layer_offset(int tensor, int l) const { return size_t(l) * parameter_layer_size(config, tensor); }
    const Real* weight(int tensor, int l = 0) const { return params[tensor] + layer_offset(tensor, l); }
    Real* grad(int tensor, int l = 0) const { return grads[tensor] + layer_offset(tensor, l); }

    // The launchpad that a layer runs on; null where it is to run on the CPU.
    LaunchPad* on(const char* layer) const {
        if (!pad || std::find(cpu_layers.begin(), cpu_layers.end(), layer) == cpu_layers.end()) return pad;
        pad->commit(true);
        return nullptr;
    }
};

template <class Real>
GPT2<Real>::GPT2(const ModelConfig& c, LaunchPad* launchpad, bool master_weights)
    : config(c), pad(launchpad), memory(launchpad) {
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
static int choose_logit_rows(int rows, size_t row_bytes) {
    const int most = std::clamp(int((1280u << 20) / row_bytes), 1, 5632);
    return rows <= most ? rows : most >= 256 ? most / 256 * 256 : most;
}

// One layer's activations; `shared` has what all layers have in common.
template <class Real>
static LayerActivations<Real> allocate_layer(Memory& memory, const LayerActivations<Real>& shared,
                                             size_t rows, size_t C, size_t NH) {
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

template <class Real>
static std::vector<GradientSlice<Real>> gradient_slices(const GPT2<Real>& g) {
    std::vector<GradientSlice<Real>> slices;
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++)
        slices.push_back({g.grads[i], parameter_size(g.config, i)});
    return slices;
}

// Gradients of parameters and activations, AdamW's moments, scratch.
template <class Real>
static void allocate_for_training(GPT2<Real>& g) {
    const ModelConfig& c = g.config;
    Memory& memory = g.memory;
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) {
        const size_t n = parameter_size(c, i);
        memory.kind = "gradients";
        g.grads[i] = memory.allocate<Real>(n, "gradients");
        memory.kind = "optimizer";
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
    size_t scratch = layernorm_backward_scratch(g.pad, N, C);
    auto add_product = [&](int rows, int in, int out) {
        scratch = std::max({scratch, matmul_forward_scratch<Real>(g.pad, rows, in, out),
                            matmul_backward_scratch<Real>(g.pad, rows, in, out)});
    };
    for (const auto& [in, out] : {std::pair{C, 3 * C}, {C, C}, {C, 4 * C}, {4 * C, C}})
        add_product(N, in, out);
    add_product(g.logit_rows, C, c.padded_vocab_size);
    if (N % g.logit_rows)
        add_product(N % g.logit_rows, C, c.padded_vocab_size);  // the last chunk of the head
    g.scratch = memory.allocate<float>(std::max<size_t>(scratch, 1), "scratch");
    g.norm_scratch = memory.allocate<float>(
        std::max<size_t>(global_norm_scratch(g.pad, gradient_slices(g)), 1), "norm partial sums");
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
    if (training) allocate_for_training(g);
}

// ---------------------------------------------------------------------------------------------------------------
// The forward pass

// From g.inputs (B,T) to the normalized output of the last layer, g.lnf.
template <class Real>
void gpt2_forward(GPT2<Real>& g, int B, int T) {
    float* scratch = B == g.B && T == g.T ? g.scratch : nullptr;  // it was made for that many rows
    const int C = g.config.channels, NH = g.config.num_heads, L = g.config.num_layers, N = B * T;
    encoder_forward(g.on("encoder"), g.encoded, g.inputs, g.weight(WTE), g.weight(WPE), B, T, C);
    LayerActivations<Real>& first = g.layers[0];
    layernorm_forward(g.on("layernorm"), first.ln1, first.ln1_mean, first.ln1_rstd, g.encoded, g.weight(LN1W),
                      g.weight(LN1B), N, C);
    const Real* residual = g.encoded;
    for (int l = 0; l < L; l++) {
        LayerActivations<Real>& a = g.layers[l];
        matmul_forward(g.on("matmul"), a.qkv, a.ln1, g.weight(QKVW, l), g.weight(QKVB, l), N, C, 3 * C,
                       scratch);
        attention_forward(g.on("attention"), a.atty, a.lse, a.qkv, B, T, C, NH);
        matmul_forward(g.on("matmul"), g.branch, a.atty, g.weight(ATTPROJW, l), g.weight(ATTPROJB, l), N, C,
                       C, scratch);
        fused_residual_layernorm_forward(g.on("residual"), a.residual2, a.ln2, a.ln2_mean, a.ln2_rstd,
                                         residual, g.branch, g.weight(LN2W, l), g.weight(LN2B, l), N, C);
        matmul_gelu_forward(g.on("matmul"), a.fch_gelu, a.fch, a.ln2, g.weight(FCW, l), g.weight(FCB, l), N,
                            C, 4 * C, scratch);
        matmul_forward(g.on("matmul"), g.branch, a.fch_gelu, g.weight(FCPROJW, l), g.weight(FCPROJB, l), N,
                       4 * C, C, scratch);
        // the layer norm that follows is the next layer's first, or the final one
        const bool last = l + 1 == L;
        fused_residual_layernorm_forward(g.on("residual"), a.residual3, last ? g.lnf : g.layers[l + 1].ln1,
                                         last ? g.lnf_mean : g.layers[l + 1].ln1_mean,
                                         last ? g.lnf_rstd : g.layers[l + 1].ln1_rstd, a.residual2, g.branch,
                                         last ? g.weight(LNFW) : g.weight(LN1W, l + 1),
                                         last ? g.weight(LNFB) : g.weight(LN1B, l + 1), N, C);
        residual = a.residual3;
    }
}

// Logits, losses and, for training, the gradients of the head, chunk by chunk of rows: all logits are never
// in memory at once. Adds loss_scale * sum of losses to g.stats[0]. Gradients are those of that sum times
// g.gradient_scale: into g.dbranch (of lnf) and wte's. `look` sees each chunk's logits (rows, Vp) before they
// turn into gradients.
template <class Real>
void gpt2_head(GPT2<Real>& g, int B, int T, float loss_scale, bool training,
               const std::function<void(int first_row, int rows)>& look = nullptr) {
    const int C = g.config.channels, V = g.config.vocab_size, Vp = g.config.padded_vocab_size, N = B * T;
    for (int first = 0; first < N; first += g.logit_rows) {
        const int rows = std::min(g.logit_rows, N - first);
        const Real* lnf = g.lnf + size_t(first) * C;
        matmul_forward<Real>(g.on("matmul"), g.logits, lnf, g.weight(WTE), nullptr, rows, C, Vp,
                             training ? g.scratch : nullptr);
        if (look) look(first, rows);
        fused_classifier(g.on("classifier"), g.logits, g.losses + first, g.targets + first,
                         loss_scale * g.gradient_scale, rows, V, Vp, training);
        if (training)
            matmul_backward<Real>(g.on("matmul"), g.dbranch + size_t(first) * C, g.grad(WTE), nullptr,
                                  g.scratch, g.logits, lnf, g.weight(WTE), rows, C, Vp);
    }
    sum_losses(g.on("classifier"), g.stats, g.losses, N, loss_scale);
}

// ---------------------------------------------------------------------------------------------------------------
// The backward pass: after gpt2_forward and gpt2_head, adds every parameter's gradient to g.grads.
// g.dresidual is the gradient of the residual stream, from the last layer down to the embeddings.
template <class Real>
void gpt2_backward(GPT2<Real>& g, int B, int T) {
    const int C = g.config.channels, NH = g.config.num_heads, L = g.config.num_layers, N = B * T;
    g.memory.zero(g.dresidual, size_t(N) * C);
    layernorm_backward(g.on("layernorm"), g.dresidual, g.grad(LNFW), g.grad(LNFB), g.scratch, g.dbranch,
                       g.layers[L - 1].residual3, g.weight(LNFW), g.lnf_mean, g.lnf_rstd, N, C);
    for (int l = L - 1; l >= 0; l--) {
        const LayerActivations<Real>& a = g.layers[l];
        const Real* residual = l ? g.layers[l - 1].residual3 : g.encoded;
        if (g.recompute >= RECOMPUTE_GELU) gelu_forward(g.on("gelu"), a.fch_gelu, a.fch, size_t(N) * 4 * C);
        matmul_backward(g.on("matmul"), g.dwide, g.grad(FCPROJW, l), g.grad(FCPROJB, l), g.scratch,
                        g.dresidual, a.fch_gelu, g.weight(FCPROJW, l), N, 4 * C, C, a.fch);
        if (g.recompute >= RECOMPUTE_GELU_AND_LAYERNORM)
            layernorm_forward(g.on("layernorm"), a.ln2, a.ln2_mean, a.ln2_rstd, a.residual2,
                              g.weight(LN2W, l), g.weight(LN2B, l), N, C);
        matmul_backward(g.on("matmul"), g.dbranch, g.grad(FCW, l), g.grad(FCB, l), g.scratch, g.dwide, a.ln2,
                        g.weight(FCW, l), N, C, 4 * C);
        layernorm_backward(g.on("layernorm"), g.dresidual, g.grad(LN2W, l), g.grad(LN2B, l), g.scratch,
                           g.dbranch, a.residual2, g.weight(LN2W, l), a.ln2_mean, a.ln2_rstd, N, C);
        matmul_backward(g.on("matmul"), g.dbranch, g.grad(ATTPROJW, l), g.grad(ATTPROJB, l), g.scratch,
                        g.dresidual, a.atty, g.weight(ATTPROJW, l), N, C, C);
        attention_backward(g.on("attention"), g.dwide, g.delta, g.dbranch, a.atty, a.lse, a.qkv, B, T, C, NH);
        if (g.recompute >= RECOMPUTE_GELU_AND_LAYERNORM)
            layernorm_forward(g.on("layernorm"), a.ln1, a.ln1_mean, a.ln1_rstd, residual, g.weight(LN1W, l),
                              g.weight(LN1B, l), N, C);
        matmul_backward(g.on("matmul"), g.dbranch, g.grad(QKVW, l), g.grad(QKVB, l), g.scratch, g.dwide,
                        a.ln1, g.weight(QKVW, l), N, C, 3 * C);
        layernorm_backward(g.on("layernorm"), g.dresidual, g.grad(LN1W, l), g.grad(LN1B, l), g.scratch,
                           g.dbranch, residual, g.weight(LN1W, l), a.ln1_mean, a.ln1_rstd, N, C);
    }
    encoder_backward(g.on("encoder"), g.grad(WTE), g.grad(WPE), g.dresidual, g.buckets, B, T, C);
}

// ---------------------------------------------------------------------------------------------------------------
// The update

template <class Real>
void gpt2_zero_gradients(GPT2<Real>& g) {
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) g.memory.zero(g.grads[i], parameter_size(g.config, i));
    g.memory.zero(g.stats, 4);
}

// One AdamW step with the numbers in g.adamw, on gradients clipped to a global norm of max_norm (0: not
// clipped). Leaves the norm and the clip factor in g.stats[1], [2]. A step whose norm is not finite changes
// nothing. Weight decay goes to the 2-D tensors alone, or to all of them.
template <class Real>
void gpt2_update(GPT2<Real>& g, float weight_decay, float max_norm, bool decay_all = false) {
    global_norm(g.on("global_norm"), g.stats + 1, g.norm_scratch, gradient_slices(g), max_norm,
                1 / g.gradient_scale);
    LaunchPad* pad = g.on("adamw");
    if (pad) pad->begin_group();  // the tensors are independent of each other
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) {
        const float decay = decay_all || parameter_info[i].weight_decay ? weight_decay : 0.0f;
        adamw_update(pad, g.params[i], g.master[i], g.m[i], g.v[i], g.grads[i], parameter_size(g.config, i),
                     g.adamw, decay, g.stats + 1);
    }
    if (pad) pad->end_group();
}

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

#ifndef TESTING

// ---------------------------------------------------------------------------------------------------------------
// Options

struct Options {
    std::string train_data, val_data, model = "d12", output, tokenizer, device = "auto", scheduler = "cosine",
                                      cpu_layers, precision = "fp32";
    int batch = 4, sequence = 1024, total_batch = -1, max_steps = -1, warmup = 0;
    float learning_rate = 3e-4f, final_fraction = 1.0f, weight_decay = 0.0f;
    int val_every = 20, val_batches = 20, sample_every = 20, sample_tokens = 64, checkpoint_every = 0;
    int recompute = RECOMPUTE_GELU;
    bool overfit = false, list_devices = false, profile = false, master_weights = true;
    uint64_t seed = 42;
};

static void add_options(CLI::App& app, Options& o) {
    const auto positive = CLI::Range(1, 1 << 30);
    const auto at_least_zero = CLI::Range(0, 1 << 30);
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // scripts append options
    app.set_help_flag("--help", "show this text");
    app.set_version_flag("--version", "train_gpt2 " PROJECT_VERSION);
    app.add_option("-i,--train-data", o.train_data,
                   "training tokens: llm.c shards, a file or a quoted glob pattern");
    app.add_option("-j,--val-data", o.val_data, "validation tokens, likewise");
    app.add_option("-e,--model", o.model,
                   "model: an llm.c checkpoint (.bin), or a new one: d6 d12 ... d48, gpt3:c768 ..., "
                   "custom:layers=4,heads=4,channels=128,max_seq_len=256")
        ->capture_default_str();
    app.add_option("-o,--output", o.output, "folder for main.log and checkpoints (default: write nothing)");
    app.add_option("-b,--batch-size", o.batch, "sequences in a micro-batch (B)")
        ->check(positive)
        ->capture_default_str();
    app.add_option("-t,--sequence-length", o.sequence, "tokens in a sequence (T)")
        ->check(positive)
        ->capture_default_str();
    app.add_option("-d,--total-batch-size", o.total_batch,
                   "tokens in a step, a multiple of B*T: more is reached by accumulating gradients (-1: B*T)")
        ->check(CLI::Range(-1, 1 << 30))
        ->capture_default_str();
    app.add_option("-x,--max-steps", o.max_steps, "steps (-1: once through the training data)")
        ->check(CLI::Range(-1, 1 << 30))
        ->capture_default_str();
    app.add_option("-k,--lr-scheduler", o.scheduler, "cosine, linear, constant or wsd")
        ->check(CLI::IsMember({"cosine", "linear", "constant", "wsd"}))
        ->capture_default_str();
    app.add_option("-l,--learning-rate", o.learning_rate, "peak learning rate")
        ->check(CLI::Range(0.0f, 1e3f))
        ->capture_default_str();
    app.add_option("-u,--warmup-steps", o.warmup, "steps of linear warm-up")
        ->check(at_least_zero)
        ->capture_default_str();
    app.add_option("-q,--final-lr-fraction", o.final_fraction,
                   "learning rate at the end, as a fraction of the peak")
        ->check(CLI::Range(0.0f, 1.0f))
        ->capture_default_str();
    app.add_option("-c,--weight-decay", o.weight_decay, "weight decay of matrices and embeddings")
        ->check(CLI::Range(0.0f, 1e3f))
        ->capture_default_str();
    app.add_option("-v,--val-every", o.val_every, "steps between validations (0: none)")
        ->check(at_least_zero)
        ->capture_default_str();
    app.add_option("-m,--val-batches", o.val_batches, "batches in a validation at most (-1: all)")
        ->check(CLI::Range(-1, 1 << 30))
        ->capture_default_str();
    app.add_option("-s,--sample-every", o.sample_every, "steps between samples of text (0: none)")
        ->check(at_least_zero)
        ->capture_default_str();
    app.add_option("-g,--sample-tokens", o.sample_tokens, "tokens in a sample")
        ->check(positive)
        ->capture_default_str();
    app.add_option("-n,--checkpoint-every", o.checkpoint_every,
                   "steps between checkpoints, and one at the end (0: none)")
        ->check(at_least_zero)
        ->capture_default_str();
    app.add_option("-a,--overfit-one-batch", o.overfit,
                   "1: train on the first validation batch alone, to debug");
    app.add_option("--precision", o.precision,
                   "what parameters, gradients and activations are stored in: fp32, bf16 or fp16")
        ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
        ->capture_default_str();
    app.add_option("-w,--master-weights", o.master_weights,
                   "1: keep the weights in fp32 too, and update those (bf16 and fp16 alone)")
        ->capture_default_str();
    app.add_option(
           "-r,--recompute", o.recompute,
           "compute again in the backward pass rather than keep: 0: nothing, 1: GELU, 2: layer norms too")
        ->check(CLI::Range(0, 2))
        ->capture_default_str();
    app.add_option("--device", o.device, "auto, cpu, gpu, a number of --list-devices, or part of a name")
        ->capture_default_str();
    app.add_flag("--list-devices", o.list_devices, "list the Vulkan devices and stop");
    app.add_option(
        "--tokenizer", o.tokenizer,
        "gpt2_tokenizer.bin or 'bytes', to print samples as text (default: gpt2_tokenizer.bin if there)");
    app.add_option("--seed", o.seed, "of initialization, shuffling and sampling")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    app.add_flag("--profile", o.profile, "print the time of each kernel at the end (slows the run a little)");
    app.add_option("--cpu-layers", o.cpu_layers,
                   "layers to run on the CPU all the same, for debugging, such as matmul,attention "
                   "(unified memory alone)");
}

static void print_devices() {
    std::vector<DeviceInfo> devices;
    try {
        devices = list_devices();
    } catch (const Error& error) {
        printf("no Vulkan device: %s\n", error.what());
    }
    for (const DeviceInfo& d : devices)
        printf("%d: %s, %s, %.1f GiB, Vulkan %s, %s%s%s\n", d.index, d.name.c_str(), device_type_name(d.type),
               double(d.memory_bytes) / (1 << 30), d.api_version.c_str(), d.driver.c_str(),
               d.missing.empty() ? "" : ", cannot be used: lacks ", d.missing.c_str());
    printf("cpu: %d threads\n", omp_get_max_threads());
}

static std::unique_ptr<LaunchPad> open_device(const Options& o) {
    const DeviceChoice choice = choose_device(o.device);
    if (!choice.device) {
        printf("device: CPU, %d threads (%s)\n", omp_get_max_threads(), choice.reason.c_str());
        return nullptr;
    }
    LaunchPadOptions options;
    options.device = std::to_string(choice.device->index);
    options.timestamps = o.profile;
    auto pad = std::make_unique<LaunchPad>(options);
    printf("device: %s, %s memory (%s)\n", pad->device().name.c_str(), memory_mode_name(pad->memory_mode()),
           choice.reason.c_str());
    return pad;
}

static bool is_checkpoint(const std::string& model) { return model.size() > 4 && model.ends_with(".bin"); }

// The tokenizer asked for, or GPT-2's where its file lies at hand; none is no error: samples are printed as
// numbers.
static std::optional<Tokenizer> find_tokenizer(const Options& o) {
    const char* usual = "gpt2_tokenizer.bin";
    if (!o.tokenizer.empty()) return open_tokenizer(o.tokenizer);
    if (std::filesystem::exists(usual)) return open_tokenizer(usual);
    return std::nullopt;
}

// The shape of the model. A new model takes its vocabulary from --tokenizer, unless the descriptor names a
// size. A tokenizer that does not fit the model is an error where it was asked for, and else left aside.
static ModelConfig choose_config(const Options& o, std::optional<Tokenizer>& tokenizer) {
    const bool asked_for = !o.tokenizer.empty();
    ModelConfig config = is_checkpoint(o.model) ? read_model_header(o.model) : parse_descriptor(o.model);
    const bool own_vocab = is_checkpoint(o.model) || o.model.find("vocab=") != std::string::npos;
    if (!own_vocab && asked_for) set_vocab_size(config, tokenizer->vocab_size());
    validate(config, o.model);
    if (tokenizer && tokenizer->vocab_size() != config.vocab_size) {
        if (asked_for)
            fail(
                "--tokenizer %s has %d tokens, and the model %s %d: give the tokenizer that its data was "
                "made with",
                o.tokenizer.c_str(), tokenizer->vocab_size(), o.model.c_str(), config.vocab_size);
        tokenizer.reset();
    }
    return config;
}

// ---------------------------------------------------------------------------------------------------------------
// Evaluation and sampling

template <class Real>
static float validation_loss(GPT2<Real>& g, DataLoader& loader, int B, int T, int max_batches) {
    loader.reset();
    std::vector<int> inputs(size_t(B) * T), targets(inputs.size());
    const uint64_t batches =
        std::min<uint64_t>(loader.num_batches(), max_batches < 0 ? ~0ull : uint64_t(max_batches));
    g.memory.zero(g.stats, 1);
    for (uint64_t i = 0; i < batches; i++) {
        loader.next_batch(inputs.data(), targets.data());
        gpt2_set_batch(g, inputs.data(), targets.data(), B * T, false);
        gpt2_forward(g, B, T);
        gpt2_head(g, B, T, 1.0f / (float(B) * float(T) * float(batches)), false);
    }
    float loss;
    g.memory.download(&loss, g.stats, 1);
    return loss;
}

// The logits of the token after tokens[0..count), (V).
template <class Real>
static void next_logits(GPT2<Real>& g, const std::vector<int>& tokens, int count, float* logits) {
    // a few sequence lengths only, since kernels are built for each; what lies after `count` cannot be seen
    // by it
    int T = 16;
    while (T < count) T *= 2;
    T = std::min(T, g.T);
    std::vector<int> padded(tokens.begin(), tokens.begin() + count);
    padded.resize(T, 0);
    g.memory.upload(g.inputs, padded.data(), T);
    gpt2_forward(g, 1, T);
    const int C = g.config.channels;
    matmul_forward<Real>(g.on("matmul"), g.logits, g.lnf + size_t(count - 1) * C, g.weight(WTE), nullptr, 1,
                         C, g.config.padded_vocab_size);
    g.memory.download_floats(logits, g.logits, g.config.vocab_size);
}

template <class Real>
static void sample_text(GPT2<Real>& g, std::optional<Tokenizer>& tokenizer, int length,
                        uint64_t& coin_state) {
    const int end_of_text = tokenizer ? tokenizer->end_of_text : g.config.vocab_size - 1;
    std::vector<int> tokens = {end_of_text};
    std::vector<float> logits(g.config.vocab_size);
    printf("generating:\n---\n");
    while (int(tokens.size()) <= length) {
        const int count = std::min(int(tokens.size()), g.T);  // past T the window slides
        const std::vector<int> window(tokens.end() - count, tokens.end());
        next_logits(g, window, count, logits.data());
        const int token = sample_token(logits.data(), g.config.vocab_size, random_f32(coin_state));
        tokens.push_back(token);
        if (!tokenizer)
            printf("%d ", token);
        else if (token == end_of_text)
            printf("\n\n");
        else if (token < tokenizer->vocab_size())
            fwrite(tokenizer->decode(token).data(), 1, tokenizer->decode(token).size(), stdout);
        fflush(stdout);
    }
    printf("\n---\n");
}

template <class Real>
static void save_checkpoint(const GPT2<Real>& g, const std::string& output, int step,
                            const DataLoader& loader) {
    OptimizerState state;
    state.step = step;
    state.use_master_weights = g.master[0];
    state.data = loader.position();
    auto read_moment = [&g](Moment moment, int tensor, size_t offset, float* values, size_t count) {
        const auto& from = moment == MOMENT_M ? g.m : moment == MOMENT_V ? g.v : g.master;
        g.memory.download(values, from[tensor] + offset, count);
    };
    // llm.c has no files in fp16: those are written in fp32
    write_checkpoint(output, g.config, state, parameter_reader(g), read_moment, std::is_same_v<Real, bf16>);
    printf("wrote checkpoint %s\n", model_path(output, step).c_str());
}

// ---------------------------------------------------------------------------------------------------------------
// The loop

// Runs training steps. On a launchpad the two halves of a step are recorded once and replayed; nothing waits:
// the numbers of a step are copied to memory that the host reads, and looked at while the next step runs.
template <class Real>
struct StepRunner {
    GPT2<Real>& g;
    int B, T, micro_steps;
    float weight_decay;
    Recording *micro = nullptr, *update = nullptr;
    LossScaling scaling = {};
    float* readback =
        g.memory.template allocate<float>(8, "readback", Placement::readback);  // two slots of g.stats

    void run_micro() {
        gpt2_forward(g, B, T);
        gpt2_head(g, B, T, 1.0f / (float(B) * float(T) * float(micro_steps)), true);
        gpt2_backward(g, B, T);
    }
    void run_update() { gpt2_update(g, weight_decay, 1.0f); }

    template <class Commands>
    void run_recorded(Recording*& recording, Commands commands) {
        if (!g.pad || !g.cpu_layers.empty()) return commands();
        if (!recording) {
            g.pad->begin_recording();
            commands();
            recording = g.pad->end_recording();
        }
        g.pad->replay(recording);
    }

    // step counts from 0. next_batch fills inputs and targets (B*T each).
    template <class NextBatch>
    Ticket run(int step, float lr, NextBatch next_batch) {
        std::vector<int> inputs(size_t(B) * T), targets(inputs.size());
        gpt2_zero_gradients(g);
        for (int i = 0; i < micro_steps; i++) {
            next_batch(inputs.data(), targets.data());
            gpt2_set_batch(g, inputs.data(), targets.data(), B * T, true);
            run_recorded(micro, [&] { run_micro(); });
        }
        const AdamWStep numbers = adamw_step(lr, 0.9f, 0.95f, 1e-8f, step + 1);
        g.memory.upload(g.adamw, &numbers, 1);
        run_recorded(update, [&] { run_update(); });
        g.memory.copy(readback + 4 * (step % 2), g.stats, 4);
        return g.pad ? g.pad->commit() : 0;
    }

    // The numbers of a step that run() has started; waits for it. next_step is the next one to run.
    const float* stats(int step, Ticket ticket, int next_step) {
        if (g.pad) g.pad->wait(ticket);
        const float* found = readback + 4 * (step % 2);
        if (std::is_same_v<Real, fp16>) set_scale(scaling.next(g.gradient_scale, step, found[1], next_step));
        return found;
    }

    void set_scale(float scale) {
        if (scale == g.gradient_scale) return;
        g.gradient_scale = scale;
        for (Recording** recording : {&micro, &update}) {  // the factor is among the numbers recorded
            if (*recording) g.pad->forget(*recording);
            *recording = nullptr;
        }
        printf("the loss is now scaled by %.0f\n", scale);
    }
};

static std::string duration(double seconds) {
    const long s = std::lround(seconds);
    return format_string("%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
}

// Prints and logs finished steps, and keeps the time.
struct Progress {
    using Clock = std::chrono::steady_clock;
    const MainLog& log;
    int max_steps, tokens_per_step;
    Clock::time_point last = Clock::now();
    double average_rate = 0, total_seconds = 0;  // without the first step
    int timed_steps = 0, skipped = 0;

    void restart_clock() { last = Clock::now(); }

    void report(int step, const float* stats, float lr) {
        const auto now = Clock::now();
        const double seconds = std::chrono::duration<double>(now - last).count();
        last = now;
        if (step > 0) {  // the first step builds kernels and touches memory
            timed_steps++;
            total_seconds += seconds;
            average_rate = timed_steps == 1 ? tokens_per_step / seconds
                                            : 0.95 * average_rate + 0.05 * tokens_per_step / seconds;
        }
        const double rate = average_rate > 0 ? average_rate : tokens_per_step / seconds;
        printf("step %4d/%d | loss %7.6f | norm %6.4f | lr %.2e | %.2f ms | %.0f tok/s | ETA %s\n", step + 1,
               max_steps, stats[0], stats[1], lr, seconds * 1e3, rate,
               duration(double(max_steps - step - 1) * tokens_per_step / rate).c_str());
        if (!std::isfinite(stats[1])) {
            skipped++;
            printf("step %4d: the gradient is not finite; the update was skipped\n", step + 1);
        }
        fflush(stdout);
        log.log_train(step, stats[0], lr, stats[1]);
    }

    void print_summary() const {
        if (timed_steps) printf("total average iteration time: %f ms\n", 1e3 * total_seconds / timed_steps);
        if (skipped) printf("%d updates were skipped: their gradients were not finite\n", skipped);
    }
};

// What each kernel took, and how near it came to what the device does at most: copying where it moves bytes;
// where it computes, fp32 multiply-adds, or matrix cores if it is faster than those.
static void print_profile(LaunchPad& pad) {
    const std::vector<KernelTime> times = pad.kernel_times();
    Peaks peaks;
    try {
        peaks = measure_peaks(pad);
    } catch (const Error& error) {  // no memory left beside the model
        printf("the device's peak could not be measured: %s\n", error.what());
    }
    double total = 0;
    for (const KernelTime& t : times) total += t.seconds;
    printf("%-40s %9s %12s %7s %9s %9s %7s\n", "kernel", "calls", "ms", "share", "TFLOP/s", "GB/s", "peak");
    for (const KernelTime& t : times) {
        const double flops = t.work.flops / t.seconds, bytes = t.work.bytes / t.seconds;
        const double matrix = t.name.ends_with("bf16")   ? peaks.bf16_matrix_rate
                              : t.name.ends_with("fp16") ? peaks.fp16_matrix_rate
                                                         : 0;
        const double computing = flops > peaks.fma_rate && matrix > 0 ? matrix : peaks.fma_rate;
        const double peak = flops > 0 ? computing : peaks.copy_rate;
        const double reached = peak > 0 ? (flops > 0 ? flops : bytes) / peak : 0;
        auto number = [](const char* format, double value, bool known) {
            return known ? format_string(format, value) : std::string("-");
        };
        printf("%-40s %9llu %12.3f %6.1f%% %9s %9s %7s\n", t.name.c_str(),
               static_cast<unsigned long long>(t.calls), t.seconds * 1e3, 100 * t.seconds / total,
               number("%.3f", flops / 1e12, flops > 0).c_str(),
               number("%.1f", bytes / 1e9, bytes > 0).c_str(),
               number("%.1f%%", 100 * reached, reached > 0 && (flops == 0 || reached <= 1)).c_str());
    }
    printf("%-40s %9s %12.3f\nthe peak is copying at %.1f GB/s, fp32 multiply-adds at %.3f TFLOP/s", "all",
           "", total * 1e3, peaks.copy_rate / 1e9, peaks.fma_rate / 1e12);
    if (peaks.bf16_matrix_rate > 0)
        printf(", matrix cores in bf16 at %.3f TFLOP/s", peaks.bf16_matrix_rate / 1e12);
    if (peaks.fp16_matrix_rate > 0)
        printf(", matrix cores in fp16 at %.3f TFLOP/s", peaks.fp16_matrix_rate / 1e12);
    printf("\n");
}

template <class Real>
static void load_parameters(GPT2<Real>& g, const Options& o) {
    if (is_checkpoint(o.model))
        read_model(o.model, parameter_writer(g));
    else
        initialize_parameters(g.config, o.seed, parameter_writer(g));
}

static std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts = CLI::detail::split(text, ',');
    parts.erase(std::remove(parts.begin(), parts.end(), ""), parts.end());
    return parts;
}

static void check_options(const Options& o) {
    if (o.train_data.empty() && !o.overfit)
        fail("no training data: give token shards with -i (prepare_data makes them from text)");
    if (o.val_data.empty() && o.overfit) fail("-a 1 trains on validation data: give token shards with -j");
    const long micro = long(o.batch) * o.sequence;
    if (micro > 1 << 30) fail("-b %d times -t %d is more than 2^30 tokens", o.batch, o.sequence);
    if (o.total_batch != -1 && (o.total_batch <= 0 || o.total_batch % micro))
        fail("-d %d is not a multiple of B*T = %ld", o.total_batch, micro);
}

static DataLoader open_training_data(const Options& o, int vocab_size) {
    if (o.overfit) return DataLoader(o.val_data, o.batch, o.sequence, vocab_size, false);
    return DataLoader(o.train_data, o.batch, o.sequence, vocab_size, true, o.seed);
}

// A run: what is trained, on which data, for how long.
template <class Real>
struct Run {
    const Options& options;
    GPT2<Real>& g;
    DataLoader& loader;
    std::optional<DataLoader>& val;
    std::optional<Tokenizer>& tokenizer;
    MainLog log;
    int micro_steps, max_steps;
    uint64_t coin_state;

    int tokens_per_step() const { return micro_steps * options.batch * options.sequence; }

    void print_plan() const {
        const ModelConfig& c = g.config;
        printf("model: %s, %d layers, %d heads, %d channels, vocabulary %d, %.1f M parameters in %s%s\n",
               options.model.c_str(), c.num_layers, c.num_heads, c.channels, c.vocab_size,
               double(num_parameters(c)) / 1e6, real_name<Real>(),
               g.master[0] ? ", master weights in fp32" : "");
        printf("data: %llu training tokens", static_cast<unsigned long long>(loader.num_tokens()));
        if (val) printf(", %llu validation tokens", static_cast<unsigned long long>(val->num_tokens()));
        printf("\nbatch: %d x %d x %d = %d tokens a step, %d steps\n", micro_steps, options.batch,
               options.sequence, tokens_per_step(), max_steps);
        printf("memory: %s\n", g.memory.summary().c_str());
    }

    // Whether something that is due every `every` steps (0: never) and at the end is due before this step.
    bool due(int step, int every) const {
        return every && (step == max_steps || (step > 0 && step % every == 0));
    }

    bool interrupts(int step) const {
        return validates(step) || due(step, options.sample_every) || saves(step);
    }
    bool validates(int step) const {
        return val && options.val_every && (step == 0 || due(step, options.val_every));
    }
    bool saves(int step) const { return !options.output.empty() && due(step, options.checkpoint_every); }

    // What happens between steps: validation, samples, checkpoints.
    void interrupt(int step) {
        if (validates(step)) {
            const float loss = validation_loss(g, *val, options.batch, options.sequence, options.val_batches);
            printf("val loss %f\n", loss);
            log.log_val(step, loss);
        }
        if (due(step, options.sample_every)) sample_text(g, tokenizer, options.sample_tokens, coin_state);
        if (saves(step)) save_checkpoint(g, options.output, step, loader);
    }

    void loop();
};

template <class Real>
void Run<Real>::loop() {
    const Scheduler scheduler = {parse_schedule(options.scheduler), options.learning_rate, options.warmup,
                                 max_steps, options.final_fraction};
    StepRunner<Real> runner = {g, options.batch, options.sequence, micro_steps, options.weight_decay};
    Progress progress = {log, max_steps, tokens_per_step()};
    Ticket pending = 0;  // of the step before
    int steps_begun = 0;
    bool reported = true;
    auto report_pending = [&](int step) {
        if (!reported)
            progress.report(step, runner.stats(step, pending, steps_begun), learning_rate(scheduler, step));
        reported = true;
    };
    auto next_batch = [&](int* inputs, int* targets) {
        if (options.overfit) loader.reset();
        loader.next_batch(inputs, targets);
    };
    for (int step = 0; step <= max_steps; step++) {
        if (interrupts(step) || step == max_steps) {
            report_pending(step - 1);
            interrupt(step);
            progress.restart_clock();
        }
        if (step == max_steps) break;
        const Ticket ticket = runner.run(step, learning_rate(scheduler, step), next_batch);
        steps_begun = step + 1;
        report_pending(step - 1);  // while this step runs; on the CPU it has run
        pending = ticket;
        reported = false;
        if (!g.pad || options.profile) report_pending(step);  // it has run, or is to be timed by itself
    }
    progress.print_summary();
}

template <class Real>
static void train(const Options& o) {
    check_options(o);
    std::optional<Tokenizer> tokenizer = find_tokenizer(o);
    const ModelConfig config = choose_config(o, tokenizer);
    if (o.sequence > config.max_seq_len)
        fail("-t %d is more than the model's max_seq_len %d: use -t %d or less", o.sequence,
             config.max_seq_len, config.max_seq_len);
    std::optional<DataLoader> val;
    if (!o.val_data.empty()) val.emplace(o.val_data, o.batch, o.sequence, config.vocab_size, false);
    DataLoader loader = open_training_data(o, config.vocab_size);
    const int micro_steps = o.total_batch == -1 ? 1 : o.total_batch / (o.batch * o.sequence);
    const uint64_t epoch = std::clamp<uint64_t>(loader.num_batches() / micro_steps, 1, 1 << 30);

    std::unique_ptr<LaunchPad> pad = open_device(o);
    GPT2<Real> g(config, pad.get(), o.master_weights);
    g.cpu_layers = split(o.cpu_layers);
    if (!g.cpu_layers.empty() && pad && pad->memory_mode() != MemoryMode::unified)
        fail("--cpu-layers needs a device whose memory is unified with the host's; %s has %s memory",
             pad->device().name.c_str(), memory_mode_name(pad->memory_mode()));
    load_parameters(g, o);
    gpt2_allocate(g, o.batch, o.sequence, true, Recompute(o.recompute));
    const uint64_t coin_state = 1295 + o.seed;  // 1337, llm.c's, with the default seed
    Run<Real> run = {o,         g,  loader,      val,
                     tokenizer, {}, micro_steps, o.max_steps >= 0 ? o.max_steps : int(epoch),
                     coin_state};
    run.print_plan();
    if (!o.output.empty()) run.log.open(o.output, -1);
    run.loop();
    if (pad && o.profile)
        print_profile(*pad);
    else if (o.profile)
        printf("no profile: --profile measures a GPU's kernels, and this ran on the CPU\n");
}

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Trains GPT-2 on the CPU or on any Vulkan device.", "train_gpt2");
    add_options(app, options);
    try {
        app.parse(argc, argv);
        if (options.list_devices)
            print_devices();
        else if (options.precision == "bf16")
            train<bf16>(options);
        else if (options.precision == "fp16")
            train<fp16>(options);
        else
            train<float>(options);
    } catch (const CLI::Success& help) {
        return app.exit(help);
    } catch (const CLI::ParseError& error) {
        fprintf(stderr, "train_gpt2: %s (see --help)\n", error.what());
        return 1;
    } catch (const std::exception& error) {
        fprintf(stderr, "train_gpt2: %s\n", error.what());
        return 1;
    }
    return 0;
}

#endif
