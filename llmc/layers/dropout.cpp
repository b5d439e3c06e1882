// Dropout: the CPU version, the GPU version, and the dispatcher that training calls.
#include "llmc/layers/dropout.h"

#include <algorithm>

#include "llmc/base/ceil_div.h"
#include "llmc/base/hash.h"
#include "llmc/cpu/simd.h"
#include "llmc/launchpad/packs.h"
#include "shaders/args.h"

// The finalizer of splitmix64 (Steele, Lea and Flood 2014): a bijection, so different inputs stay different.
static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

std::array<uint32_t, 2> dropout_key(uint64_t seed, int step, int micro_step, int process) {
    uint64_t key = mix(seed);
    for (const int number : {step, micro_step, process}) key = mix(key ^ uint32_t(number));
    return {uint32_t(key), uint32_t(key >> 32)};
}

// An element is dropped if its random bits are below this.
static uint32_t threshold_of(float rate) { return uint32_t(double(rate) * 0x1p32); }
static float scale_of(float rate) { return float(1 / (1 - double(rate))); }

// A chunk whose element indices all have the same upper 32 bits; `first` are the lower 32 of the first
// element. shaders/dropout.glsl computes the same.
struct Mask {
    uint32_t first, inner_key, outer_key, threshold;
    float scale;
};

template <class Real>
static SIMD_INLINE void drop(Real* out, const Real* inp, size_t n, Mask m) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = hash(hash((m.first + uint32_t(i)) ^ m.inner_key) ^ m.outer_key);
        out[i] = round_to<Real>(bits < m.threshold ? 0.0f : float(inp[i]) * m.scale);
    }
}

template <class Real>
static void dropout_cpu(const Dropout<Real>& p) {
    const size_t chunk = 4096;  // elements of one task
#pragma omp parallel for
    for (size_t i = 0; i < p.n; i += chunk) {
        const Mask mask = {.first = uint32_t(i),
                           .inner_key = hash(p.key[0] ^ (p.site + (uint32_t(i >> 32) << 16))),
                           .outer_key = p.key[1],
                           .threshold = threshold_of(p.rate),
                           .scale = scale_of(p.rate)};
        simd<drop<Real>>(p.out + i, p.inp + i, std::min(chunk, p.n - i), mask);
    }
}

template <class Real>
static void dropout2(LaunchPad& pad, const Dropout<Real>& p, int block_size) {
    const DropoutArgs args = {.outp = pad.at(p.out, p.n),
                              .inp = pad.at(p.inp, p.n),
                              .key = pad.at(p.key, 2),
                              .n = p.n,
                              .site = p.site,
                              .threshold = threshold_of(p.rate),
                              .scale = scale_of(p.rate)};
    const uint32_t width = wide_pack_width<Real>(0, {args.outp, args.inp});
    pad.dispatch<Real>("dropout2", {ceil_div(p.n, uint64_t(block_size) * width)},
                       {uint32_t(block_size), width}, args, memory_traffic<Real>(2.0 * double(p.n)));
}

template <class Real>
std::vector<KernelVersion<Dropout<Real>>> dropout_versions() {
    return {
        {"dropout2", "16-byte accesses", dropout2<Real>, {256, 64, 128, 512}},
    };
}

template <class Real>
void dropout(LaunchPad* pad, const Dropout<Real>& p) {
    if (!pad) return dropout_cpu(p);
    launch<Real>(*pad, p, dropout_versions<Real>(), "dropout2", 256);
}

#define INSTANTIATE(Real) INSTANTIATE_LAYER(dropout, Dropout, Real)
FOR_EACH_REAL(INSTANTIATE)
