// Attention of the newest rows: the CPU version, the GPU version, its table, and the function that generation
// calls.
#include "llmc/generate/decode_attention.h"

#include <algorithm>

#include "llmc/base/ceil_div.h"
#include "llmc/launchpad/packs.h"
#include "llmc/layers/attention.h"
#include "llmc/layers/cached_attention.h"
#include "shaders/args.h"

template <class Real>
void decode_attention_cpu(const DecodeAttention<Real>& p) {
    const size_t C = p.C;
    for (int b = 0; b < p.num_texts; b++)
        cached_attention_forward_cpu<Real>({.out = p.out + b * C,
                                            .qkv = p.cache + b * p.T * 3 * C,
                                            .first = p.positions[b],
                                            .num_rows = 1,
                                            .C = p.C,
                                            .NH = p.NH});
}

template <class Real>
static void decode_attention1(LaunchPad& pad, const DecodeAttention<Real>& p, int block_size) {
    const size_t C = p.C, B = p.num_texts;
    const uint32_t hs = attention_head_size(p.C, p.NH), subgroup = pad.limits().subgroup_size;
    const DecodeAttentionArgs args = {pad.at(p.out, B * C),
                                      pad.at(p.cache, B * p.T * 3 * C),
                                      pad.at(p.positions, B),
                                      p.num_texts,
                                      p.T,
                                      p.C,
                                      p.NH};
    const uint32_t width = wide_pack_width<Real>(hs, {args.outp, args.cache});
    const uint32_t least =
        uint32_t(ceil_div(hs / width, subgroup)) * subgroup;  // an invocation for each pack of a head
    const uint32_t block = std::max(std::min(uint32_t(block_size), pad.limits().max_block), least);
    check_iterations(pad, "decode_attention1", ceil_div(p.T, block) * (ceil_div(hs, width) + 2));
    pad.dispatch<Real>("decode_attention1", {uint64_t(B) * p.NH}, {block, width, hs}, args,
                       memory_traffic<Real>(double(B) * p.T * 2.0 * double(C)));
}

template <class Real>
std::vector<KernelVersion<DecodeAttention<Real>>> decode_attention_versions() {
    return {
        {"decode_attention1", "one workgroup per text and head", decode_attention1<Real>, {256, 64, 512}}};
}

template <class Real>
void decode_attention(LaunchPad* pad, const DecodeAttention<Real>& p) {
    if (!pad) return decode_attention_cpu(p);
    decode_attention1(*pad, p, 256);
}

#define INSTANTIATE(Real)                                                                   \
    template std::vector<KernelVersion<DecodeAttention<Real>>> decode_attention_versions(); \
    template void decode_attention_cpu(const DecodeAttention<Real>&);                       \
    template void decode_attention(LaunchPad*, const DecodeAttention<Real>&);
FOR_EACH_REAL(INSTANTIATE)
