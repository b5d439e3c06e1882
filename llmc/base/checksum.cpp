#include "llmc/base/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <new>

#include "llmc/base/error.h"

static XXH3_state_t* of(void* state) { return static_cast<XXH3_state_t*>(state); }

Checksum::Checksum() : state(XXH3_createState()) {
    if (!state) throw std::bad_alloc();
    XXH3_64bits_reset(of(state));
}
Checksum::~Checksum() { XXH3_freeState(of(state)); }

void Checksum::add(const void* data, size_t count) {
    XXH3_64bits_update(of(state), data, count);
    bytes += count;
}

std::string Checksum::text() const {
    return format_string("%016llx", (unsigned long long)XXH3_64bits_digest(of(state)));
}

std::string checksum_of(std::string_view bytes) {
    return format_string("%016llx", (unsigned long long)XXH3_64bits(bytes.data(), bytes.size()));
}
