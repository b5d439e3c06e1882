#include "llmc/model/optimizer.h"

#include <algorithm>

template <class Real>
Optimizer<Real>::Optimizer(const ModelConfig& c, Memory& model_memory, const OptimizerOptions& o,
                           const OptimizerShare& owner)
    : config(c), options(o), share(owner), ownership(divide_elements(c, owner.count)), memory(model_memory) {
    memory.kind = "optimizer";
    size_t counts[NUM_PARAMETER_TENSORS] = {};
    for (const Shard& s : ownership.owned_by(share.index)) counts[s.tensor] += s.count;
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) {
        const size_t n = counts[i];
        if (options.master_weights && sizeof(Real) == 2)
            master[i] = memory.allocate<float>(n, "master weights");
        m[i] = memory.allocate<float>(n, "AdamW's first moments");
        v[i] = memory.allocate<float>(n, "AdamW's second moments");
        memory.zero(m[i], n);
        memory.zero(v[i], n);
    }
    numbers = memory.allocate<AdamWStep>(1, "the optimizer's step");
}

template <class Real>
void Optimizer<Real>::begin_step(int step, float learning_rate) {
    const AdamWStep next = adamw_step(learning_rate, options.beta1, options.beta2, options.epsilon, step + 1);
    memory.upload(numbers, &next, 1);
}

template <class Real>
void Optimizer<Real>::update(LaunchPad* pad, const ParameterTensors<Real>& tensors,
                             const std::vector<TensorRange>& ranges) const {
    const ConcurrentGroup group(pad);
    for (const TensorRange& range : ranges)
        for (const auto& [tensor, first, count, owner] : ownership.within(range)) {
            if (owner != share.index) continue;
            const size_t at = position(tensor, first);
            const bool decays = options.decay_all || parameter_info[tensor].weight_decay;
            adamw_update<Real>(pad, {.params = tensors.params[tensor] + first,
                                     .master = master[tensor] ? master[tensor] + at : nullptr,
                                     .m = m[tensor] + at,
                                     .v = v[tensor] + at,
                                     .grads = tensors.grads[tensor] + first,
                                     .n = count,
                                     .first = first,
                                     .step = numbers,
                                     .weight_decay = decays ? options.weight_decay : 0.0f,
                                     .norm_and_scale = tensors.norm_and_scale});
        }
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
size_t Optimizer<Real>::position(int tensor, size_t element) const {
    size_t before = 0;
    for (const Shard& s : ownership.within({tensor, 0, element}))
        if (s.owner == share.index) before += s.count;
    return before;
}

template <class Real>
void Optimizer<Real>::store(Moment moment, const TensorRange& range, const float* values) const {
    for (const auto& [tensor, first, count, owner] : ownership.within(range))
        if (float* to = tensors_of(moment)[tensor]; to && owner == share.index)
            memory.upload(to + position(tensor, first), values + first - range.first, count);
}

template <class Real>
void Optimizer<Real>::load(Moment moment, const TensorRange& range, float* values) const {
    memory.download(values, tensors_of(moment)[range.tensor] + position(range.tensor, range.first),
                    range.count);
}

#define INSTANTIATE(Real) template struct Optimizer<Real>;
FOR_EACH_REAL(INSTANTIATE)
