// AdamW: CPU version, GPU versions, their table, and the choice that training makes.
#include "llmc/adamw.h"

#include <algorithm>
#include <cmath>

#include "llmc/simd.h"
#include "shaders/args.h"

AdamWStep adamw_step(float learning_rate, float beta1, float beta2, float eps, int t) {
    return {learning_rate,
            beta1,
            beta2,
            float(1 - std::pow(double(beta1), t)),
            float(1 - std::pow(double(beta2), t)),
            eps};
}

SIMD_CLONES static void update_range(float* params, float* m, float* v, const float* grads, size_t n,
                                     AdamWStep s, float weight_decay, float scale) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const float g = grads[i] * scale;
        m[i] = s.beta1 * m[i] + (1 - s.beta1) * g;
        v[i] = s.beta2 * v[i] + (1 - s.beta2) * g * g;
        const float m_hat = m[i] / s.beta1_correction, v_hat = v[i] / s.beta2_correction;
        params[i] -= s.learning_rate * (m_hat / (std::sqrt(v_hat) + s.eps) + weight_decay * params[i]);
    }
}

template <class T>
void adamw_update_cpu(T* params, float* m, float* v, const T* grads, size_t n, const AdamWStep* step,
                      float weight_decay, const float* norm_and_scale) {
    if (norm_and_scale && !std::isfinite(norm_and_scale[0])) return;
    const float scale = norm_and_scale ? norm_and_scale[1] : 1.0f;
    const size_t piece = 16384;  // elements; each a task for a thread
#pragma omp parallel for
    for (size_t i = 0; i < n; i += piece)
        update_range(params + i, m + i, v + i, grads + i, std::min(piece, n - i), *step, weight_decay, scale);
}

template <class T>
static AdamWArgs adamw_args(LaunchPad& pad, T* params, float* m, float* v, const T* grads, size_t n,
                            const AdamWStep* step, float weight_decay, const float* norm_and_scale) {
    return {pad.at(params, n),
            pad.at(m, n),
            pad.at(v, n),
            pad.at(grads, n),
            pad.at(step, 1),
            pad.at(norm_and_scale, 2),
            n,
            weight_decay};
}

template <class T>
static void adamw_update1(LaunchPad& pad, T* params, float* m, float* v, const T* grads, size_t n,
                          const AdamWStep* step, float weight_decay, const float* norm_and_scale,
                          int block_size) {
    AdamWArgs args = adamw_args(pad, params, m, v, grads, n, step, weight_decay, norm_and_scale);
    pad.dispatch<T>("adamw_update1", {blocks(n, block_size)}, {uint32_t(block_size)}, args);
}

template <class T>
static void adamw_update2(LaunchPad& pad, T* params, float* m, float* v, const T* grads, size_t n,
                          const AdamWStep* step, float weight_decay, const float* norm_and_scale,
                          int block_size) {
    AdamWArgs args = adamw_args(pad, params, m, v, grads, n, step, weight_decay, norm_and_scale);
    if ((args.m | args.v) % 16 || (args.params | args.grads) % (4 * sizeof(T)))
        return adamw_update1(pad, params, m, v, grads, n, step, weight_decay, norm_and_scale, block_size);
    pad.dispatch<T>("adamw_update2", {blocks(blocks(n, 4), block_size)}, {uint32_t(block_size)}, args);
}

template <class T>
std::vector<KernelVersion<AdamWUpdate<T>>> adamw_update_versions() {
    return {
        {"adamw_update1", "one invocation per parameter", adamw_update1<T>, {256, 32, 64, 128, 512}},
        {"adamw_update2", "16-byte accesses, four parameters", adamw_update2<T>, {256, 32, 64, 128, 512}},
    };
}

template <class T>
void adamw_update(LaunchPad* pad, T* params, float* m, float* v, const T* grads, size_t n,
                  const AdamWStep* step, float weight_decay, const float* norm_and_scale) {
    if (!pad) return adamw_update_cpu(params, m, v, grads, n, step, weight_decay, norm_and_scale);
    adamw_update2(*pad, params, m, v, grads, n, step, weight_decay, norm_and_scale, 256);
}

template std::vector<KernelVersion<AdamWUpdate<float>>> adamw_update_versions();
template void adamw_update_cpu(float*, float*, float*, const float*, size_t, const AdamWStep*, float,
                               const float*);
template void adamw_update(LaunchPad*, float*, float*, float*, const float*, size_t, const AdamWStep*, float,
                           const float*);
