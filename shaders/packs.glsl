// Packs: a kernel with a path for wide accesses and a plain one is written once, over packs of WIDTH neighbouring elements. The
// launcher sets WIDTH, specialization constant 1, by pack_width() of llmc/packs.h: 4 where addresses and row lengths
// allow accesses of four elements, else 1; then y, z and w of a pack are unused, and the compiler drops them.
#include "util.glsl"

layout(constant_id = 1) const uint WIDTH = 4;

// Pack number i of p: elements WIDTH i to WIDTH i + WIDTH - 1.
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

// The same for kernels that also have a path for packs of eight (wide_pack_width() of llmc/packs.h), which fill 16 bytes
// in the 16-bit types. Narrower packs leave the second column unused.
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

float pack_sum(vec4 v) { return WIDTH == 4 ? (v.x + v.y) + (v.z + v.w) : v.x; }
