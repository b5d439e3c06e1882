// Attention on the CPU, in fp32. Scores live in panels of nr queries or keys, the layout of a GEMM kernel's
// output tiles stacked vertically (llmc/cpu/gemm_kernels.h). The kernels can read such a panel as operand A,
// plain or transposed. The forward pass is parallel over blocks of queries, the backward pass over heads;
// results are bit-identical for any number of threads. CMakeLists.txt allows fused multiply-adds in this
// file.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <type_traits>

#include "llmc/cpu/cpu_timer.h"
#include "llmc/cpu/gemm_kernels.h"
#include "llmc/cpu/vector_math.h"
#include "llmc/layers/attention.h"

static const int KEY_BLOCK = 96;    // keys per iteration of the forward pass; a multiple of every mr and nr
static const int QUERY_PANELS = 8;  // query panels that share a block of keys and values in the forward pass
static const int QUERY_BLOCK = 96;  // queries per iteration of the backward pass; likewise
static const int PADDING_ROWS = MAX_MR;  // rows past the last one that kernels may read and write

// Memory that a thread keeps until it ends. Each task partitions it into arrays anew.
struct Arena {
    LineFloats memory;
    size_t used = 0;

    // Makes room for n floats in total; earlier arrays become invalid.
    void open(size_t n) {
        memory.at_least(n + 16 * 32);
        used = 0;
    }
    float* take(size_t n) {
        float* taken = memory.data() + used;
        used += (n + 15) / 16 * 16;
        return taken;
    }
};
static thread_local Arena arena;

// out (rows, nr) = a b, or out + a b, in steps of mr rows.
static void multiply(const KernelSet& set, float* out, KernelInput in, int rows) {
    for (int i = 0; i < rows; i += set.mr, in.a += set.mr * in.a_row)
        kernel_for(set, std::min(set.mr, rows - i))(out + size_t(i) * set.nr, in);
}

static const char* bytes(const float* p) { return reinterpret_cast<const char*>(p); }

// Operand A (rows, K) in row-major order, and a transposed one: a panel (K, rows). `stride` is in floats.
static KernelInput by_rows(const float* a, size_t stride, const float* b, int K, bool add) {
    return {bytes(a), stride * sizeof(float), sizeof(float), b, K, add};
}
static KernelInput by_columns(const float* a, size_t stride, const float* b, int K, bool add) {
    return {bytes(a), sizeof(float), stride * sizeof(float), b, K, add};
}

// dst (K, nr) = src (columns, K)^T * factor; missing columns are zero.
static void transpose(float* dst, int nr, const float* src, size_t ld, int columns, int K, float factor) {
    for (int c = 0; c < nr; c += 4) {
        int k = 0;
        if (c + 4 <= columns)
            for (; k + 4 <= K; k += 4) {
                Float4 r[4];
                for (int i = 0; i < 4; i++) r[i] = load4(src + (c + i) * ld + k) * factor;
                transpose4(dst + size_t(k) * nr + c, nr, r);
            }
        for (; k < K; k++)
            for (int i = c; i < c + 4; i++)
                dst[size_t(k) * nr + i] = i < columns ? src[i * ld + k] * factor : 0.0f;
    }
}

// Rows of a head in the layout of operand B: (ceil(hs / nr), rows, nr), a panel for every nr channels.
struct ChannelPanels {
    float* p;
    int rows, nr;
    float* panel(int channel) const { return p + size_t(channel) * rows; }
};

// Calls run(width), where width is nr as a constant: loops over a constant number of columns are much faster.
template <class Run>
static SIMD_INLINE void with_constant(int nr, const Run& run) {
    if (nr == 32) return run(std::integral_constant<int, 32>());
    if (nr == 16) return run(std::integral_constant<int, 16>());
    if (nr == 12) return run(std::integral_constant<int, 12>());
    run(std::integral_constant<int, 8>());
}

// Fills the first `count` rows. Channels past hs stay undefined: they only reach columns that are not read.
template <class Real>
static SIMD_INLINE void pack_all(const ChannelPanels& dst, const Real* src, size_t ld, int count, int hs) {
    with_constant(
        dst.nr, [&](auto width) __attribute__((always_inline)) {
            constexpr int NR = width;
            for (int i = 0; i < count; i++, src += ld) {
                int c = 0;
                for (; c + NR <= hs; c += NR) {
                    float* to = dst.panel(c) + size_t(i) * NR;
#pragma omp simd
                    for (int j = 0; j < NR; j++) to[j] = float(src[c + j]);
                }
                for (float* to = dst.panel(c) + size_t(i) * NR; c < hs; c++) *to++ = float(src[c]);
            }
        });
}
SIMD_CLONES static void pack_channels(const ChannelPanels& dst, const float* src, size_t ld, int count,
                                      int hs) {
    pack_all(dst, src, ld, count, hs);
}
SIMD_CLONES static void pack_channels(const ChannelPanels& dst, const bf16* src, size_t ld, int count,
                                      int hs) {
    pack_all(dst, src, ld, count, hs);
}
SIMD_CLONES static void pack_channels(const ChannelPanels& dst, const fp16* src, size_t ld, int count,
                                      int hs) {
    pack_all(dst, src, ld, count, hs);
}

// dst (count, hs) = the first `count` rows of src, row i times factors[i].
template <class Real>
static SIMD_INLINE void unpack_all(Real* dst, size_t ld, const ChannelPanels& src, int count, int hs,
                                   const float* factors) {
    with_constant(
        src.nr, [&](auto width) __attribute__((always_inline)) {
            constexpr int NR = width;
            for (int i = 0; i < count; i++, dst += ld)
                for (int c = 0; c < hs; c += NR) {
                    const float* from = src.panel(c) + size_t(i) * NR;
                    if (c + NR <= hs)
                        store_scaled(dst + c, from, NR, factors[i]);
                    else
                        store_scaled(dst + c, from, hs - c, factors[i]);
                }
        });
}
SIMD_CLONES static void unpack_channels(float* dst, size_t ld, const ChannelPanels& src, int count, int hs,
                                        const float* factors) {
    unpack_all(dst, ld, src, count, hs, factors);
}
SIMD_CLONES static void unpack_channels(bf16* dst, size_t ld, const ChannelPanels& src, int count, int hs,
                                        const float* factors) {
    unpack_all(dst, ld, src, count, hs, factors);
}
SIMD_CLONES static void unpack_channels(fp16* dst, size_t ld, const ChannelPanels& src, int count, int hs,
                                        const float* factors) {
    unpack_all(dst, ld, src, count, hs, factors);
}

// One step of the online softmax for NR queries. scores (keys, NR) become exp(score - maximum), where maximum
// is the running maximum; `sum` is the running sum; previous accumulators must be multiplied by `factor`.
// The NR queries are NV vectors, which stay in registers.
template <class Vector, int NV>
static SIMD_INLINE void softmax_columns(float* scores, int keys, float* maximum, float* sum, float* factor) {
    constexpr int width = sizeof(Vector) / sizeof(float);
    Vector m[NV], s[NV], x;
    memcpy(m, maximum, sizeof m);
    memcpy(s, sum, sizeof s);
    for (int j = 0; j < keys; j++)
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) {
            memcpy(&x, scores + (j * NV + v) * width, sizeof x);
            m[v] = m[v] < x ? x : m[v];
        }
#pragma GCC unroll 4
    for (int v = 0; v < NV; v++) {
        memcpy(&x, maximum + v * width, sizeof x);
        x -= m[v];
        exp_fast_vector(x);
        s[v] *= x;
        memcpy(factor + v * width, &x, sizeof x);
    }
    memcpy(maximum, m, sizeof m);
    for (int j = 0; j < keys; j++)
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) {
            float* p = scores + (j * NV + v) * width;
            memcpy(&x, p, sizeof x);
            x -= m[v];
            exp_fast_vector(x);
            memcpy(p, &x, sizeof x);
            s[v] += x;
        }
    memcpy(sum, s, sizeof s);
}
SIMD_CLONES static void softmax_step(float* scores, int keys, int nr, float* maximum, float* sum,
                                     float* factor) {
    if (nr == 32) return softmax_columns<Float16, 2>(scores, keys, maximum, sum, factor);
    if (nr == 16) return softmax_columns<Float8, 2>(scores, keys, maximum, sum, factor);
    if (nr == 12) return softmax_columns<Float4, 3>(scores, keys, maximum, sum, factor);
    softmax_columns<Float4, 2>(scores, keys, maximum, sum, factor);
}

SIMD_CLONES static void scale_rows(float* rows, int nr, const float* factor) {
    for (int i = 0; i < nr; i++)
#pragma omp simd
        for (int c = 0; c < nr; c++) rows[i * nr + c] *= factor[i];
}

// nr queries of the forward pass.
struct QueryPanel {
    int first, count;               // rows of the sequence
    float* queries;                 // (hs, nr), scaled
    ChannelPanels accumulators;     // unnormalized rows of out
    float *maximum, *sum, *factor;  // (nr) state of the online softmax
};

// A block of keys and values.
struct KeyBlock {
    int first, count;      // rows of the sequence
    float* keys;           // (count, hs)
    ChannelPanels values;  // KEY_BLOCK rows
};

struct ForwardScratch {
    QueryPanel panel[QUERY_PANELS];
    KeyBlock block;
    float *scores, *rows;  // (KEY_BLOCK + PADDING_ROWS, nr), (nr, hs)
};

static void carve_forward(ForwardScratch& s, int panels, int hs, int nr) {
    const int width = round_up(hs, nr);
    arena.open(panels * (size_t(nr) * (hs + width + 3) + 5 * 16) +
               size_t(KEY_BLOCK + PADDING_ROWS) * (hs + width + nr) + size_t(nr) * hs);
    s.block.keys = arena.take(size_t(KEY_BLOCK + PADDING_ROWS) * hs);
    s.block.values = {arena.take(size_t(KEY_BLOCK) * width), KEY_BLOCK, nr};
    s.scores = arena.take(size_t(KEY_BLOCK + PADDING_ROWS) * nr);
    s.rows = arena.take(size_t(nr) * hs);
    for (int i = 0; i < panels; i++) {
        s.panel[i].queries = arena.take(size_t(nr) * hs);
        s.panel[i].accumulators = {arena.take(size_t(nr) * width), nr, nr};
        for (float** array : {&s.panel[i].maximum, &s.panel[i].sum, &s.panel[i].factor})
            *array = arena.take(nr);
    }
}

// Updates the online softmax and the accumulators of a query panel with a block of keys and values.
static void attend(const KernelSet& set, const QueryPanel& panel, float* scores, const KeyBlock& block,
                   int hs) {
    const int nr = set.nr, visible = std::min(block.count, panel.first + panel.count - block.first);
    if (visible <= 0) return;
    multiply(set, scores, by_rows(block.keys, hs, panel.queries, hs, false), visible);
    for (int j = std::max(0, panel.first + 1 - block.first); j < visible; j++)  // the causal mask
        std::fill_n(scores + j * nr, std::min(nr, block.first + j - panel.first), -INFINITY);
    softmax_step(scores, visible, nr, panel.maximum, panel.sum, panel.factor);
    const bool add = block.first > 0;
    for (int c = 0; c < hs; c += nr) {
        float* accumulators = panel.accumulators.panel(c);
        if (add) scale_rows(accumulators, nr, panel.factor);
        KernelInput in = by_columns(scores, nr, block.values.panel(c), visible, add);
        for (int i = 0; i < nr; i += set.mr, in.a += set.mr * in.a_row) {
            in.units = std::min(visible, panel.first + i + set.mr - block.first);  // keys that the rows see
            kernel_for(set, std::min(set.mr, nr - i))(accumulators + size_t(i) * nr, in);
        }
    }
}

// One head of one sequence; the pointers point to its first row.
template <class Real>
struct ForwardHead {
    Real* out;
    float* lse;
    const Real* qkv;
    int C, hs;
};

// Computes out and lse of `count` queries from `first` on, at most QUERY_PANELS * nr. Scores are stored as
// (keys, queries), so that a vector register holds the maxima or sums of many queries.
template <class Real>
static void forward_block(const KernelSet& set, const ForwardHead<Real>& head, int first, int count) {
    const int nr = set.nr, panels = (count + nr - 1) / nr, C = head.C, hs = head.hs;
    const size_t stride = 3 * size_t(C);
    ForwardScratch s;
    carve_forward(s, panels, hs, nr);
    for (int i = 0; i < panels; i++) {
        QueryPanel& panel = s.panel[i];
        panel.first = first + i * nr;
        panel.count = std::min(nr, count - i * nr);
        copy_to_floats(s.rows, hs, head.qkv + panel.first * stride, stride, panel.count, hs);
        transpose(panel.queries, nr, s.rows, hs, panel.count, hs, 1.0f / std::sqrt(float(hs)));
        std::fill_n(panel.maximum, nr, -INFINITY);
        std::fill_n(panel.sum, nr, 0.0f);
    }
    for (int key = 0; key < first + count; key += KEY_BLOCK) {
        s.block.first = key;
        s.block.count = std::min(KEY_BLOCK, first + count - key);
        copy_to_floats(s.block.keys, hs, head.qkv + key * stride + C, stride, s.block.count, hs);
        pack_channels(s.block.values, head.qkv + key * stride + 2 * C, stride, s.block.count, hs);
        for (int i = 0; i < panels; i++) attend(set, s.panel[i], s.scores, s.block, hs);
    }
    for (const QueryPanel& panel : std::span(s.panel, panels)) {
        for (int i = 0; i < panel.count; i++) {
            panel.factor[i] = 1.0f / panel.sum[i];
            head.lse[panel.first + i] = panel.maximum[i] + std::log(panel.sum[i]);
        }
        unpack_channels(head.out + size_t(panel.first) * C, C, panel.accumulators, panel.count, hs,
                        panel.factor);
    }
}

// The work of `gemms` GEMMs between all queries and the keys that each of them sees.
static Work attention_work(int B, int T, int C, int gemms) {
    return {.flops = 2.0 * gemms * B * C * (0.5 * T * (T + 1.0))};
}

template <class Real>
void attention_forward_cpu(const AttentionForward<Real>& p) {
    const int B = p.B, T = p.T, C = p.C, NH = p.NH, hs = attention_head_size(C, NH);
    const CpuTimer timer("attention_forward", attention_work(B, T, C, 2));
    const KernelSet& set = best_kernels<float>();
    const int block = QUERY_PANELS * set.nr, query_blocks = (T + block - 1) / block;
    // The last queries see the most keys. They start first, so that no long block is left for the end.
#pragma omp parallel for schedule(dynamic)
    for (int64_t task = 0; task < int64_t(B) * NH * query_blocks; task++) {
        const int head = int(task % (B * NH)), first = (query_blocks - 1 - int(task / (B * NH))) * block;
        const size_t row = size_t(head / NH) * T, channel = size_t(head % NH) * hs;
        const ForwardHead<Real> h = {.out = p.out + row * C + channel,
                                     .lse = p.lse + size_t(head) * T,
                                     .qkv = p.qkv + row * 3 * C + channel,
                                     .C = C,
                                     .hs = hs};
        forward_block(set, h, first, std::min(block, T - first));
    }
}

// Turns scores (rows, nr) of nr keys into probabilities, and dscores, the gradient of the probabilities, into
// the gradient of the scores. Row i sees the first `visible` + i keys.
SIMD_CLONES
static void probability_step(float* scores, float* dscores, const float* lse, const float* delta, int rows,
                             int nr, int visible) {
    with_constant(
        nr, [&](auto width) __attribute__((always_inline)) {
            constexpr int NR = width;
            for (int i = 0; i < rows; i++) {
                float *p = scores + i * NR, *ds = dscores + i * NR;
                const float l = lse[i], d = delta[i];
#pragma omp simd
                for (int j = 0; j < NR; j++) {
                    const float power = exp_fast(p[j] - l);
                    p[j] = power;
                    ds[j] = power * (ds[j] - d);
                }
                for (int j = visible + i; j < NR; j++) p[j] = ds[j] = 0;
            }
        });
}

// One head of one sequence; the pointers point to its first row.
template <class Real>
struct BackwardHead {
    Real* dqkv;
    float* delta;
    const Real *dout, *out;
    const float* lse;
    const Real* qkv;
    int T, C, hs;
};

// fp32 copies of a head's rows, and the accumulators of its gradients. Panels of the whole head have
// T + PADDING_ROWS rows.
struct BackwardScratch {
    float *q, *dout;                            // (T, hs)
    ChannelPanels q_panels, dout_panels, dq;    // of the whole head
    float *k_transposed, *v_transposed, *rows;  // of nr keys: (hs, nr), (hs, nr), (nr, hs)
    ChannelPanels k, dk, dv;                    // of nr keys
    float *scores, *dscores;                    // (QUERY_BLOCK + PADDING_ROWS, nr)
    float *scales, *ones;                       // (T), (nr): factors of rows
};

static BackwardScratch carve_backward(int T, int hs, int nr) {
    BackwardScratch s;
    const int panel_rows = T + PADDING_ROWS;
    const size_t width = round_up(hs, nr), rows = size_t(panel_rows) * hs,
                 panels = size_t(panel_rows) * width, block = size_t(QUERY_BLOCK + PADDING_ROWS) * nr,
                 keys = size_t(nr) * hs, key_panels = size_t(nr) * width;
    arena.open(2 * rows + 3 * panels + 2 * block + 3 * keys + 3 * key_panels + T + nr + 15 * 16);
    for (float** array : {&s.q, &s.dout}) *array = arena.take(rows);
    for (ChannelPanels* array : {&s.q_panels, &s.dout_panels, &s.dq})
        *array = {arena.take(panels), panel_rows, nr};
    for (float** array : {&s.k_transposed, &s.v_transposed}) *array = arena.take(keys);
    for (ChannelPanels* array : {&s.k, &s.dk, &s.dv}) *array = {arena.take(key_panels), nr, nr};
    for (float** array : {&s.scores, &s.dscores}) *array = arena.take(block);
    s.rows = arena.take(keys);
    s.scales = arena.take(T);
    s.ones = arena.take(nr);
    return s;
}

// A panel of keys and a block of queries that see them: query i sees the keys up to i + offset.
struct BackwardBlock {
    int keys, rows, offset;
};

// out (nr, nr) of a panel of keys = scores^T b, or out + scores^T b. b is a panel of the block's queries.
// Keys past the first ones skip the queries that do not see them.
static void sum_over_queries(const KernelSet& set, float* out, const float* scores, const float* b,
                             const BackwardBlock& block, bool add) {
    const int nr = set.nr;
    for (int i = 0; i < block.keys; i += set.mr) {
        const int skipped = std::max(0, i - block.offset);
        const size_t from = size_t(skipped) * nr;
        kernel_for(set, std::min(set.mr, nr - i))(
            out + size_t(i) * nr, by_columns(scores + from + i, nr, b + from, block.rows - skipped, add));
    }
}

// dq (rows, nr) = dscores k, or dq + dscores k. Queries skip the keys that they do not see.
static void sum_over_keys(const KernelSet& set, float* dq, const float* dscores, const float* k,
                          const BackwardBlock& block, bool add) {
    KernelInput in = by_rows(dscores, set.nr, k, block.keys, add);
    for (int i = 0; i < block.rows; i += set.mr, in.a += set.mr * in.a_row) {
        in.units = std::min(block.keys, i + set.mr + block.offset);
        kernel_for(set, std::min(set.mr, block.rows - i))(dq + size_t(i) * set.nr, in);
    }
}

// dv += p^T dout, dk += ds^T q, dq += ds k, for `rows` queries from q on and `keys` keys from `first` on.
static void accumulate_gradients(const KernelSet& set, const BackwardScratch& s, int first, int keys, int q,
                                 int rows, int hs) {
    const int nr = set.nr;
    const size_t query = size_t(q) * nr;
    const BackwardBlock block = {keys, rows, q - first};
    for (int c = 0; c < hs; c += nr) {
        sum_over_queries(set, s.dv.panel(c), s.scores, s.dout_panels.panel(c) + query, block, q > first);
        sum_over_queries(set, s.dk.panel(c), s.dscores, s.q_panels.panel(c) + query, block, q > first);
        sum_over_keys(set, s.dq.panel(c) + query, s.dscores, s.k.panel(c), block, first > 0);
    }
}

// Computes dk and dv of `keys` keys from `first` on, at most nr, and adds their contributions to dq.
template <class Real>
static void backward_panel(const KernelSet& set, const BackwardHead<Real>& head, const BackwardScratch& s,
                           int first, int keys) {
    const int nr = set.nr, C = head.C, hs = head.hs;
    const size_t stride = 3 * size_t(C);
    const float scale = 1.0f / std::sqrt(float(hs));
    const Real* qkv = head.qkv + first * stride;
    copy_to_floats(s.rows, hs, qkv + 2 * C, stride, keys, hs);
    transpose(s.v_transposed, nr, s.rows, hs, keys, hs, 1.0f);
    copy_to_floats(s.rows, hs, qkv + C, stride, keys, hs);
    transpose(s.k_transposed, nr, s.rows, hs, keys, hs, scale);
    pack_channels(s.k, s.rows, hs, keys, hs);
    for (int q = first; q < head.T; q += QUERY_BLOCK) {
        const int rows = std::min(QUERY_BLOCK, head.T - q);
        multiply(set, s.scores, by_rows(s.q + size_t(q) * hs, hs, s.k_transposed, hs, false), rows);
        multiply(set, s.dscores, by_rows(s.dout + size_t(q) * hs, hs, s.v_transposed, hs, false), rows);
        probability_step(s.scores, s.dscores, head.lse + q, head.delta + q, rows, nr, q - first + 1);
        accumulate_gradients(set, s, first, keys, q, rows, hs);
    }
    Real* dqkv = head.dqkv + first * stride;
    unpack_channels(dqkv + C, stride, s.dk, keys, hs, s.scales);
    unpack_channels(dqkv + 2 * C, stride, s.dv, keys, hs, s.ones);
}

template <class Real>
static SIMD_INLINE float dot(const float* a, const Real* b, int n) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++) sum += a[i] * float(b[i]);
    return sum;
}

template <class Real>
static void backward_head(const KernelSet& set, const BackwardHead<Real>& head) {
    const int T = head.T, C = head.C, hs = head.hs;
    const size_t stride = 3 * size_t(C);
    const BackwardScratch s = carve_backward(T, hs, set.nr);
    std::fill_n(s.scales, T, 1.0f / std::sqrt(float(hs)));
    std::fill_n(s.ones, set.nr, 1.0f);
    copy_to_floats(s.q, hs, head.qkv, stride, T, hs);
    copy_to_floats(s.dout, hs, head.dout, C, T, hs);
    pack_channels(s.q_panels, s.q, hs, T, hs);
    pack_channels(s.dout_panels, s.dout, hs, T, hs);
    for (int t = 0; t < T; t++) head.delta[t] = dot(s.dout + size_t(t) * hs, head.out + size_t(t) * C, hs);
    for (int first = 0; first < T; first += set.nr)
        backward_panel(set, head, s, first, std::min(set.nr, T - first));
    unpack_channels(head.dqkv, stride, s.dq, T, hs, s.scales);
}

template <class Real>
void attention_backward_cpu(const AttentionBackward<Real>& p) {
    const int T = p.T, C = p.C, NH = p.NH, hs = attention_head_size(C, NH);
    const CpuTimer timer("attention_backward", attention_work(p.B, T, C, 5));
    const KernelSet& set = best_kernels<float>();
#pragma omp parallel for schedule(dynamic)
    for (int head = 0; head < p.B * NH; head++) {
        const size_t row = size_t(head / NH) * T, channel = size_t(head % NH) * hs;
        const BackwardHead<Real> h = {.dqkv = p.dqkv + row * 3 * C + channel,
                                      .delta = p.delta + size_t(head) * T,
                                      .dout = p.dout + row * C + channel,
                                      .out = p.out + row * C + channel,
                                      .lse = p.lse + size_t(head) * T,
                                      .qkv = p.qkv + row * 3 * C + channel,
                                      .T = T,
                                      .C = C,
                                      .hs = hs};
        backward_head(set, h);
    }
}

#define INSTANTIATE(Real)                                                 \
    template void attention_forward_cpu(const AttentionForward<Real>& p); \
    template void attention_backward_cpu(const AttentionBackward<Real>& p);
FOR_EACH_REAL(INSTANTIATE)
