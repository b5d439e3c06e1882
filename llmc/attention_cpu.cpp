// Attention on the CPU. Scores live in tiles of 48 queries by 48 keys, in fp32; every product of tiles goes
// through one small matrix kernel, accumulate_tile(). Forward threads over blocks of queries, backward over
// heads: both give the same bits whatever the number of threads.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "llmc/attention.h"
#include "llmc/simd.h"

static const int TILE = 48;  // queries or keys: a multiple of ROWS and of LANES
static const int ROWS = 6;   // with LANES columns: 12 AVX2 registers of sums, or 6 AVX-512 ones
static const int LANES = 16;

static int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

// An array of zeros aligned to a cache line.
struct ScratchArray {
    struct alignas(64) Line {
        float x[LANES];
    };
    std::vector<Line> lines;
    explicit ScratchArray(size_t n) : lines((n + LANES - 1) / LANES, Line{}) {}
    operator float*() { return lines[0].x; }
};

// accumulate_tile() for vectors of WIDTH floats. Left to themselves, compilers keep these sums in memory.
template <int WIDTH>
static inline __attribute__((always_inline)) void accumulate_by(float* c, int c_stride, const float* a,
                                                                int a_row, int a_column, const float* b,
                                                                int b_stride, int rows, int inner,
                                                                int columns) {
    typedef float Vector __attribute__((vector_size(4 * WIDTH)));
    const int N = LANES / WIDTH;
    for (int i = 0; i < rows; i += ROWS)
        for (int j = 0; j < columns; j += LANES) {
            Vector sums[ROWS][N];
            for (int r = 0; r < ROWS; r++) memcpy(sums[r], c + size_t(i + r) * c_stride + j, sizeof(sums[r]));
            for (int k = 0; k < inner; k++) {
                Vector bk[N];
                memcpy(bk, b + size_t(k) * b_stride + j, sizeof(bk));
                const float* ak = a + size_t(i) * a_row + size_t(k) * a_column;
                for (int r = 0; r < ROWS; r++)
                    for (int n = 0; n < N; n++) sums[r][n] += ak[r * a_row] * bk[n];
            }
            for (int r = 0; r < ROWS; r++) memcpy(c + size_t(i + r) * c_stride + j, sums[r], sizeof(sums[r]));
        }
}

// c (rows, columns) += a b; a (rows, inner) is read with any two strides, so also transposed; rows of b and c
// are b_stride and c_stride apart. rows is a multiple of ROWS, columns of LANES. The program picks the
// definition for its processor when it starts. (Not static: clang would call the unnamed ones unused.)
#if defined(__x86_64__) && defined(__linux__)
__attribute__((target("avx512f"))) void accumulate_tile(float* c, int c_stride, const float* a, int a_row,
                                                        int a_column, const float* b, int b_stride, int rows,
                                                        int inner, int columns) {
    accumulate_by<16>(c, c_stride, a, a_row, a_column, b, b_stride, rows, inner, columns);
}
__attribute__((target("avx2,fma"))) void accumulate_tile(float* c, int c_stride, const float* a, int a_row,
                                                         int a_column, const float* b, int b_stride, int rows,
                                                         int inner, int columns) {
    accumulate_by<8>(c, c_stride, a, a_row, a_column, b, b_stride, rows, inner, columns);
}
__attribute__((target("default")))
#endif
void accumulate_tile(float* c, int c_stride, const float* a, int a_row, int a_column, const float* b,
                     int b_stride, int rows, int inner, int columns) {
    accumulate_by<4>(c, c_stride, a, a_row, a_column, b, b_stride, rows, inner, columns);
}

// exp(x) to 2 ulp for -87 < x < 88, 0 below: Cephes' expf, written so that compilers vectorize it.
static inline float exp_fast(float x) {
    const float shifted =
        x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: leaves the rounded value in the low bits
    const float n = shifted - 12582912.0f;
    const float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + 0x3f800000u);
    const uint32_t keep = -uint32_t(!(x < -87.0f));  // all ones or zero: a branch would not be vectorized
    return std::bit_cast<float>(std::bit_cast<uint32_t>(p * power) & keep);
}

// dst (rows, width) = src * factor, rows of src being src_stride apart; columns from hs to width are left
// zero.
template <class T>
static void pack(float* dst, int width, const T* src, size_t src_stride, int rows, int hs,
                 float factor = 1.0f) {
    for (int i = 0; i < rows; i++)
        for (int c = 0; c < hs; c++) dst[size_t(i) * width + c] = float(src[i * src_stride + c]) * factor;
}

// dst (hs, TILE) = src^T * factor; the columns from rows to TILE become zero.
template <class T>
static void pack_transposed(float* dst, const T* src, size_t src_stride, int rows, int hs,
                            float factor = 1.0f) {
    for (int c = 0; c < hs; c++) {
        for (int i = 0; i < rows; i++) dst[c * TILE + i] = float(src[i * src_stride + c]) * factor;
        for (int i = rows; i < TILE; i++) dst[c * TILE + i] = 0;
    }
}

template <class T>
static void unpack(T* dst, size_t dst_stride, const float* src, int width, int rows, int hs,
                   float factor = 1.0f) {
    for (int i = 0; i < rows; i++)
        for (int c = 0; c < hs; c++) dst[i * dst_stride + c] = T(src[size_t(i) * width + c] * factor);
}

// One step of the online softmax. scores (keys, TILE queries) become exp(score - maximum) with the maximum
// over all keys so far; sum follows, and factor is what the sums so far must be multiplied by.
SIMD_CLONES
static void softmax_step(float* scores, int keys, float* maximum, float* sum, float* factor) {
    float m[TILE], s[TILE];
    for (int i = 0; i < TILE; i++) m[i] = maximum[i];
    for (int j = 0; j < keys; j++)
        for (int i = 0; i < TILE; i++) m[i] = m[i] < scores[j * TILE + i] ? scores[j * TILE + i] : m[i];
    for (int i = 0; i < TILE; i++) {
        factor[i] = exp_fast(maximum[i] - m[i]);
        maximum[i] = m[i];
        s[i] = sum[i] * factor[i];
    }
    for (int j = 0; j < keys; j++)
        for (int i = 0; i < TILE; i++) {
            const float p = exp_fast(scores[j * TILE + i] - m[i]);
            scores[j * TILE + i] = p;
            s[i] += p;
        }
    for (int i = 0; i < TILE; i++) sum[i] = s[i];
}

struct ForwardScratch {
    ScratchArray q, k, v, scores, sums, maximum, sum, factor;  // q (hs, TILE); k, v, sums (TILE, width)
    ForwardScratch(int hs, int width)
        : q(size_t(hs) * TILE),
          k(size_t(TILE) * width),
          v(size_t(TILE) * width),
          scores(size_t(TILE) * TILE),
          sums(size_t(TILE) * width),
          maximum(TILE),
          sum(TILE),
          factor(TILE) {}
};

// out and lse of the queries from `first` on, at most TILE of them, of one head; out, lse and qkv point to
// the head's first row. Scores are kept transposed: the maxima and sums of 16 queries then run in one
// register.
template <class T>
static void forward_block(T* out, float* lse, const T* qkv, int first, int seq_len, int C, int hs,
                          ForwardScratch& s) {
    const size_t stride = 3 * size_t(C);
    const int width = round_up(hs, LANES), queries = std::min(TILE, seq_len - first);
    pack_transposed(s.q, qkv + first * stride, stride, queries, hs, 1.0f / std::sqrt(float(hs)));
    std::fill_n(+s.sums, TILE * width, 0.0f);
    std::fill_n(+s.maximum, TILE, -INFINITY);
    std::fill_n(+s.sum, TILE, 0.0f);
    for (int key = 0; key <= first; key += TILE) {
        const int keys = std::min(TILE, seq_len - key);
        pack(s.k, width, qkv + key * stride + C, stride, keys, hs);
        pack(s.v, width, qkv + key * stride + 2 * C, stride, keys, hs);
        std::fill_n(+s.scores, TILE * TILE, 0.0f);
        accumulate_tile(s.scores, TILE, s.k, width, 1, s.q, TILE, round_up(keys, ROWS), hs,
                        round_up(queries, LANES));
        if (key == first)
            for (int j = 1; j < keys; j++) std::fill_n(s.scores + j * TILE, j, -INFINITY);
        softmax_step(s.scores, keys, s.maximum, s.sum, s.factor);
        for (int i = 0; i < queries; i++)
            for (int c = 0; c < width; c++) s.sums[i * width + c] *= s.factor[i];
        accumulate_tile(s.sums, width, s.scores, 1, TILE, s.v, width, round_up(queries, ROWS), keys, width);
    }
    for (int i = 0; i < queries; i++) {
        unpack(out + size_t(first + i) * C, C, s.sums + i * width, width, 1, hs, 1.0f / s.sum[i]);
        lse[first + i] = s.maximum[i] + std::log(s.sum[i]);
    }
}

template <class T>
void attention_forward_cpu(T* out, float* lse, const T* qkv, int B, int seq_len, int C, int NH) {
    const int hs = attention_head_size(C, NH);
    const int heads = B * NH, query_blocks = (seq_len + TILE - 1) / TILE;
#pragma omp parallel
    {
        ForwardScratch scratch(hs, round_up(hs, LANES));
        // The last queries see the most keys: they come first, so that no thread starts a long block at the
        // end.
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < int64_t(heads) * query_blocks; task++) {
            const int head = int(task % heads), block = query_blocks - 1 - int(task / heads);
            const size_t row = size_t(head / NH) * seq_len, channel = size_t(head % NH) * hs;
            forward_block(out + row * C + channel, lse + size_t(head) * seq_len, qkv + row * 3 * C + channel,
                          block * TILE, seq_len, C, hs, scratch);
        }
    }
}

// One tile of the backward pass: scores (queries, TILE keys) become probabilities, dscores the gradient of
// the scores. Where diagonal is set, later keys than the query are masked out.
SIMD_CLONES
static void probability_step(float* scores, float* dscores, const float* lse, const float* delta, int queries,
                             bool diagonal) {
    for (int i = 0; i < queries; i++) {
        float* p = scores + i * TILE;
        float* ds = dscores + i * TILE;
        const float l = lse[i], d = delta[i];
#pragma omp simd
        for (int j = 0; j < TILE; j++) {
            p[j] = exp_fast(p[j] - l);
            ds[j] = p[j] * (ds[j] - d);
        }
        if (!diagonal) continue;
        std::fill(p + i + 1, p + TILE, 0.0f);
        std::fill(ds + i + 1, ds + TILE, 0.0f);
    }
}

struct BackwardScratch {
    ScratchArray q, dout, dq;                    // (T, width): the whole head; q is scaled by 1 / sqrt(hs)
    ScratchArray k, k_transposed, v_transposed;  // (TILE, width), (hs, TILE), (hs, TILE)
    ScratchArray dk, dv, scores, dscores;        // (TILE, width), (TILE, width), (TILE, TILE), (TILE, TILE)
    BackwardScratch(int seq_len, int hs, int width)
        : q(size_t(round_up(seq_len, TILE)) * width),
          dout(q.lines.size() * LANES),
          dq(q.lines.size() * LANES),
          k(size_t(TILE) * width),
          k_transposed(size_t(hs) * TILE),
          v_transposed(size_t(hs) * TILE),
          dk(size_t(TILE) * width),
          dv(size_t(TILE) * width),
          scores(size_t(TILE) * TILE),
          dscores(size_t(TILE) * TILE) {}
};

// dk and dv of the keys from `first` on, at most TILE of them, and what these keys add to dq.
template <class T>
static void backward_block(T* dqkv, const float* delta, const float* lse, const T* qkv, int first,
                           int seq_len, int C, int hs, BackwardScratch& s) {
    const size_t stride = 3 * size_t(C);
    const int width = round_up(hs, LANES), keys = std::min(TILE, seq_len - first);
    pack(s.k, width, qkv + first * stride + C, stride, keys, hs);
    pack_transposed(s.k_transposed, qkv + first * stride + C, stride, keys, hs);
    pack_transposed(s.v_transposed, qkv + first * stride + 2 * C, stride, keys, hs);
    std::fill_n(+s.dk, TILE * width, 0.0f);
    std::fill_n(+s.dv, TILE * width, 0.0f);
    const int key_rows = round_up(keys, ROWS), key_columns = round_up(keys, LANES);
    for (int query = first; query < seq_len; query += TILE) {
        const int queries = std::min(TILE, seq_len - query), query_rows = round_up(queries, ROWS);
        float* q = s.q + size_t(query) * width;
        float* dout = s.dout + size_t(query) * width;
        std::fill_n(+s.scores, TILE * TILE, 0.0f);
        std::fill_n(+s.dscores, TILE * TILE, 0.0f);
        accumulate_tile(s.scores, TILE, q, width, 1, s.k_transposed, TILE, query_rows, hs, key_columns);
        accumulate_tile(s.dscores, TILE, dout, width, 1, s.v_transposed, TILE, query_rows, hs, key_columns);
        probability_step(s.scores, s.dscores, lse + query, delta + query, queries, query == first);
        accumulate_tile(s.dv, width, s.scores, 1, TILE, dout, width, key_rows, queries, width);
        accumulate_tile(s.dk, width, s.dscores, 1, TILE, q, width, key_rows, queries, width);
        accumulate_tile(s.dq + size_t(query) * width, width, s.dscores, TILE, 1, s.k, width, query_rows, keys,
                        width);
    }
    unpack(dqkv + first * stride + C, stride, s.dk, width, keys, hs);
    unpack(dqkv + first * stride + 2 * C, stride, s.dv, width, keys, hs);
}

// One head; the pointers point to its first row.
template <class T>
static void backward_head(T* dqkv, float* delta, const T* dout, const T* out, const float* lse, const T* qkv,
                          int seq_len, int C, int hs, BackwardScratch& s) {
    const size_t stride = 3 * size_t(C);
    const int width = round_up(hs, LANES);
    const float scale = 1.0f / std::sqrt(float(hs));
    pack(s.q, width, qkv, stride, seq_len, hs, scale);
    pack(s.dout, width, dout, C, seq_len, hs);
    std::fill_n(+s.dq, size_t(seq_len) * width, 0.0f);
    for (int t = 0; t < seq_len; t++) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int c = 0; c < hs; c++) sum += s.dout[size_t(t) * width + c] * float(out[size_t(t) * C + c]);
        delta[t] = sum;
    }
    for (int first = 0; first < seq_len; first += TILE)
        backward_block(dqkv, delta, lse, qkv, first, seq_len, C, hs, s);
    unpack(dqkv, stride, s.dq, width, seq_len, hs, scale);
}

template <class T>
void attention_backward_cpu(T* dqkv, float* delta, const T* dout, const T* out, const float* lse,
                            const T* qkv, int B, int seq_len, int C, int NH) {
    const int hs = attention_head_size(C, NH);
#pragma omp parallel
    {
        BackwardScratch scratch(seq_len, hs, round_up(hs, LANES));
#pragma omp for schedule(dynamic)
        for (int head = 0; head < B * NH; head++) {
            const size_t row = size_t(head / NH) * seq_len, channel = size_t(head % NH) * hs;
            const size_t rows = size_t(head) * seq_len;
            backward_head(dqkv + row * 3 * C + channel, delta + rows, dout + row * C + channel,
                          out + row * C + channel, lse + rows, qkv + row * 3 * C + channel, seq_len, C, hs,
                          scratch);
        }
    }
}

#define INSTANTIATE(T)                                                                                     \
    template void attention_forward_cpu(T*, float*, const T*, int, int, int, int);                         \
    template void attention_backward_cpu(T*, float*, const T*, const T*, const float*, const T*, int, int, \
                                         int, int);
FOR_EACH_REAL(INSTANTIATE)
