// Packs: one kernel source serves vector accesses and scalar accesses. It operates on packs of WIDTH
// neighbouring elements. The launcher sets WIDTH, specialization constant 1, by pack_width() of
// llmc/launchpad/packs.h: 4 if addresses and row lengths allow accesses of four elements, else 1. With 1, the
// compiler removes the unused y, z and w.
#include "util.glsl"

layout(constant_id = 1) const uint WIDTH = 4;

// Pack i of p: elements WIDTH * i to WIDTH * i + WIDTH - 1.
vec4 load_pack(Reals p, uint i) {
    if (WIDTH == 4) return load4(p, i);
    return vec4(load(p, i), 0, 0, 0);
}
void store_pack(Reals p, uint i, vec4 v) {
    if (WIDTH == 4)
        store4(p, i, v);
    else
        store(p, i, v.x);
}

// Wide packs, whose WIDTH may also be 8 (wide_pack_width() of llmc/launchpad/packs.h): eight elements of a
// 16-bit type fill 16 bytes. Narrower packs leave the second column unused.
mat2x4 load_wide(Reals p, uint i) {
    if (WIDTH == 8) return load8(p, i);
    return mat2x4(load_pack(p, i), vec4(0));
}
void store_wide(Reals p, uint i, mat2x4 v) {
    if (WIDTH == 8)
        store8(p, i, v);
    else
        store_pack(p, i, v[0]);
}

// store_wide() for kernels bound by arithmetic: see round4().
void store_wide_ties_away(Reals p, uint i, mat2x4 v) {
#ifndef REAL_FP32
    if (WIDTH == 8) {
        Reals8(uint64_t(p)).x[i] = uvec4(round4(v[0]), round4(v[1]));
        return;
    }
    if (WIDTH == 4) {
        Reals4(uint64_t(p)).x[i] = round4(v[0]);
        return;
    }
#endif
    store_wide(p, i, v);
}

const uint FOURS = WIDTH == 8 ? 2 : 1;  // columns of a wide pack that are in use

mat2x4 stored_wide(mat2x4 v) { return mat2x4(stored(v[0]), stored(v[1])); }

float pack_sum(vec4 v) { return WIDTH == 1 ? v.x : (v.x + v.y) + (v.z + v.w); }
float wide_sum(mat2x4 v) { return WIDTH == 8 ? pack_sum(v[0]) + pack_sum(v[1]) : pack_sum(v[0]); }

// Raw packs: 16 bytes as stored in memory, RAW_FOURS times four elements. Use them to prefetch: the kernel
// waits for a load only when it unpacks the pack.
const uint RAW_FOURS = 4 / REAL_BYTES;
#ifdef REAL_FP32
uvec4 load_raw(Reals p, uint i) { return floatBitsToUint(load4(p, i)); }
vec4 unpack_raw(uvec4 u, uint four) { return uintBitsToFloat(u); }
void store_raw(Reals p, uint i, vec4 v[RAW_FOURS]) { store4(p, i, v[0]); }
#else
uvec4 load_raw(Reals p, uint i) { return Reals8(uint64_t(p)).x[i]; }
vec4 unpack_raw(uvec4 u, uint four) {
    return four == 0 ? vec4(unpack(u.x), unpack(u.y)) : vec4(unpack(u.z), unpack(u.w));
}
void store_raw(Reals p, uint i, vec4 v[RAW_FOURS]) { store8(p, i, mat2x4(v[0], v[1])); }
#endif
