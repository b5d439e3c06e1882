// HellaSwag (Zellers et al. 2019), a test of common sense: which of four endings goes on from a context. The
// model picks the one whose tokens have the least mean loss after the context ("acc_norm").
//
// The file is llm.c's: 256 int32 of header (magic 20240522, version 1, number of examples, bytes of the
// longest one, zeros), then each example as uint16: 65535, its bytes, its number, the label, 4, the context's
// length and tokens, and four times an ending's length and tokens.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/tokenizer.h"

struct HellaSwagExample {
    int label = 0;  // of the right ending, 0 to 3
    std::vector<uint16_t> context;
    std::array<std::vector<uint16_t>, 4> endings;
};

// All examples; Error unless the file is exactly as above and all tokens are below vocab_size.
std::vector<HellaSwagExample> read_hellaswag(const std::string& path, int vocab_size);

// Error where an example or their number is more than the format's 16 bits hold.
void write_hellaswag(const std::string& path, const std::vector<HellaSwagExample>& examples);

// One line of the published JSONL: fields ctx, endings (four) and label. `where` names it in errors.
HellaSwagExample parse_hellaswag(std::string_view line, const std::string& where, Tokenizer& tokenizer);

// The endings of all examples as rows of T tokens, context first: T is the longest one's number, rounded up
// to a multiple of 64, at most longest_T; contexts that do not fit lose their beginning.
struct HellaSwagRows {
    int T = 0;
    struct Row {
        int example, ending;
        int first, end;  // positions of the row whose targets are the ending's tokens
    };
    std::vector<Row> rows;
    // The row's tokens into inputs and targets (T), the rest 0.
    void fill(const HellaSwagExample& example, const Row& row, int* inputs, int* targets) const;
};
HellaSwagRows make_hellaswag_rows(const std::vector<HellaSwagExample>& examples, int longest_T);

// How many examples the mean losses (4 for each) answer rightly.
int count_right(const std::vector<HellaSwagExample>& examples, const std::vector<double>& losses);
