// The crossover size of two methods, such as GPU and CPU: from which size on the new one is faster.
#pragma once
#include <string>
#include <vector>

// The times of both methods at one size. Seconds that are not positive (NaN, 0) mean "not measured".
struct TimePair {
    double size, new_seconds, old_seconds;
};

struct Crossover {
    enum Kind { unknown, never, always, at } kind = unknown;
    // The new method is faster at `won_from` and all larger sizes, but not at `lost_at`.
    double lost_at = 0, won_from = 0;
    double size = 0;  // interpolated between the two: equal times
};

// Takes the pairs in any order and ignores those without both times. unknown: none has both.
Crossover find_crossover(std::vector<TimePair> times);

// Such as "170 (GPU slower at 100, faster at 250)".
std::string crossover_text(const Crossover& crossover, const std::string& new_method = "GPU",
                           const std::string& old_method = "CPU");
