// The finalizer of MurmurHash3, as in llmc/base/hash.h.
uint hash(uint x) {
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}
