// AdamW: CPU version, GPU versions, their table, and the choice that training makes.
#include "llmc/adamw.h"

#include <algorithm>
#include <cmath>

#include "llmc/cpu_times.h"
#include "llmc/simd.h"
#include "shaders/args.h"

// The finalizer of MurmurHash3: every bit of x changes half of the result's bits. shaders/adamw.glsl has it
// too.
static inline uint32_t hash(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

AdamWStep adamw_step(float learning_rate, float beta1, float beta2, float eps, int t) {
    return {learning_rate,
            beta1,
            beta2,
            float(1 - std::pow(double(beta1), t)),
            float(1 - std::pow(double(beta2), t)),
            eps,
            hash(uint32_t(t))};
}

// A piece of a tensor: its elements from number `first` on, all with the same upper 32 bits of that number.
template <class T>
struct Piece {
    T* params;
    float *master, *m, *v;  // master may be null
    const T* grads;
    size_t first, n;
};

template <class T, bool has_master>
static inline void update_piece(Piece<T> p, AdamWStep s, float weight_decay, float scale) {
    const uint32_t key = hash(s.seed ^ uint32_t(p.first >> 32)), first = uint32_t(p.first);
    const int n = int(p.n);
#pragma omp simd
    for (int i = 0; i < n; i++) {
        const float g = float(p.grads[i]) * scale, param = has_master ? p.master[i] : float(p.params[i]);
        const float m = s.beta1 * p.m[i] + (1 - s.beta1) * g;
        const float v = s.beta2 * p.v[i] + (1 - s.beta2) * g * g;
        const float m_hat = m / s.beta1_correction, v_hat = v / s.beta2_correction;
        const float now =
            param - s.learning_rate * (m_hat / (std::sqrt(v_hat) + s.eps) + weight_decay * param);
        p.m[i] = m;
        p.v[i] = v;
        if (has_master) p.master[i] = now;
        p.params[i] = round_randomly<T>(now, hash((first + uint32_t(i)) ^ key));
    }
}

SIMD_CLONES static void update(Piece<float> p, AdamWStep s, float weight_decay, float scale) {
    update_piece<float, false>(p, s, weight_decay, scale);
}
SIMD_CLONES static void update(Piece<bf16> p, AdamWStep s, float weight_decay, float scale) {
    if (p.master)
        update_piece<bf16, true>(p, s, weight_decay, scale);
    else
        update_piece<bf16, false>(p, s, weight_decay, scale);
}
SIMD_CLONES static void update(Piece<fp16> p, AdamWStep s, float weight_decay, float scale) {
    if (p.master)
        update_piece<fp16, true>(p, s, weight_decay, scale);
    else
        update_piece<fp16, false>(p, s, weight_decay, scale);
}

template <class T>
static void check_master(const float* master) {
    if (std::is_same_v<T, float> && master)
        fail("adamw_update: parameters in fp32 are their own master weights: pass null");
}

// m, v and the weights are read and written, gradients read, rounded copies of master weights written.
template <class T>
static Work update_work(size_t n, const float* master) {
    const double weights = master ? 8.0 + sizeof(T) : 2.0 * sizeof(T);
    return {double(n) * (16.0 + weights + sizeof(T))};
}

template <class T>
void adamw_update_cpu(T* params, float* master, float* m, float* v, const T* grads, size_t n,
                      const AdamWStep* step, float weight_decay, const float* norm_and_scale, size_t first) {
    check_master<T>(master);
    const CpuTimer timer("adamw_update", update_work<T>(n, master));
    if (norm_and_scale && (!std::isfinite(norm_and_scale[0]) || norm_and_scale[1] == 0)) return;
    const float scale = norm_and_scale ? norm_and_scale[1] : 1.0f;
    const size_t piece = 16384;  // elements; each a task for a thread
    const size_t start = first / piece, end = (first + n + piece - 1) / piece;
#pragma omp parallel for
    for (size_t number = start; number < end; number++) {
        const size_t from = std::max(number * piece, first), to = std::min((number + 1) * piece, first + n);
        const size_t i = from - first;
        update(Piece<T>{params + i, master ? master + i : nullptr, m + i, v + i, grads + i, from, to - from},
               *step, weight_decay, scale);
    }
}

template <class T>
static AdamWArgs adamw_args(LaunchPad& pad, T* params, float* master, float* m, float* v, const T* grads,
                            size_t n, const AdamWStep* step, float weight_decay, const float* norm_and_scale,
                            size_t first) {
    check_master<T>(master);
    return {pad.at(params, n),
            pad.at(master, n),
            pad.at(m, n),
            pad.at(v, n),
            pad.at(grads, n),
            pad.at(step, 1),
            pad.at(norm_and_scale, 2),
            n,
            first,
            weight_decay};
}

template <class T>
static void adamw_update1(LaunchPad& pad, T* params, float* master, float* m, float* v, const T* grads,
                          size_t n, const AdamWStep* step, float weight_decay, const float* norm_and_scale,
                          size_t first, int block_size) {
    AdamWArgs args =
        adamw_args(pad, params, master, m, v, grads, n, step, weight_decay, norm_and_scale, first);
    pad.dispatch<T>("adamw_update1", {blocks(n, block_size)}, {uint32_t(block_size)}, args,
                    update_work<T>(n, master));
}

template <class T>
static void adamw_update2(LaunchPad& pad, T* params, float* master, float* m, float* v, const T* grads,
                          size_t n, const AdamWStep* step, float weight_decay, const float* norm_and_scale,
                          size_t first, int block_size) {
    AdamWArgs args =
        adamw_args(pad, params, master, m, v, grads, n, step, weight_decay, norm_and_scale, first);
    if ((args.master | args.m | args.v) % 16 || (args.params | args.grads) % (4 * sizeof(T)))
        return adamw_update1(pad, params, master, m, v, grads, n, step, weight_decay, norm_and_scale, first,
                             block_size);
    pad.dispatch<T>("adamw_update2", {blocks(blocks(n, 4), block_size)}, {uint32_t(block_size)}, args,
                    update_work<T>(n, master));
}

template <class T>
std::vector<KernelVersion<AdamWUpdate<T>>> adamw_update_versions() {
    return {
        {"adamw_update1", "one invocation per parameter", adamw_update1<T>, {256, 32, 64, 128, 512}},
        {"adamw_update2", "16-byte accesses, four parameters", adamw_update2<T>, {256, 32, 64, 128, 512}},
    };
}

template <class T>
void adamw_update(LaunchPad* pad, T* params, float* master, float* m, float* v, const T* grads, size_t n,
                  const AdamWStep* step, float weight_decay, const float* norm_and_scale, size_t first) {
    if (!pad)
        return adamw_update_cpu(params, master, m, v, grads, n, step, weight_decay, norm_and_scale, first);
    adamw_update2(*pad, params, master, m, v, grads, n, step, weight_decay, norm_and_scale, first, 256);
}

#define INSTANTIATE(T)                                                                                     \
    template std::vector<KernelVersion<AdamWUpdate<T>>> adamw_update_versions();                           \
    template void adamw_update_cpu(T*, float*, float*, float*, const T*, size_t, const AdamWStep*, float,  \
                                   const float*, size_t);                                                  \
    template void adamw_update(LaunchPad*, T*, float*, float*, float*, const T*, size_t, const AdamWStep*, \
                               float, const float*, size_t);
FOR_EACH_REAL(INSTANTIATE)
