// Attention on the CPU, in fp32. Scores live in panels of nr queries or keys, the layout of a GEMM kernel's
// output tiles stacked vertically (llmc/cpu/gemm_kernels.h). The kernels can read such a panel as operand A,
// plain or transposed. The forward pass is parallel over blocks of queries, the backward pass over heads;
// results are bit-identical for any number of threads. CMakeLists.txt allows fused multiply-adds in this
// file.
#include <algorithm>
#include <cmath>
#include <span>

#include "llmc/cpu/cpu_timer.h"
#include "llmc/cpu/gemm_kernels.h"
#include "llmc/cpu/vector_math.h"
#include "llmc/layers/attention.h"

static const int KEY_BLOCK = 96;    // keys per iteration of the forward pass; a multiple of every mr
static const int QUERY_PANELS = 8;  // query panels that share a block of keys and values in the forward pass
static const int QUERY_BLOCK = 96;  // queries per iteration of the backward pass; a multiple of every mr
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

// Fills the first `count` rows. Channels past hs stay undefined: they only reach columns that are not read.
template <class Real>
static void pack_channels(const ChannelPanels& dst, const Real* src, size_t ld, int count, int hs) {
    for (int c = 0; c < hs; c += dst.nr)
        copy_to_floats(dst.panel(c), dst.nr, src + c, ld, count, std::min(dst.nr, hs - c));
}

template <class Real>
static inline void store_all(Real* dst, const float* src, int n, float factor) {
#pragma omp simd
    for (int i = 0; i < n; i++) dst[i] = round_to<Real>(src[i] * factor);
}
SIMD_CLONES static void store(float* dst, const float* src, int n, float factor) {
    store_all(dst, src, n, factor);
}
SIMD_CLONES static void store(bf16* dst, const float* src, int n, float factor) {
    store_all(dst, src, n, factor);
}
SIMD_CLONES static void store(fp16* dst, const float* src, int n, float factor) {
    store_all(dst, src, n, factor);
}

// dst (count, hs) = the first `count` rows of src, times factor.
template <class Real>
static void unpack_channels(Real* dst, size_t ld, const ChannelPanels& src, int count, int hs, float factor) {
    for (int i = 0; i < count; i++)
        for (int c = 0; c < hs; c += src.nr)
            store(dst + i * ld + c, src.panel(c) + size_t(i) * src.nr, std::min(src.nr, hs - c), factor);
}

// One step of the online softmax for NR queries. scores (keys, NR) become exp(score - maximum), where maximum
// is the running maximum; `sum` is the running sum; previous accumulators must be multiplied by `factor`.
template <int NR>
static inline __attribute__((always_inline)) void softmax_columns(float* scores, int keys, float* maximum,
                                                                  float* sum, float* factor) {
    float m[NR], s[NR];
    for (int i = 0; i < NR; i++) m[i] = maximum[i];
    for (int j = 0; j < keys; j++)
        for (int i = 0; i < NR; i++) m[i] = m[i] < scores[j * NR + i] ? scores[j * NR + i] : m[i];
    for (int i = 0; i < NR; i++) {
        factor[i] = exp_fast(maximum[i] - m[i]);
        maximum[i] = m[i];
        s[i] = sum[i] * factor[i];
    }
    for (int j = 0; j < keys; j++)
        for (int i = 0; i < NR; i++) {
            const float p = exp_fast(scores[j * NR + i] - m[i]);
            scores[j * NR + i] = p;
            s[i] += p;
        }
    for (int i = 0; i < NR; i++) sum[i] = s[i];
}
SIMD_CLONES static void softmax_step(float* scores, int keys, int nr, float* maximum, float* sum,
                                     float* factor) {
    if (nr == 32) return softmax_columns<32>(scores, keys, maximum, sum, factor);
    if (nr == 16) return softmax_columns<16>(scores, keys, maximum, sum, factor);
    if (nr == 12) return softmax_columns<12>(scores, keys, maximum, sum, factor);
    softmax_columns<8>(scores, keys, maximum, sum, factor);
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
        multiply(set, accumulators, by_columns(scores, nr, block.values.panel(c), visible, add), nr);
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
    for (const QueryPanel& panel : std::span(s.panel, panels))
        for (int i = 0; i < panel.count; i++) {
            const int row = panel.first + i;
            ChannelPanels accumulators = panel.accumulators;
            accumulators.p += size_t(i) * nr;
            unpack_channels(head.out + size_t(row) * C, C, accumulators, 1, hs, 1.0f / panel.sum[i]);
            head.lse[row] = panel.maximum[i] + std::log(panel.sum[i]);
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
    for (int i = 0; i < rows; i++) {
        float *p = scores + i * nr, *ds = dscores + i * nr;
        const float l = lse[i], d = delta[i];
#pragma omp simd
        for (int j = 0; j < nr; j++) {
            p[j] = exp_fast(p[j] - l);
            ds[j] = p[j] * (ds[j] - d);
        }
        for (int j = visible + i; j < nr; j++) p[j] = ds[j] = 0;
    }
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
};

static BackwardScratch carve_backward(int T, int hs, int nr) {
    BackwardScratch s;
    const int panel_rows = T + PADDING_ROWS;
    const size_t width = round_up(hs, nr), rows = size_t(panel_rows) * hs,
                 panels = size_t(panel_rows) * width, block = size_t(QUERY_BLOCK + PADDING_ROWS) * nr,
                 keys = size_t(nr) * hs, key_panels = size_t(nr) * width;
    arena.open(2 * rows + 3 * panels + 2 * block + 3 * keys + 3 * key_panels + 13 * 16);
    for (float** array : {&s.q, &s.dout}) *array = arena.take(rows);
    for (ChannelPanels* array : {&s.q_panels, &s.dout_panels, &s.dq})
        *array = {arena.take(panels), panel_rows, nr};
    for (float** array : {&s.k_transposed, &s.v_transposed}) *array = arena.take(keys);
    for (ChannelPanels* array : {&s.k, &s.dk, &s.dv}) *array = {arena.take(key_panels), nr, nr};
    for (float** array : {&s.scores, &s.dscores}) *array = arena.take(block);
    s.rows = arena.take(keys);
    return s;
}

// dv += p^T dout, dk += ds^T q, dq += ds k, for `rows` queries from q on and `keys` keys from `first` on.
static void accumulate_gradients(const KernelSet& set, const BackwardScratch& s, int first, int keys, int q,
                                 int rows, int hs) {
    const int nr = set.nr;
    const size_t query = size_t(q) * nr;
    for (int c = 0; c < hs; c += nr) {
        multiply(set, s.dv.panel(c),
                 by_columns(s.scores, nr, s.dout_panels.panel(c) + query, rows, q > first), nr);
        multiply(set, s.dk.panel(c), by_columns(s.dscores, nr, s.q_panels.panel(c) + query, rows, q > first),
                 nr);
        multiply(set, s.dq.panel(c) + query, by_rows(s.dscores, nr, s.k.panel(c), keys, first > 0), rows);
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
    unpack_channels(dqkv + C, stride, s.dk, keys, hs, scale);
    unpack_channels(dqkv + 2 * C, stride, s.dv, keys, hs, 1.0f);
}

template <class Real>
static inline float dot(const float* a, const Real* b, int n) {
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
    copy_to_floats(s.q, hs, head.qkv, stride, T, hs);
    copy_to_floats(s.dout, hs, head.dout, C, T, hs);
    pack_channels(s.q_panels, s.q, hs, T, hs);
    pack_channels(s.dout_panels, s.dout, hs, T, hs);
    for (int t = 0; t < T; t++) head.delta[t] = dot(s.dout + size_t(t) * hs, head.out + size_t(t) * C, hs);
    for (int first = 0; first < T; first += set.nr)
        backward_panel(set, head, s, first, std::min(set.nr, T - first));
    unpack_channels(head.dqkv, stride, s.dq, T, hs, 1.0f / std::sqrt(float(hs)));
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
