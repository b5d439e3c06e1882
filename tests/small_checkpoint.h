// A checkpoint of a tiny model, for tests of folders of them.
#pragma once
#include <algorithm>
#include <string>

#include "llmc/files/checkpoint.h"

inline void write_small(
    const std::string& folder, int step, const std::function<void()>& expect_folder = [] {}) {
    OptimizerState state;
    state.step = step;
    const ReadTensor ones = [](int, size_t, float* values, size_t count) {
        std::fill_n(values, count, 1.0f);
    };
    const ReadMoment zeros = [](Moment, int, size_t, float* values, size_t count) {
        std::fill_n(values, count, 0.0f);
    };
    write_checkpoint(folder, {{6, 10, 16, 2, 2, 4}, state, ones, zeros, false, "{}", expect_folder});
}
