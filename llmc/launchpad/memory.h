// Memory of a program that runs on the CPU or on a launchpad, through one interface. Everything allocated
// here is freed with the object.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "llmc/base/os.h"
#include "llmc/launchpad/launchpad.h"

// Whether a device has memory of its own: Placement::host spares it.
inline bool has_own_memory(const LaunchPad* pad) { return pad && pad->memory_mode() != MemoryMode::unified; }

// count: nothing is allocated, and pointers must not be dereferenced.
enum class MemoryUse { allocate, count };

struct Memory {
    LaunchPad* pad = nullptr;  // null: plain host memory
    std::vector<void*> owned;
    // Of all allocations; of those in the host's memory, if a GPU has its own, which `bytes` leaves out; of
    // the largest one
    size_t bytes = 0, host_bytes = 0, largest = 0;
    MemoryUse use = MemoryUse::allocate;
    bool own_memory;                                    // of the device; a count may assume it
    const char* kind = "other";                         // of the next allocations
    std::vector<std::pair<const char*, size_t>> kinds;  // bytes of each, in order of appearance

    explicit Memory(LaunchPad* launchpad, MemoryUse memory_use = MemoryUse::allocate)
        : pad(launchpad), use(memory_use), own_memory(has_own_memory(launchpad)) {}
    Memory(const Memory&) = delete;
    ~Memory() {
        for (void* p : owned) pad ? pad->free(p) : free_aligned(p);
    }

    // Contents are undefined. Throws Error, naming `label`, if there is not enough memory.
    template <class Element>
    Element* allocate(size_t count, const char* label, Placement placement = Placement::device) {
        const size_t size = (count * sizeof(Element) + 63) / 64 * 64;
        void* p = use == MemoryUse::count ? counted_address()
                  : pad                   ? pad->allocate(size, label, placement)
                                          : allocate_on_host(size);
        if (!p)
            fail(
                "out of memory: %.1f MiB asked for '%s', %.1f MiB in use by this program; use a smaller "
                "batch, sequence or model",
                double(size) / (1 << 20), label, double(bytes) / (1 << 20));
        if (use == MemoryUse::allocate) owned.push_back(p);
        largest = std::max(largest, size);
        if (placement == Placement::host && own_memory)
            host_bytes += size;
        else
            count_as(kind, size);
        return static_cast<Element*>(p);
    }
    // Adds memory that somebody else allocated to the totals.
    void count(const char* of_kind, size_t size) {
        if (size) count_as(of_kind, size);
    }
    template <class Element>
    void upload(Element* dst, const Element* src, size_t count) const {
        pad ? pad->upload(dst, src, count * sizeof(Element))
            : void(memcpy(dst, src, count * sizeof(Element)));
    }
    template <class Element>
    void download(Element* dst, const Element* src, size_t count) const {
        pad ? pad->download(dst, src, count * sizeof(Element))
            : void(memcpy(dst, src, count * sizeof(Element)));
    }
    template <class Element>
    void copy(Element* dst, const Element* src, size_t count) const {
        pad ? pad->copy(dst, src, count * sizeof(Element)) : void(memcpy(dst, src, count * sizeof(Element)));
    }
    // A whole allocation: a GPU writes whole words, up to the end of the last one.
    template <class Element>
    void zero(Element* p, size_t count) const {
        if (use == MemoryUse::count) return;
        if (pad) return pad->fill(p, 0, (count * sizeof(Element) + 3) / 4 * 4);
        const size_t size = count * sizeof(Element), piece = 1 << 20;
#pragma omp parallel for
        for (size_t i = 0; i < size; i += piece)
            memset(reinterpret_cast<char*>(p) + i, 0, std::min(piece, size - i));
    }

    // Floats to memory of the storage type, rounded, and back.
    template <class Element>
    void upload_floats(Element* dst, const float* src, size_t count) const {
        if constexpr (std::is_same_v<Element, float>) return upload(dst, src, count);
        std::vector<Element> rounded(count);
#pragma omp parallel for simd
        for (size_t i = 0; i < count; i++) rounded[i] = round_to<Element>(src[i]);
        upload(dst, rounded.data(), count);
    }
    template <class Element>
    void download_floats(float* dst, const Element* src, size_t count) const {
        if constexpr (std::is_same_v<Element, float>) return download(dst, src, count);
        std::vector<Element> stored(count);
        download(stored.data(), src, count);
        std::copy(stored.begin(), stored.end(), dst);
    }

    // Such as "20480.0 MiB: parameters 237.4, gradients 237.4, ...", and what is in the host's memory.
    std::string summary() const {
        std::string text = format_string("%.1f MiB", double(bytes) / (1 << 20));
        for (size_t i = 0; i < kinds.size(); i++)
            text += format_string("%s %s %.1f", i ? "," : ":", kinds[i].first,
                                  double(kinds[i].second) / (1 << 20));
        if (host_bytes) text += format_string("; %.1f MiB of host memory", double(host_bytes) / (1 << 20));
        return text;
    }

   private:
    // Large arrays use huge pages if the system grants them. All threads touch them here, page by page in
    // turn, so that on NUMA machines the pages are spread over all nodes.
    static void* allocate_on_host(size_t size) {
        const size_t huge = 2 << 20, page = 4096;
        if (size < 2 * huge) return allocate_aligned(64, size);
        char* p = static_cast<char*>(allocate_aligned(huge, (size + huge - 1) / huge * huge));
        if (!p) return p;
        ask_for_huge_pages(p, size / huge * huge);
#pragma omp parallel for schedule(static, 1)
        for (size_t start = 0; start < size; start += huge)
            for (size_t i = start; i < std::min(size, start + huge); i += page) p[i] = 0;
        return p;
    }
    static void* counted_address() { return reinterpret_cast<void*>(1 << 16); }  // aligned, and not null
    void count_as(const char* of_kind, size_t size) {
        bytes += size;
        for (auto& [name, sum] : kinds)
            if (!strcmp(name, of_kind)) {
                sum += size;
                return;
            }
        kinds.push_back({of_kind, size});
    }
};
