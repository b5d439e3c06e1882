// Requests cache lines that a thread needs soon, a few at a time, while it computes.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>

// Walks through the cache lines of an array's rows.
struct RowLines {
    RowLines() = default;  // none
    // `count` rows of n elements, `ld` elements apart. If a row does not start at a cache line, its last line
    // may be missed.
    template <class Real>
    RowLines(const Real* first, size_t ld, int count, size_t n)
        : row(reinterpret_cast<uintptr_t>(first)),
          row_bytes(ld * sizeof(Real)),
          lines_per_row(int((n * sizeof(Real) + 63) / 64)),
          rows_left(lines_per_row ? count : 0) {}

    int left() const { return rows_left * lines_per_row - line; }

    // Calls request(address) for the next lines, at most `count` of them.
    template <class Request>
    void take(int count, const Request& request) {
        for (int n = std::min(count, left()), here; n > 0; n -= here) {
            here = std::min(n, lines_per_row - line);  // in this row
            for (int i = line; i < line + here; i++)
                request(reinterpret_cast<const char*>(row + 64 * uintptr_t(i)));
            line += here;
            if (line == lines_per_row) line = 0, row += row_bytes, rows_left--;
        }
    }
    // Calls request(address) for the lines of the next rows, at most `count` of them. No row may have been
    // begun by take().
    template <class Request>
    void take_rows(int count, const Request& request) {
        assert(line == 0 && count >= 0);
        const int n = std::min(count, rows_left);
        rows_left -= n;
        for (int i = 0; i < n; i++, row += row_bytes)
            for (int j = 0; j < lines_per_row; j++)
                request(reinterpret_cast<const char*>(row + 64 * uintptr_t(j)));
    }
    // Prefetch the next lines, or rows, into L2, for reading. Rows that will be stored gain, too: their
    // stores wait for the lines.
    void prefetch(int count) { take(count, prefetch_line); }
    void prefetch_rows(int count) { take_rows(count, prefetch_line); }
    int row_lines() const { return lines_per_row; }

   private:
    static void prefetch_line(const char* address) { __builtin_prefetch(address, 0, 2); }

    uintptr_t row = 0;  // address of the current row
    size_t row_bytes = 0;
    int lines_per_row = 0, rows_left = 0;
    int line = 0;  // of the current row
};

// Prefetches arrays, one after the other.
struct PrefetchQueue {
    static constexpr int CAPACITY = 8;  // arrays

    void clear() { count = current = 0; }
    // No row of them may have been begun.
    void add(const RowLines& lines) {
        assert(count < CAPACITY);
        if (lines.left()) arrays[count++] = lines;
    }
    int left() const {  // lines
        int sum = 0;
        for (int i = current; i < count; i++) sum += arrays[i].left();
        return sum;
    }
    // Prefetches round(work / (step * lines per row)) rows of the current array. Cores drop requests that
    // come faster than memory answers, so the caller spreads them over its work. Equal work gets equal
    // numbers of rows until the array ends, so that the core predicts the loop over them.
    void prefetch(int work, int step) {
        if (current == count) return;
        RowLines& rows = arrays[current];
        const int row_work = step * rows.row_lines();
        rows.prefetch_rows((work + row_work / 2) / row_work);
        if (!rows.left()) current++;
    }

   private:
    RowLines arrays[CAPACITY];
    int count = 0, current = 0;
};
