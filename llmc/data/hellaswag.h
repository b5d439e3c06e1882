// HellaSwag (Zellers et al. 2019), a benchmark of common sense: which of four endings continues a context.
// The model picks the ending whose tokens have the lowest mean loss after the context ("acc_norm").
//
// The file format is llm.c's: a header of 256 int32 (magic 20240522, version 1, number of examples, size of
// the longest one in bytes, zeros), then each example as uint16: 65535, its size in bytes, its index, the
// label, 4, the context's length and tokens, and four times an ending's length and tokens.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/text/tokenizer.h"

struct HellaSwagExample {
    int label = 0;  // index of the correct ending, 0 to 3
    std::vector<uint16_t> context;
    std::array<std::vector<uint16_t>, 4> endings;
};

// Reads all examples. Error unless the file has exactly the format above and all tokens are below vocab_size.
std::vector<HellaSwagExample> read_hellaswag(const std::string& path, int vocab_size);

// Whether the file begins as one of HellaSwag. Error if it cannot be read.
bool is_hellaswag(const std::string& path);

// Error if an example's size or the number of examples does not fit the format's 16 bits. The path may be a
// device or a pipe.
void write_hellaswag(const std::string& path, const std::vector<HellaSwagExample>& examples);

// Parses one line of the published JSONL: fields ctx, endings (four) and label. Errors begin with `where`.
HellaSwagExample parse_hellaswag(std::string_view line, const std::string& where, Tokenizer& tokenizer);

// The endings of all examples as rows of T tokens, each preceded by its context. T is the length of the
// longest row, rounded up to a multiple of 64, at most longest_T. A context that does not fit loses its
// beginning.
struct HellaSwagRows {
    int T = 0;
    struct Row {
        int example, ending;
        int first, end;  // the targets at positions [first, end) are the ending's tokens
    };
    std::vector<Row> rows;
    // Copies the row's tokens into inputs and targets (T), padded with 0.
    void fill(const HellaSwagExample& example, const Row& row, int* inputs, int* targets) const;
};
HellaSwagRows make_hellaswag_rows(const std::vector<HellaSwagExample>& examples, int longest_T);

// Counts the examples that the model answers correctly, given the mean loss of each ending (4 per example).
int count_right(const std::vector<HellaSwagExample>& examples, const std::vector<double>& losses);

// Counts the examples that have no result, since the mean loss of one of their endings is not finite.
int count_not_finite(const std::vector<double>& losses);
