#include "llmc/model/optimizer.h"

#include <algorithm>
#include <map>
#include <utility>

template <class Real>
Optimizer<Real>::Optimizer(const ModelConfig& c, Memory& model_memory, const OptimizerOptions& o,
                           const OptimizerShare& owner)
    : config(c),
      options(o),
      share(owner),
      ownership(ownership_of(c, owner.kind, owner.count)),
      memory(model_memory) {
    memory.kind = "optimizer";
    size_t counts[NUM_PARAMETER_TENSORS] = {};
    for (const Shard& s : ownership.owned_by(share.index)) counts[s.tensor] += s.count;
    const Placement placement = options.offload ? Placement::host : Placement::device;
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) {
        const size_t n = counts[i];
        if (options.master_weights && sizeof(Real) == 2)
            master[i] = memory.allocate<float>(n, "master weights", placement);
        m[i] = memory.allocate<float>(n, "the optimizer's first moments", placement);
        memory.zero(m[i], n);
        if (!has_moment(share.kind, MOMENT_V, i)) continue;
        v[i] = memory.allocate<float>(n, "the optimizer's second moments", placement);
        memory.zero(v[i], n);
    }
    if (share.kind == OptimizerKind::muon) muon = memory.allocate<MuonStep>(1, "the optimizer's step");
    adamw = memory.allocate<AdamWStep>(1, "the optimizer's step");
}

template <class Real>
void Optimizer<Real>::begin_step(int step, float learning_rate) {
    const AdamWStep next = adamw_step(learning_rate, options.beta1, options.beta2, options.epsilon, step + 1);
    memory.upload(adamw, &next, 1);
    if (!muon) return;
    const MuonStep next_muon =
        muon_step(learning_rate * options.muon_rate_over_adamw_rate, options.momentum, step + 1);
    memory.upload(muon, &next_muon, 1);
}

template <class Real>
void Optimizer<Real>::update_elements(LaunchPad* pad, const ParameterTensors<Real>& tensors,
                                      const Shard& shard) const {
    const auto& [tensor, first, count, owner] = shard;
    const size_t at = index_in_owned(tensor, first);
    const bool decays = options.decay_all || parameter_info[tensor].is_matrix();
    adamw_update<Real>(pad, {.params = tensors.params[tensor] + first,
                             .master = master[tensor] ? master[tensor] + at : nullptr,
                             .m = m[tensor] + at,
                             .v = v[tensor] + at,
                             .grads = tensors.grads[tensor] + first,
                             .n = count,
                             .first = first,
                             .step = adamw,
                             .weight_decay = decays ? options.weight_decay : 0.0f,
                             .norm_and_scale = tensors.norm_and_scale});
}

// Muon's matrices: the weights of a linear layer are one, those of q, k and v three.
struct MatrixShape {
    int rows, columns;
};
static MatrixShape matrix_shape(const ModelConfig& c, int tensor) {
    const ParameterInfo& info = parameter_info[tensor];
    return {tensor == QKVW ? c.channels : int(info.rows.in(c)), int(info.columns.in(c))};
}

// Whole layers; the matrices of a shape go together.
template <class Real>
void Optimizer<Real>::update_matrices(LaunchPad* pad, const ParameterTensors<Real>& tensors,
                                      const std::vector<Shard>& shards) const {
    std::map<std::pair<int, int>, std::vector<MuonMatrix<Real>>> by_shape;
    for (const auto& [tensor, first, count, owner] : shards) {
        const auto [rows, columns] = matrix_shape(config, tensor);
        const size_t at = index_in_owned(tensor, first), n = size_t(rows) * columns;
        for (size_t i = 0; i < count; i += n)
            by_shape[{rows, columns}].push_back({.params = tensors.params[tensor] + first + i,
                                                 .master = master[tensor] ? master[tensor] + at + i : nullptr,
                                                 .m = m[tensor] + at + i,
                                                 .grads = tensors.grads[tensor] + first + i,
                                                 .first = first + i});
    }
    for (const auto& [shape, matrices] : by_shape)
        muon_update<Real>(pad, {.matrices = matrices,
                                .rows = shape.first,
                                .columns = shape.second,
                                .step = muon,
                                .weight_decay = options.weight_decay,
                                .norm_and_scale = tensors.norm_and_scale});
}

template <class Real>
size_t Optimizer<Real>::workspace_bytes() const {
    size_t most = 0;
    for (int tensor = 0; tensor < NUM_PARAMETER_TENSORS; tensor++) {
        if (!by_muon(tensor)) continue;
        const auto [rows, columns] = matrix_shape(config, tensor);
        most = std::max(most, muon_workspace_bytes(rows, columns));
    }
    return most;
}

template <class Real>
void Optimizer<Real>::update(LaunchPad* pad, const ParameterTensors<Real>& tensors,
                             const std::vector<TensorRange>& ranges) const {
    std::vector<Shard> matrices;
    {
        const ConcurrentGroup group(pad);
        for (const TensorRange& range : ranges)
            for (const Shard& s : ownership.within(range)) {
                if (s.owner != share.index) continue;
                if (by_muon(s.tensor))
                    matrices.push_back(s);
                else
                    update_elements(pad, tensors, s);
            }
    }
    update_matrices(pad, tensors, matrices);
}

template <class Real>
void Optimizer<Real>::update(LaunchPad* pad, const ParameterTensors<Real>& tensors) const {
    std::vector<TensorRange> all;
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) all.push_back({i, 0, parameter_size(config, i)});
    update(pad, tensors, all);
}

template <class Real>
float* const* Optimizer<Real>::tensors_of(Moment moment) const {
    return moment == MOMENT_M ? m : moment == MOMENT_V ? v : master;
}

template <class Real>
size_t Optimizer<Real>::index_in_owned(int tensor, size_t element) const {
    size_t before = 0;
    for (const Shard& s : ownership.within({tensor, 0, element}))
        if (s.owner == share.index) before += s.count;
    return before;
}

template <class Real>
void Optimizer<Real>::store(Moment moment, const TensorRange& range, const float* values) const {
    for (const auto& [tensor, first, count, owner] : ownership.within(range))
        if (float* to = tensors_of(moment)[tensor]; to && owner == share.index)
            memory.upload(to + index_in_owned(tensor, first), values + first - range.first, count);
}

template <class Real>
void Optimizer<Real>::load(Moment moment, const TensorRange& range, float* values) const {
    memory.download(values, tensors_of(moment)[range.tensor] + index_in_owned(range.tensor, range.first),
                    range.count);
}

#define INSTANTIATE(Real) template struct Optimizer<Real>;
FOR_EACH_REAL(INSTANTIATE)
