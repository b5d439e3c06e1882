// Memory of a program that runs on the CPU or on a launchpad: one code for both. Everything allocated here is
// freed with the object.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "llmc/cpu_times.h"
#include "llmc/launchpad.h"

struct Memory {
    LaunchPad* pad = nullptr;  // null: plain host memory
    std::vector<void*> owned;
    size_t bytes = 0, largest = 0;  // of all allocations, of one
    bool only_count = false;        // nothing is allocated, and pointers are not to be used
    const char* kind = "other";     // of what is allocated from now on
    std::vector<std::pair<const char*, size_t>> kinds;  // bytes of each, in order of appearance

    explicit Memory(LaunchPad* launchpad) : pad(launchpad) {}
    Memory(const Memory&) = delete;
    ~Memory() {
        for (void* p : owned) pad ? pad->free(p) : std::free(p);
    }

    // Contents are undefined. Throws Error, naming `label`, where there is not enough.
    template <class T>
    T* allocate(size_t count, const char* label, Placement placement = Placement::device) {
        const size_t size = (count * sizeof(T) + 63) / 64 * 64;
        void* p = only_count ? this : pad ? pad->allocate(size, label, placement) : allocate_on_host(size);
        if (!p)
            fail(
                "out of memory: %.1f MiB asked for '%s', %.1f MiB in use by this program; use a smaller "
                "batch, "
                "sequence or model",
                double(size) / (1 << 20), label, double(bytes) / (1 << 20));
        if (!only_count) owned.push_back(p);
        bytes += size;
        largest = std::max(largest, size);
        add_to_kind(size);
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
    // All of an allocation: a GPU writes whole words, up to the end of the last.
    template <class T>
    void zero(T* p, size_t count) const {
        if (only_count) return;
        if (pad) return pad->fill(p, 0, (count * sizeof(T) + 3) / 4 * 4);
        const size_t size = count * sizeof(T), piece = 1 << 20;
        const CpuTimer timer("zero", {double(size)});
#pragma omp parallel for
        for (size_t i = 0; i < size; i += piece)
            memset(reinterpret_cast<char*>(p) + i, 0, std::min(piece, size - i));
    }

    // Floats into memory of the storage type, rounded, and back.
    template <class T>
    void upload_floats(T* dst, const float* src, size_t count) const {
        if constexpr (std::is_same_v<T, float>) return upload(dst, src, count);
        std::vector<T> rounded(count);
#pragma omp parallel for simd
        for (size_t i = 0; i < count; i++) rounded[i] = round_to<T>(src[i]);
        upload(dst, rounded.data(), count);
    }
    template <class T>
    void download_floats(float* dst, const T* src, size_t count) const {
        if constexpr (std::is_same_v<T, float>) return download(dst, src, count);
        std::vector<T> stored(count);
        download(stored.data(), src, count);
        std::copy(stored.begin(), stored.end(), dst);
    }

    // Such as "20480.0 MiB: parameters 237.4, gradients 237.4, ..."
    std::string summary() const {
        std::string text = format_string("%.1f MiB", double(bytes) / (1 << 20));
        for (size_t i = 0; i < kinds.size(); i++)
            text += format_string("%s %s %.1f", i ? "," : ":", kinds[i].first,
                                  double(kinds[i].second) / (1 << 20));
        return text;
    }

   private:
    // Large arrays lie in huge pages where the system gives them on request. They are touched here by all
    // threads, in turns, so that on machines of several memory nodes their pages lie on all of them.
    static void* allocate_on_host(size_t size) {
        const size_t huge = 2 << 20, page = 4096;
        if (size < 2 * huge) return std::aligned_alloc(64, size);
        char* p = static_cast<char*>(std::aligned_alloc(huge, (size + huge - 1) / huge * huge));
        if (!p) return p;
#if defined(MADV_HUGEPAGE)
        madvise(p, size / huge * huge, MADV_HUGEPAGE);  // a wish: small pages do as well
#endif
#pragma omp parallel for schedule(static, 1)
        for (size_t start = 0; start < size; start += huge)
            for (size_t i = start; i < std::min(size, start + huge); i += page) p[i] = 0;
        return p;
    }
    void add_to_kind(size_t size) {
        for (auto& [name, sum] : kinds)
            if (!strcmp(name, kind)) {
                sum += size;
                return;
            }
        kinds.push_back({kind, size});
    }
};
