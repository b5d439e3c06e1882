// Attention on the CPU, in fp32. The forward pass, an online softmax over blocks of keys, is parallel over
// heads and blocks of queries; the backward pass, which recomputes the probabilities from lse, over heads.
// Results are bit-identical for any number of threads. CMakeLists.txt allows fused multiply-adds in this
// file.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>

#include "llmc/cpu/attention_panels.h"
#include "llmc/cpu/gemm_kernels.h"
#include "llmc/cpu/prefetch.h"
#include "llmc/cpu/vector_math.h"
#include "llmc/layers/attention.h"

static const int KEY_BLOCK = 96;    // keys per iteration of the forward pass; a multiple of every mr and nr
static const int QUERY_PANELS = 8;  // query panels that share a block of keys and values in the forward pass
static const int QUERY_BLOCK = 96;  // queries per iteration of the backward pass; likewise
static const float LN_2 = std::numbers::ln2_v<float>;

static thread_local Arena arena;
static thread_local PrefetchQueue prefetch_queue;

// One step of the online softmax for NR queries. scores (keys, NR) become 2^(score - maximum), where maximum
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
        exp2_fast_vector(x);
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
            exp2_fast_vector(x);
            memcpy(p, &x, sizeof x);
            s[v] += x;
        }
    memcpy(sum, s, sizeof s);
}
static SIMD_INLINE void softmax_step(float* scores, int keys, int nr, float* maximum, float* sum,
                                     float* factor) {
    if (nr == 32) return softmax_columns<Float16, 2>(scores, keys, maximum, sum, factor);
    if (nr == 16) return softmax_columns<Float8, 2>(scores, keys, maximum, sum, factor);
    if (nr == 12) return softmax_columns<Float4, 3>(scores, keys, maximum, sum, factor);
    softmax_columns<Float4, 2>(scores, keys, maximum, sum, factor);
}

// The causal mask of scores (keys, nr): query j of nr sees the key of row i if j >= i + offset. Other scores
// become -infinity. Rows 0 .. first - 1 are visible to every query.
static SIMD_INLINE void mask_scores(float* scores, int first, int keys, int nr, int offset) {
    const uint32_t hidden = std::bit_cast<uint32_t>(-INFINITY);
    // nr hidden entries, then nr visible ones; a row's mask is nr consecutive entries
    uint32_t edge[2 * MAX_NR];
    for (int j = 0; j < nr; j++) edge[j] = 0, edge[nr + j] = ~0u;
    with_constant(
        nr, [&](auto width) __attribute__((always_inline)) {
            constexpr int NR = width;
            for (int i = first; i < keys; i++) {
                const uint32_t* visible = edge + NR - std::min(NR, i + offset);
                float* row = scores + i * NR;
#pragma omp simd
                for (int j = 0; j < NR; j++)
                    row[j] = std::bit_cast<float>((std::bit_cast<uint32_t>(row[j]) & visible[j]) |
                                                  (hidden & ~visible[j]));
            }
        });
}

static SIMD_INLINE void scale_rows(float* rows, int nr, const float* factor) {
    for (int i = 0; i < nr; i++)
#pragma omp simd
        for (int c = 0; c < nr; c++) rows[i * nr + c] *= factor[i];
}

// A block of keys and values.
struct KeyBlock {
    int first, count;      // rows of the sequence
    float* keys;           // (count, hs)
    ChannelPanels values;  // KEY_BLOCK rows
};

// nr queries of the forward pass.
struct QueryPanel {
    int first, count;                         // rows of the sequence
    float* queries;                           // (hs, nr), scaled
    float* scores;                            // (KEY_BLOCK + PADDING_ROWS, nr) of a block of keys
    ChannelPanels accumulators;               // unnormalized rows of out
    float *maximum, *sum, *factor, *inverse;  // (nr) state of the online softmax, at its end 1 / sum

    // Rows of the block that the last of the queries sees.
    int visible_keys(const KeyBlock& block) const {
        return std::clamp(first + count - block.first, 0, block.count);
    }
    // Whether the block is the last one that the queries see.
    bool ends_with(const KeyBlock& block) const {
        return block.first < first + count && block.first + block.count >= first + count;
    }
};

// Computes 1 / sum of the finished softmax, and lse (panel.count).
static SIMD_INLINE void finish_softmax(float* lse, const QueryPanel& panel) {
    float *inverse = panel.inverse, *maximum = panel.maximum, *sum = panel.sum;
#pragma omp simd
    for (int i = 0; i < panel.count; i++) {
        inverse[i] = 1.0f / sum[i];
        lse[i] = maximum[i] * LN_2 + log_fast(sum[i]);
    }
}

struct ForwardScratch {
    QueryPanel panel[QUERY_PANELS];
    KeyBlock block;
    float* rows;  // (nr, hs)
};

static void carve_forward(ForwardScratch& s, int panels, int hs, int nr) {
    const int width = round_up(hs, nr), score_rows = KEY_BLOCK + PADDING_ROWS;
    arena.open(panels * size_t(nr) * (hs + score_rows + width + 4) + size_t(score_rows) * (hs + width) +
                   size_t(nr) * hs,
               3 + 7 * panels);
    s.block.keys = arena.take(size_t(score_rows) * hs);
    s.block.values = {arena.take(size_t(KEY_BLOCK) * width), KEY_BLOCK, nr};
    s.rows = arena.take(size_t(nr) * hs);
    for (int i = 0; i < panels; i++) {
        QueryPanel& panel = s.panel[i];
        panel.queries = arena.take(size_t(nr) * hs);
        panel.scores = arena.take(size_t(score_rows) * nr);
        panel.accumulators = {arena.take(size_t(nr) * width), nr, nr};
        for (float** array : {&panel.maximum, &panel.sum, &panel.factor, &panel.inverse})
            *array = arena.take(nr);
    }
}

// Queries of one head, at most QUERY_PANELS * nr. The pointers point to the head's first row.
template <class Real>
struct ForwardTask {
    Real* out;
    float* lse;
    const Real* qkv;
    int C, hs;
    int first, count;  // rows of the sequence

    size_t stride() const { return 3 * size_t(C); }
    int keys_from(int key) const { return std::min(KEY_BLOCK, first + count - key); }

    void prefetch_queries(PrefetchQueue& ahead) const {
        ahead.add({qkv + first * stride(), stride(), std::min(PREFETCHED_ROWS, count), size_t(hs)});
    }
    void prefetch_keys(PrefetchQueue& ahead, int key) const {
        for (int i = 1; i <= 2; i++)  // keys, values
            ahead.add({qkv + key * stride() + i * C, stride(), keys_from(key), size_t(hs)});
    }
    void prefetch_result(PrefetchQueue& ahead) const {
        ahead.add({out + first * size_t(C), size_t(C), std::min(PREFETCHED_ROWS, count), size_t(hs)});
    }
};

// Prefetches what the thread needs after the block of keys from `key` on: the task's next keys, or its result
// and the start of the thread's next task (null: none).
template <class Real>
static void prefetch_after(PrefetchQueue& ahead, const ForwardTask<Real>& task, int key,
                           const ForwardTask<Real>* next) {
    ahead.clear();
    if (key + KEY_BLOCK < task.first + task.count) return task.prefetch_keys(ahead, key + KEY_BLOCK);
    task.prefetch_result(ahead);
    if (!next) return;
    next->prefetch_queries(ahead);
    next->prefetch_keys(ahead, 0);
}

// Updates the online softmax of a query panel with a block of keys. Stores lse after the last block that the
// queries see.
template <class Real>
static void attend_keys(const Kernels& kernels, const ForwardTask<Real>& task, const QueryPanel& panel,
                        const KeyBlock& block) {
    const int nr = kernels.nr, hs = task.hs, visible = panel.visible_keys(block),
              offset = block.first - panel.first;
    if (visible == 0) return;
    kernels.multiply(panel.scores, by_rows(block.keys, hs, panel.queries, hs, false), visible);
    if (visible + offset > 1) simd<mask_scores>(panel.scores, std::max(0, 1 - offset), visible, nr, offset);
    simd<softmax_step>(panel.scores, visible, nr, panel.maximum, panel.sum, panel.factor);
    if (!panel.ends_with(block)) return;
    simd<finish_softmax>(task.lse + panel.first, panel);
}

// Adds a block of values to the accumulators of a query panel, for the channels from c on. Stores out after
// the last block that the queries see: between microkernel calls, so that stores that miss the cache overlap
// with arithmetic.
template <class Real>
static void sum_values(const Kernels& kernels, const ForwardTask<Real>& task, const QueryPanel& panel,
                       const KeyBlock& block, int c) {
    const int mr = kernels.mr, nr = kernels.nr, visible = panel.visible_keys(block),
              offset = block.first - panel.first;
    if (visible == 0) return;
    const bool add = block.first > 0;
    float* accumulators = panel.accumulators.panel(c);
    if (add) simd<scale_rows>(accumulators, nr, panel.factor);
    KernelInput in = by_columns(panel.scores, nr, block.values.panel(c), visible, add);
    for (int i = 0; i < nr; i += mr, in.a += mr * in.a_row) {
        in.units = std::min(visible, i + mr - offset);  // keys that the rows see
        kernels.run(accumulators + size_t(i) * nr, in, std::min(mr, nr - i));
    }
    if (panel.ends_with(block))
        unpack_channels(task.out + panel.first * size_t(task.C) + c, task.C, panel.accumulators.at(c),
                        panel.count, std::min(nr, task.hs - c), panel.inverse);
}

// Scores are stored as (keys, queries), so that a vector register holds the maxima or sums of many queries.
// They are scaled by log2(e), so that the softmax computes powers of two.
template <class Real>
static void run_forward(const Kernels& kernels, const ForwardTask<Real>& task,
                        const ForwardTask<Real>* next) {
    const int nr = kernels.nr, panels = (task.count + nr - 1) / nr, C = task.C, hs = task.hs;
    const size_t stride = task.stride();
    ForwardScratch s;
    carve_forward(s, panels, hs, nr);
    for (int i = 0; i < panels; i++) {
        QueryPanel& panel = s.panel[i];
        panel.first = task.first + i * nr;
        panel.count = std::min(nr, task.count - i * nr);
        const FloatRows rows = float_rows(s.rows, task.qkv + panel.first * stride, stride, panel.count, hs);
        transpose(panel.queries, nr, rows, panel.count, hs, LOG2_E / std::sqrt(float(hs)));
        std::fill_n(panel.maximum, nr, -INFINITY);
        std::fill_n(panel.sum, nr, 0.0f);
    }
    for (int key = 0; key < task.first + task.count; key += KEY_BLOCK) {
        prefetch_after(kernels.ahead, task, key, next);
        s.block.first = key;
        s.block.count = task.keys_from(key);
        copy_to_floats(s.block.keys, hs, task.qkv + key * stride + C, stride, s.block.count, hs);
        pack_channels(s.block.values, task.qkv + key * stride + 2 * C, stride, s.block.count, hs);
        for (int i = 0; i < panels; i++) attend_keys(kernels, task, s.panel[i], s.block);
        for (int c = 0; c < hs; c += nr)
            for (int i = 0; i < panels; i++) sum_values(kernels, task, s.panel[i], s.block, c);
    }
}

// Task `index` of all tasks with `block` queries each. The last queries see the most keys. They come first,
// so that no long task is left for the end.
template <class Real>
static ForwardTask<Real> forward_task(const AttentionForward<Real>& p, int64_t index, int block) {
    const int B = p.B, T = p.T, C = p.C, NH = p.NH, hs = C / NH;
    const int head = int(index % (B * NH)), first = ((T - 1) / block - int(index / (B * NH))) * block;
    const size_t row = size_t(head / NH) * T, channel = size_t(head % NH) * hs;
    return {.out = p.out + row * C + channel,
            .lse = p.lse + size_t(head) * T,
            .qkv = p.qkv + row * 3 * C + channel,
            .C = C,
            .hs = hs,
            .first = first,
            .count = std::min(block, T - first)};
}

template <class Real>
void attention_forward_cpu(const AttentionForward<Real>& p) {
    attention_head_size(p.C, p.NH);  // throws here, not in a thread
    const KernelSet& set = best_kernels<float>();
    const int block = QUERY_PANELS * set.nr;
    const int64_t tasks = int64_t(p.B) * p.NH * ((p.T + block - 1) / block);
    run_tasks(tasks, [&](int64_t index, int64_t next_index) {
        const ForwardTask<Real> task = forward_task(p, index, block),
                                next = forward_task(p, std::min(next_index, tasks - 1), block);
        run_forward({set, prefetch_queue}, task, next_index < tasks ? &next : nullptr);
    });
}

// Turns scores (rows, nr) of nr keys, scaled by log2(e), into probabilities, and dscores, the gradient of the
// probabilities, into the gradient of the scores. Row i sees the first `visible` + i keys.
static SIMD_INLINE void probability_step(float* scores, float* dscores, const float* lse, const float* delta,
                                         int rows, int nr, int visible) {
    // nr visible entries, then nr hidden ones; a row's mask is nr consecutive entries
    uint32_t edge[2 * MAX_NR];
    for (int j = 0; j < nr; j++) edge[j] = ~0u, edge[nr + j] = 0;
    with_constant(
        nr, [&](auto width) __attribute__((always_inline)) {
            constexpr int NR = width;
            for (int i = 0; i < rows; i++) {
                float *p = scores + i * NR, *ds = dscores + i * NR;
                const uint32_t* mask = edge + NR - std::min(NR, visible + i);
                const float l = lse[i] * LOG2_E, d = delta[i];
#pragma omp simd
                for (int j = 0; j < NR; j++) {
                    const float power = exp2_fast(p[j] - l), dscore = power * (ds[j] - d);
                    p[j] = std::bit_cast<float>(std::bit_cast<uint32_t>(power) & mask[j]);
                    ds[j] = std::bit_cast<float>(std::bit_cast<uint32_t>(dscore) & mask[j]);
                }
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

    size_t stride() const { return 3 * size_t(C); }
    int prefetched_rows() const { return std::min(PREFETCHED_ROWS, T); }

    void prefetch_operands(PrefetchQueue& ahead) const {
        ahead.add({qkv, stride(), prefetched_rows(), size_t(hs)});
        for (const Real* rows : {dout, out}) ahead.add({rows, size_t(C), prefetched_rows(), size_t(hs)});
        for (int i = 2; i >= 1; i--)  // values, keys
            ahead.add({qkv + i * C, stride(), prefetched_rows(), size_t(hs)});
    }
    void prefetch_results(PrefetchQueue& ahead) const {
        for (int i : {1, 2, 0})  // dk, dv, dq
            ahead.add({dqkv + i * C, stride(), prefetched_rows(), size_t(hs)});
    }
};

// fp32 copies of a head's rows, and the accumulators of its gradients. Panels of the whole head have
// T + PADDING_ROWS rows.
struct BackwardScratch {
    float *q, *dout;                            // (T, hs)
    ChannelPanels q_panels, dout_panels, dq;    // of the whole head
    float *k_transposed, *v_transposed, *rows;  // of nr keys: (hs, nr), (hs, nr), (nr, hs)
    ChannelPanels k, dk, dv;                    // of nr keys
    float *scores, *dscores;                    // (QUERY_BLOCK + PADDING_ROWS, nr)
    float *scales, *ones;                       // (nr): factors of rows
};

static BackwardScratch carve_backward(int T, int hs, int nr) {
    BackwardScratch s;
    const int panel_rows = T + PADDING_ROWS;
    const size_t width = round_up(hs, nr), rows = size_t(panel_rows) * hs,
                 panels = size_t(panel_rows) * width, block = size_t(QUERY_BLOCK + PADDING_ROWS) * nr,
                 keys = size_t(nr) * hs, key_panels = size_t(nr) * width;
    arena.open(2 * rows + 3 * panels + 2 * block + 3 * keys + 3 * key_panels + 2 * nr, 15);
    for (float** array : {&s.q, &s.dout}) *array = arena.take(rows);
    for (ChannelPanels* array : {&s.q_panels, &s.dout_panels, &s.dq})
        *array = {arena.take(panels), panel_rows, nr};
    for (float** array : {&s.k_transposed, &s.v_transposed}) *array = arena.take(keys);
    for (ChannelPanels* array : {&s.k, &s.dk, &s.dv}) *array = {arena.take(key_panels), nr, nr};
    for (float** array : {&s.scores, &s.dscores}) *array = arena.take(block);
    s.rows = arena.take(keys);
    s.scales = arena.take(nr);
    s.ones = arena.take(nr);
    return s;
}

// A panel of keys and a block of queries that see them: query i sees the keys up to i + offset.
struct BackwardBlock {
    int keys, rows, offset;
};

// out (nr, nr) of a panel of keys = scores^T b, or out + scores^T b. b is a panel of the block's queries.
// Keys past the first ones skip the queries that do not see them.
static void sum_over_queries(const Kernels& kernels, float* out, const float* scores, const float* b,
                             const BackwardBlock& block, bool add) {
    const int mr = kernels.mr, nr = kernels.nr;
    for (int i = 0; i < block.keys; i += mr) {
        const int skipped = std::max(0, i - block.offset);
        const size_t from = size_t(skipped) * nr;
        kernels.run(out + size_t(i) * nr,
                    by_columns(scores + from + i, nr, b + from, block.rows - skipped, add),
                    std::min(mr, nr - i));
    }
}

// dq (rows, nr) = dscores k, or dq + dscores k. Queries skip the keys that they do not see.
static void sum_over_keys(const Kernels& kernels, float* dq, const float* dscores, const float* k,
                          const BackwardBlock& block, bool add) {
    const int mr = kernels.mr, nr = kernels.nr;
    KernelInput in = by_rows(dscores, nr, k, block.keys, add);
    for (int i = 0; i < block.rows; i += mr, in.a += mr * in.a_row) {
        in.units = std::min(block.keys, i + mr + block.offset);
        kernels.run(dq + size_t(i) * nr, in, std::min(mr, block.rows - i));
    }
}

// dv += p^T dout, dk += ds^T q, dq += ds k, for `rows` queries from q on and `keys` keys from `first` on.
// Stores dk and dv after the last block of queries, and dq of rows `first` on in their first block, where it
// is final.
template <class Real>
static void accumulate_gradients(const Kernels& kernels, const BackwardHead<Real>& head,
                                 const BackwardScratch& s, int first, int keys, int q, int rows) {
    const int nr = kernels.nr, C = head.C, hs = head.hs;
    const size_t stride = head.stride();
    const size_t query = size_t(q) * nr;
    const BackwardBlock block = {keys, rows, q - first};
    for (int c = 0; c < hs; c += nr) {
        Real* dqkv = head.dqkv + first * stride + c;
        const int channels = std::min(nr, hs - c);
        sum_over_queries(kernels, s.dv.panel(c), s.scores, s.dout_panels.panel(c) + query, block, q > first);
        if (q + rows == head.T) unpack_channels(dqkv + 2 * C, stride, s.dv.at(c), keys, channels, s.ones);
        sum_over_queries(kernels, s.dk.panel(c), s.dscores, s.q_panels.panel(c) + query, block, q > first);
        if (q + rows == head.T) unpack_channels(dqkv + C, stride, s.dk.at(c), keys, channels, s.scales);
        sum_over_keys(kernels, s.dq.panel(c) + query, s.dscores, s.k.panel(c), block, first > 0);
        if (q == first) unpack_channels(dqkv, stride, s.dq.at(c, first), keys, channels, s.scales);
    }
}

// Computes dk and dv of `keys` keys from `first` on, at most nr, adds their contributions to dq, and stores
// dq of the same rows, which no later key contributes to.
template <class Real>
static void backward_panel(const Kernels& kernels, const BackwardHead<Real>& head, const BackwardScratch& s,
                           int first, int keys) {
    const int nr = kernels.nr, C = head.C, hs = head.hs;
    const size_t stride = head.stride();
    const float scale = 1.0f / std::sqrt(float(hs));
    const Real* qkv = head.qkv + first * stride;
    transpose(s.v_transposed, nr, float_rows(s.rows, qkv + 2 * C, stride, keys, hs), keys, hs, 1.0f);
    const FloatRows k = float_rows(s.rows, qkv + C, stride, keys, hs);
    transpose(s.k_transposed, nr, k, keys, hs, scale * LOG2_E);
    pack_channels(s.k, k.p, k.ld, keys, hs);
    for (int q = first; q < head.T; q += QUERY_BLOCK) {
        const int rows = std::min(QUERY_BLOCK, head.T - q);
        kernels.multiply(s.scores, by_rows(s.q + size_t(q) * hs, hs, s.k_transposed, hs, false), rows);
        kernels.multiply(s.dscores, by_rows(s.dout + size_t(q) * hs, hs, s.v_transposed, hs, false), rows);
        simd<probability_step>(s.scores, s.dscores, head.lse + q, head.delta + q, rows, nr, q - first + 1);
        accumulate_gradients(kernels, head, s, first, keys, q, rows);
    }
}

// delta (T) = the dot products of the rows of dout and out.
template <class Real>
static SIMD_INLINE void dot_rows(float* delta, const FloatRows& dout, const Real* out, size_t ld, int T,
                                 int hs) {
    for (int t = 0; t < T; t++) {
        const float* a = dout.p + t * dout.ld;
        const Real* b = out + t * ld;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int i = 0; i < hs; i++) sum += a[i] * float(b[i]);
        delta[t] = sum;
    }
}

template <class Real>
static void backward_head(const Kernels& kernels, const BackwardHead<Real>& head) {
    const int T = head.T, C = head.C, hs = head.hs, nr = kernels.nr;
    const size_t stride = head.stride();
    const BackwardScratch s = carve_backward(T, hs, nr);
    std::fill_n(s.scales, nr, 1.0f / std::sqrt(float(hs)));
    std::fill_n(s.ones, nr, 1.0f);
    copy_to_floats(s.q, hs, head.qkv, stride, T, hs);
    copy_to_floats(s.dout, hs, head.dout, C, T, hs);
    pack_channels(s.q_panels, s.q, hs, T, hs);
    pack_channels(s.dout_panels, s.dout, hs, T, hs);
    simd<dot_rows<Real>>(head.delta, {s.dout, size_t(hs)}, head.out, C, T, hs);
    for (int first = 0; first < T; first += nr)
        backward_panel(kernels, head, s, first, std::min(nr, T - first));
}

template <class Real>
static BackwardHead<Real> backward_task(const AttentionBackward<Real>& p, int head) {
    const int T = p.T, C = p.C, NH = p.NH, hs = C / NH;
    const size_t row = size_t(head / NH) * T, channel = size_t(head % NH) * hs;
    return {.dqkv = p.dqkv + row * 3 * C + channel,
            .delta = p.delta + size_t(head) * T,
            .dout = p.dout + row * C + channel,
            .out = p.out + row * C + channel,
            .lse = p.lse + size_t(head) * T,
            .qkv = p.qkv + row * 3 * C + channel,
            .T = T,
            .C = C,
            .hs = hs};
}

template <class Real>
void attention_backward_cpu(const AttentionBackward<Real>& p) {
    attention_head_size(p.C, p.NH);  // throws here, not in a thread
    const KernelSet& set = best_kernels<float>();
    run_tasks(p.B * p.NH, [&](int64_t head, int64_t next) {
        const BackwardHead<Real> task = backward_task(p, int(head));
        prefetch_queue.clear();
        task.prefetch_results(prefetch_queue);
        if (next < p.B * p.NH) backward_task(p, int(next)).prefetch_operands(prefetch_queue);
        backward_head({set, prefetch_queue}, task);
    });
}

#define INSTANTIATE(Real)                                                 \
    template void attention_forward_cpu(const AttentionForward<Real>& p); \
    template void attention_backward_cpu(const AttentionBackward<Real>& p);
FOR_EACH_REAL(INSTANTIATE)
