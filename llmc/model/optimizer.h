// The optimizer: the state that it keeps for each parameter, and the update of the parameters. Every process
// of a job holds the state of the parameters that it owns (ownership.h), and updates those.
#pragma once
#include "llmc/launchpad/memory.h"
#include "llmc/layers/adamw.h"
#include "llmc/layers/muon.h"
#include "llmc/model/ownership.h"

struct OptimizerOptions {
    bool master_weights = false;  // keep an fp32 copy of 16-bit weights, and update that
    float beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f;
    float weight_decay = 0;               // of the tensors that decay: embeddings and matrices
    bool decay_all = false;               // all tensors decay, with AdamW
    float momentum = 0.9f;                // of Muon
    float muon_rate_over_adamw_rate = 1;  // Muon's learning rate / AdamW's
    bool offload = false;  // keep the state in the host's memory; a GPU reads and writes it over the bus
};

// The parameters and their gradients, each tensor at the address of its first element.
template <class Real>
struct ParameterTensors {
    Real* const* params;
    Real* const* grads;
    const float* norm_and_scale;  // (2): layers/global_norm.h
};

template <class Real>
struct Optimizer {
    ModelConfig config;
    OptimizerOptions options;
    OptimizerShare share;
    Ownership ownership;
    Memory& memory;
    // The owned elements of each tensor, concatenated; null: the tensor has no such state (has_moment()), or
    // no element is owned
    float* master[NUM_PARAMETER_TENSORS] = {};
    float* m[NUM_PARAMETER_TENSORS] = {};
    float* v[NUM_PARAMETER_TENSORS] = {};
    // What begin_step() sets. In memory, since kernels are recorded once; null: no tensor is Muon's
    AdamWStep* adamw;
    MuonStep* muon = nullptr;

    // Allocates the state, with moments of 0; the master weights are undefined until store() sets them.
    Optimizer(const ModelConfig& config, Memory& memory, const OptimizerOptions& options,
              const OptimizerShare& share = {});

    // Sets what the next updates use. step: from 0.
    void begin_step(int step, float learning_rate);
    // Updates the parameters in these ranges that this process owns. A norm that is not finite, or a scale of
    // 0: nothing changes. pad: the device to run on; null: the CPU.
    void update(LaunchPad* pad, const ParameterTensors<Real>& tensors,
                const std::vector<TensorRange>& ranges) const;
    void update(LaunchPad* pad, const ParameterTensors<Real>& tensors) const;  // of all

    // Bytes that update() takes on the CPU while it runs, at most.
    size_t workspace_bytes() const;

    // Stores the owned part of the range. Ignored if the tensor has no such state.
    void store(Moment moment, const TensorRange& range, const float* values) const;
    // The range must be owned, and have such state.
    void load(Moment moment, const TensorRange& range, float* values) const;

   private:
    void update_elements(LaunchPad* pad, const ParameterTensors<Real>& tensors, const Shard& shard) const;
    void update_matrices(LaunchPad* pad, const ParameterTensors<Real>& tensors,
                         const std::vector<Shard>& shards) const;
    bool by_muon(int tensor) const { return share.kind == OptimizerKind::muon && is_linear_weight(tensor); }
    float* const* tensors_of(Moment moment) const;
    // The index of an owned element among the tensor's owned elements.
    size_t index_in_owned(int tensor, size_t element) const;
};
