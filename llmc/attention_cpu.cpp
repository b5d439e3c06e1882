// Attention on the CPU. Scores live in panels of nr queries or keys side by side, in fp32, and every product
// runs on the kernels of product_kernels.h: their tiles, one below the other, are such panels, and they read
// a panel as their first factor in either direction. Forward threads over blocks of queries, backward over
// heads: both give the same bits whatever the number of threads. CMakeLists.txt allows fused multiply-adds in
// this file.
#include <algorithm>
#include <cmath>

#include "llmc/attention.h"
#include "llmc/cpu_times.h"
#include "llmc/product_kernels.h"
#include "llmc/vector_math.h"

static const int KEY_BLOCK = 96;    // keys that the forward pass takes at a time; a multiple of every mr
static const int QUERY_PANELS = 8;  // of the forward pass, to which the same keys and values are given
static const int QUERY_BLOCK = 96;  // queries that the backward pass takes at a time; a multiple of every mr
static const int ROWS_AFTER = MAX_MR;  // that kernels may read, and write, past the last row

// Memory that a thread keeps until it ends, and carves into arrays anew for each task.
struct Arena {
    LineFloats memory;
    size_t used = 0;

    // Room for n floats in all.
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

// out (rows, nr) = a b, or out + a b; rows in steps of mr. in.a is moved along.
static void multiply(const KernelSet& set, float* out, KernelInput in, int rows) {
    for (int i = 0; i < rows; i += set.mr, in.a += set.mr * in.a_row)
        kernel_for(set, std::min(set.mr, rows - i))(out + size_t(i) * set.nr, in);
}

static const char* bytes(const float* p) { return reinterpret_cast<const char*>(p); }

// A factor whose rows are stride floats apart, and one that is read down its columns: a panel, transposed.
static KernelInput by_rows(const float* a, size_t stride, const float* b, int units, bool add) {
    return {bytes(a), stride * sizeof(float), sizeof(float), b, units, add};
}
static KernelInput by_columns(const float* a, size_t stride, const float* b, int units, bool add) {
    return {bytes(a), sizeof(float), stride * sizeof(float), b, units, add};
}

// dst (units, nr) = src (columns, units)^T * factor; missing columns are zero.
static void transpose(float* dst, int nr, const float* src, size_t ld, int columns, int units, float factor) {
    for (int c = 0; c < nr; c += 4) {
        int u = 0;
        if (c + 4 <= columns)
            for (; u + 4 <= units; u += 4) {
                Float4 r[4];
                for (int i = 0; i < 4; i++) r[i] = load4(src + (c + i) * ld + u) * factor;
                transpose4(dst + size_t(u) * nr + c, nr, r);
            }
        for (; u < units; u++)
            for (int i = c; i < c + 4; i++)
                dst[size_t(u) * nr + i] = i < columns ? src[i * ld + u] * factor : 0.0f;
    }
}

// Channel panels of rows: dst (ceil(hs / nr), panel_rows, nr), of which `rows` are filled. Channels past hs
// are left as they are: they come out in columns that nobody reads.
template <class T>
static void pack_channels(float* dst, int panel_rows, int nr, const T* src, size_t ld, int rows, int hs) {
    for (int c = 0; c < hs; c += nr)
        copy_to_floats(dst + size_t(c) * panel_rows, nr, src + c, ld, rows, std::min(nr, hs - c));
}

template <class T>
static inline void store_all(T* dst, const float* src, int n, float factor) {
#pragma omp simd
    for (int i = 0; i < n; i++) dst[i] = round_to<T>(src[i] * factor);
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

// The reverse of pack_channels(), times factor.
template <class T>
static void unpack_channels(T* dst, size_t ld, const float* src, int panel_rows, int nr, int rows, int hs,
                            float factor) {
    for (int i = 0; i < rows; i++)
        for (int c = 0; c < hs; c += nr)
            store(dst + i * ld + c, src + size_t(c) * panel_rows + size_t(i) * nr, std::min(nr, hs - c),
                  factor);
}

// One step of the online softmax for NR queries: scores (keys, NR) become exp(score - maximum), with the
// maximum over all keys so far; sum follows, and factor is what the sums so far must be multiplied by.
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
    int first, count;                                // of the sequence's rows
    float *queries, *sums, *maximum, *sum, *factor;  // (hs, nr), (channel panels, nr, nr), (nr) each
};

// Gives a block of keys and values to a panel of queries. keys (count, hs), values (channel panels,
// KEY_BLOCK, nr).
static void attend(const KernelSet& set, QueryPanel& panel, float* scores, const float* keys,
                   const float* values, int first_key, int count, int hs) {
    const int nr = set.nr, seen = std::min(count, panel.first + panel.count - first_key);
    if (seen <= 0) return;
    multiply(set, scores, by_rows(keys, hs, panel.queries, hs, false), seen);
    for (int j = std::max(0, panel.first + 1 - first_key); j < seen; j++)  // no query sees a later key
        std::fill_n(scores + j * nr, std::min(nr, first_key + j - panel.first), -INFINITY);
    softmax_step(scores, seen, nr, panel.maximum, panel.sum, panel.factor);
    for (int c = 0; c < hs; c += nr) {
        float* sums = panel.sums + size_t(c) * nr;
        if (first_key > 0) scale_rows(sums, nr, panel.factor);
        multiply(set, sums, by_columns(scores, nr, values + size_t(c) * KEY_BLOCK, seen, first_key > 0), nr);
    }
}

// out and lse of `count` queries from `first` on, at most QUERY_PANELS * nr, of one head; out, lse and qkv
// point to the head's first row. Scores are kept as (keys, queries): the maxima and sums of many queries then
// run in one register.
template <class T>
static void forward_block(const KernelSet& set, T* out, float* lse, const T* qkv, int first, int count, int C,
                          int hs) {
    const int nr = set.nr, width = round_up(hs, nr), panels = (count + nr - 1) / nr;
    const size_t stride = 3 * size_t(C), panel_floats = size_t(nr) * (hs + width + 3);
    arena.open(panels * (panel_floats + 5 * 16) + size_t(KEY_BLOCK + ROWS_AFTER) * (hs + width + nr) +
               size_t(nr) * hs);
    float *keys = arena.take(size_t(KEY_BLOCK + ROWS_AFTER) * hs),
          *values = arena.take(size_t(KEY_BLOCK) * width),
          *scores = arena.take(size_t(KEY_BLOCK + ROWS_AFTER) * nr), *rows = arena.take(size_t(nr) * hs);
    QueryPanel panel[QUERY_PANELS];
    for (int p = 0; p < panels; p++) {
        panel[p] = {first + p * nr,
                    std::min(nr, count - p * nr),
                    arena.take(size_t(nr) * hs),
                    arena.take(size_t(nr) * width),
                    arena.take(nr),
                    arena.take(nr),
                    arena.take(nr)};
        copy_to_floats(rows, hs, qkv + panel[p].first * stride, stride, panel[p].count, hs);
        transpose(panel[p].queries, nr, rows, hs, panel[p].count, hs, 1.0f / std::sqrt(float(hs)));
        std::fill_n(panel[p].maximum, nr, -INFINITY);
        std::fill_n(panel[p].sum, nr, 0.0f);
    }
    for (int key = 0; key < first + count; key += KEY_BLOCK) {
        const int key_count = std::min(KEY_BLOCK, first + count - key);
        copy_to_floats(keys, hs, qkv + key * stride + C, stride, key_count, hs);
        pack_channels(values, KEY_BLOCK, nr, qkv + key * stride + 2 * C, stride, key_count, hs);
        for (int p = 0; p < panels; p++) attend(set, panel[p], scores, keys, values, key, key_count, hs);
    }
    for (int p = 0; p < panels; p++)
        for (int i = 0; i < panel[p].count; i++) {
            const int row = panel[p].first + i;
            unpack_channels(out + size_t(row) * C, C, panel[p].sums + size_t(i) * nr, nr, nr, 1, hs,
                            1.0f / panel[p].sum[i]);
            lse[row] = panel[p].maximum[i] + std::log(panel[p].sum[i]);
        }
}

// `products` of all queries with the keys that they see.
static Work attention_work(int B, int seq_len, int C, int products) {
    return {.flops = 2.0 * products * B * C * (0.5 * seq_len * (seq_len + 1.0))};
}

template <class T>
void attention_forward_cpu(T* out, float* lse, const T* qkv, int B, int seq_len, int C, int NH) {
    const int hs = attention_head_size(C, NH);
    const CpuTimer timer("attention_forward", attention_work(B, seq_len, C, 2));
    const KernelSet& set = best_kernels<float>();
    const int block = QUERY_PANELS * set.nr, query_blocks = (seq_len + block - 1) / block;
    // The last queries see the most keys: they come first, so that no thread starts a long block at the end.
#pragma omp parallel for schedule(dynamic)
    for (int64_t task = 0; task < int64_t(B) * NH * query_blocks; task++) {
        const int head = int(task % (B * NH)), first = (query_blocks - 1 - int(task / (B * NH))) * block;
        const size_t row = size_t(head / NH) * seq_len, channel = size_t(head % NH) * hs;
        forward_block(set, out + row * C + channel, lse + size_t(head) * seq_len, qkv + row * 3 * C + channel,
                      first, std::min(block, seq_len - first), C, hs);
    }
}

// One panel of the backward pass: scores (rows, nr keys) become probabilities, dscores the gradient of the
// scores. Query number i sees `seen` + i keys.
SIMD_CLONES
static void probability_step(float* scores, float* dscores, const float* lse, const float* delta, int rows,
                             int nr, int seen) {
    for (int i = 0; i < rows; i++) {
        float *p = scores + i * nr, *ds = dscores + i * nr;
        const float l = lse[i], d = delta[i];
#pragma omp simd
        for (int j = 0; j < nr; j++) {
            p[j] = exp_fast(p[j] - l);
            ds[j] = p[j] * (ds[j] - d);
        }
        for (int j = seen + i; j < nr; j++) p[j] = ds[j] = 0;
    }
}

// What the backward pass keeps of a head: rows as they are, and in channel panels of T + ROWS_AFTER rows.
struct HeadScratch {
    int panel_rows;
    float *q, *dout;                         // (T, hs)
    float *q_panels, *dout_panels, *dq;      // channel panels
    float *k, *k_transposed, *v_transposed;  // of nr keys: channel panels of nr rows, (hs, nr), (hs, nr)
    float *dk, *dv;                          // channel panels of nr rows
    float *scores, *dscores;                 // (QUERY_BLOCK + ROWS_AFTER, nr)
};

static HeadScratch carve_head(int seq_len, int hs, int nr) {
    HeadScratch s;
    s.panel_rows = seq_len + ROWS_AFTER;
    const size_t width = round_up(hs, nr), rows = size_t(s.panel_rows) * hs,
                 panels = size_t(s.panel_rows) * width, block = size_t(QUERY_BLOCK + ROWS_AFTER) * nr,
                 keys = size_t(nr) * hs, key_panels = size_t(nr) * width;
    arena.open(2 * rows + 3 * panels + 2 * block + 3 * keys + 3 * key_panels + 13 * 16);
    for (float** array : {&s.q, &s.dout}) *array = arena.take(rows);
    for (float** array : {&s.q_panels, &s.dout_panels, &s.dq}) *array = arena.take(panels);
    for (float** array : {&s.k_transposed, &s.v_transposed}) *array = arena.take(keys);
    for (float** array : {&s.k, &s.dk, &s.dv}) *array = arena.take(key_panels);
    for (float** array : {&s.scores, &s.dscores}) *array = arena.take(block);
    return s;
}

// dk and dv of `keys` keys from `first` on, at most nr, and what these keys add to dq. k_rows: room for (nr,
// hs).
template <class T>
static void backward_panel(const KernelSet& set, T* dqkv, const float* delta, const float* lse, const T* qkv,
                           int first, int keys, int seq_len, int C, int hs, const HeadScratch& s,
                           float* k_rows) {
    const size_t stride = 3 * size_t(C);
    const int nr = set.nr;
    const float scale = 1.0f / std::sqrt(float(hs));
    copy_to_floats(k_rows, hs, qkv + first * stride + 2 * C, stride, keys, hs);
    transpose(s.v_transposed, nr, k_rows, hs, keys, hs, 1.0f);
    copy_to_floats(k_rows, hs, qkv + first * stride + C, stride, keys, hs);
    transpose(s.k_transposed, nr, k_rows, hs, keys, hs, scale);
    pack_channels(s.k, nr, nr, k_rows, hs, keys, hs);
    for (int q = first; q < seq_len; q += QUERY_BLOCK) {
        const int rows = std::min(QUERY_BLOCK, seq_len - q);
        multiply(set, s.scores, by_rows(s.q + size_t(q) * hs, hs, s.k_transposed, hs, false), rows);
        multiply(set, s.dscores, by_rows(s.dout + size_t(q) * hs, hs, s.v_transposed, hs, false), rows);
        probability_step(s.scores, s.dscores, lse + q, delta + q, rows, nr, q - first + 1);
        for (int c = 0; c < hs; c += nr) {
            const size_t of_head = size_t(c) * s.panel_rows + size_t(q) * nr, of_keys = size_t(c) * nr;
            multiply(set, s.dv + of_keys, by_columns(s.scores, nr, s.dout_panels + of_head, rows, q > first),
                     nr);
            multiply(set, s.dk + of_keys, by_columns(s.dscores, nr, s.q_panels + of_head, rows, q > first),
                     nr);
            multiply(set, s.dq + of_head, by_rows(s.dscores, nr, s.k + of_keys, keys, first > 0), rows);
        }
    }
    unpack_channels(dqkv + first * stride + C, stride, s.dk, nr, nr, keys, hs, scale);
    unpack_channels(dqkv + first * stride + 2 * C, stride, s.dv, nr, nr, keys, hs, 1.0f);
}

template <class T>
static inline float dot(const float* a, const T* b, int n) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++) sum += a[i] * float(b[i]);
    return sum;
}

// One head; the pointers point to its first row.
template <class T>
static void backward_head(const KernelSet& set, T* dqkv, float* delta, const T* dout, const T* out,
                          const float* lse, const T* qkv, int seq_len, int C, int hs) {
    const size_t stride = 3 * size_t(C);
    const HeadScratch s = carve_head(seq_len, hs, set.nr);
    float* k_rows = arena.take(size_t(set.nr) * hs);
    copy_to_floats(s.q, hs, qkv, stride, seq_len, hs);
    copy_to_floats(s.dout, hs, dout, C, seq_len, hs);
    pack_channels(s.q_panels, s.panel_rows, set.nr, s.q, hs, seq_len, hs);
    pack_channels(s.dout_panels, s.panel_rows, set.nr, s.dout, hs, seq_len, hs);
    for (int t = 0; t < seq_len; t++) delta[t] = dot(s.dout + size_t(t) * hs, out + size_t(t) * C, hs);
    for (int first = 0; first < seq_len; first += set.nr)
        backward_panel(set, dqkv, delta, lse, qkv, first, std::min(set.nr, seq_len - first), seq_len, C, hs,
                       s, k_rows);
    unpack_channels(dqkv, stride, s.dq, s.panel_rows, set.nr, seq_len, hs, 1.0f / std::sqrt(float(hs)));
}

template <class T>
void attention_backward_cpu(T* dqkv, float* delta, const T* dout, const T* out, const float* lse,
                            const T* qkv, int B, int seq_len, int C, int NH) {
    const int hs = attention_head_size(C, NH);
    const CpuTimer timer("attention_backward", attention_work(B, seq_len, C, 5));
    const KernelSet& set = best_kernels<float>();
#pragma omp parallel for schedule(dynamic)
    for (int head = 0; head < B * NH; head++) {
        const size_t row = size_t(head / NH) * seq_len, channel = size_t(head % NH) * hs;
        const size_t rows = size_t(head) * seq_len;
        backward_head(set, dqkv + row * 3 * C + channel, delta + rows, dout + row * C + channel,
                      out + row * C + channel, lse + rows, qkv + row * 3 * C + channel, seq_len, C, hs);
    }
}

#define INSTANTIATE(T)                                                                                     \
    template void attention_forward_cpu(T*, float*, const T*, int, int, int, int);                         \
    template void attention_backward_cpu(T*, float*, const T*, const T*, const float*, const T*, int, int, \
                                         int, int);
FOR_EACH_REAL(INSTANTIATE)
