// The baselines of attention: one invocation per query, or per key for dk and dv.
#include "dev/vulkan/baselines/join.h"
#include "llmc/launchpad/packs.h"

// The work of `gemms` GEMMs that read or write (T,T) scores, half of which the causal mask removes.
template <class Args>
static Work score_work(const Args& args, int gemms) {
    return {.flops = double(gemms) * args.B * args.T * args.T * args.C};
}

template <class Real>
static void attention_forward1(LaunchPad& pad, const AttentionForward<Real>& p, int block_size) {
    const size_t num_rows = size_t(p.B) * p.T;
    const uint32_t hs = attention_head_size(p.C, p.NH);
    const AttentionForwardArgs args = {.outp = pad.at(p.out, num_rows * p.C),
                                       .lse = pad.at(p.lse, num_rows * p.NH),
                                       .qkv = pad.at(p.qkv, num_rows * 3 * p.C),
                                       .B = p.B,
                                       .T = p.T,
                                       .C = p.C,
                                       .NH = p.NH};
    pad.dispatch<Real>("attention_forward1", {ceil_div(num_rows * p.NH, block_size)},
                       {uint32_t(block_size), hs}, args, score_work(args, 2));
}

template <class Real>
static AttentionBackwardArgs backward_args(LaunchPad& pad, const AttentionBackward<Real>& p) {
    const size_t num_rows = size_t(p.B) * p.T;
    return {.dqkv = pad.at(p.dqkv, num_rows * 3 * p.C),
            .delta = pad.at(p.delta, num_rows * p.NH),
            .dout = pad.at(p.dout, num_rows * p.C),
            .outp = pad.at(p.out, num_rows * p.C),
            .lse = pad.at(p.lse, num_rows * p.NH),
            .qkv = pad.at(p.qkv, num_rows * 3 * p.C),
            .B = p.B,
            .T = p.T,
            .C = p.C,
            .NH = p.NH};
}

template <class Real>
static void attention_backward1(LaunchPad& pad, const AttentionBackward<Real>& p, int block_size) {
    const uint32_t hs = attention_head_size(p.C, p.NH), block = block_size;
    const AttentionBackwardArgs args = backward_args(pad, p);
    const Groups groups = {ceil_div(uint64_t(p.B) * p.NH * p.T, block)};
    const uint32_t width = wide_pack_width<Real>(hs, {args.dout, args.outp}), heads = 4 * 128 * width / hs;
    pad.dispatch<Real>("attention_backward_delta", {ceil_div(uint64_t(p.B) * p.T * p.NH, heads)},
                       {128, width, hs, heads}, args, memory_traffic<Real>(2.0 * p.B * p.T * p.C));
    pad.barrier();
    const ConcurrentGroup group(&pad);
    pad.dispatch<Real>("attention_backward1_dkv", groups, {block, hs}, args, score_work(args, 4));
    pad.dispatch<Real>("attention_backward1_dq", groups, {block, hs}, args, score_work(args, 3));
}

template <class Real>
Versions<AttentionForward<Real>> with_baselines(Versions<AttentionForward<Real>> versions) {
    return join<AttentionForward<Real>, int>(
        {{"attention_forward1", "one invocation per query", attention_forward1<Real>, {32, 128}}}, versions);
}

template <class Real>
Versions<AttentionBackward<Real>> with_baselines(Versions<AttentionBackward<Real>> versions) {
    return join<AttentionBackward<Real>, int>({{"attention_backward1",
                                                "one invocation per key for dk and dv, one per query for dq",
                                                attention_backward1<Real>,
                                                {32, 128}}},
                                              versions);
}

#define INSTANTIATE(Real)                                                                       \
    template Versions<AttentionForward<Real>> with_baselines(Versions<AttentionForward<Real>>); \
    template Versions<AttentionBackward<Real>> with_baselines(Versions<AttentionBackward<Real>>);
FOR_EACH_REAL(INSTANTIATE)
#undef INSTANTIATE
