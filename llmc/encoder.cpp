// Encoder: the buckets, CPU versions, GPU versions, their tables, and the choice that training makes.
#include "llmc/encoder.h"

#include <algorithm>

#include "llmc/cpu_times.h"
#include "llmc/packs.h"
#include "shaders/args.h"

size_t encoder_bucket_ints(int count) { return 3 * size_t(count) + 3; }

void build_encoder_buckets(int* buckets, const int* inp, int count) {
    std::vector<uint64_t> order(count);  // token, position
    for (int i = 0; i < count; i++) order[i] = uint64_t(uint32_t(inp[i])) << 32 | uint32_t(i);
    std::sort(order.begin(), order.end());
    struct Bucket {
        int start, size;
    };
    std::vector<Bucket> found;
    for (int i = 0; i < count; i++) {
        if (i == 0 || order[i] >> 32 != order[i - 1] >> 32) found.push_back({i, 0});
        found.back().size++;
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const Bucket& a, const Bucket& b) { return a.size > b.size; });

    std::fill(buckets, buckets + encoder_bucket_ints(count), -1);
    buckets[0] = int(found.size());
    int *entry = buckets + 1, *positions = buckets + 2 * size_t(count) + 3, placed = 0;
    for (const Bucket& b : found) {
        *entry++ = int(order[b.start] >> 32);
        *entry++ = placed;
        for (int i = b.start; i < b.start + b.size; i++) positions[placed++] = int(uint32_t(order[i]));
    }
    entry[1] = count;
}

template <class T>
void encoder_forward_cpu(T* out, const int* inp, const T* wte, const T* wpe, int B, int seq, int C) {
    const CpuTimer timer("encoder_forward", moves<T>(3.0 * B * seq * C));
#pragma omp parallel for
    for (int row = 0; row < B * seq; row++) {
        const T *token = wte + size_t(inp[row]) * C, *position = wpe + size_t(row % seq) * C;
        T* y = out + size_t(row) * C;
        for (int c = 0; c < C; c++) y[c] = round_to<T>(float(token[c]) + float(position[c]));
    }
}

static const int CHANNELS = 128;  // that a thread sums at once, in fp32 and on the stack

template <class T>
static void add_to_sums(float* sums, const T* x, int n) {
    for (int c = 0; c < n; c++) sums[c] += float(x[c]);
}

template <class T>
static void add_sums_to(T* x, const float* sums, int n) {
    for (int c = 0; c < n; c++) x[c] = round_to<T>(float(x[c]) + sums[c]);
}

template <class T>
void encoder_backward_cpu(T* dwte, T* dwpe, const T* dout, const int* buckets, int B, int seq, int C) {
    const CpuTimer timer("encoder_backward", moves<T>(4.0 * B * seq * C));
    const size_t count = size_t(B) * seq;
    const int* positions = buckets + 2 * count + 3;
#pragma omp parallel for collapse(2) schedule(dynamic, 4)
    for (int b = 0; b < buckets[0]; b++) {
        for (int first = 0; first < C; first += CHANNELS) {
            const int *bucket = buckets + 1 + 2 * size_t(b), n = std::min(CHANNELS, C - first);
            float sums[CHANNELS] = {};
            for (int j = bucket[1]; j < bucket[3]; j++)
                add_to_sums(sums, dout + size_t(positions[j]) * C + first, n);
            add_sums_to(dwte + size_t(bucket[0]) * C + first, sums, n);
        }
    }
#pragma omp parallel for collapse(2)
    for (int t = 0; t < seq; t++) {
        for (int first = 0; first < C; first += CHANNELS) {
            const int n = std::min(CHANNELS, C - first);
            float sums[CHANNELS] = {};
            for (int b = 0; b < B; b++) add_to_sums(sums, dout + (size_t(b) * seq + t) * C + first, n);
            add_sums_to(dwpe + size_t(t) * C + first, sums, n);
        }
    }
}

// The rows of wte that are used depend on the tokens, so only the first one is checked to lie in a live
// buffer.
template <class T>
static EncoderForwardArgs forward_args(LaunchPad& pad, T* out, const int* inp, const T* wte, const T* wpe,
                                       int B, int seq, int C) {
    const size_t n = size_t(B) * seq, c = C;
    return {pad.at(out, n * c), pad.at(inp, n), pad.at(wte, c), pad.at(wpe, seq * c), int(n), seq, C};
}

template <class T>
static void encoder_forward1(LaunchPad& pad, T* out, const int* inp, const T* wte, const T* wpe, int B,
                             int seq, int C, int block_size) {
    EncoderForwardArgs args = forward_args(pad, out, inp, wte, wpe, B, seq, C);
    pad.dispatch<T>("encoder_forward1", {blocks(uint64_t(args.N) * C, block_size)}, {uint32_t(block_size)},
                    args, moves<T>(2.0 * args.N * C));
}

template <class T>
static void encoder_forward2(LaunchPad& pad, T* out, const int* inp, const T* wte, const T* wpe, int B,
                             int seq, int C, int block_size) {
    EncoderForwardArgs args = forward_args(pad, out, inp, wte, wpe, B, seq, C);
    const uint32_t width = wide_pack_width<T>(C, {args.outp, args.wte, args.wpe});
    pad.dispatch<T>("encoder_forward2", {uint64_t(args.N)}, {uint32_t(block_size), width}, args,
                    moves<T>(2.0 * args.N * C));
}

// Reads, of each position's row, what AdamW does; the position and the output.
template <class T>
static Work forward_updated_work(int N, int C, const AdamWDue<T>& due) {
    return {double(N) * C * (8.0 + (due.master ? 4.0 : sizeof(T)) + 3.0 * sizeof(T))};
}

template <class T>
static void encoder_forward_updated1(LaunchPad& pad, T* out, const int* inp, const T* wte, const T* wpe,
                                     const AdamWDue<T>& due, int B, int seq, int C, int block_size) {
    const EncoderForwardArgs plain = forward_args(pad, out, inp, wte, wpe, B, seq, C);
    const size_t c = C;
    const EncoderForwardUpdatedArgs args = {plain.outp,
                                            plain.inp,
                                            plain.wte,
                                            plain.wpe,
                                            pad.at(due.master, c),
                                            pad.at(due.m, c),
                                            pad.at(due.v, c),
                                            pad.at(due.grads, c),
                                            pad.at(due.step, 1),
                                            pad.at(due.norm_and_scale, 2),
                                            plain.N,
                                            seq,
                                            C,
                                            due.weight_decay};
    uint32_t width = pack_width<T>(c, {args.outp, args.wte, args.wpe, args.grads});
    if ((args.master | args.m | args.v) % 16) width = 1;
    pad.dispatch<T>("encoder_forward_updated1", {uint64_t(args.N)}, {uint32_t(block_size), width}, args,
                    forward_updated_work(args.N, C, due));
}

template <class T>
static EncoderBackwardArgs backward_args(LaunchPad& pad, T* dwte, T* dwpe, const T* dout, const int* buckets,
                                         int B, int seq, int C) {
    const size_t n = size_t(B) * seq, c = C;
    return {pad.at(dwte, c),
            pad.at(dwpe, seq * c),
            pad.at(dout, n * c),
            pad.at(buckets, encoder_bucket_ints(int(n))),
            B,
            seq,
            C,
            int(n)};
}

template <class T>
static void backward_position(LaunchPad& pad, const EncoderBackwardArgs& args, uint32_t width,
                              uint32_t block) {
    const uint64_t packs = uint64_t(args.T) * args.C / width;
    pad.dispatch<T>("encoder_backward_position", {blocks(packs, block)}, {block, width}, args,
                    moves<T>((args.B + 2.0) * args.T * args.C));
}

template <class T>
static void encoder_backward1(LaunchPad& pad, T* dwte, T* dwpe, const T* dout, const int* buckets, int B,
                              int seq, int C, int block_size) {
    EncoderBackwardArgs args = backward_args(pad, dwte, dwpe, dout, buckets, B, seq, C);
    const uint32_t block = uint32_t(block_size);
    pad.dispatch<T>("encoder_backward1", {blocks(uint64_t(args.lists) * C, block)}, {block}, args);
    backward_position<T>(pad, args, 1, block);
}

// How many buckets the grids of version 2 hold: enough to fill a large GPU, few enough that the workgroups
// beyond the number of buckets, which is not known here, cost nothing.
static const int SHORT_LISTS = 8192, LONG_LISTS = 256;

template <class T>
static void encoder_backward2(LaunchPad& pad, T* dwte, T* dwpe, const T* dout, const int* buckets, int B,
                              int seq, int C, int block_size) {
    EncoderBackwardArgs args = backward_args(pad, dwte, dwpe, dout, buckets, B, seq, C);
    const uint32_t block = uint32_t(block_size), width = pack_width<T>(C, {args.dwte, args.dwpe, args.dout});
    const int count = B * seq;
    args.lists = std::min(count / (LONG_BUCKET + 1), LONG_LISTS);
    pad.dispatch<T>("encoder_backward2_long", {args.lists * blocks(C, 32)}, {block, width}, args);
    args.lists = std::min(count, SHORT_LISTS);
    pad.dispatch<T>("encoder_backward2", {blocks(uint64_t(args.lists) * C / width, block)}, {block, width},
                    args);
    backward_position<T>(pad, args, width, block);
}

template <class T>
std::vector<KernelVersion<EncoderForward<T>>> encoder_forward_versions() {
    return {
        {"encoder_forward1", "one invocation per element", encoder_forward1<T>, {256, 64, 128, 512}},
        {"encoder_forward2",
         "one workgroup per position, 16-byte accesses",
         encoder_forward2<T>,
         {64, 32, 128, 256}},
    };
}

template <class T>
std::vector<KernelVersion<EncoderForwardUpdated<T>>> encoder_forward_updated_versions() {
    return {
        {"encoder_forward_updated1",
         "one workgroup per position, 16-byte accesses",
         encoder_forward_updated1<T>,
         {64, 32, 128, 256}},
    };
}

template <class T>
std::vector<KernelVersion<EncoderBackward<T>>> encoder_backward_versions() {
    return {
        {"encoder_backward1",
         "one invocation per channel of a token",
         encoder_backward1<T>,
         {256, 32, 64, 128}},
        {"encoder_backward2",
         "16-byte accesses, long buckets split over workgroups",
         encoder_backward2<T>,
         {256, 64, 128, 512}},
    };
}

template <class T>
void encoder_forward(LaunchPad* pad, T* out, const int* inp, const T* wte, const T* wpe, int B, int seq,
                     int C) {
    if (!pad) return encoder_forward_cpu(out, inp, wte, wpe, B, seq, C);
    encoder_forward2(*pad, out, inp, wte, wpe, B, seq, C, 64);
}

template <class T>
void encoder_forward_updated(LaunchPad& pad, T* out, const int* inp, const T* wte, const T* wpe,
                             const AdamWDue<T>& due, int B, int seq, int C) {
    encoder_forward_updated1(pad, out, inp, wte, wpe, due, B, seq, C, 64);
}

template <class T>
void encoder_backward(LaunchPad* pad, T* dwte, T* dwpe, const T* dout, const int* buckets, int B, int seq,
                      int C) {
    if (!pad) return encoder_backward_cpu(dwte, dwpe, dout, buckets, B, seq, C);
    if (pad->device().type == DeviceType::software)  // where barriers are dear
        return encoder_backward1(*pad, dwte, dwpe, dout, buckets, B, seq, C, 128);
    encoder_backward2(*pad, dwte, dwpe, dout, buckets, B, seq, C, 256);
}

#define INSTANTIATE(T)                                                                                \
    template std::vector<KernelVersion<EncoderForward<T>>> encoder_forward_versions();                \
    template std::vector<KernelVersion<EncoderForwardUpdated<T>>> encoder_forward_updated_versions(); \
    template std::vector<KernelVersion<EncoderBackward<T>>> encoder_backward_versions();              \
    template void encoder_forward_cpu(T*, const int*, const T*, const T*, int, int, int);             \
    template void encoder_backward_cpu(T*, T*, const T*, const int*, int, int, int);                  \
    template void encoder_forward(LaunchPad*, T*, const int*, const T*, const T*, int, int, int);     \
    template void encoder_forward_updated(LaunchPad&, T*, const int*, const T*, const T*,             \
                                          const AdamWDue<T>&, int, int, int);                         \
    template void encoder_backward(LaunchPad*, T*, T*, const T*, const int*, int, int, int);
FOR_EACH_REAL(INSTANTIATE)
