// AdamW: the CPU version, the GPU versions with their table, and the dispatcher that training calls.
#include "llmc/layers/adamw.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/ceil_div.h"
#include "llmc/cpu/simd.h"

AdamWStep adamw_step(float learning_rate, float beta1, float beta2, float eps, int t) {
    return {learning_rate,
            beta1,
            beta2,
            float(1 / (1 - std::pow(double(beta1), t))),
            float(1 / (1 - std::pow(double(beta2), t))),
            eps,
            hash(uint32_t(t))};
}

// Updates a chunk of a tensor, whose element indices all have the same upper 32 bits.
template <class Real, bool has_master>
static SIMD_INLINE void update_chunk(AdamWUpdate<Real> p, AdamWStep s, float scale) {
    const uint32_t key = rounding_key(s.seed, p.first), first = uint32_t(p.first);
    const int n = int(p.n);
#pragma omp simd
    for (int i = 0; i < n; i++) {
        const float g = float(p.grads[i]) * scale, param = has_master ? p.master[i] : float(p.params[i]);
        const float m = s.beta1 * p.m[i] + (1 - s.beta1) * g;
        const float v = s.beta2 * p.v[i] + (1 - s.beta2) * g * g;
        const float m_hat = m * s.beta1_correction, v_hat = v * s.beta2_correction;
        const float now =
            param - s.learning_rate * (m_hat / (std::sqrt(v_hat) + s.eps) + p.weight_decay * param);
        p.m[i] = m;
        p.v[i] = v;
        if (has_master) p.master[i] = now;
        p.params[i] = round_randomly<Real>(now, hash((first + uint32_t(i)) ^ key));
    }
}

template <class Real>
static SIMD_INLINE void update_any(AdamWUpdate<Real> p, AdamWStep s, float scale) {
    if (!std::is_same_v<Real, float> && p.master)
        update_chunk<Real, true>(p, s, scale);
    else
        update_chunk<Real, false>(p, s, scale);
}

template <class Real>
static void check_master(const float* master) {
    if (std::is_same_v<Real, float> && master)
        fail("adamw_update: fp32 parameters take no master weights: pass null");
}

// Reads and writes m, v and the weights, reads the gradients, and writes the rounded copies of master
// weights.
template <class Real>
static Work update_work(const AdamWUpdate<Real>& p) {
    const double weights = p.master ? 8.0 + sizeof(Real) : 2.0 * sizeof(Real);
    return {double(p.n) * (16.0 + weights + sizeof(Real))};
}

// The elements with indices begin..end of the whole tensor.
template <class Real>
static AdamWUpdate<Real> chunk_of(const AdamWUpdate<Real>& p, size_t begin, size_t end) {
    const size_t i = begin - p.first;
    AdamWUpdate<Real> chunk = p;
    chunk.params += i;
    if (p.master) chunk.master += i;
    chunk.m += i;
    chunk.v += i;
    chunk.grads += i;
    chunk.n = end - begin;
    chunk.first = begin;
    return chunk;
}

template <class Real>
static void adamw_update_cpu(const AdamWUpdate<Real>& p) {
    check_master<Real>(p.master);
    const float* norm_and_scale = p.norm_and_scale;
    if (norm_and_scale && (!std::isfinite(norm_and_scale[0]) || norm_and_scale[1] == 0)) return;
    const float scale = norm_and_scale ? norm_and_scale[1] : 1.0f;
    const size_t chunk = 16384;  // elements
    const size_t first_chunk = p.first / chunk, end_chunk = (p.first + p.n + chunk - 1) / chunk;
#pragma omp parallel for
    for (size_t i = first_chunk; i < end_chunk; i++) {
        const size_t begin = std::max(i * chunk, p.first), end = std::min((i + 1) * chunk, p.first + p.n);
        simd<update_any<Real>>(chunk_of(p, begin, end), *p.step, scale);
    }
}

template <class Real>
static void adamw_update2(LaunchPad& pad, const AdamWUpdate<Real>& p, int block_size) {
    check_master<Real>(p.master);
    const AdamWArgs args = {.params = pad.at(p.params, p.n),
                            .master = pad.at(p.master, p.n),
                            .m = pad.at(p.m, p.n),
                            .v = pad.at(p.v, p.n),
                            .grads = pad.at(p.grads, p.n),
                            .step = pad.at(p.step, 1),
                            .norm_and_scale = pad.at(p.norm_and_scale, 2),
                            .n = p.n,
                            .first = p.first,
                            .weight_decay = p.weight_decay};
    const bool aligned =
        (args.master | args.m | args.v) % 16 == 0 && (args.params | args.grads) % (4 * sizeof(Real)) == 0;
    pad.dispatch<Real>("adamw_update2", {ceil_div(ceil_div(p.n, 4), block_size)},
                       {uint32_t(block_size), aligned}, args, update_work(p));
}

template <class Real>
std::vector<KernelVersion<AdamWUpdate<Real>>> adamw_update_versions() {
    return {
        {"adamw_update2",
         "one invocation per four parameters, 16-byte accesses",
         adamw_update2<Real>,
         {256, 32, 64, 128, 512}},
    };
}

template <class Real>
void adamw_update(LaunchPad* pad, const AdamWUpdate<Real>& p) {
    if (!pad) return adamw_update_cpu(p);
    launch<Real>(*pad, p, adamw_update_versions<Real>(), "adamw_update2", 256);
}

#define INSTANTIATE(Real) INSTANTIATE_LAYER(adamw_update, AdamWUpdate, Real)
FOR_EACH_REAL(INSTANTIATE)
