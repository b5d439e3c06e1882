// Draws the next token of each text from its logits, as llmc/layers/sampler.cpp does: one workgroup per
// text. Each subgroup owns a range of token numbers. All sums are integers, so they do not depend on their
// order. The kernel also advances the text's position and stores the token's embedding, with which the next
// step begins. Logits that are not finite give the token -1.
#version 460
#include "util.glsl"
#include "block_sum.glsl"

layout(push_constant, scalar) uniform Push { SampleTokenArgs args; };

const uint MAX_SUBGROUPS = 256;
shared uint subgroup_uints[MAX_SUBGROUPS];
shared uint64_t subgroup_sums[MAX_SUBGROUPS];
shared int chosen;

uint text, range, first, end;  // of this subgroup: `range` token numbers, or fewer, from `first` to `end`

// Sums over the workgroup and a subgroup. 64-bit values are below 2^49 and added in two parts, since devices
// need not have 64-bit subgroup operations.
uint block_sum_uint(uint v) {
    v = subgroupAdd(v);
    barrier();
    if (subgroupElect()) subgroup_uints[gl_SubgroupID] = v;
    barrier();
    uint sum = 0;
    for (uint i = 0; i < gl_NumSubgroups; i++) sum += subgroup_uints[i];
    return sum;
}
uint64_t subgroup_sum_long(uint64_t v) {
    return (uint64_t(subgroupAdd(uint(v >> 24))) << 24) + subgroupAdd(uint(v) & 0xffffffu);
}
uint64_t block_sum_long(uint64_t v) {
    v = subgroup_sum_long(v);
    barrier();
    if (subgroupElect()) subgroup_sums[gl_SubgroupID] = v;
    barrier();
    uint64_t sum = 0;
    for (uint i = 0; i < gl_NumSubgroups; i++) sum += subgroup_sums[i];
    return sum;
}

float penalized_logit(uint token) {
    const float logit = load(args.logits, text * args.Vp + token);
    if (uint64_t(args.seen) == 0) return logit;
    const uint word = args.seen.x[text * ((args.V + 31) / 32) + token / 32];
    if ((word >> (token % 32) & 1) == 0) return logit;
    return logit * (logit > 0 ? args.reciprocal : args.penalty);
}

uint times(uint a, uint b) {  // a * b / 2^32
    uint high, low;
    umulExtended(a, b, high, low);
    return high;
}
uint sampling_weight(float below) {
    precise const float octaves = below * args.scale;
    if (!(octaves < 32)) return 0;
    const uint fixed_point = uint(octaves * 67108864.0), fraction = fixed_point << 6;
    uint power = 2838u;
    power = 32755u - times(power, fraction);
    power = 330788u - times(power, fraction);
    power = 2863360u - times(power, fraction);
    power = 20654775u - times(power, fraction);
    power = 119194166u - times(power, fraction);
    power = 515882496u - times(power, fraction);
    power = 1488522236u - times(power, fraction);
    power = 2147483648u - times(power, fraction);
    return power >> (fixed_point >> 26);
}
uint64_t scaled_down(uint64_t sum, uint factor) {
    return (sum >> 24) * factor + ((sum & 0xffffff) * factor >> 24);
}
uint64_t scaled_up(uint64_t sum, uint factor) {
    return (sum >> 24) * factor + (((sum & 0xffffff) * factor + 0xffffff) >> 24);
}

// Every invocation reads the weights that it wrote itself.
uint weight(uint token) { return uint(args.weights.x[text * args.V + token]); }

uint count_at_least(uint least) {
    uint count = 0;
    for (uint i = first + gl_SubgroupInvocationID; i < end; i += gl_SubgroupSize)
        if (weight(i) >= least) count++;
    return block_sum_uint(count);
}
uint64_t sum_at_least(uint least) {
    uint64_t sum = 0;
    for (uint i = first + gl_SubgroupInvocationID; i < end; i += gl_SubgroupSize) {
        const uint w = weight(i);
        if (w >= least) sum += w;
    }
    return block_sum_long(sum);
}

// Which weights may be drawn: those above `cut`, and of those equal to it the `ties` lowest tokens.
struct Kept {
    uint cut, ties;
};

Kept keep_top_k() {
    uint cut = 0;  // becomes the k-th largest weight
    for (int bit = 31; bit >= 0; bit--)
        if (count_at_least(cut | 1u << bit) >= args.top_k) cut |= 1u << bit;
    return Kept(cut, args.top_k - (cut == 0xffffffffu ? 0 : count_at_least(cut + 1)));
}

Kept keep_top_p(Kept kept) {
    const uint64_t sum = sum_at_least(kept.cut + 1) + uint64_t(kept.cut) * kept.ties;
    const uint64_t target = max(scaled_up(sum, args.top_p), uint64_t(1));
    uint cut = 0;
    for (int bit = 31; bit >= 0; bit--) {
        const uint least = cut | 1u << bit;
        if (least <= kept.cut || sum_at_least(least) >= target) cut = least;
    }
    return Kept(cut, uint((target - sum_at_least(cut + 1) + cut - 1) / cut));
}

Kept choose_kept() {
    Kept kept = Kept(0, 0);
    if (args.top_k > 0 && args.top_k < args.V) kept = keep_top_k();
    if (args.top_p < 1 << 24) kept = keep_top_p(kept);
    return kept.cut < args.min_weight ? Kept(args.min_weight - 1, 0) : kept;
}

// The largest logit; NaN if a logit is NaN or infinite, except -inf, or all are -inf.
float checked_maximum() {
    float maximum = uintBitsToFloat(0xff800000u);  // -inf
    uint bad = 0;
    for (uint i = first + gl_SubgroupInvocationID; i < end; i += gl_SubgroupSize) {
        const float logit = penalized_logit(i);
        if (!is_finite(logit) && floatBitsToUint(logit) != 0xff800000u) bad = 1;
        maximum = max(maximum, logit);
    }
    bad = block_sum_uint(bad);
    maximum = block_max(maximum);
    return bad > 0 || !is_finite(maximum) ? uintBitsToFloat(0x7fc00000u) : maximum;
}

void choose_likeliest(float maximum) {
    uint best = 0xffffffffu;
    for (uint i = first + gl_SubgroupInvocationID; i < end; i += gl_SubgroupSize)
        if (penalized_logit(i) == maximum) best = min(best, i);
    best = subgroupMin(best);
    barrier();
    if (subgroupElect()) subgroup_uints[gl_SubgroupID] = best;
    barrier();
    for (uint i = 0; i < gl_NumSubgroups; i++) best = min(best, subgroup_uints[i]);
    if (gl_LocalInvocationID.x == 0) chosen = int(best);
}

uint weight_below(float maximum, uint token) {
    precise const float below = maximum - penalized_logit(token);
    return sampling_weight(below);
}

// Shares what every subgroup has found in its part of the tokens: the sum of the weights above the cut, and
// how many are equal to it.
void share_part(uint64_t above, uint ties) {
    above = subgroup_sum_long(above);
    ties = subgroupAdd(ties);
    barrier();
    if (subgroupElect()) {
        subgroup_sums[gl_SubgroupID] = above;
        subgroup_uints[gl_SubgroupID] = ties;
    }
    barrier();
}

// The sum of the kept weights of a part, which takes some of the ties that are left.
uint64_t sum_of_part(uint part, uint cut, inout uint ties) {
    const uint taken = min(ties, subgroup_uints[part]);
    ties -= taken;
    return subgroup_sums[part] + uint64_t(cut) * taken;
}

// The part in which the sum of the kept weights exceeds the threshold. Threshold and ties become the part's.
uint find_part(uint cut, inout uint ties, inout uint64_t threshold) {
    uint part = 0;
    for (; part + 1 < gl_NumSubgroups; part++) {
        uint left = ties;
        const uint64_t sum = sum_of_part(part, cut, left);
        if (threshold < sum) break;
        threshold -= sum;
        ties = left;
    }
    return part;
}

// Chooses the token at which the sum of the kept weights exceeds the threshold, of those from `begin` to
// `stop`. All subgroups search together, since subgroup operations need that after branches.
void choose_between(uint begin, uint stop, float maximum, Kept kept, uint64_t threshold) {
    uint64_t sum = 0;
    for (uint start = begin; start < stop; start += gl_SubgroupSize) {
        const uint token = start + gl_SubgroupInvocationID;
        uint w = token < stop ? weight_below(maximum, token) : 0;
        const uint tie = w == kept.cut && token < stop ? 1 : 0;
        const uint ties_before = subgroupExclusiveAdd(tie);
        if (w < kept.cut || (tie == 1 && ties_before >= kept.ties)) w = 0;
        kept.ties -= min(kept.ties, subgroupAdd(tie));
        const uint64_t up_to_here =
            sum + (uint64_t(subgroupInclusiveAdd(w >> 16)) << 16) + subgroupInclusiveAdd(w & 0xffffu);
        const uint hit = subgroupMin(up_to_here > threshold ? token : 0xffffffffu);
        if (hit != 0xffffffffu) {
            if (gl_LocalInvocationID.x == 0) chosen = int(hit);
            break;
        }
        sum += (uint64_t(subgroupAdd(w >> 16)) << 16) + subgroupAdd(w & 0xffffu);
    }
}

void choose_random(float maximum, uint coin) {
    for (uint i = first + gl_SubgroupInvocationID; i < end; i += gl_SubgroupSize)
        args.weights.x[text * args.V + i] = int(weight_below(maximum, i));
    Kept kept = choose_kept();
    uint64_t above = 0;
    uint ties = 0;
    for (uint i = first + gl_SubgroupInvocationID; i < end; i += gl_SubgroupSize) {
        const uint w = weight(i);
        if (w > kept.cut) above += w;
        if (w == kept.cut) ties++;
    }
    share_part(above, ties);
    uint64_t total = 0;
    uint left = kept.ties;
    for (uint part = 0; part < gl_NumSubgroups; part++) total += sum_of_part(part, kept.cut, left);
    uint64_t threshold = scaled_down(total, coin);
    const uint begin = find_part(kept.cut, kept.ties, threshold) * range, stop = min(begin + range, args.V);

    // all subgroups divide the range that was found
    const uint size = (range + gl_NumSubgroups - 1) / gl_NumSubgroups, own = begin + gl_SubgroupID * size;
    above = 0;
    ties = 0;
    for (uint i = own + gl_SubgroupInvocationID; i < min(own + size, stop); i += gl_SubgroupSize) {
        const uint w = weight_below(maximum, i);
        if (w > kept.cut) above += w;
        if (w == kept.cut) ties++;
    }
    share_part(above, ties);
    const uint found = begin + find_part(kept.cut, kept.ties, threshold) * size;
    choose_between(found, min(found + size, stop), maximum, kept, threshold);
}

uint next_coin() {  // 24 bits; see random_u32() of llmc/layers/sampler.h
    uint64_t state = args.random_states.x[text];
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    barrier();  // all invocations have read the state
    if (gl_LocalInvocationID.x == 0) args.random_states.x[text] = state;
    return uint((state * 0x2545f4914f6cdd1dul) >> 32) >> 8;
}

void main() {
    text = group_index();
    if (text >= uint(args.num_texts)) return;
    const uint V = args.V;
    range = (V + gl_NumSubgroups - 1) / gl_NumSubgroups;
    first = min(gl_SubgroupID * range, V);
    end = min(first + range, V);
    const int position = args.positions.x[text] + 1;
    const float maximum = checked_maximum();
    const uint coin = next_coin();
    if (gl_LocalInvocationID.x == 0) chosen = -1;
    barrier();
    if (is_finite(maximum)) {
        if (args.scale == 0)
            choose_likeliest(maximum);
        else
            choose_random(maximum, coin);
    }
    barrier();
    const int token = chosen;
    if (position < args.T)
        for (uint c = gl_LocalInvocationID.x; c < args.C; c += BLOCK)
            args.stream.x[text * args.C + c] = load(real_row(args.wte, max(token, 0), args.C), c) +
                                               load(real_row(args.wpe, position, args.C), c);
    if (gl_LocalInvocationID.x != 0) return;
    args.tokens.x[text * (args.T + 1) + position] = token;
    args.positions.x[text] = position;
    if (uint64_t(args.seen) != 0 && token >= 0)
        args.seen.x[text * ((V + 31) / 32) + token / 32] |= 1 << (token % 32);
}
