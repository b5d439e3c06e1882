// Derives the register layout of fragments from the output of matrix_layout.comp.
#include "llmc/launchpad/matrix_layout.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <type_traits>

#include "shaders/args.h"

// The bits of an index below `count` whose flip keeps the row everywhere, or changes it everywhere.
struct RowBits {
    uint32_t keeping = 0, changing = 0;
};
// row_of(index, other) gives the row for each index and each value of the other index, below `others`.
static RowBits find_row_bits(uint32_t count, uint32_t others,
                             const std::function<uint32_t(uint32_t, uint32_t)>& row_of) {
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

// Whether the masks of `shape` describe the layout: for each invocation and component, the components that
// they assign to its row are all of that row and nothing else.
static bool masks_give_rows(const FragmentShape& shape, uint32_t lanes, uint32_t components,
                            const std::vector<float>& accumulators) {
    for (uint32_t lane = 0; lane < lanes; lane++)
        for (uint32_t i = 0; i < components; i++) {
            const uint32_t row = uint32_t(accumulators[lane * components + i]) / shape.N;
            std::vector<bool> seen(shape.N);
            for (uint32_t l = 0; l < lanes; l++)
                for (uint32_t c = 0; c < components; c++) {
                    if ((l ^ lane) & ~shape.column_lanes || (c ^ i) & shape.row_components) continue;
                    const uint32_t index = uint32_t(accumulators[l * components + c]);
                    if (index / shape.N != row) return false;
                    seen[index % shape.N] = true;
                }
            if (std::find(seen.begin(), seen.end(), false) != seen.end()) return false;
        }
    return true;
}

void read_matrix_layout(FragmentShape& shape, uint32_t lanes, const std::vector<float>& accumulators,
                        const std::vector<float>& operands) {
    const uint32_t components = shape.M * shape.N / lanes;
    auto is_power_of_2 = [](uint32_t n) { return n && !(n & (n - 1)); };
    if (components * lanes != shape.M * shape.N || !is_power_of_2(lanes) || !is_power_of_2(components))
        return;
    for (float index : accumulators)
        if (!(index >= 0 && index < float(shape.M * shape.N))) return;
    auto row = [&](uint32_t lane, uint32_t i) {
        return uint32_t(accumulators[lane * components + i]) / shape.N;
    };
    shape.column_lanes = find_row_bits(lanes, components, row).keeping;
    shape.row_components =
        find_row_bits(components, lanes, [&](uint32_t i, uint32_t lane) { return row(lane, i); }).changing;
    shape.layout_known = masks_give_rows(shape, lanes, components, accumulators);
    // bf16 represents integers up to 256 exactly.
    shape.in_place = shape.N == shape.K && shape.M * shape.K <= 256 && accumulators == operands;
}

// The unit in the last place of 1.
template <class Real>
static const float last_place = std::is_same_v<Real, bf16> ? 1.0f / 128 : 1.0f / 1024;

// How the conversions of values that matrix_layout.comp made round. To nearest is only claimed of fp16, and
// only if pairs round so, too: AMD truncates these.
template <class Real>
static Conversion conversion_of(const std::vector<float>& converted) {
    bool truncates = true, to_nearest = std::is_same_v<Real, fp16>;
    for (int i = 0; i < 18; i++) {
        const float sign = i / 3 % 2 == 0 ? 1.0f : -1.0f, nearest[] = {1 + last_place<Real>, 1, INFINITY};
        to_nearest &= converted[i] == sign * nearest[i / 6];
        truncates &= i / 6 != 0 || i % 3 == 2 || converted[i] == sign;
    }
    return to_nearest ? Conversion::to_nearest : truncates ? Conversion::truncating : Conversion::somehow;
}

template <class Real>
static void find_layout(LaunchPad& pad, FragmentShape& shape) {
    const uint32_t lanes = pad.limits().subgroup_size, components = shape.M * shape.N / lanes;
    if (!shape || !components) return;
    const size_t n = size_t(lanes) * components;
    std::vector<float> accumulators(n), operands(n), converted(18);
    float* indices = pad.allocate<float>(2 * n + converted.size(), "matrix layout", Placement::host);
    pad.dispatch<Real>(
        "matrix_layout", {1}, {lanes, shape.M, shape.N, shape.K},
        MatrixLayoutArgs{.accumulators = pad.at(indices, n),
                         .operands = pad.at(indices + n, n),
                         .converted = pad.at(indices + 2 * n, converted.size()),
                         .components = int(components),
                         .values = {1 + 0.75f * last_place<Real>, 1 + 0.5f * last_place<Real>, 65520}});
    pad.download(accumulators.data(), indices, n * sizeof(float));
    pad.download(operands.data(), indices + n, n * sizeof(float));
    pad.download(converted.data(), indices + 2 * n, converted.size() * sizeof(float));
    pad.free(indices);
    read_matrix_layout(shape, lanes, accumulators, operands);
    shape.conversion = conversion_of<Real>(converted);
}

void find_matrix_layouts(LaunchPad& pad, Limits& limits) {
    find_layout<bf16>(pad, limits.bf16_fragment);
    find_layout<fp16>(pad, limits.fp16_fragment);
    pad.take_kernel_times();  // the probes do not count
}

void assume_matrix_layouts(Limits& limits) {
    for (FragmentShape* shape : {&limits.bf16_fragment, &limits.fp16_fragment}) {
        const uint32_t components = shape->M * shape->N / limits.subgroup_size;
        if (!components || shape->N > limits.subgroup_size) continue;
        shape->row_components = components - 1;
        shape->column_lanes = shape->N - 1;
        shape->layout_known = true;
    }
}
