// Memory of a program that runs on the CPU or on a launchpad: one code for both. Everything allocated here is
// freed with the object.
#pragma once
#include <cstdlib>
#include <cstring>
#include <vector>

#include "llmc/launchpad.h"

struct Memory {
    LaunchPad* pad = nullptr;  // null: plain host memory
    std::vector<void*> owned;
    size_t bytes = 0;

    explicit Memory(LaunchPad* launchpad) : pad(launchpad) {}
    Memory(const Memory&) = delete;
    ~Memory() {
        for (void* p : owned) pad ? pad->free(p) : std::free(p);
    }

    // Contents are undefined. Throws Error, naming `label`, where there is not enough.
    template <class T>
    T* allocate(size_t count, const char* label, Placement placement = Placement::device) {
        const size_t size = (count * sizeof(T) + 63) / 64 * 64;
        void* p = pad ? pad->allocate(size, label, placement) : std::aligned_alloc(64, size);
        if (!p)
            fail(
                "out of memory: %.1f MiB asked for '%s', %.1f MiB in use by this program; use a smaller "
                "batch, "
                "sequence or model",
                double(size) / (1 << 20), label, double(bytes) / (1 << 20));
        owned.push_back(p);
        bytes += size;
        return static_cast<T*>(p);
    }
    template <class T>
    void upload(T* dst, const T* src, size_t count) const {
        pad ? pad->upload(dst, src, count * sizeof(T)) : void(memcpy(dst, src, count * sizeof(T)));
    }
    template <class T>
    void download(T* dst, const T* src, size_t count) const {
        pad ? pad->download(dst, src, count * sizeof(T)) : void(memcpy(dst, src, count * sizeof(T)));
    }
    template <class T>
    void copy(T* dst, const T* src, size_t count) const {
        pad ? pad->copy(dst, src, count * sizeof(T)) : void(memcpy(dst, src, count * sizeof(T)));
    }
    template <class T>
    void zero(T* p, size_t count) const {
        pad ? pad->fill(p, 0, count * sizeof(T)) : void(memset(p, 0, count * sizeof(T)));
    }
};
