// read_matrix_layout() recognises the register layouts that devices use, and no others.
#include "llmc/launchpad/matrix_layout.h"

#include <gtest/gtest.h>

#include <functional>

// The element indices that `lanes` invocations hold; position() gives the row and column of a component.
static std::vector<float> indices(
    uint32_t lanes, uint32_t components, uint32_t N,
    const std::function<std::pair<uint32_t, uint32_t>(uint32_t, uint32_t)>& position) {
    std::vector<float> result;
    for (uint32_t lane = 0; lane < lanes; lane++)
        for (uint32_t i = 0; i < components; i++) {
            const auto [row, column] = position(lane, i);
            result.push_back(float(row * N + column));
        }
    return result;
}

// The layout of 16 x 16 accumulators on NVIDIA's devices: pairs of adjacent columns, and a quad of
// invocations for eight columns of a row.
static std::pair<uint32_t, uint32_t> in_pairs(uint32_t lane, uint32_t i) {
    return {lane / 4 + (i & 4) * 2, lane % 4 * 2 + i % 2 + (i & 2) * 4};
}

TEST(MatrixLayout, knows_pairs_of_adjacent_columns) {
    FragmentShape shape = {16, 16, 16};
    const auto accumulators = indices(32, 8, 16, in_pairs);
    read_matrix_layout(shape, 32, accumulators, accumulators);
    EXPECT_TRUE(shape.layout_known);
    EXPECT_TRUE(shape.in_place);
    EXPECT_EQ(shape.row_components, 4u);
    EXPECT_EQ(shape.column_lanes, 3u);
}

TEST(MatrixLayout, knows_a_column_or_a_row_in_each_invocation) {
    FragmentShape shape = {8, 8, 8};
    const auto columns = indices(8, 8, 8, [](uint32_t lane, uint32_t i) { return std::pair(i, lane); });
    const auto rows = indices(8, 8, 8, [](uint32_t lane, uint32_t i) { return std::pair(lane, i); });
    read_matrix_layout(shape, 8, columns, rows);
    EXPECT_TRUE(shape.layout_known);
    EXPECT_FALSE(shape.in_place);
    EXPECT_EQ(shape.row_components, 7u);
    EXPECT_EQ(shape.column_lanes, 7u);
    shape = {8, 8, 8};
    read_matrix_layout(shape, 8, rows, rows);
    EXPECT_TRUE(shape.layout_known && shape.in_place);
    EXPECT_EQ(shape.row_components, 0u);
    EXPECT_EQ(shape.column_lanes, 0u);
}

// Two elements are swapped; one element appears twice; one is missing. None of these layouts may be accepted.
TEST(MatrixLayout, rejects_what_the_masks_cannot_describe) {
    const auto good = indices(32, 8, 16, in_pairs);
    for (int fault = 0; fault < 3; fault++) {
        auto accumulators = good;
        if (fault == 0) std::swap(accumulators[5], accumulators[100]);
        if (fault == 1) accumulators[17] = accumulators[16];
        if (fault == 2) accumulators[255] = -1;
        FragmentShape shape = {16, 16, 16};
        read_matrix_layout(shape, 32, accumulators, accumulators);
        EXPECT_FALSE(shape.layout_known) << "fault " << fault;
    }
    FragmentShape shape = {16, 16, 16};
    auto operands = good;
    std::swap(operands[0], operands[1]);
    read_matrix_layout(shape, 32, good, operands);
    EXPECT_TRUE(shape.layout_known);
    EXPECT_FALSE(shape.in_place);
}
