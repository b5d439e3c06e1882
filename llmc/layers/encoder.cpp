// Encoder: token buckets, the CPU versions, the GPU versions with their tables, and the dispatchers that
// training calls.
#include "llmc/layers/encoder.h"

#include <algorithm>

#include "llmc/base/ceil_div.h"
#include "llmc/launchpad/packs.h"
#include "shaders/args.h"

size_t encoder_bucket_ints(int count) { return 3 * size_t(count) + 3; }

// The positions of a batch, sorted by token; equal tokens stay in order. A radix sort: the host prepares a
// batch while the GPU waits for it in jobs of several processes, and comparisons would take 4 ms for 65,536
// tokens.
static std::vector<uint64_t> sort_positions(const int* inp, int count) {
    std::vector<uint64_t> order(count), sorted(count);  // token in the upper 32 bits, position in the lower
    for (int i = 0; i < count; i++) order[i] = uint64_t(uint32_t(inp[i])) << 32 | uint32_t(i);
    uint32_t used_bits = 0;
    for (int i = 0; i < count; i++) used_bits |= uint32_t(inp[i]);
    const int digit_bits = 11, digits = 1 << digit_bits;
    for (int shift = 32; shift < 64 && used_bits >> (shift - 32); shift += digit_bits) {
        std::vector<int> ends(digits + 1);
        for (const uint64_t e : order) ends[(e >> shift) % digits + 1]++;
        for (int d = 0; d < digits; d++) ends[d + 1] += ends[d];
        for (const uint64_t e : order) sorted[ends[(e >> shift) % digits]++] = e;
        order.swap(sorted);
    }
    return order;
}

void build_encoder_buckets(int* buckets, const int* inp, int count) {
    const std::vector<uint64_t> order = sort_positions(inp, count);
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
    int *entry = buckets + 1, *positions = buckets + 2 * size_t(count) + 3, written = 0;
    for (const Bucket& b : found) {
        *entry++ = int(order[b.start] >> 32);
        *entry++ = written;
        for (int i = b.start; i < b.start + b.size; i++) positions[written++] = int(uint32_t(order[i]));
    }
    entry[1] = count;
}

template <class Real>
static void encoder_forward_cpu(const EncoderForward<Real>& p) {
    const int num_rows = p.B * p.T, T = p.T, C = p.C;
#pragma omp parallel for
    for (int row = 0; row < num_rows; row++) {
        const Real *token = p.wte + size_t(p.inp[row]) * C, *position = p.wpe + size_t(row % T) * C;
        Real* y = p.out + size_t(row) * C;
        for (int c = 0; c < C; c++) y[c] = round_to<Real>(float(token[c]) + float(position[c]));
    }
}

static const int CHANNELS = 128;  // summed at once by a thread, in fp32 accumulators on its stack

template <class Real>
static void add_to_sums(float* sums, const Real* x, int n) {
    for (int c = 0; c < n; c++) sums[c] += float(x[c]);
}

template <class Real>
static void add_sums_to(Real* x, const float* sums, int n) {
    for (int c = 0; c < n; c++) x[c] = round_to<Real>(float(x[c]) + sums[c]);
}

template <class Real>
static void encoder_backward_cpu(const EncoderBackward<Real>& p) {
    const int B = p.B, T = p.T, C = p.C, *buckets = p.buckets;
    const int* positions = buckets + 2 * size_t(B) * T + 3;
#pragma omp parallel for collapse(2) schedule(dynamic, 4)
    for (int b = 0; b < buckets[0]; b++) {
        for (int first = 0; first < C; first += CHANNELS) {
            const int *bucket = buckets + 1 + 2 * size_t(b), n = std::min(CHANNELS, C - first);
            float sums[CHANNELS] = {};
            for (int j = bucket[1]; j < bucket[3]; j++)
                add_to_sums(sums, p.dout + size_t(positions[j]) * C + first, n);
            add_sums_to(p.dwte + size_t(bucket[0]) * C + first, sums, n);
        }
    }
#pragma omp parallel for collapse(2)
    for (int t = 0; t < T; t++) {
        for (int first = 0; first < C; first += CHANNELS) {
            const int n = std::min(CHANNELS, C - first);
            float sums[CHANNELS] = {};
            for (int b = 0; b < B; b++) add_to_sums(sums, p.dout + (size_t(b) * T + t) * C + first, n);
            add_sums_to(p.dwpe + size_t(t) * C + first, sums, n);
        }
    }
}

template <class Real>
static void encoder_forward2(LaunchPad& pad, const EncoderForward<Real>& p, int block_size) {
    const size_t num_rows = size_t(p.B) * p.T, C = p.C;
    // The tokens decide which rows of wte are read, so only row 0 is checked to lie in a live buffer.
    const EncoderForwardArgs args = {.outp = pad.at(p.out, num_rows * C),
                                     .inp = pad.at(p.inp, num_rows),
                                     .wte = pad.at(p.wte, C),
                                     .wpe = pad.at(p.wpe, p.T * C),
                                     .num_rows = int(num_rows),
                                     .T = p.T,
                                     .C = p.C};
    const uint32_t width = wide_pack_width<Real>(p.C, {args.outp, args.wte, args.wpe});
    pad.dispatch<Real>("encoder_forward2", {uint64_t(args.num_rows)}, {uint32_t(block_size), width}, args,
                       memory_traffic<Real>(2.0 * args.num_rows * p.C));
}

// Takes several dispatches if a loop over all sequences exceeds Limits::max_iterations.
template <class Real>
static void backward_position(LaunchPad& pad, const EncoderBackward<Real>& p, EncoderBackwardArgs args,
                              uint32_t width, uint32_t block_size) {
    const size_t elements = size_t(p.T) * p.C;
    const int most = int(std::min(uint32_t(p.B), pad.limits().max_iterations));
    for (int first = 0; first < p.B; first += args.B) {
        args.B = std::min(most, p.B - first);
        args.dout = pad.at(p.dout + first * elements, args.B * elements);
        pad.dispatch<Real>("encoder_backward_position", {ceil_div(elements / width, block_size)},
                           {block_size, width}, args, memory_traffic<Real>((args.B + 2.0) * elements));
        if (first + args.B < p.B) pad.barrier();  // which adds to the same sums
    }
}

// Buckets that the grids of version 2 cover at once. The host side of the launch does not know how many
// buckets there are: these fill a large GPU, and the workgroups beyond the last bucket cost nothing.
static const int SHORT_BUCKETS = 8192, LONG_BUCKETS = 256;

// Upper bound of the kernel's loop iterations: one workgroup sums nearly all positions.
static uint64_t long_iterations(uint64_t num_rows, uint32_t block_size, uint32_t width) {
    const uint64_t splits = block_size / (32 / width);
    // a token is 16 bits
    const uint64_t most_buckets = std::min<uint64_t>(num_rows / (LONG_BUCKET + 1), 65536);
    return num_rows / (4 * splits) + ceil_div(most_buckets, LONG_BUCKETS) * (splits + 4);
}

// Software devices prefer small workgroups: enlarges them only until their loops are short enough.
template <class Real>
static void backward_long(LaunchPad& pad, EncoderBackwardArgs args, uint32_t width, uint32_t block_size) {
    const Limits& limits = pad.limits();
    const int num_rows = args.B * args.T;
    args.grid_buckets = std::min(num_rows / (LONG_BUCKET + 1), LONG_BUCKETS);
    while (long_iterations(num_rows, block_size, width) > limits.max_iterations &&
           2 * block_size <= limits.max_block)
        block_size *= 2;
    check_iterations(pad, "encoder_backward2_long", long_iterations(num_rows, block_size, width));
    pad.dispatch<Real>("encoder_backward2_long", {args.grid_buckets * ceil_div(args.C, 32)},
                       {block_size, width}, args);
}

template <class Real>
static void encoder_backward2(LaunchPad& pad, const EncoderBackward<Real>& p, int config) {
    const size_t num_rows = size_t(p.B) * p.T, C = p.C;
    EncoderBackwardArgs args = {.dwte = pad.at(p.dwte, C),
                                .dwpe = pad.at(p.dwpe, p.T * C),
                                .dout = pad.at(p.dout, num_rows * C),
                                .buckets = pad.at(p.buckets, encoder_bucket_ints(int(num_rows))),
                                .B = p.B,
                                .T = p.T,
                                .C = p.C,
                                .grid_buckets = int(num_rows)};
    const uint32_t block_size = uint32_t(config);
    const uint32_t width = pack_width<Real>(args.C, {args.dwte, args.dwpe, args.dout});
    const ConcurrentGroup group(&pad);  // long and short buckets are disjoint rows of dwte
    backward_long<Real>(pad, args, width, block_size);
    args.grid_buckets = std::min(int(num_rows), SHORT_BUCKETS);
    const uint64_t packs = uint64_t(args.grid_buckets) * args.C / width;
    pad.dispatch<Real>("encoder_backward2", {ceil_div(packs, block_size)}, {block_size, width}, args);
    backward_position<Real>(pad, p, args, width, block_size);
}

template <class Real>
std::vector<KernelVersion<EncoderForward<Real>>> encoder_forward_versions() {
    return {
        {"encoder_forward2",
         "one workgroup per position, 16-byte accesses",
         encoder_forward2<Real>,
         {64, 32, 128, 256}},
    };
}

template <class Real>
std::vector<KernelVersion<EncoderBackward<Real>>> encoder_backward_versions() {
    return {
        {"encoder_backward2",
         "16-byte accesses, long buckets split over workgroups",
         encoder_backward2<Real>,
         {256, 64, 128, 512}},
    };
}

template <class Real>
void encoder_forward(LaunchPad* pad, const EncoderForward<Real>& p) {
    if (!pad) return encoder_forward_cpu(p);
    launch<Real>(*pad, p, encoder_forward_versions<Real>(), "encoder_forward2", 64);
}

template <class Real>
void encoder_backward(LaunchPad* pad, const EncoderBackward<Real>& p) {
    if (!pad) return encoder_backward_cpu(p);
    launch<Real>(*pad, p, encoder_backward_versions<Real>(), "encoder_backward2",
                 int(std::min(256u, pad->limits().barrier_block)));
}

#define INSTANTIATE(Real)                                    \
    INSTANTIATE_LAYER(encoder_forward, EncoderForward, Real) \
    INSTANTIATE_LAYER(encoder_backward, EncoderBackward, Real)
FOR_EACH_REAL(INSTANTIATE)
