#include "llmc/data/example_packer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "llmc/base/checksum.h"
#include "llmc/base/lines.h"

void ExamplePacker::put_ends(uint64_t count) {
    const std::vector<uint16_t> ends(count, end_of_text);
    std::vector<bool> targets(count, false);
    if (count > 0) targets[0] = std::exchange(follows_answer, false);
    take(ends, targets);
    tokens += count;
}

void ExamplePacker::add(const EncodedExample& example) {
    const uint64_t all = example.tokens.size(), size = std::min(all, T - 1), left = T - tokens % T;
    if (1 + size > left && left < T) put_ends(left);
    put_ends(1);
    // half of a sequence is for the question, or what the answer leaves
    const uint64_t in_question = example.question - std::min<uint64_t>(example.question, size / 2);
    const uint64_t first = std::min(all - size, in_question);
    const auto targets = example.targets.begin() + std::ptrdiff_t(first);
    take(std::span(example.tokens).subspan(first, size), {targets, targets + std::ptrdiff_t(size)});
    tokens += size;
    examples++;
    cut += size < all;
    follows_answer = first + size == all;
}

void ExamplePacker::end_sequence() { put_ends((T - tokens % T) % T); }

void ExamplePacker::finish() {
    if (tokens == 0) return;
    end_sequence();
    put_ends(1);
}

void ExampleNotes::add(const EncodedBlock& block) {
    if (with_marks == 0) first_with_mark = block.first_with_mark;
    with_marks += block.with_marks;
    unanswered += block.unanswered;
}

void ExampleNotes::print(int T, bool is_longest) const {
    if (with_marks > 0)
        print_line(stderr, "note: the texts of %s have a mark of the template, as if another turn began: %s",
                   counted(with_marks, "example").c_str(), first_with_mark.c_str());
    if (unanswered > 0)
        print_line(stderr, "note: no answer follows the last question of %s, which is left out",
                   counted(unanswered, "example").c_str());
    if (cut > 0)
        print_line(stderr, "note: %s more than %d tokens, and %s cut: %s",
                   (counted(cut, "example") + (cut == 1 ? " has" : " have")).c_str(), T,
                   cut == 1 ? "is" : "are",
                   is_longest ? "the model has no more positions" : "use longer sequences (-t)");
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
