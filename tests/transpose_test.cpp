// Transposes: every version to the bit, on shapes that fill its patches and others.
#include "llmc/transpose.h"

#include "tests/layer_test.h"

template <class T>
class TransposeTest : public testing::Test {};
using Reals = testing::Types<float, bf16, fp16>;
TYPED_TEST_SUITE(TransposeTest, Reals);

static std::vector<float> transposed(const std::vector<float>& inp, int rows, int columns) {
    std::vector<float> out(inp.size());
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++)
            out[size_t(column) * rows + row] = inp[size_t(row) * columns + column];
    return out;
}

TYPED_TEST(TransposeTest, EveryVersionOnEveryShape) {
    using T = TypeParam;
    struct Shape {
        int rows, columns;
    };
    for (const auto& [rows, columns] : {Shape{8, 8}, {8, 72}, {40, 8}, {32, 64}, {96, 136}, {264, 80}}) {
        const std::vector<float> inp = random_values<T>(size_t(rows) * columns, 1),
                                 expected = transposed(inp, rows, columns);
        SCOPED_TRACE(format_string("%d x %d", rows, columns));
        std::vector<T> host(inp.begin(), inp.end()), out(host.size());
        transpose_cpu(out.data(), host.data(), rows, columns);
        EXPECT_EQ(std::vector<float>(out.begin(), out.end()), expected);
        const int r = rows, c = columns;
        for_each_version<T>(transpose_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<T> from(pad, inp), to(pad, inp.size());
            version.launch(pad, to, from, r, c, block);
            EXPECT_EQ(to.values(), expected);
        });
    }
}

TYPED_TEST(TransposeTest, RefusesWhatItCannotTake) {
    using T = TypeParam;
    for (const auto& pad : test_pads()) {
        DeviceArray<T> from(*pad, std::vector<float>(96)), to(*pad, 96);
        EXPECT_THROW(transpose<T>(pad.get(), to, from, 8, 12), Error);
        EXPECT_THROW(transpose<T>(pad.get(), to + 1, from, 8, 8), Error);
    }
}
