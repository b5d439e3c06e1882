// From which size on one of two ways of doing something is the quicker one, such as the GPU.
#pragma once
#include <string>
#include <vector>

// One size, done in both ways. Seconds that are not positive (NaN, 0) stand for "not measured".
struct Race {
    double size, new_seconds, old_seconds;
};

struct Crossover {
    enum Kind { unknown, never, always, at } kind = unknown;
    double lost_at = 0,
           won_from = 0;  // the new way wins at `won_from` and all larger sizes, and not at `lost_at`
    double size = 0;      // in between, where the times should be equal
};

// Of races in any order; those that lack a time are left out. unknown: none has both.
Crossover find_crossover(std::vector<Race> races);

// Such as "the GPU wins from about 170 on (it lost at 100 and won at 250)".
std::string crossover_text(const Crossover& crossover, const std::string& new_way = "the GPU",
                           const std::string& old_way = "the CPU");
