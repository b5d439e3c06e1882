// Attention: GPU versions, their tables, and the choice that training makes. The CPU version is in
// attention_cpu.cpp.
#include "llmc/attention.h"

#include "shaders/args.h"

int attention_head_size(int C, int NH) {
    if (NH < 1 || C % NH != 0) fail("attention: %d channels do not divide into %d heads", C, NH);
    if (C / NH > 128)
        fail("attention: heads of %d channels are too large: at most 128 (C %d, NH %d)", C / NH, C, NH);
    return C / NH;
}

// Rows and columns of a tile in the tiled kernels: TILE of attention.glsl.
static const int TILE = 64;

// Whether each head's rows begin at multiples of 4 elements, so that kernels can read quads.
template <class T>
static uint32_t quads_fit(std::initializer_list<uint64_t> addresses, int hs) {
    bool fit = hs % 4 == 0;
    for (uint64_t address : addresses) fit = fit && address % (4 * sizeof(T)) == 0;
    return fit;
}

template <class T>
static AttentionForwardArgs forward_args(LaunchPad& pad, T* out, float* lse, const T* qkv, int B, int seq_len,
                                         int C, int NH) {
    const size_t rows = size_t(B) * seq_len;
    return {pad.at(out, rows * C), pad.at(lse, rows * NH), pad.at(qkv, rows * 3 * C), B, seq_len, C, NH};
}

template <class T>
static AttentionBackwardArgs backward_args(LaunchPad& pad, T* dqkv, float* delta, const T* dout, const T* out,
                                           const float* lse, const T* qkv, int B, int seq_len, int C,
                                           int NH) {
    const size_t rows = size_t(B) * seq_len;
    return {pad.at(dqkv, rows * 3 * C),
            pad.at(delta, rows * NH),
            pad.at(dout, rows * C),
            pad.at(out, rows * C),
            pad.at(lse, rows * NH),
            pad.at(qkv, rows * 3 * C),
            B,
            seq_len,
            C,
            NH};
}

// Of the tiled kernels. A GPU wants the registers of 128 invocations; a software device has them in memory
// anyway, and larger blocks of sums save it loads (measured on lavapipe: 1.4 times as fast).
static int best_block(const LaunchPad& pad) { return pad.device().type == DeviceType::software ? 64 : 128; }

template <class T>
static void attention_forward1(LaunchPad& pad, T* out, float* lse, const T* qkv, int B, int seq_len, int C,
                               int NH, int block_size) {
    const uint32_t hs = attention_head_size(C, NH);
    const AttentionForwardArgs args = forward_args(pad, out, lse, qkv, B, seq_len, C, NH);
    pad.dispatch<T>("attention_forward1", {blocks(uint64_t(B) * NH * seq_len, block_size)},
                    {uint32_t(block_size), hs}, args);
}

template <class T>
static void attention_forward2(LaunchPad& pad, T* out, float* lse, const T* qkv, int B, int seq_len, int C,
                               int NH, int block_size) {
    const uint32_t hs = attention_head_size(C, NH);
    const AttentionForwardArgs args = forward_args(pad, out, lse, qkv, B, seq_len, C, NH);
    pad.dispatch<T>("attention_forward2", {uint64_t(B) * NH * blocks(seq_len, TILE)},
                    {uint32_t(block_size), hs, quads_fit<T>({args.outp, args.qkv}, hs)}, args);
}

template <class T>
std::vector<KernelVersion<AttentionForward<T>>> attention_forward_versions() {
    return {
        {"attention_forward1", "one invocation per query", attention_forward1<T>, {32, 128}},
        {"attention_forward2",
         "tiles of 64 queries x 64 keys, sums in registers",
         attention_forward2<T>,
         {128, 64}},
    };
}

template <class T>
void attention_forward(LaunchPad* pad, T* out, float* lse, const T* qkv, int B, int seq_len, int C, int NH) {
    if (!pad) return attention_forward_cpu(out, lse, qkv, B, seq_len, C, NH);
    attention_forward2(*pad, out, lse, qkv, B, seq_len, C, NH, best_block(*pad));
}

// delta, which the other kernels of every backward version read: they run in a group, whose start waits for
// it.
template <class T>
static void backward_delta(LaunchPad& pad, const AttentionBackwardArgs& args, uint32_t hs) {
    pad.dispatch<T>("attention_backward_delta", {blocks(uint64_t(args.B) * args.T * args.NH, 128)},
                    {128, hs, quads_fit<T>({args.dout, args.outp}, hs)}, args);
}

template <class T>
static void attention_backward1(LaunchPad& pad, T* dqkv, float* delta, const T* dout, const T* out,
                                const float* lse, const T* qkv, int B, int seq_len, int C, int NH,
                                int block_size) {
    const uint32_t hs = attention_head_size(C, NH), block = block_size;
    const AttentionBackwardArgs args =
        backward_args(pad, dqkv, delta, dout, out, lse, qkv, B, seq_len, C, NH);
    const Groups groups = {blocks(uint64_t(B) * NH * seq_len, block)};
    backward_delta<T>(pad, args, hs);
    pad.begin_group();
    pad.dispatch<T>("attention_backward1_dkv", groups, {block, hs}, args);
    pad.dispatch<T>("attention_backward1_dq", groups, {block, hs}, args);
    pad.end_group();
}

template <class T>
static void attention_backward2(LaunchPad& pad, T* dqkv, float* delta, const T* dout, const T* out,
                                const float* lse, const T* qkv, int B, int seq_len, int C, int NH,
                                int block_size) {
    const uint32_t hs = attention_head_size(C, NH), block = block_size;
    const AttentionBackwardArgs args =
        backward_args(pad, dqkv, delta, dout, out, lse, qkv, B, seq_len, C, NH);
    const uint32_t quads = quads_fit<T>({args.dqkv, args.dout, args.qkv}, hs);
    const Groups groups = {uint64_t(B) * NH * blocks(seq_len, TILE)};
    backward_delta<T>(pad, args, hs);
    pad.begin_group();
    pad.dispatch<T>("attention_backward2_dkv", groups, {block, hs, quads}, args);
    pad.dispatch<T>("attention_backward2_dq", groups, {block, hs, quads}, args);
    pad.end_group();
}

template <class T>
std::vector<KernelVersion<AttentionBackward<T>>> attention_backward_versions() {
    return {
        {"attention_backward1",
         "one invocation per query, then one per key",
         attention_backward1<T>,
         {32, 128}},
        {"attention_backward2",
         "tiles of 64 queries x 64 keys, sums in registers",
         attention_backward2<T>,
         {128, 64}},
    };
}

template <class T>
void attention_backward(LaunchPad* pad, T* dqkv, float* delta, const T* dout, const T* out, const float* lse,
                        const T* qkv, int B, int seq_len, int C, int NH) {
    if (!pad) return attention_backward_cpu(dqkv, delta, dout, out, lse, qkv, B, seq_len, C, NH);
    attention_backward2(*pad, dqkv, delta, dout, out, lse, qkv, B, seq_len, C, NH, best_block(*pad));
}

#define INSTANTIATE(T)                                                                                   \
    template std::vector<KernelVersion<AttentionForward<T>>> attention_forward_versions();               \
    template std::vector<KernelVersion<AttentionBackward<T>>> attention_backward_versions();             \
    template void attention_forward(LaunchPad*, T*, float*, const T*, int, int, int, int);               \
    template void attention_backward(LaunchPad*, T*, float*, const T*, const T*, const float*, const T*, \
                                     int, int, int, int);
FOR_EACH_REAL(INSTANTIATE)
