#include "llmc/data/example_packer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "llmc/base/checksum.h"

void ExamplePacker::put_ends(uint64_t count) {
    const std::vector<uint16_t> ends(count, end_of_text);
    std::vector<bool> targets(count, false);
    if (count > 0) targets[0] = std::exchange(follows_answer, false);
    take(ends, targets);
    tokens += count;
}

void ExamplePacker::add(const EncodedExample& example) {
    const uint64_t length = 1 + example.tokens.size(), left = T - tokens % T;
    if (length > left && left < T) put_ends(left);
    put_ends(1);
    take(example.tokens, example.targets);
    tokens += example.tokens.size();
    examples++;
    cut += length > T;
    follows_answer = true;
}

void ExamplePacker::end_sequence() { put_ends((T - tokens % T) % T); }

void ExamplePacker::finish() {
    if (tokens == 0) return;
    end_sequence();
    put_ends(1);
}

bool ExampleDraw::validates(const EncodedExample& example) {
    Checksum sum;
    sum.add(example.tokens.data(), example.question * sizeof(uint16_t));
    const auto [side, is_new] = sides.try_emplace(sum.text(), false);
    if (!is_new) return side->second;
    const auto block = uint64_t(std::max(2.0, std::round(1 / fraction)));
    if (questions % block == 0) chosen = random.next32() % block;
    side->second = questions++ % block == chosen;
    return side->second;
}
