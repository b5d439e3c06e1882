// Paths with weights, as train_gpt2 takes them for a mixture of texts or of token shards: novels.txt:0.7.
#pragma once
#include <string>
#include <vector>

struct WeightedPath {
    std::string path;
    double weight = 0;  // 0: none is given
};

// Splits PATH:WEIGHT at its last colon. A text that names a file, or matches one, is a path without a weight,
// whatever it ends with: novels.txt:0.7:1 is the file novels.txt:0.7 with a weight. Error if the weight is
// wrong.
WeightedPath weighted_path(const std::string& text);
// Error if it is a path that is there, with a weight, which an option does not take.
void refuse_weight(const std::string& text);
std::vector<std::string> without_weights(const std::vector<std::string>& texts);

// What each of several sources is of the tokens of a step: weights divided by their sum. Empty: they are read
// one after the other, as one. Error if some have a weight and others have none.
std::vector<double> shares_of(const std::vector<std::string>& texts);
