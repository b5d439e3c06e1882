// The memory of a batch: what the forward pass computes, and the gradients of it. B sequences of T tokens; C
// channels, NH heads, L layers, V tokens in the vocabulary, Vp with padding. Each tensor is a row of a table,
// which says how large it is and what shares its memory; the tables are at the end.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "llmc/launchpad/memory.h"
#include "llmc/layers/encoder.h"
#include "llmc/model/model_config.h"

// Activations that the backward pass recomputes instead of keeping them: GELU, GELU and both LayerNorms, or
// whole layers, of which only residual3 is kept. Results are bit-identical, except on cooperative matrices if
// GELU is recomputed alone: in bf16, their epilogue rounds ties away from zero, so that one value of GELU in
// 2^16 may differ in its last bit; in fp32, it computes GELU by a faster formula, which rounds differently.
// Whole layers repeat the kernels of the forward pass. FORWARD_ONLY: there is no backward pass.
enum Recompute {
    RECOMPUTE_NOTHING,
    RECOMPUTE_GELU,
    RECOMPUTE_GELU_AND_LAYERNORM,
    RECOMPUTE_LAYERS,
    FORWARD_ONLY,
    NEVER  // no value of an option: in a table, each layer always keeps the tensor
};

template <class Real>
struct LayerActivations {
    float *ln1_mean, *ln1_rstd, *ln2_mean, *ln2_rstd;
    Real *ln1, *qkv, *atty;
    float* lse;
    Real* residual2;  // after attention
    Real *ln2, *fch, *fch_gelu;
    Real* residual3;  // after the layer
    Real *dresidual2, *dqkv;
    Real* ddropped_attention;  // the gradient behind the dropout of attention
};

template <class Real>
struct Activations {
    int B = 0, T = 0;  // largest batch
    Recompute recompute = RECOMPUTE_NOTHING;
    int *inputs = nullptr, *targets = nullptr, *buckets = nullptr;
    Real* encoded = nullptr;
    std::vector<LayerActivations<Real>> layers;
    Real* proj = nullptr;  // output of attproj or fcproj, which the residual stream adds
    Real* lnf = nullptr;
    float *lnf_mean = nullptr, *lnf_rstd = nullptr;
    int logit_rows = 0;      // rows of logits that are in memory at a time
    Real* logits = nullptr;  // become their gradient
    float* losses = nullptr;
    // gradients of the residual stream, of a linear layer's input and of fch
    Real *dresidual = nullptr, *dinp = nullptr, *dfch = nullptr;
    float* delta = nullptr;           // scratch of the attention's backward pass
    Real* ddropped = nullptr;         // gradient behind an MLP's dropout; null without dropout
    uint32_t* dropout_key = nullptr;  // of the current micro-step's masks; likewise

    // Whether the backward pass computes GELU from fch.
    bool recomputes_gelu() const {
        return recompute == RECOMPUTE_GELU || recompute == RECOMPUTE_GELU_AND_LAYERNORM;
    }
    // The residual stream before layer l.
    const Real* layer_input(int l) const { return l ? layers[l - 1].residual3 : encoded; }
};

// A row of the tables.
struct TensorSpec {
    const char* name;
    size_t bytes;
    std::function<void(char*)> set;  // its address
    Recompute shared;                // from this value on, the layers share its memory
    const char* in;                  // not null: it has no memory of its own, but that of this tensor
    size_t offset;                   // there, in bytes

    template <class Element>
    TensorSpec(const char* label, Element*& tensor, size_t count, Recompute shared_from = NEVER,
               const char* in_memory_of = nullptr, size_t at = 0)
        : name(label),
          bytes(count * sizeof(Element)),
          set([&tensor](char* p) { tensor = reinterpret_cast<Element*>(p); }),
          shared(shared_from),
          in(in_memory_of),
          offset(at * sizeof(Element)) {}
};

// The memory of the tensors of tables, by their names.
struct TensorMemory {
    Memory& memory;
    Recompute recompute;
    std::map<std::string, char*> newest = {};

    void place(const std::vector<TensorSpec>& table) {
        for (const TensorSpec& t : table) {
            if (!t.in && (recompute < t.shared || !newest.count(t.name)))
                newest[t.name] = memory.allocate<char>(t.bytes, t.name);
            t.set(newest.at(t.in ? t.in : t.name) + t.offset);
        }
    }
};

// ---------------------------------------------------------------------------------------------------------
// The tables: name, tensor, elements, from which value of Recompute on the layers share it, in whose memory
// it is. Two tensors have one memory if the second is first written after the last use of the first. Without
// a backward pass, that is true of all residual streams, and of all outputs of LayerNorms.

// (clang-format would break the columns.)
// clang-format off
template <class Real>
std::vector<TensorSpec> forward_tensors(Activations<Real>& a, const ModelConfig& c) {
    const size_t rows = size_t(a.B) * a.T, C = c.channels;
    return {
        {"inputs",   a.inputs,   rows},
        {"encoded",  a.encoded,  rows * C},
        {"proj",     a.proj,     rows * C},
        {"lnf",      a.lnf,      rows * C},
        {"lnf_mean", a.lnf_mean, rows},
        {"lnf_rstd", a.lnf_rstd, rows}};
}

// cached_texts: if it is not 0, qkv is the cache of so many texts of T tokens, and each layer has its own.
template <class Real>
std::vector<TensorSpec> layer_tensors(const Activations<Real>& batch, LayerActivations<Real>& a,
                                      const ModelConfig& c, int cached_texts) {
    const size_t rows = size_t(batch.B) * batch.T, C = c.channels, NH = c.num_heads;
    const size_t cache_rows = cached_texts ? size_t(cached_texts) * batch.T : rows;
    const bool forward_only = batch.recompute == FORWARD_ONLY;
    const char* stream = forward_only ? "encoded" : nullptr;
    const char* ln1 = forward_only ? "lnf" : nullptr;
    const char* ln2 = batch.recompute == RECOMPUTE_GELU_AND_LAYERNORM ? "ln1" : ln1;
    const Recompute kept_for_text = cached_texts ? NEVER : RECOMPUTE_LAYERS;
    return {
        {"ln1_mean",   a.ln1_mean,   rows,               RECOMPUTE_LAYERS},
        {"ln1_rstd",   a.ln1_rstd,   rows,               RECOMPUTE_LAYERS},
        {"ln1",        a.ln1,        rows * C,           RECOMPUTE_GELU_AND_LAYERNORM, ln1},
        {"qkv",        a.qkv,        cache_rows * 3 * C, kept_for_text},
        {"atty",       a.atty,       rows * C,           RECOMPUTE_LAYERS},
        {"lse",        a.lse,        rows * NH,          RECOMPUTE_LAYERS},
        {"residual2",  a.residual2,  rows * C,           RECOMPUTE_LAYERS, stream},
        {"ln2_mean",   a.ln2_mean,   rows,               RECOMPUTE_LAYERS},
        {"ln2_rstd",   a.ln2_rstd,   rows,               RECOMPUTE_LAYERS},
        {"ln2",        a.ln2,        rows * C,           RECOMPUTE_GELU_AND_LAYERNORM, ln2},
        {"fch",        a.fch,        rows * 4 * C,       RECOMPUTE_LAYERS},
        {"fch_gelu",   a.fch_gelu,   rows * 4 * C,       RECOMPUTE_GELU},
        {"residual3",  a.residual3,  rows * C,           FORWARD_ONLY, stream},
        // gradients
        {"dresidual2", a.dresidual2, rows * C,           NEVER, forward_only ? "encoded" : "residual3"},
        {"dqkv",       a.dqkv,       rows * 3 * C,       NEVER, "fch"},
        {"ddropped",   a.ddropped_attention, rows * C,   NEVER, "fch", rows * 3 * C}};
}

// From the head on. dfch is in the memory of the logits.
template <class Real>
std::vector<TensorSpec> head_tensors(Activations<Real>& a, const ModelConfig& c) {
    const size_t rows = size_t(a.B) * a.T, logits = size_t(a.logit_rows) * c.padded_vocab_size;
    const size_t dfch = a.recompute == FORWARD_ONLY ? 0 : rows * 4 * c.channels;
    return {
        {"targets", a.targets, rows},
        {"losses",  a.losses,  rows},
        {"logits",  a.logits,  std::max(logits, dfch)}};
}

template <class Real>
std::vector<TensorSpec> backward_tensors(Activations<Real>& a, const ModelConfig& c, bool dropout) {
    const size_t rows = size_t(a.B) * a.T, C = c.channels;
    std::vector<TensorSpec> table = {
        {"dresidual", a.dresidual, rows * C,     NEVER, "lnf"},
        {"dinp",      a.dinp,      rows * C,     NEVER, "proj"},
        {"dfch",      a.dfch,      rows * 4 * C, NEVER, "logits"},
        {"buckets",   a.buckets,   encoder_bucket_ints(int(rows))},
        {"delta",     a.delta,     rows * c.num_heads}};
    if (dropout) {
        table.push_back({"ddropped",      a.ddropped,    rows * C});
        table.push_back({"dropout's key", a.dropout_key, 2});
    }
    return table;
}
// clang-format on

// The tensors of the forward pass up to lnf, for batches of up to B sequences of T tokens.
template <class Real>
Activations<Real> allocate_activations(TensorMemory& to, const ModelConfig& c, int B, int T,
                                       int cached_texts = 0) {
    Activations<Real> a = {.B = B, .T = T, .recompute = to.recompute};
    to.place(forward_tensors(a, c));
    a.layers.resize(c.num_layers);
    for (LayerActivations<Real>& layer : a.layers) to.place(layer_tensors(a, layer, c, cached_texts));
    return a;
}
