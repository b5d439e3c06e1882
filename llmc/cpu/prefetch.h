// Requests cache lines that a thread needs soon, a few at a time, while it computes.
#pragma once
#include <algorithm>
#include <cstddef>

// The cache lines of rows of an array, one after the other.
struct RowLines {
    RowLines() = default;  // none
    // `count` rows of n elements, `ld` elements apart. Rows should start at a cache line: of others, the last
    // line may be missing.
    template <class Real>
    RowLines(const Real* first, size_t ld, int count, size_t n)
        : next(reinterpret_cast<const char*>(first)),
          lines(int((n * sizeof(Real) + 63) / 64)),
          rows(lines ? count : 0) {
        gap = ld * sizeof(Real) - size_t(lines) * 64;
    }

    int left() const { return rows * lines - line; }

    // Calls request(address) for the next lines, at most `count` of them.
    template <class Request>
    void take(int count, const Request& request) {
        for (int n = std::min(count, left()), here; n > 0; n -= here) {
            here = std::min(n, lines - line);  // in this row
            for (int i = 0; i < here; i++, next += 64) request(next);
            line += here;
            if (line == lines) line = 0, next += gap, rows--;
        }
    }
    // Prefetches the next lines into L2. Reads gain, and so do stores, which otherwise wait for their lines.
    void prefetch(int count) {
        take(count, [](const char* address) { __builtin_prefetch(address, 0, 2); });
    }

   private:
    const char* next = nullptr;
    size_t gap = 0;           // bytes from the end of a row's lines to the next row
    int lines = 0, rows = 0;  // in a row; that are left
    int line = 0;             // of the current row
};

// Up to eight arrays, prefetched one after the other.
struct PrefetchQueue {
    void clear() { count = current = 0; }
    void add(const RowLines& lines) { arrays[count++] = lines; }
    int left() const {
        int sum = 0;
        for (int i = current; i < count; i++) sum += arrays[i].left();
        return sum;
    }
    // Prefetches a line for every `step` units of `work`. Cores drop requests that come faster than memory
    // answers, so the caller spreads them over its work.
    void prefetch(int work, int step) {
        waiting += work;
        while (waiting >= step && current < count) {
            const int lines = std::min(waiting / step, arrays[current].left());
            arrays[current].prefetch(lines);
            if (!arrays[current].left()) current++;
            waiting -= lines * step;
        }
        waiting %= step;
    }

   private:
    RowLines arrays[8];
    int count = 0, current = 0;
    int waiting = 0;  // work since the last line
};
