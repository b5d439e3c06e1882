// The pair of tokens that occurs most often becomes a token, again and again. Words are stored once, with
// their counts. A queue holds pairs with the words in which they may occur. Counts fall while a pair waits,
// so a pair that comes first with an outdated count goes back with its present one.
//
// A merged text that is a token already keeps its id. New occurrences of pairs that have been in the queue
// then enter it once more, beside the others. The order in which these are taken decides the order of merges,
// so the queue has the same entries as the one of Hugging Face's library.
//
// Parts divide the work: each has words of its own, which it merges, and pairs of its own, which it counts
// and queues. All results are sums of integers, or ordered by values, so the number of parts changes nothing.
#include "llmc/text/bpe_merges.h"

#include <omp.h>

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/text/tokenizer.h"

// Two ids of 16 bits, left << 16 | right, so that pairs are ordered by left, then right.
using Pair = uint32_t;
static Pair pair_of(int left, int right) { return Pair(left) << 16 | Pair(right); }

static const uint64_t odd_factor = 0x9e3779b97f4a7c15;  // whose multiples are spread evenly
static uint32_t hash_of(Pair pair) { return uint32_t((pair + 1) * odd_factor >> 32); }

namespace {

// Word numbers; most lists have one.
struct WordList {
    uint32_t size = 0, one = 0;
    std::unique_ptr<uint32_t[]> many = nullptr;

    const uint32_t* begin() const { return size == 1 ? &one : many.get(); }
    const uint32_t* end() const { return begin() + size; }
};

// What a merge changes in the words of one part: how often a pair occurs, and words where it is new.
struct Change {
    Pair pair = 0;
    int64_t count = 0;
    std::vector<uint32_t> words = {};
    uint32_t* index = nullptr;  // what refers to it in Part::changed
    Change* next = nullptr;     // of the same pair in another part
};

// A pair that waits for its merge. The queue moves entries often, so they are small.
struct Entry {
    uint64_t count;
    Pair pair;
    uint32_t step;  // that queued it
    uint32_t list;  // its words: a place in Part::lists

    // Whether it comes after the other one.
    bool operator<(const Entry& other) const {
        if (count != other.count) return count < other.count;
        return pair != other.pair ? pair > other.pair : step > other.step;
    }
};

// The counts of pairs: a hash table with open addressing.
struct PairCounts {
    struct Slot {
        Pair pair = none;
        uint32_t fresh = 0;  // 1 + the place in Part::fresh of a pair that is new in some words
        int64_t count = 0;
    };
    static constexpr Pair none = UINT32_MAX;  // of two tokens that are never merged, since they come last
    std::vector<Slot> slots = std::vector<Slot>(1 << 10);
    size_t used = 0;

    Slot& at(Pair pair) {
        size_t i = hash_of(pair) % slots.size();
        while (slots[i].pair != pair && slots[i].pair != none) i = (i + 1) % slots.size();
        return slots[i];
    }
    void prefetch(Pair pair) const { __builtin_prefetch(&slots[hash_of(pair) % slots.size()]); }
    Slot& add(Pair pair) {
        if (4 * (used + 1) > 3 * slots.size()) grow();
        Slot& slot = at(pair);
        used += slot.pair == none;
        slot.pair = pair;
        return slot;
    }
    void grow() {
        std::vector<Slot> old(2 * slots.size());
        old.swap(slots);
        for (const Slot& slot : old)
            if (slot.pair != none) at(slot.pair) = slot;
    }
};

struct Merging {
    int left = 0, right = 0, merged = 0;
    WordList words = {};
};

struct alignas(64) Part {
    struct Word {
        uint64_t count;
        size_t begin;
        size_t length;
    };
    uint32_t first_word = 0;  // the number of words[0]
    std::vector<Word> words = {};
    std::vector<uint16_t> symbols = {};

    std::vector<Change> changes = {};
    size_t num_changes = 0;                               // of this step; the others are reused
    std::vector<std::vector<uint32_t>> changes_for = {};  // by the part whose pairs they concern
    // Of a neighbour's id, its change (1 + its place, 0: none), before and after the merge, left and right.
    std::vector<uint32_t> changed[4];

    PairCounts counts = {};
    std::vector<Entry> queue = {};  // a heap of the entries with at least `least` occurrences, which is small
    std::vector<Entry> rare = {};   // the others
    uint64_t least = UINT64_MAX;
    std::vector<WordList> lists = {};
    std::vector<uint32_t> free_lists = {};
    struct Fresh {
        Pair pair;
        Change *first, *last;
    };
    std::vector<Fresh> fresh = {};

    void take(WordCounts::Shard& shard, const uint16_t* byte_ids);
    void find_first_pairs(int first_byte);
    void merge(const Merging& merging, const std::vector<std::string>& tokens, size_t longest);
    void merge_word(uint32_t number, const Merging& merging, const std::vector<std::string>& tokens,
                    size_t longest);
    void update(std::vector<Part>& parts, uint32_t step);
    void push(const Entry& entry) {
        std::vector<Entry>& to = entry.count >= least ? queue : rare;
        to.push_back(entry);
        if (&to == &queue) std::push_heap(queue.begin(), queue.end());
    }
    void queue_rarer(uint64_t lower);
    // The words of an entry that leaves the queue.
    WordList take_list(const Entry& entry) {
        free_lists.push_back(entry.list);
        return std::move(lists[entry.list]);
    }

   private:
    uint32_t keep_list(WordList list);
    void sort_changes();
    Change& new_change(Pair pair);
    Change& change_at(int side, int neighbour, Pair pair);
};

}  // namespace

// --- words ---

void Part::take(WordCounts::Shard& shard, const uint16_t* byte_ids) {
    for (const WordCounts::Word& word : shard.slots) {
        if (word.count == 0) continue;
        words.push_back({word.count, symbols.size(), word.length});
        for (size_t i = 0; i < word.length; i++)
            symbols.push_back(byte_ids[uint8_t(shard.bytes[word.begin + i])]);
    }
    shard.slots = {};
    shard.bytes = {};
}

Change& Part::new_change(Pair pair) {
    if (num_changes == changes.size()) changes.emplace_back();
    Change& change = changes[num_changes++];
    change.pair = pair;
    change.count = 0;
    change.words.clear();
    change.index = nullptr;
    change.next = nullptr;
    return change;
}

// Two passes, so that lists have no more memory than they need.
void Part::find_first_pairs(int first_byte) {
    std::vector<uint32_t> sizes(1 << 16), last(1 << 16, UINT32_MAX), place(1 << 16);
    const auto for_each_pair = [&](auto&& action) {
        for (uint32_t number = 0; number < words.size(); number++)
            for (size_t i = words[number].begin; i + 1 < words[number].begin + words[number].length; i++) {
                const size_t bytes =
                    size_t(symbols[i] - first_byte) << 8 | size_t(symbols[i + 1] - first_byte);
                action(bytes, pair_of(symbols[i], symbols[i + 1]), number, last[bytes] != number);
                last[bytes] = number;
            }
    };
    for_each_pair([&](size_t bytes, Pair, uint32_t, bool is_new) { sizes[bytes] += is_new; });
    std::fill(last.begin(), last.end(), UINT32_MAX);
    for_each_pair([&](size_t bytes, Pair pair, uint32_t number, bool is_new) {
        if (place[bytes] == 0) {
            new_change(pair).words.reserve(sizes[bytes]);
            place[bytes] = uint32_t(num_changes);
        }
        Change& change = changes[place[bytes] - 1];
        change.count += int64_t(words[number].count);
        if (is_new) change.words.push_back(first_word + number);
    });
    sort_changes();
}

// The part that counts and queues a pair.
static size_t owner_of(Pair pair, size_t parts) { return uint64_t(hash_of(pair)) * parts >> 32; }

void Part::sort_changes() {
    for (std::vector<uint32_t>& list : changes_for) list.clear();
    for (uint32_t i = 0; i < num_changes; i++)
        changes_for[owner_of(changes[i].pair, changes_for.size())].push_back(i);
}

// --- a merge ---

Change& Part::change_at(int side, int neighbour, Pair pair) {
    uint32_t& index = changed[side][neighbour];
    if (index > 0) return changes[index - 1];
    Change& change = new_change(pair);
    change.index = &index;
    index = uint32_t(num_changes);
    return change;
}

void Part::merge_word(uint32_t number, const Merging& m, const std::vector<std::string>& tokens,
                      size_t longest) {
    Word& word = words[number - first_word];
    uint16_t* const symbol = &symbols[word.begin];
    const size_t merged_length = tokens[m.merged].size();
    const auto disappears = [&](int side, int neighbour, Pair pair) {
        change_at(side, neighbour, pair).count -= int64_t(word.count);
    };
    const auto appears = [&](int side, int neighbour, Pair pair) {
        if (longest > 0 && tokens[neighbour].size() + merged_length >= longest) return;
        Change& change = change_at(side, neighbour, pair);
        change.count += int64_t(word.count);
        if (change.words.empty() || change.words.back() != number) change.words.push_back(number);
    };
    size_t kept = 0;
    for (size_t i = 0; i < word.length; kept++) {
        const bool found = symbol[i] == m.left && i + 1 < word.length && symbol[i + 1] == m.right;
        if (!found) {
            symbol[kept] = symbol[i++];
            continue;
        }
        i += 2;
        if (kept > 0) {
            disappears(0, symbol[kept - 1], pair_of(symbol[kept - 1], m.left));
            appears(1, symbol[kept - 1], pair_of(symbol[kept - 1], m.merged));
        }
        if (i < word.length) {
            disappears(2, symbol[i], pair_of(m.right, symbol[i]));
            appears(3, symbol[i], pair_of(m.merged, symbol[i]));
        }
        symbol[kept] = uint16_t(m.merged);
    }
    word.length = kept;
}

void Part::merge(const Merging& merging, const std::vector<std::string>& tokens, size_t longest) {
    num_changes = 0;
    const uint32_t end = first_word + uint32_t(words.size());
    const auto begins_at = [&](uint32_t first) {
        return std::partition_point(merging.words.begin(), merging.words.end(),
                                    [&](uint32_t word) { return word < first; });
    };
    // The words lie anywhere in memory: the threads would wait for most of them.
    const uint32_t *const mine = begins_at(first_word), *const last = begins_at(end);
    const auto prefetch_word = [&](const uint32_t* word) {
        if (word < last) __builtin_prefetch(&words[*word - first_word]);
    };
    const auto prefetch_symbols = [&](const uint32_t* word) {
        if (word < last) __builtin_prefetch(&symbols[words[*word - first_word].begin]);
    };
    for (int i = 0; i < 16; i++) prefetch_word(mine + i);
    for (int i = 0; i < 8; i++) prefetch_symbols(mine + i);
    for (const uint32_t* word = mine; word < last; word++) {
        prefetch_word(word + 16);
        prefetch_symbols(word + 8);
        merge_word(*word, merging, tokens, longest);
    }
    for (size_t i = 0; i < num_changes; i++) *changes[i].index = 0;
    sort_changes();
}

uint32_t Part::keep_list(WordList list) {
    if (free_lists.empty()) {
        lists.push_back(std::move(list));
        return uint32_t(lists.size() - 1);
    }
    const uint32_t place = free_lists.back();
    free_lists.pop_back();
    lists[place] = std::move(list);
    return place;
}

// Adds the changes of all parts to the counts of this part's pairs, and queues those that are new in words.
void Part::update(std::vector<Part>& parts, uint32_t step) {
    const size_t self = size_t(this - parts.data());
    for (Part& part : parts) {
        for (const uint32_t i : part.changes_for[self]) counts.prefetch(part.changes[i].pair);
        for (const uint32_t i : part.changes_for[self]) {
            Change& change = part.changes[i];
            PairCounts::Slot& slot = counts.add(change.pair);
            slot.count += change.count;
            if (change.words.empty()) continue;
            if (slot.fresh == 0) {
                fresh.push_back({change.pair, &change, &change});
                slot.fresh = uint32_t(fresh.size());
            } else {
                Change*& last = fresh[slot.fresh - 1].last;
                last = last->next = &change;
            }
        }
    }
    for (const Fresh& pair : fresh) {
        PairCounts::Slot& slot = counts.at(pair.pair);
        slot.fresh = 0;
        if (slot.count <= 0) continue;
        WordList words_of_pair;
        for (const Change* c = pair.first; c; c = c->next) words_of_pair.size += uint32_t(c->words.size());
        if (words_of_pair.size > 1)
            words_of_pair.many = std::make_unique_for_overwrite<uint32_t[]>(words_of_pair.size);
        uint32_t* to = words_of_pair.size > 1 ? words_of_pair.many.get() : &words_of_pair.one;
        for (const Change* c = pair.first; c; c = c->next)
            to = std::copy(c->words.begin(), c->words.end(), to);
        push({uint64_t(slot.count), pair.pair, step, keep_list(std::move(words_of_pair))});
    }
    fresh.clear();
}

// Moves entries with at least `lower` occurrences to the queue.
void Part::queue_rarer(uint64_t lower) {
    least = lower;
    std::vector<Entry> all;
    all.swap(rare);
    for (const Entry& entry : all) push(entry);
}

// --- all merges ---

namespace {

struct Learner {
    BpeLearning& learning;
    std::vector<Part> parts;
    std::unordered_map<std::string, int> ids = {};
    Merging merging = {};
    uint32_t step = 0;

    bool pop(Entry& entry, WordList& words);
    bool choose();
    bool merge_rare_pairs();
    void merge_part(Part& part) { part.merge(merging, learning.tokens, learning.max_token_length); }
    void run(WordCounts& words);
};

}  // namespace

// The entry that comes first, and its words; false: there is none.
bool Learner::pop(Entry& entry, WordList& words) {
    for (;;) {
        Part* first = nullptr;
        for (Part& part : parts)
            if (!part.queue.empty() && (!first || first->queue[0] < part.queue[0])) first = &part;
        if (!first) {
            uint64_t most = 0;
            for (const Part& part : parts)
                for (const Entry& rare : part.rare) most = std::max(most, rare.count + 1);
            if (most == 0) return false;
            for (Part& part : parts) part.queue_rarer((most - 1) / 8);
            continue;
        }
        std::pop_heap(first->queue.begin(), first->queue.end());
        entry = first->queue.back();
        first->queue.pop_back();
        const uint64_t count = uint64_t(first->counts.at(entry.pair).count);
        if (entry.count == count) {
            words = first->take_list(entry);
            return true;
        }
        entry.count = count;
        first->push(entry);
    }
}

// Chooses the next merge; false: there is none.
bool Learner::choose() {
    if (learning.tokens.size() >= learning.vocab_size || work_is_stopped()) return false;
    Entry entry;
    WordList words;
    if (!pop(entry, words) || entry.count < 1 || entry.count < learning.min_frequency) return false;
    merging = {int(entry.pair >> 16), int(entry.pair & 0xffff), 0, std::move(words)};
    const std::string text = learning.tokens[merging.left] + learning.tokens[merging.right];
    merging.merged = ids.try_emplace(text, int(learning.tokens.size())).first->second;
    if (size_t(merging.merged) == learning.tokens.size()) learning.tokens.push_back(text);
    learning.merges.push_back({merging.left, merging.right, merging.merged});
    step++;
    return learning.tokens.size() < learning.vocab_size;
}

// Merges pairs in a few words alone, since threads take longer to wait for each other, up to a pair that is
// in many; false: there is none.
bool Learner::merge_rare_pairs() {
    const uint32_t few = 32;
    while (choose()) {
        if (merging.words.size > few) return true;
        for (Part& part : parts) merge_part(part);
        for (Part& part : parts) part.update(parts, step);
    }
    return false;
}

void Learner::run(WordCounts& words) {
    size_t first_word[257] = {};
    const size_t num_shards = words.shards.size();
    for (size_t s = 0; s < num_shards; s++) first_word[s + 1] = first_word[s] + words.shards[s].used;
    uint16_t byte_ids[256];
    for (int i = 0; i < 256; i++)
        byte_ids[uint8_t(learning.tokens[learning.first_byte + i][0])] = uint16_t(learning.first_byte + i);
    bool goes_on = true;
#pragma omp parallel
    {
#pragma omp for schedule(static, 1)
        for (size_t p = 0; p < parts.size(); p++) {
            const size_t begin = num_shards * p / parts.size(), end = num_shards * (p + 1) / parts.size();
            parts[p].first_word = uint32_t(first_word[begin]);
            parts[p].changes_for.resize(parts.size());
            parts[p].words.reserve(first_word[end] - first_word[begin]);
            size_t bytes = 0;
            for (size_t s = begin; s < end; s++) bytes += words.shards[s].bytes.size();
            parts[p].symbols.reserve(bytes);
            for (size_t s = begin; s < end; s++) parts[p].take(words.shards[s], byte_ids);
            parts[p].find_first_pairs(learning.first_byte);
        }
#pragma omp for schedule(static, 1)
        for (size_t p = 0; p < parts.size(); p++) parts[p].update(parts, step);
#pragma omp for schedule(static, 1)
        for (size_t p = 0; p < parts.size(); p++) {
            parts[p].changes = {};
            for (std::vector<uint32_t>& side : parts[p].changed) side.resize(learning.vocab_size);
        }
        for (;;) {
            if (omp_get_thread_num() == 0) goes_on = merge_rare_pairs();
#pragma omp barrier
            if (!goes_on) break;
#pragma omp for schedule(static, 1)
            for (size_t p = 0; p < parts.size(); p++) merge_part(parts[p]);
#pragma omp for schedule(static, 1)
            for (size_t p = 0; p < parts.size(); p++) parts[p].update(parts, step);
        }
    }
}

void learn_merges(WordCounts& words, BpeLearning& learning) {
    if (words.distinct() >= UINT32_MAX)
        fail("the text has %zu distinct words: train the tokenizer on a part of it", words.distinct());
    learning.tokens.reserve(learning.vocab_size);
    Learner learner = {learning, std::vector<Part>(size_t(omp_get_max_threads()))};
    learner.ids.reserve(learning.vocab_size);
    for (size_t id = 0; id < learning.tokens.size(); id++)
        if (int(id) >= learning.first_byte || encode_printable(learning.tokens[id]) == learning.tokens[id])
            learner.ids[learning.tokens[id]] = int(id);
    learner.run(words);
    throw_if_stopped();
}
