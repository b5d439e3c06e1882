// The layout of fragments in registers, from what matrix_layout.comp saw.
#include "llmc/matrix_layout.h"

#include <algorithm>

#include "shaders/args.h"

// The bits below `count` whose flipping in an index of the grid (lanes, components) keeps, or changes, every
// row.
struct RowBits {
    uint32_t keeping = 0, changing = 0;
};
template <class RowOf>
static RowBits find_row_bits(uint32_t count, uint32_t others, const RowOf& row_of) {
    RowBits bits;
    for (uint32_t bit = 1; bit < count; bit *= 2) {
        uint32_t kept = 0;
        for (uint32_t i = 0; i < count; i++)
            for (uint32_t other = 0; other < others; other++)
                kept += row_of(i, other) == row_of(i ^ bit, other);
        if (kept == count * others) bits.keeping |= bit;
        if (kept == 0) bits.changing |= bit;
    }
    return bits;
}

// Whether the components that shape's masks say to be of one row are, and are all of it, for each invocation
// and component.
static bool rows_are_whole(const MatrixShape& shape, uint32_t lanes, uint32_t components,
                           const std::vector<float>& sums) {
    for (uint32_t lane = 0; lane < lanes; lane++)
        for (uint32_t i = 0; i < components; i++) {
            const uint32_t row = uint32_t(sums[lane * components + i]) / shape.N;
            std::vector<bool> seen(shape.N);
            for (uint32_t l = 0; l < lanes; l++)
                for (uint32_t c = 0; c < components; c++) {
                    if ((l ^ lane) & ~shape.column_lanes || (c ^ i) & shape.row_components) continue;
                    const uint32_t number = uint32_t(sums[l * components + c]);
                    if (number / shape.N != row) return false;
                    seen[number % shape.N] = true;
                }
            if (std::find(seen.begin(), seen.end(), false) != seen.end()) return false;
        }
    return true;
}

void read_matrix_layout(MatrixShape& shape, uint32_t lanes, const std::vector<float>& sums,
                        const std::vector<float>& factors) {
    const uint32_t components = shape.M * shape.N / lanes;
    auto is_power_of_2 = [](uint32_t n) { return n && !(n & (n - 1)); };
    if (components * lanes != shape.M * shape.N || !is_power_of_2(lanes) || !is_power_of_2(components))
        return;
    for (float number : sums)
        if (!(number >= 0 && number < float(shape.M * shape.N))) return;
    auto row = [&](uint32_t lane, uint32_t i) { return uint32_t(sums[lane * components + i]) / shape.N; };
    shape.column_lanes = find_row_bits(lanes, components, row).keeping;
    shape.row_components =
        find_row_bits(components, lanes, [&](uint32_t i, uint32_t lane) { return row(lane, i); }).changing;
    shape.rows_known = rows_are_whole(shape, lanes, components, sums);
    // numbers up to 256 are exact in bf16
    shape.in_place = shape.N == shape.K && shape.M * shape.K <= 256 && sums == factors;
}

template <class T>
static void find_layout(LaunchPad& pad, MatrixShape& shape) {
    const uint32_t lanes = pad.limits().subgroup_size, components = shape.M * shape.N / lanes;
    if (!shape || !components) return;
    const size_t n = size_t(lanes) * components;
    float* numbers = pad.allocate<float>(2 * n, "matrix layout", Placement::readback);
    pad.dispatch<T>("matrix_layout", {1}, {lanes, shape.M, shape.N, shape.K},
                    MatrixLayoutArgs{pad.at(numbers, n), pad.at(numbers + n, n), int(components)});
    std::vector<float> sums(n), factors(n);
    pad.download(sums.data(), numbers, n * sizeof(float));
    pad.download(factors.data(), numbers + n, n * sizeof(float));
    pad.free(numbers);
    read_matrix_layout(shape, lanes, sums, factors);
}

void find_matrix_layouts(LaunchPad& pad, Limits& limits) {
    find_layout<bf16>(pad, limits.bf16_matrix);
    find_layout<fp16>(pad, limits.fp16_matrix);
    pad.reset_kernel_times();
}
