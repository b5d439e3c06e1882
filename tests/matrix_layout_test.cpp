// What the launchpad makes of the places where devices keep the components of fragments.
#include "llmc/matrix_layout.h"

#include <gtest/gtest.h>

#include <functional>

// The numbers of the elements that `lanes` invocations hold; place gives row and column of a component.
static std::vector<float> numbers(
    uint32_t lanes, uint32_t components, uint32_t N,
    const std::function<std::pair<uint32_t, uint32_t>(uint32_t, uint32_t)>& place) {
    std::vector<float> result;
    for (uint32_t lane = 0; lane < lanes; lane++)
        for (uint32_t i = 0; i < components; i++) {
            const auto [row, column] = place(lane, i);
            result.push_back(float(row * N + column));
        }
    return result;
}

// Sums of 16 x 16 as NVIDIA's devices hold them: pairs of neighbours in a row, four invocations to eight
// columns.
static std::pair<uint32_t, uint32_t> in_pairs(uint32_t lane, uint32_t i) {
    return {lane / 4 + (i & 4) * 2, lane % 4 * 2 + i % 2 + (i & 2) * 4};
}

TEST(MatrixLayout, knows_pairs_of_neighbours) {
    MatrixShape shape = {16, 16, 16};
    const auto sums = numbers(32, 8, 16, in_pairs);
    read_matrix_layout(shape, 32, sums, sums);
    EXPECT_TRUE(shape.rows_known);
    EXPECT_TRUE(shape.in_place);
    EXPECT_EQ(shape.row_components, 4u);
    EXPECT_EQ(shape.column_lanes, 3u);
}

TEST(MatrixLayout, knows_a_column_or_a_row_in_each_invocation) {
    MatrixShape shape = {8, 8, 8};
    const auto columns = numbers(8, 8, 8, [](uint32_t lane, uint32_t i) { return std::pair(i, lane); });
    const auto rows = numbers(8, 8, 8, [](uint32_t lane, uint32_t i) { return std::pair(lane, i); });
    read_matrix_layout(shape, 8, columns, rows);
    EXPECT_TRUE(shape.rows_known);
    EXPECT_FALSE(shape.in_place);
    EXPECT_EQ(shape.row_components, 7u);
    EXPECT_EQ(shape.column_lanes, 7u);
    shape = {8, 8, 8};
    read_matrix_layout(shape, 8, rows, rows);
    EXPECT_TRUE(shape.rows_known && shape.in_place);
    EXPECT_EQ(shape.row_components, 0u);
    EXPECT_EQ(shape.column_lanes, 0u);
}

// Two elements have changed places; one element is there twice; there is one
// too few. None of that may be taken for known.
TEST(MatrixLayout, does_not_know_what_it_cannot_describe) {
    const auto good = numbers(32, 8, 16, in_pairs);
    for (int fault = 0; fault < 3; fault++) {
        auto sums = good;
        if (fault == 0) std::swap(sums[5], sums[100]);
        if (fault == 1) sums[17] = sums[16];
        if (fault == 2) sums[255] = -1;
        MatrixShape shape = {16, 16, 16};
        read_matrix_layout(shape, 32, sums, sums);
        EXPECT_FALSE(shape.rows_known) << "fault " << fault;
    }
    MatrixShape shape = {16, 16, 16};
    auto factors = good;
    std::swap(factors[0], factors[1]);
    read_matrix_layout(shape, 32, good, factors);
    EXPECT_TRUE(shape.rows_known);
    EXPECT_FALSE(shape.in_place);
}
