// RowLines requests each line of each row once, in order, and no other. PrefetchQueue requests as many rows
// as the work allows.
#include "llmc/cpu/prefetch.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

static const int MORE_THAN_ALL = 1000;

static std::vector<const char*> take(RowLines& rows, int count) {
    std::vector<const char*> addresses;
    rows.take(count, [&](const char* address) { addresses.push_back(address); });
    return addresses;
}

TEST(RowLines, AreTheLinesOfEveryRow) {
    const std::vector<float> memory(10000);
    const std::pair<size_t, size_t> shapes[] = {{1, 200}, {15, 200}, {16, 16},
                                                {17, 17}, {64, 200}, {100, 200}};
    for (const auto& [n, ld] : shapes)
        for (const int count : {0, 1, 7}) {
            std::vector<const char*> expected;
            for (int row = 0; row < count; row++)
                for (size_t i = 0; i < n; i += 16)
                    expected.push_back(reinterpret_cast<const char*>(&memory[row * ld + i]));
            for (const int step : {1, 3, MORE_THAN_ALL}) {
                SCOPED_TRACE(testing::Message() << n << " elements, " << count << " rows, " << step);
                RowLines rows(memory.data(), ld, count, n);
                EXPECT_EQ(rows.left(), int(expected.size()));
                std::vector<const char*> addresses;
                while (rows.left() > 0)
                    for (const char* address : take(rows, step)) addresses.push_back(address);
                EXPECT_EQ(addresses, expected);
                EXPECT_TRUE(take(rows, step).empty());
            }
        }
}

TEST(RowLines, CanBeTakenByRows) {
    const std::vector<float> memory(1000);
    RowLines by_line(memory.data(), 100, 5, 40), by_row = by_line;
    EXPECT_EQ(by_row.row_lines(), 3);
    std::vector<const char*> addresses;
    for (const int rows : {0, 2, MORE_THAN_ALL, 1})
        by_row.take_rows(rows, [&](const char* address) { addresses.push_back(address); });
    EXPECT_EQ(addresses, take(by_line, MORE_THAN_ALL));
    EXPECT_EQ(by_row.left(), 0);
}

TEST(RowLines, EmptyWithoutElements) {
    const float x = 0;
    RowLines empty, without_elements(&x, 1, 5, 0);
    EXPECT_TRUE(take(empty, MORE_THAN_ALL).empty());
    EXPECT_TRUE(take(without_elements, MORE_THAN_ALL).empty());
}

// Rows of four lines cost 40, those of one line 10. Half a row or more counts as a row; no work is left over
// for the next call, or for the next array.
TEST(PrefetchQueue, RequestsRowsByTheWork) {
    const std::vector<float> memory(1000);
    PrefetchQueue queue;
    queue.prefetch(1000, 10);
    queue.add({memory.data(), 100, 4, 64});
    queue.add({memory.data(), 100, 0, 64});
    queue.add({memory.data() + 300, 100, 4, 16});
    const std::pair<int, int> work_and_lines_left[] = {{19, 20}, {19, 20}, {20, 16}, {59, 12},  {100, 4},
                                                       {4, 4},   {5, 3},   {14, 2},  {1000, 0}, {1000, 0}};
    EXPECT_EQ(queue.left(), 20);
    for (const auto& [work, left] : work_and_lines_left) {
        queue.prefetch(work, 10);
        EXPECT_EQ(queue.left(), left) << "after " << work;
    }
    queue.clear();
    queue.add({memory.data(), 100, 2, 16});
    EXPECT_EQ(queue.left(), 2);
    queue.prefetch(10, 10);
    EXPECT_EQ(queue.left(), 1);
}
