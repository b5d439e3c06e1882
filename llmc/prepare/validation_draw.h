// Which documents prepare_data takes for validation: a given fraction of them, spread over the whole text. Of
// each 1 / fraction documents in a row, one is drawn at random, so the fraction is met closely.
#pragma once
#include <algorithm>
#include <cstdint>

#include "llmc/base/random.h"

struct ValidationDraw {
    double fraction = 0;  // 0 to 0.5
    Random random = Random(42);
    uint64_t seen = 0, drawn = 0;  // documents

    ValidationDraw(double of_documents, uint64_t seed) : fraction(of_documents), random(seed) {
        if (fraction > 0) next_drawn = std::min(random.uniform_double() / fraction, 1e18);
    }

    // Whether the next document is for validation.
    bool next() {
        if (fraction <= 0 || seen++ < uint64_t(next_drawn)) return false;
        next_drawn = std::min((double(++drawn) + random.uniform_double()) / fraction, 1e18);
        return true;
    }

   private:
    double next_drawn = 0;  // its integer part is the number of the document
};
