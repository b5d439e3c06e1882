// How often each distinct word of a text occurs. Threads count words of their own blocks of text and add them
// up in tables that all share, so memory follows the distinct words, not the text.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

struct WordCounts {
    // A slot of a hash table; count 0: empty.
    struct Word {
        uint64_t count = 0;
        uint32_t hash = 0, begin = 0, length = 0;  // its bytes in Shard::bytes
    };
    // The words whose hashes begin alike.
    struct Shard {
        std::mutex lock;
        std::vector<Word> slots;
        std::string bytes;
        size_t used = 0;

        void add(std::string_view word, uint32_t hash, uint64_t count);

       private:
        void grow();
    };
    std::vector<Shard> shards = std::vector<Shard>(256);

    size_t distinct() const;
    uint64_t total() const;
};

// Counts the words of one thread.
struct WordCounter {
    explicit WordCounter(WordCounts& of_all) : all(of_all) {}

    void add(std::string_view word);
    // Adds the counts to those of all threads.
    void flush();

   private:
    struct Slot {
        size_t begin = 0;
        uint32_t length = 0, count = 0;  // count 0: empty
        uint64_t hash = 0;
    };
    WordCounts& all;
    std::vector<Slot> slots = std::vector<Slot>(1 << 14);
    std::string bytes;  // of the words in the slots
    size_t used = 0;
};
