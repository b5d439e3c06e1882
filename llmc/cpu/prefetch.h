// Requests cache lines that a thread needs soon, a few at a time, while it computes.
#pragma once
#include <algorithm>
#include <cstddef>

// Prefetches rows of an array into L2. Reads gain, and so do stores, which otherwise wait for their lines.
struct RowPrefetcher {
    RowPrefetcher() = default;  // nothing to prefetch
    // `count` rows of n elements, `ld` elements apart.
    template <class Real>
    RowPrefetcher(const Real* first, size_t ld, int count, size_t n)
        : next(reinterpret_cast<const char*>(first)),
          lines(int((n * sizeof(Real) + 63) / 64)),
          rows(lines ? count : 0) {
        gap = ld * sizeof(Real) - size_t(lines) * 64;
    }

    int lines_left() const { return rows * lines - line; }
    void fetch(int count) {
        for (int n = std::min(count, lines_left()), here; n > 0; n -= here) {
            here = std::min(n, lines - line);  // in this row
            for (int i = 0; i < here; i++, next += 64) __builtin_prefetch(next, 0, 2);
            line += here;
            if (line == lines) line = 0, next += gap, rows--;
        }
    }

   private:
    const char* next = nullptr;
    size_t gap = 0;           // bytes from the end of a row's lines to the next row
    int lines = 0, rows = 0;  // of a row; that are left
    int line = 0;             // of the current row
};

// Up to eight arrays, prefetched one after the other.
struct PrefetchQueue {
    void clear() { count = current = 0; }
    void add(const RowPrefetcher& rows) { arrays[count++] = rows; }
    // Requests a line for every `step` units of `work`. Cores drop requests that come faster than memory
    // answers, so the caller spreads them over its work.
    void fetch(int work, int step) {
        waiting += work;
        while (waiting >= step && current < count) {
            const int lines = std::min(waiting / step, arrays[current].lines_left());
            arrays[current].fetch(lines);
            if (!arrays[current].lines_left()) current++;
            waiting -= lines * step;
        }
        waiting %= step;
    }

   private:
    RowPrefetcher arrays[8];
    int count = 0, current = 0;
    int waiting = 0;  // work since the last line
};
