// Shared by the kernels of Muon (llmc/layers/muon.h): momentum, and what is orthogonalized.
#include "packs.glsl"
#include "adamw.glsl"

// The type of what is orthogonalized, which is independent of the storage type.
layout(constant_id = 2) const uint MUON_TYPE = 0;

layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Halves4 { uvec2 x[]; };

// Packs of fp32 values, as load_pack() and store_pack() have them of Reals.
vec4 load_floats(Floats p, uint i) {
    if (WIDTH == 4) return Floats4(uint64_t(p)).x[i];
    return vec4(p.x[i], 0, 0, 0);
}
void store_floats(Floats p, uint i, vec4 v) {
    if (WIDTH == 4)
        Floats4(uint64_t(p)).x[i] = v;
    else
        p.x[i] = v.x;
}

// Two values in 16 bits each, rounded to nearest, ties to even. They are finite.
uint muon_pack(vec2 v) {
    if (MUON_TYPE == MUON_FP16) return packHalf2x16(vec2(round_half(v.x), round_half(v.y)));
    const uvec2 u = floatBitsToUint(v), rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return rounded.x | rounded.y << 16;
}
vec2 muon_unpack(uint u) {
    if (MUON_TYPE == MUON_FP16) return unpackHalf2x16(u);
    return vec2(uintBitsToFloat(u << 16), uintBitsToFloat(u & 0xffff0000u));
}

// x_row(): the address of element `first` of X, a multiple of WIDTH. load_x() and store_x(): pack i from
// there. With a 16-bit X, WIDTH is 4, so that no device needs 16-bit loads.
uint64_t x_row(uint64_t x, uint64_t first) { return x + first * (MUON_TYPE == MUON_FP32 ? 4u : 2u); }
vec4 load_x(uint64_t x, uint i) {
    if (MUON_TYPE == MUON_FP32) return load_floats(Floats(x), i);
    const uvec2 u = Halves4(x).x[i];
    return vec4(muon_unpack(u.x), muon_unpack(u.y));
}
void store_x(uint64_t x, uint i, vec4 v) {
    if (MUON_TYPE == MUON_FP32)
        store_floats(Floats(x), i, v);
    else
        Halves4(x).x[i] = uvec2(muon_pack(v.xy), muon_pack(v.zw));
}

// The moving average that Muon takes twice: of the gradients, and of that and the gradients (Nesterov).
vec4 average(float momentum, vec4 m, vec4 g) { return momentum * m + (1 - momentum) * g; }
