// Byte-pair encoding learned from counted words, as Hugging Face's BpeTrainer (tokenizers 0.23) does it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/text/word_counts.h"

// A merge of two tokens; the same pair may come again later, and then counts where it comes last.
struct LearnedMerge {
    int left, right, merged;
};

struct BpeLearning {
    std::vector<std::string> tokens;  // special ones, then the 256 bytes; learn_merges() adds the merged ones
    int first_byte = 0;               // the number of special tokens
    size_t vocab_size = 0;            // stop at so many tokens,
    uint64_t min_frequency = 0;       // or where no pair occurs so often
    size_t max_token_length = 0;      // longer pairs do not merge; 0: no limit
    std::vector<LearnedMerge> merges = {};
};

// Learns merges from the words, and takes the words' memory. All threads take part; their number does not
// change the merges.
void learn_merges(WordCounts& words, BpeLearning& learning);
