// Transposes: every version bit for bit, on shapes that fill its groups of tiles and on others.
#include "llmc/layers/transpose.h"

#include "tests/layer_test.h"

template <class Real>
struct TransposeTest : testing::Test {};
TYPED_TEST_SUITE(TransposeTest, RealTypes);

static std::vector<float> transposed(const std::vector<float>& inp, int rows, int columns) {
    std::vector<float> out(inp.size());
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++)
            out[size_t(column) * rows + row] = inp[size_t(row) * columns + column];
    return out;
}

TYPED_TEST(TransposeTest, EveryVersionOnEveryShape) {
    using Real = TypeParam;
    struct Shape {
        int rows, columns;
    };
    for (const auto& [rows, columns] : {Shape{8, 8}, {8, 72}, {40, 8}, {32, 64}, {96, 136}, {264, 80}}) {
        const std::vector<float> inp = random_values<Real>(size_t(rows) * columns, 1),
                                 expected = transposed(inp, rows, columns);
        SCOPED_TRACE(format_string("%d x %d", rows, columns));
        std::vector<Real> host(inp.begin(), inp.end()), out(host.size());
        transpose_cpu<Real>({.out = out.data(), .inp = host.data(), .rows = rows, .columns = columns});
        EXPECT_EQ(std::vector<float>(out.begin(), out.end()), expected);
        const int r = rows, c = columns;
        for_each_version<Real>(
            transpose_versions<Real>(), [&](LaunchPad& pad, auto& version, int block_size) {
                DeviceArray<Real> from(pad, inp), to(pad, inp.size());
                version.launch(pad, {.out = to, .inp = from, .rows = r, .columns = c}, block_size);
                EXPECT_EQ(to.values(), expected);
            });
    }
}

TYPED_TEST(TransposeTest, RejectsUnsupportedSizesAndAddresses) {
    using Real = TypeParam;
    for (const auto& pad : test_pads()) {
        DeviceArray<Real> from(*pad, std::vector<float>(96)), to(*pad, 96);
        EXPECT_THROW(transpose<Real>(pad.get(), {.out = to, .inp = from, .rows = 8, .columns = 12}), Error);
        EXPECT_THROW(transpose<Real>(pad.get(), {.out = to + 1, .inp = from, .rows = 8, .columns = 8}),
                     Error);
    }
}
