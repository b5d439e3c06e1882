// Operands of layers: see operands.h.
#include "llmc/kernels/operands.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/error.h"

template <class Real>
void fill_random(Real* values, size_t n, uint32_t seed) {
#pragma omp parallel for
    for (size_t i = 0; i < n; i++) {
        uint32_t h = uint32_t(i) * 2654435761u + seed * 0x9e3779b9u + uint32_t(i >> 32);
        h = (h ^ (h >> 16)) * 0x85ebca6bu;
        h = (h ^ (h >> 13)) * 0xc2b2ae35u;
        values[i] = Real(float(int32_t(h ^ (h >> 16))) * 0x1p-31f);
    }
}

template <class Element>
Element* Operands::allocate(size_t n, const char* label) {
    const size_t all = n + 2 * margin, bytes = (all * sizeof(Element) + 3) / 4 * 4;
    Element* start = memory_of<Element>(all, label);
    if (fill == Fill::values) pad ? pad->fill(start, 0xffffffff, bytes) : void(memset(start, 0xff, bytes));
    arrays.push_back({start + margin, n, compare_array<Element>});
    return start + margin;
}

template <class Element>
Element* Operands::input(size_t n, float scale) {
    Element* values = allocate<Element>(n, "operand");
    if (fill == Fill::nothing) return values;
    std::vector<Element> drawn(std::min(n, period));
    fill_random(drawn.data(), drawn.size(), uint32_t(arrays.size()));
    if (scale != 1)
        for (Element& v : drawn) v = Element(scale * float(v));
    memory.upload(values, drawn.data(), drawn.size());
    for (size_t filled = drawn.size(); filled < n; filled += std::min(filled, n - filled))
        memory.copy(values + filled, values, std::min(filled, n - filled));
    return values;
}

template <class Element>
Element* Operands::output(size_t n) {
    return allocate<Element>(n, "result");
}

template <class Element>
void Operands::check_margins(const Array& array, const std::string& what) const {
    const auto* values = static_cast<const Element*>(array.data);
    std::vector<Element> around(margin);
    for (const Element* start : {values - margin, values + array.n}) {
        memory.download(around.data(), start, margin);
        for (const Element& v : around)
            if (!std::isnan(float(v))) fail("%s: a kernel wrote outside the array", what.c_str());
    }
}

// 16-bit results may be rounded more often than the limits of a single operation allow for.
template <class Element>
Difference Operands::compare_array(const Operands& operands, const Array& got, const Array& want,
                                   const std::string& what) {
    const auto* values = static_cast<const Element*>(got.data);
    const auto* reference = static_cast<const Element*>(want.data);
    const double scale = root_mean_square(reference, want.n);
    if (operands.margin) operands.check_margins<Element>(got, what);
    std::vector<Element> piece(want.n);
    Difference difference;
    for (size_t first = 0; first < got.n; first += want.n) {
        const size_t count = std::min(want.n, got.n - first);
        operands.memory.download(piece.data(), values + first, count);
        add_difference(difference, piece.data(), reference, count, scale > 0 ? scale : 1);
    }
    check_limit(what, "largest error of an element", difference.largest,
                (sizeof(Element) == 2 ? 8 : 1) * difference_limits<Element>().largest);
    return difference;
}

Difference Operands::compare(const Operands& reference, const std::string& what) const {
    Difference sum;
    for (size_t i = 0; i < arrays.size(); i++) {
        const Difference d = arrays[i].compare(*this, arrays[i], reference.arrays.at(i),
                                               what + format_string(", operand %zu", i + 1));
        sum.squares += d.squares;
        sum.error_squares += d.error_squares;
        sum.largest = std::max(sum.largest, d.largest);
    }
    return sum;
}

std::vector<float> Operands::fp32_values(size_t array) const {
    std::vector<float> values(arrays.at(array).n);
    memory.download(values.data(), static_cast<const float*>(arrays[array].data), values.size());
    return values;
}

void Operands::set_fp32(size_t array, size_t element, float value) const {
    auto* data = const_cast<float*>(static_cast<const float*>(arrays.at(array).data));
    memory.upload(data + element, &value, 1);
}

#define INSTANTIATE(Real)                               \
    template void fill_random(Real*, size_t, uint32_t); \
    template Real* Operands::input(size_t, float);      \
    template Real* Operands::output(size_t);
FOR_EACH_REAL(INSTANTIATE)
#undef INSTANTIATE
