// Operands of layers for tests, benchmarks and the report: the same values on the CPU and on every device.
#pragma once
#include <memory>
#include <vector>

#include "llmc/base/real.h"
#include "llmc/kernels/check.h"
#include "llmc/launchpad/memory.h"

enum class Fill { values, nothing };  // nothing: for commands that never run

// Allocates arrays, in the same order on the host and on a device; all are freed with the object.
class Operands {
   public:
    // pad null: the host. Each array begins `margin_elements` past aligned memory, and as many follow it:
    // compare() refuses a kernel that writes to them.
    explicit Operands(LaunchPad* launchpad, Fill fill_with = Fill::values, size_t margin_elements = 0)
        : pad(launchpad), memory(launchpad), fill(fill_with), margin(margin_elements) {}

    // Uniform in [-scale, scale], and different for each array of the object. Large arrays repeat `period`
    // elements, which the device copies: that is faster than to draw and upload a billion.
    template <class Element>
    Element* input(size_t n, float scale = 1);
    static constexpr size_t period = size_t(1365) * 768;  // not a power of two: an index overflow shows

    template <class Element>
    Element* output(size_t n);  // NaN
    template <class Element>
    Element* scratch(size_t n) {  // not compared
        return memory_of<Element>(n, "scratch");
    }
    template <class Element>
    Element* copy_of(const std::vector<Element>& values) {
        Element* p = memory_of<Element>(values.size(), "operand");
        if (fill == Fill::values) memory.upload(p, values.data(), values.size());
        return p;
    }
    // A value that lives as long as the operands.
    template <class T>
    const T& keep(T value) {
        const auto owner = std::make_shared<T>(std::move(value));
        kept.push_back(owner);
        return *owner;
    }

    // Throws Error, naming `what`, if an input or output differs by more than rounding from that of
    // `reference`, which holds the CPU's, or whose repetition it is.
    Difference compare(const Operands& reference, const std::string& what) const;

    // The same arrays come again, filled anew: another version of a row needs no other memory.
    void restart(Fill fill_with = Fill::values) {
        fill = fill_with;
        arrays.clear();
        num_used = 0;
    }

    // The inputs and outputs of a row in fp32, for tests that change an element.
    size_t num_arrays() const { return arrays.size(); }
    std::vector<float> fp32_values(size_t array) const;
    void set_fp32(size_t array, size_t element, float value) const;

    LaunchPad* const pad;

   private:
    struct Array {
        const void* data;
        size_t n;
        Difference (*compare)(const Operands& operands, const Array& got, const Array& want,
                              const std::string& what);
    };
    template <class Element>
    static Difference compare_array(const Operands& operands, const Array& got, const Array& want,
                                    const std::string& what);
    template <class Element>
    Element* memory_of(size_t n, const char* label) {
        if (num_used == allocations.size()) allocations.push_back(memory.allocate<Element>(n, label));
        return static_cast<Element*>(allocations[num_used++]);
    }
    template <class Element>
    Element* allocate(size_t n, const char* label);  // of NaN where it matters
    template <class Element>
    void check_margins(const Array& array, const std::string& what) const;
    Memory memory;
    Fill fill;
    size_t margin;
    std::vector<Array> arrays;       // inputs and outputs
    std::vector<void*> allocations;  // all memory, in the order in which it was asked for
    size_t num_used = 0;
    std::vector<std::shared_ptr<void>> kept;
};

// values (n): uniform in [-1, 1], the same for the same seed.
template <class Real>
void fill_random(Real* values, size_t n, uint32_t seed);
