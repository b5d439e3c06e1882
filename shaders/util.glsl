// Included by every kernel: extensions, argument types, workgroup and invocation indices, loads and stores of
// the storage type, and 64-bit row offsets.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int32 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

#include "args.h"

layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;
layout(constant_id = 0) const uint BLOCK = 64;  // invocations in a workgroup

// The index of this workgroup in a one-dimensional grid. The launchpad may fold the grid into two dimensions,
// which can add workgroups: every kernel checks the index against its sizes.
uint group_index() { return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
// The index of this invocation in such a grid; 64 bits, because tensors may have more than 2^32 elements.
uint64_t global_index() { return uint64_t(group_index()) * BLOCK + gl_LocalInvocationID.x; }

// v rounded to fp16: to nearest, ties to even; from 65520 on, to infinity. How a conversion rounds is left to
// the device: AMD's packHalf2x16() truncates, and makes 65504 of what overflows, which would hide it from
// loss scaling. After this, conversions are exact, but some devices flush subnormals. With 2^13 times its
// power of two added, v has no bits left below fp16's last one. Subnormals count as the smallest normal power.
float round_half(float v) {
    const uint bits = floatBitsToUint(v);
    const float unit = max(uintBitsToFloat(bits & 0x7f800000u), 1.0 / 16384);
    precise const float offset = 12288 * unit;  // half as much again, for either sign of v
    precise const float shifted = v + offset;
    precise const float near = shifted - offset;
    const uint with_sign = (floatBitsToUint(near) & 0x7fffffffu) | (bits & 0x80000000u);
    return mix(uintBitsToFloat(with_sign), v * 1e38, abs(v) >= 65520);
}

// Elements of the storage type, loaded and stored as float: one, four (elements 4 * i to 4 * i + 3 of p,
// which is aligned to four elements) or eight, as two columns of four. Stores round to nearest, ties to even.
// stored() rounds v as a store followed by a load would.
#ifdef REAL_FP32
const uint REAL_BYTES = 4;
float load(Reals p, uint i) { return p.x[i]; }
void store(Reals p, uint i, float v) { p.x[i] = v; }
vec4 load4(Reals p, uint i) { return Reals4(uint64_t(p)).x[i]; }
void store4(Reals p, uint i, vec4 v) { Reals4(uint64_t(p)).x[i] = v; }
mat2x4 load8(Reals p, uint i) { return mat2x4(load4(p, 2 * i), load4(p, 2 * i + 1)); }
void store8(Reals p, uint i, mat2x4 v) {
    store4(p, 2 * i, v[0]);
    store4(p, 2 * i + 1, v[1]);
}
vec4 stored(vec4 v) { return v; }
#else
const uint REAL_BYTES = 2;
#ifdef REAL_BF16
vec2 unpack(uint u) { return vec2(uintBitsToFloat(u << 16), uintBitsToFloat(u & 0xffff0000u)); }
uint round_real(float v) {  // a NaN stays one
    const uint u = floatBitsToUint(v);
    return (u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}
uint pack(vec2 v) { return round_real(v.x) | round_real(v.y) << 16; }
#else
vec2 unpack(uint u) { return unpackHalf2x16(u); }
uint pack(vec2 v) { return packHalf2x16(vec2(round_half(v.x), round_half(v.y))); }
uint round_real(float v) { return pack(vec2(v, 0)); }
#endif
float load(Reals p, uint i) { return unpack(uint(p.x[i])).x; }
void store(Reals p, uint i, float v) { p.x[i] = uint16_t(round_real(v)); }
vec4 load4(Reals p, uint i) {
    const uvec2 u = Reals4(uint64_t(p)).x[i];
    return vec4(unpack(u.x), unpack(u.y));
}
void store4(Reals p, uint i, vec4 v) { Reals4(uint64_t(p)).x[i] = uvec2(pack(v.xy), pack(v.zw)); }
mat2x4 load8(Reals p, uint i) {
    const uvec4 u = Reals8(uint64_t(p)).x[i];
    return mat2x4(unpack(u.x), unpack(u.y), unpack(u.z), unpack(u.w));
}
void store8(Reals p, uint i, mat2x4 v) {
    Reals8(uint64_t(p)).x[i] = uvec4(pack(v[0].xy), pack(v[0].zw), pack(v[1].xy), pack(v[1].zw));
}
vec4 stored(vec4 v) {
    // NVIDIA's compiler removes a conversion to fp16 and back, unless a value unknown to it intervenes. No
    // grid has more than one workgroup in z, so this one is zero.
    const uint zero = gl_NumWorkGroups.z - 1;
    return vec4(unpack(pack(v.xy) ^ zero), unpack(pack(v.zw) ^ zero));
}

// Four elements as store4() writes them, but for kernels bound by arithmetic: in bf16, ties round away from
// zero, which takes fewer instructions.
uvec2 round4(vec4 v) {
#ifdef REAL_BF16
    // Adds half a unit in the last place of bf16. `unit` is v rounded down to a power of two, with its sign;
    // NaN and infinity stay what they are.
    const vec4 unit = uintBitsToFloat(floatBitsToUint(v) & 0xff800000u);
    const uvec4 rounded = floatBitsToUint(fma(unit, vec4(1.0 / 256), v));
    return (rounded.xz >> 16) | (rounded.yw & 0xffff0000u);
#else
    return uvec2(pack(v.xy), pack(v.zw));
#endif
}
#endif

// p advanced by row * width elements, which may exceed 2^32. (glslang cannot overload on buffer references.)
Reals real_row(Reals p, uint64_t row, uint width) { return Reals(uint64_t(p) + row * width * REAL_BYTES); }
Floats float_row(Floats p, uint64_t row, uint width) { return Floats(uint64_t(p) + row * width * 4); }
Ints int_row(Ints p, uint64_t row, uint width) { return Ints(uint64_t(p) + row * width * 4); }

// No kernel declares SignedZeroInfNanPreserve, so compilers may assume that isnan() is never true, and
// functions such as exp2() and max() may turn NaN into a number. These test and make the bits.
const uint INFINITY_BITS = 0x7f800000u, MAGNITUDE_BITS = 0x7fffffffu;  // NaN's magnitude is above infinity
bool is_finite(float v) { return (floatBitsToUint(v) & INFINITY_BITS) != INFINITY_BITS; }
float infinity() { return uintBitsToFloat(INFINITY_BITS); }
float not_a_number() { return uintBitsToFloat(0x7fc00000u); }
