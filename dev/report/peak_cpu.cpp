// Measures the CPU: multiply-adds in registers, and memory. CMakeLists.txt allows fused multiply-adds in this
// file.
#include "dev/report/peak_cpu.h"

#include <omp.h>

#include <algorithm>

#include "llmc/base/clock.h"
#include "llmc/base/real.h"
#include "llmc/cpu/amx.h"
#include "llmc/cpu/simd.h"
#include "llmc/launchpad/memory.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_neon.h>
#endif

static const int ITERATIONS = 20000;
static const int CHAINS = 12;  // independent ones: at least latency x issue rate of any CPU so far

template <class Vector>
__attribute__((always_inline)) inline float multiply_and_add(float factor) {
    Vector acc[CHAINS];
    for (int i = 0; i < CHAINS; i++) acc[i] = Vector{} + float(i);  // the compiler would merge equal ones
    const Vector f = Vector{} + factor;
    for (int iteration = 0; iteration < ITERATIONS; iteration++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) acc[i] = acc[i] * f + f;
    float total = 0;
    for (const Vector& a : acc) total += a[0];
    return total;
}

// A pair of bf16, both with the value f.
[[maybe_unused]] static uint32_t bf16_pair(float f) {
    const uint32_t bits = bf16(f).bits;
    return bits | bits << 16;
}

struct Chains {
    int lanes;                   // multiply-adds per instruction
    float (*run)(float factor);  // executes CHAINS * ITERATIONS instructions
};

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static float chains_avx512(float f) {
    return multiply_and_add<Float16>(f);
}
__attribute__((target("avx2,fma"))) static float chains_avx2(float f) { return multiply_and_add<Float8>(f); }
static float chains_base(float f) { return multiply_and_add<Float4>(f); }
static Chains fma_chains() {
    if (simd_level() >= SIMD_AVX512) return {16, chains_avx512};
    if (simd_level() >= SIMD_AVX2) return {8, chains_avx2};
    return {4, chains_base};
}
__attribute__((target("avx512f,avx512bf16"))) static float chains_bf16(float f) {
    __m512 acc[CHAINS];
    for (int i = 0; i < CHAINS; i++) acc[i] = _mm512_set1_ps(float(i));
    const __m512bh pairs = __m512bh(_mm512_set1_epi32(int(bf16_pair(f))));
    for (int iteration = 0; iteration < ITERATIONS; iteration++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) acc[i] = _mm512_dpbf16_ps(acc[i], pairs, pairs);
    float total = 0;
    for (const __m512& a : acc) total += a[0];
    return total;
}
// Four interleaved chains, with as many instructions in total as the CHAINS of the other functions.
__attribute__((target("amx-tile,amx-bf16"))) static float chains_amx(float f) {
    uint32_t pairs[16 * 16];
    std::fill_n(pairs, 16 * 16, bf16_pair(f));
    asm volatile("" : : "r"(pairs) : "memory");  // g++ 12 does not know that the loads below read it
    float acc[16 * 16];
    configure_tiles();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    load_tile<4>(pairs, 64);
    load_tile<5>(pairs, 64);
    for (int i = 0; i < CHAINS * ITERATIONS; i += 4) {
        _tile_dpbf16ps(0, 4, 5);
        _tile_dpbf16ps(1, 4, 5);
        _tile_dpbf16ps(2, 4, 5);
        _tile_dpbf16ps(3, 4, 5);
    }
    store_tile<0>(acc, 64);
    release_tiles();
    return acc[0];
}
#else
static float chains_base(float f) { return multiply_and_add<Float4>(f); }
static Chains fma_chains() { return {4, chains_base}; }
#if defined(__aarch64__) && defined(__linux__)
__attribute__((target("arch=armv8.2-a+bf16"))) static float chains_bf16(float f) {
    float32x4_t acc[CHAINS];
    for (int i = 0; i < CHAINS; i++) acc[i] = vdupq_n_f32(float(i));
    const bfloat16x8_t pairs = vreinterpretq_bf16_u32(vdupq_n_u32(bf16_pair(f)));
    for (int iteration = 0; iteration < ITERATIONS; iteration++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) acc[i] = vbfdotq_f32(acc[i], pairs, pairs);
    float total = 0;
    for (const float32x4_t& a : acc) total += a[0];
    return total;
}
#endif
#endif

// Flops per second of all threads together, from the best of several batches. All threads start each batch at
// the same time.
static double rate(const Chains& chains, double seconds) {
    const double flops = 2.0 * CHAINS * ITERATIONS * chains.lanes * omp_get_max_threads(),
                 end = now() + seconds;
    double best = 0;
    do {
        float kept = 0;
        const double start = now();
#pragma omp parallel reduction(+ : kept)
        kept += chains.run(0.5f);
        if (!(kept > 0)) return 0;  // never true: keeps the compiler from removing the chains
        best = std::max(best, flops / (now() - start));
    } while (now() < end);
    return best;
}

double cpu_fma_rate(double seconds) { return rate(fma_chains(), seconds); }

double cpu_bf16_rate(double seconds) {
#if defined(__x86_64__)
    if (simd_level() >= SIMD_AMX) return rate({16 * 16 * 32, chains_amx}, seconds);
    if (simd_level() >= SIMD_BF16) return rate({32, chains_bf16}, seconds);
#elif defined(__aarch64__) && defined(__linux__)
    if (simd_level() >= SIMD_BF16) return rate({8, chains_bf16}, seconds);
#endif
    (void)seconds;
    return 0;
}

double cpu_memory_rate() {
    Memory memory(nullptr);
    const size_t n = 32 << 20, chunk = 1 << 18;
    float* x = memory.allocate<float>(n, "peak");
    memory.zero(x, n);
    double best = 0;
    for (int repeat = 0; repeat < 8; repeat++) {
        const double start = now();
#pragma omp parallel for
        for (size_t first = 0; first < n; first += chunk)
            for (size_t i = first; i < first + chunk; i++) x[i] = x[i] * 0.5f + 1.0f;
        best = std::max(best, 8.0 * double(n) / (now() - start));
    }
    return best;
}

double cpu_copy_rate(size_t bytes, double seconds) {
    Memory memory(nullptr);
    char* to = memory.allocate<char>(bytes, "peak");
    char* from = memory.allocate<char>(bytes, "peak");
    memset(to, 1, bytes);  // the first write maps the pages
    memset(from, 2, bytes);
    double total = 0;
#pragma omp parallel reduction(+ : total)
    {
        const size_t threads = size_t(omp_get_num_threads()), thread = size_t(omp_get_thread_num());
        const size_t first = bytes * thread / threads, part = bytes * (thread + 1) / threads - first;
        const size_t batch = 1 + (1 << 20) / (part + 1);  // copies between two readings of the clock
        double copied = 0, elapsed = 0;
        for (const double start = now(); elapsed < seconds;
             elapsed = now() - start, copied += double(part * batch))
            for (size_t i = 0; i < batch; i++) {
                memcpy(to + first, from + first, part);
                asm volatile("" : : "r"(to) : "memory");  // keeps the compiler from merging the copies
            }
        total += 2 * copied / elapsed;
    }
    return total;
}
