// GPT-2: the model and its memory, the forward pass, the backward pass. Read it from top to bottom. Each
// layer function runs on the launchpad it is given, or on the CPU if that is null. train_step.h runs training
// steps, test_gpt2 checks the model. Text generation reads prompts with this forward pass; its step for one
// token follows a change of this one: TextGenerator::decode_step() (llmc/generate/text_generator.h).
//
// Real is the storage type of parameters, gradients and activations: float, bf16 or fp16. Accumulators and
// losses are always float.
#pragma once
#include <algorithm>
#include <functional>
#include <set>
#include <vector>

#include "llmc/base/ceil_div.h"
#include "llmc/launchpad/memory.h"
#include "llmc/layers/attention.h"
#include "llmc/layers/classifier.h"
#include "llmc/layers/dropout.h"
#include "llmc/layers/encoder.h"
#include "llmc/layers/gelu.h"
#include "llmc/layers/global_norm.h"
#include "llmc/layers/layernorm.h"
#include "llmc/layers/matmul.h"
#include "llmc/model/activations.h"
#include "llmc/model/loss_scaling.h"
#include "llmc/model/model_config.h"
#include "llmc/model/optimizer.h"

// ---------------------------------------------------------------------------------------------------------
// The model and its memory

// What the backward pass does with the weight gradients of the linear layers, wte's among them: the first
// micro-step overwrites them, so the largest buffers need no zeroing, and later ones accumulate. All other
// gradients always accumulate. none: there is no backward pass.
enum class Gradients { none, overwrite, accumulate };
inline bool is_overwritten(int tensor) { return tensor == WTE || is_linear_weight(tensor); }

// Whether a pass drops elements: in training only, not for validation or text.
enum class Pass { evaluation, training };

template <class Real>
struct GPT2 {
    ModelConfig config;
    LaunchPad* pad;  // null: the CPU
    Memory memory;
    Real* params[NUM_PARAMETER_TENSORS];
    Real* grads[NUM_PARAMETER_TENSORS] = {};           // allocated for training only
    std::vector<GradientSlice<Real>> gradient_slices;  // the memory of all grads
    // Gradients are of the loss times this power of two, so that small ones do not underflow in fp16.
    float gradient_scale = std::is_same_v<Real, fp16> ? LossScaling::first : 1.0f;
    float dropout = 0;  // rate in training, below 1; set it before gpt2_allocate()

    Activations<Real> acts;         // gpt2_allocate(): of the batches for training and evaluation
    StepStats* stats = nullptr;     // (1) of the current step; likewise
    float* token_weight = nullptr;  // (1) tokens of the step / those whose targets count; for training only

    // MemoryUse::count: allocates nothing, to compute the memory that the model takes; it can do nothing
    // else.
    GPT2(const ModelConfig& c, LaunchPad* launchpad, MemoryUse use = MemoryUse::allocate);
    GPT2(const GPT2&) = delete;

    size_t layer_offset(int tensor, int l) const { return size_t(l) * parameter_layer_size(config, tensor); }
    const Real* weight(int tensor, int l = 0) const { return params[tensor] + layer_offset(tensor, l); }
    Real* grad(int tensor, int l = 0) const { return grads[tensor] + layer_offset(tensor, l); }
    ParameterTensors<Real> tensors() const {
        return {.params = params, .grads = grads, .norm_and_scale = &stats->gradient_norm};
    }

    bool drops(Pass pass) const { return pass == Pass::training && dropout > 0; }
};

template <class Real>
GPT2<Real>::GPT2(const ModelConfig& c, LaunchPad* launchpad, MemoryUse use)
    : config(c), pad(launchpad), memory(launchpad, use) {
    memory.kind = "parameters";
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++)
        params[i] = memory.allocate<Real>(parameter_size(config, i), parameter_info[i].name);
}

// Rows of logits in memory at a time: at most 1.25 GiB of them, since all of B=64, T=1024 would be 13 GB in
// fp32. With 5632 rows, the GEMMs of GPT-2 124M's head have whole waves of tiles on a GPU of 132 SMs.
inline int choose_logit_rows(int num_rows, size_t row_bytes) {
    const int most = std::clamp(int((1280u << 20) / row_bytes), 1, 5632);
    return num_rows <= most ? num_rows : most >= 256 ? most / 256 * 256 : most;
}

// Allocates the gradients: neighbouring tensors in one piece of memory of at most 1 GiB, so that a few
// kernels compute their norm. Tensors begin at multiples of 64 bytes; the elements between them stay zero.
template <class Real>
void allocate_gradients(GPT2<Real>& g) {
    const size_t unit = 64 / sizeof(Real), most = (size_t(1) << 30) / sizeof(Real);
    auto size = [&](int i) { return ceil_div(parameter_size(g.config, i), unit) * unit; };
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

// Allocates the memory for batches of up to B sequences of T tokens; `training` adds gradients. Call it once
// per model, after setting g.dropout. Throws Error if T > max_seq_len or memory is short.
template <class Real>
void gpt2_allocate(GPT2<Real>& g, int B, int T, bool training, Recompute recompute = RECOMPUTE_NOTHING) {
    const ModelConfig& c = g.config;
    if (T > c.max_seq_len)
        fail("sequence length %d is more than the model's max_seq_len %d", T, c.max_seq_len);
    TensorMemory memory = {g.memory, training ? recompute : FORWARD_ONLY};
    g.memory.kind = "activations";
    g.acts = allocate_activations<Real>(memory, c, B, T);
    g.stats = g.memory.template allocate<StepStats>(1, "stats");
    g.acts.logit_rows = choose_logit_rows(B * T, sizeof(Real) * size_t(c.padded_vocab_size));
    g.memory.kind = "logits";
    memory.place(head_tensors(g.acts, c));
    if (training) {
        g.memory.kind = "gradients";
        allocate_gradients(g);
        g.memory.kind = "scratch";
        memory.place(backward_tensors(g.acts, c, g.dropout > 0));
        if (g.dropout > 0) g.memory.zero(g.acts.dropout_key, 2);
        g.token_weight = g.memory.template allocate<float>(1, "token_weight");
        const float all_count = 1;
        if (g.memory.use == MemoryUse::allocate) g.memory.upload(g.token_weight, &all_count, 1);
    }
    prepare_launchpad(g, training);
}

// ---------------------------------------------------------------------------------------------------------
// The forward pass
// (clang-format would give each field a line of its own.)
// clang-format off

// What is dropped: the sum of the embeddings, and what attention and MLP of layer l add to the residual
// stream.
enum DropoutSite : uint32_t { DROPOUT_EMBEDDING, DROPOUT_ATTENTION, DROPOUT_MLP };
inline uint32_t dropout_site(DropoutSite what, int l) { return what + 2 * uint32_t(l); }

// out (num_rows,C) = inp with the micro-step's dropout, forward and backward alike.
template <class Real>
void gpt2_dropout(const GPT2<Real>& g, const Activations<Real>& acts, Real* out, const Real* inp,
                  uint32_t site, int num_rows) {
    dropout<Real>(g.pad, {
        .out = out, .inp = inp, .key = acts.dropout_key, .site = site, .rate = g.dropout,
        .n = size_t(num_rows) * g.config.channels});
}

// The linear layers of a layer of the model, and their weights.
enum { QKV, ATTPROJ, FC, FCPROJ };
template <class Real>
std::vector<LinearWeight<Real>> linear_weights(const GPT2<Real>& g, int l) {
    const int C = g.config.channels;
    return {{g.weight(QKVW, l), C, 3 * C}, {g.weight(ATTPROJW, l), C, C}, {g.weight(FCW, l), C, 4 * C},
            {g.weight(FCPROJW, l), 4 * C, C}};
}

// Layer l from its normalized input, ln1, to fch_gelu, the input of its last linear layer. `packed`: the
// weights, as matmul_pack() returned them.
template <class Real>
void gpt2_forward_to_gelu(const GPT2<Real>& g, const Activations<Real>& acts, int l, int B, int T, Pass pass,
                          const std::vector<const Real*>& packed) {
    const int C = g.config.channels, NH = g.config.num_heads, num_rows = B * T;
    const LayerActivations<Real>& a = acts.layers[l];
    matmul_forward<Real>(g.pad, {
        .out = a.qkv, .inp = a.ln1, .weight = g.weight(QKVW, l), .bias = g.weight(QKVB, l),
        .num_rows = num_rows, .C = C, .OC = 3 * C, .packed = packed[QKV]});
    attention_forward<Real>(g.pad, {
        .out = a.atty, .lse = a.lse, .qkv = a.qkv, .B = B, .T = T, .C = C, .NH = NH});
    matmul_forward<Real>(g.pad, {
        .out = acts.proj, .inp = a.atty, .weight = g.weight(ATTPROJW, l), .bias = g.weight(ATTPROJB, l),
        .num_rows = num_rows, .C = C, .OC = C, .packed = packed[ATTPROJ]});
    if (g.drops(pass))
        gpt2_dropout(g, acts, acts.proj, acts.proj, dropout_site(DROPOUT_ATTENTION, l), num_rows);
    layernorm_forward<Real>(g.pad, {
        .out = a.ln2, .mean = a.ln2_mean, .rstd = a.ln2_rstd, .inp = acts.layer_input(l), .added = acts.proj,
        .sum = a.residual2, .weight = g.weight(LN2W, l), .bias = g.weight(LN2B, l), .num_rows = num_rows,
        .C = C});
    matmul_forward<Real>(g.pad, {
        .out = a.fch_gelu, .pre = a.fch, .inp = a.ln2, .weight = g.weight(FCW, l), .bias = g.weight(FCB, l),
        .num_rows = num_rows, .C = C, .OC = 4 * C, .packed = packed[FC]});
}

// ln1 of layer l from its input.
template <class Real>
void gpt2_forward_ln1(const GPT2<Real>& g, const Activations<Real>& acts, int l, int num_rows) {
    const LayerActivations<Real>& a = acts.layers[l];
    layernorm_forward<Real>(g.pad, {
        .out = a.ln1, .mean = a.ln1_mean, .rstd = a.ln1_rstd, .inp = acts.layer_input(l),
        .weight = g.weight(LN1W, l), .bias = g.weight(LN1B, l), .num_rows = num_rows,
        .C = g.config.channels});
}

// From acts.encoded, whose dropout comes first, to the normalized output of the last layer, acts.lnf.
// `before_layer` is called before the commands of each layer.
template <class Real>
void gpt2_forward_layers(const GPT2<Real>& g, const Activations<Real>& acts, int B, int T, Pass pass,
                         const std::function<void(int layer)>& before_layer = nullptr) {
    const int C = g.config.channels, L = g.config.num_layers, num_rows = B * T;
    if (g.drops(pass)) gpt2_dropout(g, acts, acts.encoded, acts.encoded, DROPOUT_EMBEDDING, num_rows);
    gpt2_forward_ln1(g, acts, 0, num_rows);
    for (int l = 0; l < L; l++) {
        if (before_layer) before_layer(l);
        const LayerActivations<Real>& a = acts.layers[l];
        const auto packed = matmul_pack<Real>(g.pad, Direction::forward, num_rows, linear_weights(g, l));
        gpt2_forward_to_gelu(g, acts, l, B, T, pass, packed);
        matmul_forward<Real>(g.pad, {
            .out = acts.proj, .inp = a.fch_gelu, .weight = g.weight(FCPROJW, l), .bias = g.weight(FCPROJB, l),
            .num_rows = num_rows, .C = 4 * C, .OC = C, .packed = packed[FCPROJ]});
        if (g.drops(pass))
            gpt2_dropout(g, acts, acts.proj, acts.proj, dropout_site(DROPOUT_MLP, l), num_rows);
        // the LayerNorm that follows is the next layer's first, or the final one
        const bool last = l + 1 == L;
        layernorm_forward<Real>(g.pad, {
            .out = last ? acts.lnf : acts.layers[l + 1].ln1,
            .mean = last ? acts.lnf_mean : acts.layers[l + 1].ln1_mean,
            .rstd = last ? acts.lnf_rstd : acts.layers[l + 1].ln1_rstd, .inp = a.residual2,
            .added = acts.proj, .sum = a.residual3, .weight = last ? g.weight(LNFW) : g.weight(LN1W, l + 1),
            .bias = last ? g.weight(LNFB) : g.weight(LN1B, l + 1), .num_rows = num_rows, .C = C});
    }
}

// From acts.inputs (B,T) to acts.lnf. T <= max_seq_len, B * T <= acts.B * acts.T.
template <class Real>
void gpt2_forward(const GPT2<Real>& g, const Activations<Real>& acts, int B, int T, Pass pass,
                  const std::function<void(int layer)>& before_layer = nullptr) {
    encoder_forward<Real>(g.pad, {
        .out = acts.encoded, .inp = acts.inputs, .wte = g.weight(WTE), .wpe = g.weight(WPE), .B = B, .T = T,
        .C = g.config.channels});
    gpt2_forward_layers(g, acts, B, T, pass, before_layer);
}
template <class Real>
void gpt2_forward(GPT2<Real>& g, int B, int T, Pass pass = Pass::evaluation,
                  const std::function<void(int layer)>& before_layer = nullptr) {
    gpt2_forward(g, g.acts, B, T, pass, before_layer);
}

// Logits, losses and, unless `gradients` is none, the gradients of the head, in chunks of rows, so that never
// all logits are in memory. Adds loss_scale * sum of losses to g.stats->loss. Gradients are of that sum
// times g.gradient_scale: lnf's go into acts.dinp, and wte's. `inspect` sees each chunk's logits (num_rows,
// Vp) before they become gradients.
template <class Real>
void gpt2_head(GPT2<Real>& g, int B, int T, float loss_scale, Gradients gradients,
               const std::function<void(int first_row, int num_rows)>& inspect = nullptr) {
    const int C = g.config.channels, V = g.config.vocab_size, Vp = g.config.padded_vocab_size;
    const Activations<Real>& acts = g.acts;
    const bool training = gradients != Gradients::none;
    const std::vector<LinearWeight<Real>> wte = {{g.weight(WTE), C, Vp}};
    const Real* packed = matmul_pack(g.pad, Direction::forward, B * T, wte)[0];
    const Real* packed_backward = training ? matmul_pack(g.pad, Direction::backward, B * T, wte)[0] : nullptr;
    for (int first = 0; first < B * T; first += acts.logit_rows) {
        const int num_rows = std::min(acts.logit_rows, B * T - first);
        const Real* lnf = acts.lnf + size_t(first) * C;
        matmul_forward<Real>(g.pad, {
            .out = acts.logits, .inp = lnf, .weight = g.weight(WTE), .num_rows = num_rows, .C = C, .OC = Vp,
            .packed = packed});
        if (inspect) inspect(first, num_rows);
        fused_classifier<Real>(g.pad, {
            .logits = acts.logits, .losses = acts.losses + first, .targets = acts.targets + first,
            .dloss = loss_scale * g.gradient_scale, .num_rows = num_rows, .V = V, .Vp = Vp,
            .write_gradients = training});
        if (training)
            matmul_backward<Real>(g.pad, {
                .dinp = acts.dinp + size_t(first) * C, .dweight = g.grad(WTE), .dout = acts.logits,
                .inp = lnf, .weight = g.weight(WTE), .num_rows = num_rows, .C = C, .OC = Vp,
                .accumulate = first > 0 || gradients == Gradients::accumulate, .packed = packed_backward});
    }
    sum_losses(g.pad, {
        .total = &g.stats->loss, .losses = acts.losses, .n = B * T, .scale = loss_scale});
}

// ---------------------------------------------------------------------------------------------------------
// Computes layer l's activations again, from its input; the rest of the layer is not needed.
template <class Real>
void gpt2_recompute_layer(GPT2<Real>& g, int l, int B, int T) {
    std::vector<LinearWeight<Real>> weights = linear_weights(g, l);
    weights.resize(FCPROJ);
    const auto packed = matmul_pack<Real>(g.pad, Direction::forward, B * T, weights);
    gpt2_forward_ln1(g, g.acts, l, B * T);
    gpt2_forward_to_gelu(g, g.acts, l, B, T, Pass::training, packed);
}

// The backward pass: after gpt2_forward and gpt2_head, which was given the same `gradients`, every
// parameter's gradient is in g.grads, or has been added to what was there. acts.dresidual is the gradient of
// the residual stream, from the last layer down to the embeddings. With dropout, the forward pass was one of
// training, and acts.dropout_key is still its key. `after_layer` is called after the commands of each layer.
template <class Real>
void gpt2_backward(GPT2<Real>& g, int B, int T, Gradients gradients,
                   const std::function<void(int layer)>& after_layer = nullptr) {
    const bool accumulate = gradients == Gradients::accumulate;
    const int C = g.config.channels, NH = g.config.num_heads, L = g.config.num_layers, num_rows = B * T;
    const bool drops = g.drops(Pass::training);
    const Activations<Real>& acts = g.acts;
    layernorm_backward<Real>(g.pad, {
        .dinp = acts.dresidual, .dweight = g.grad(LNFW), .dbias = g.grad(LNFB), .added = nullptr,
        .dout = acts.dinp, .inp = acts.layers[L - 1].residual3, .weight = g.weight(LNFW),
        .mean = acts.lnf_mean, .rstd = acts.lnf_rstd, .num_rows = num_rows, .C = C});
    for (int l = L - 1; l >= 0; l--) {
        const LayerActivations<Real>& a = acts.layers[l];
        // the last layer's activations are still in memory
        if (acts.recompute == RECOMPUTE_LAYERS && l + 1 < L) gpt2_recompute_layer(g, l, B, T);
        const auto packed = matmul_pack<Real>(g.pad, Direction::backward, num_rows, linear_weights(g, l));
        // what the projections of MLP and attention get: the gradient, or that behind their dropout
        Real *dmlp = acts.dresidual, *dattention = a.dresidual2;
        if (acts.recomputes_gelu())
            gelu_forward<Real>(g.pad, {
                .out = a.fch_gelu, .inp = a.fch, .n = size_t(num_rows) * 4 * C});
        if (drops) {
            dmlp = acts.ddropped;
            gpt2_dropout(g, acts, dmlp, acts.dresidual, dropout_site(DROPOUT_MLP, l), num_rows);
        }
        matmul_backward<Real>(g.pad, {
            .dinp = acts.dfch, .dweight = g.grad(FCPROJW, l), .dbias = g.grad(FCPROJB, l), .dout = dmlp,
            .inp = a.fch_gelu, .weight = g.weight(FCPROJW, l), .pre = a.fch, .num_rows = num_rows, .C = 4 * C,
            .OC = C, .accumulate = accumulate, .packed = packed[FCPROJ]});
        if (acts.recompute == RECOMPUTE_GELU_AND_LAYERNORM)
            layernorm_forward<Real>(g.pad, {
                .out = a.ln2, .mean = a.ln2_mean, .rstd = a.ln2_rstd, .inp = a.residual2,
                .weight = g.weight(LN2W, l), .bias = g.weight(LN2B, l), .num_rows = num_rows, .C = C});
        matmul_backward<Real>(g.pad, {
            .dinp = acts.dinp, .dweight = g.grad(FCW, l), .dbias = g.grad(FCB, l), .dout = acts.dfch,
            .inp = a.ln2, .weight = g.weight(FCW, l), .num_rows = num_rows, .C = C, .OC = 4 * C,
            .accumulate = accumulate, .packed = packed[FC]});
        layernorm_backward<Real>(g.pad, {
            .dinp = a.dresidual2, .dweight = g.grad(LN2W, l), .dbias = g.grad(LN2B, l),
            .added = acts.dresidual, .dout = acts.dinp, .inp = a.residual2,
            .weight = g.weight(LN2W, l), .mean = a.ln2_mean, .rstd = a.ln2_rstd, .num_rows = num_rows, .C = C});
        if (drops) {
            dattention = a.ddropped_attention;
            gpt2_dropout(g, acts, dattention, a.dresidual2, dropout_site(DROPOUT_ATTENTION, l), num_rows);
        }
        matmul_backward<Real>(g.pad, {
            .dinp = acts.dinp, .dweight = g.grad(ATTPROJW, l), .dbias = g.grad(ATTPROJB, l),
            .dout = dattention, .inp = a.atty, .weight = g.weight(ATTPROJW, l), .num_rows = num_rows, .C = C,
            .OC = C, .accumulate = accumulate, .packed = packed[ATTPROJ]});
        attention_backward<Real>(g.pad, {
            .dqkv = a.dqkv, .delta = acts.delta, .dout = acts.dinp, .out = a.atty, .lse = a.lse, .qkv = a.qkv,
            .B = B, .T = T, .C = C, .NH = NH});
        if (acts.recompute == RECOMPUTE_GELU_AND_LAYERNORM) gpt2_forward_ln1(g, acts, l, num_rows);
        matmul_backward<Real>(g.pad, {
            .dinp = acts.dinp, .dweight = g.grad(QKVW, l), .dbias = g.grad(QKVB, l), .dout = a.dqkv,
            .inp = a.ln1, .weight = g.weight(QKVW, l), .num_rows = num_rows, .C = C, .OC = 3 * C,
            .accumulate = accumulate, .packed = packed[QKV]});
        layernorm_backward<Real>(g.pad, {
            .dinp = acts.dresidual, .dweight = g.grad(LN1W, l), .dbias = g.grad(LN1B, l),
            .added = a.dresidual2, .dout = acts.dinp, .inp = acts.layer_input(l),
            .weight = g.weight(LN1W, l), .mean = a.ln1_mean, .rstd = a.ln1_rstd, .num_rows = num_rows, .C = C});
        if (after_layer) after_layer(l);
    }
    if (drops) gpt2_dropout(g, acts, acts.dresidual, acts.dresidual, DROPOUT_EMBEDDING, num_rows);
    encoder_backward<Real>(g.pad, {
        .dwte = g.grad(WTE), .dwpe = g.grad(WPE), .dout = acts.dresidual, .buckets = acts.buckets,
        .B = B, .T = T, .C = C});
}

// clang-format on

// What makes a mean over all tokens one over those whose targets count. If none does, all losses are 0.
inline float token_weight(int64_t tokens, int64_t counted) {
    return counted ? float(double(tokens) / double(counted)) : 1;
}

// Before a step's first forward pass: zeroes the loss and the gradients that are not overwritten.
template <class Real>
void gpt2_zero_gradients(GPT2<Real>& g) {
    const ConcurrentGroup group(g.pad);
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++)
        if (!is_overwritten(i)) g.memory.zero(g.grads[i], parameter_size(g.config, i));
    g.memory.zero(g.stats, 1);
}

// The global norm of the gradients, and the factor that clips it to max_norm (0 or less: not clipped), or 0
// if norm or loss is not finite, into g.stats.
template <class Real>
void gpt2_gradient_norm(GPT2<Real>& g, float max_norm) {
    global_norm<Real>(g.pad, {.norm_and_scale = &g.stats->gradient_norm,
                              .gradients = g.gradient_slices,
                              .max_norm = max_norm,
                              .unscale = 1 / g.gradient_scale,
                              .loss = &g.stats->loss,
                              .weight = g.token_weight});
}

// Allocates the scratch memory that the layers take from the launchpad, and queues what is to be tuned and
// compiled (LaunchPad::tune, compile): a dry run of all of the above finds out.
template <class Real>
void prepare_launchpad(GPT2<Real>& g, bool training) {
    if (!g.pad) return;
    const auto commands = [&] {
        gpt2_forward(g, g.acts.B, g.acts.T, training ? Pass::training : Pass::evaluation);
        gpt2_head(g, g.acts.B, g.acts.T, 1, training ? Gradients::overwrite : Gradients::none);
        if (!training) return;
        gpt2_backward(g, g.acts.B, g.acts.T, Gradients::overwrite);
        gpt2_gradient_norm(g, 1);
    };
    const bool allocates = g.memory.use == MemoryUse::allocate;
    const Requirements needed = allocates ? g.pad->prepare(commands) : g.pad->dry_run(commands);
    g.memory.count("scratch", needed.scratch_bytes());
}

// ---------------------------------------------------------------------------------------------------------
// Batches

// Copies a batch to where the kernels look for it. inputs (count): each in 0..V-1, not checked.
// targets (count): as of FusedClassifier.
// training: also builds the buckets that gpt2_backward() reads.
template <class Real>
void gpt2_set_batch(GPT2<Real>& g, const int* inputs, const int* targets, int count, bool training) {
    g.memory.upload(g.acts.inputs, inputs, count);
    g.memory.upload(g.acts.targets, targets, count);
    if (!training) return;
    std::vector<int> buckets(encoder_bucket_ints(count));
    build_encoder_buckets(buckets.data(), inputs, count);
    g.memory.upload(g.acts.buckets, buckets.data(), buckets.size());
}

// ---------------------------------------------------------------------------------------------------------
// Parameters from files or random numbers, and back. The master weights of an optimizer receive the values
// unrounded.

template <class Real>
WriteTensor parameter_writer(GPT2<Real>& g, const Optimizer<Real>* optimizer = nullptr) {
    return [&g, optimizer](int tensor, size_t offset, const float* values, size_t count) {
        g.memory.upload_floats(g.params[tensor] + offset, values, count);
        if (optimizer) optimizer->store(MASTER_WEIGHTS, {tensor, offset, count}, values);
    };
}

template <class Real>
ReadTensor parameter_reader(const GPT2<Real>& g) {
    return [&g](int tensor, size_t offset, float* values, size_t count) {
        g.memory.download_floats(values, g.params[tensor] + offset, count);
    };
}
