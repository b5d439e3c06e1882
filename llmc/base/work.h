// What a kernel has to do, and how long it took: the units of every profile and benchmark.
#pragma once
#include <cstdint>
#include <string>

// The least work of a kernel: bytes if it reads each input and writes each output once, and floating-point
// operations. 0: not stated.
struct Work {
    double bytes = 0, flops = 0;
};

// The work of a memory-bound kernel that reads and writes `elements` values of a type.
template <class Element>
Work memory_traffic(double elements) {
    return {double(sizeof(Element)) * elements, 0};
}

// Totals over the calls of one kernel.
struct KernelTime {
    std::string name;
    uint64_t calls = 0;
    double seconds = 0;  // on the GPU
    Work work;           // as announced by the calls
};
