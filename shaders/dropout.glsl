// Shared by the versions of dropout, after util.glsl: which elements are dropped, as llmc/layers/dropout.cpp
// decides it.
#include "hash.glsl"

// Whether element i is dropped.
bool is_dropped(DropoutArgs args, uint64_t i) {
    const uint inner_key = hash(uint(args.key.x[0]) ^ (args.site + (uint(i >> 32) << 16)));
    const uint bits = hash(hash(uint(i) ^ inner_key) ^ uint(args.key.x[1]));
    return bits < args.threshold;
}
