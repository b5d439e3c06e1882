// See memory_reserve.h.
#include "llmc/base/memory_reserve.h"

#include <atomic>
#include <cstdlib>
#include <new>

static std::atomic<void*> reserve = nullptr;

// operator new tries again if this returns.
static void free_reserve() {
    void* const held = reserve.exchange(nullptr);
    if (!held) throw std::bad_alloc();
    free(held);
}

void reserve_memory() {
    if (!reserve) reserve = malloc(1 << 20);
    std::set_new_handler(free_reserve);
}
