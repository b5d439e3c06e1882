#include "llmc/text/word_counts.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

#include "llmc/base/error.h"

void WordCounts::Shard::grow() {
    std::vector<Word> larger(std::max<size_t>(16, 2 * slots.size()));
    for (const Word& word : slots) {
        if (word.count == 0) continue;
        size_t i = word.hash % larger.size();
        while (larger[i].count > 0) i = (i + 1) % larger.size();
        larger[i] = word;
    }
    slots.swap(larger);
}

void WordCounts::Shard::add(std::string_view word, uint32_t hash, uint64_t count) {
    if (4 * (used + 1) > 3 * slots.size()) grow();
    size_t i = hash % slots.size();
    for (; slots[i].count > 0; i = (i + 1) % slots.size()) {
        Word& known = slots[i];
        if (known.hash == hash && std::string_view(&bytes[known.begin], known.length) == word) {
            known.count += count;
            return;
        }
    }
    if (bytes.size() + word.size() > UINT32_MAX)
        fail("the text has more than %zu GiB of distinct words: train the tokenizer on a part of it",
             (bytes.size() >> 30) * 256);
    slots[i] = {count, hash, uint32_t(bytes.size()), uint32_t(word.size())};
    bytes += word;
    used++;
}

size_t WordCounts::distinct() const {
    size_t words = 0;
    for (const Shard& shard : shards) words += shard.used;
    return words;
}

uint64_t WordCounts::total() const {
    uint64_t words = 0;
    for (const Shard& shard : shards)
        for (const Word& word : shard.slots) words += word.count;
    return words;
}

void WordCounter::add(std::string_view word) {
    const uint64_t hash = XXH3_64bits(word.data(), word.size());
    size_t i = hash % slots.size();
    for (; slots[i].count > 0; i = (i + 1) % slots.size()) {
        Slot& known = slots[i];
        if (known.hash == hash && known.length == word.size() &&
            memcmp(&bytes[known.begin], word.data(), word.size()) == 0) {
            if (++known.count == UINT32_MAX) flush();
            return;
        }
    }
    slots[i] = {bytes.size(), uint32_t(word.size()), 1, hash};
    bytes += word;
    if (4 * ++used > 3 * slots.size()) flush();
}

void WordCounter::flush() {
    for (Slot& slot : slots) {
        if (slot.count == 0) continue;
        WordCounts::Shard& shard = all.shards[slot.hash >> 56];
        const std::lock_guard lock(shard.lock);
        shard.add({&bytes[slot.begin], slot.length}, uint32_t(slot.hash), slot.count);
        slot.count = 0;
    }
    bytes.clear();
    used = 0;
}
