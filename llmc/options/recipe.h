// The options that train_gpt2 --text chooses for a text.
#pragma once
#include <cstdint>
#include <string>

struct Options;

// The subfolder of a run's folder that holds the tokens of its text.
inline constexpr const char* tokens_folder = "tokens";

struct TextTokens {
    std::string train, val;  // patterns, as -i and -j take them
    uint64_t train_tokens = 0, val_tokens = 0;
};

// Lines of options (option_lines.h) for everything that a run on these tokens needs. Steps and what follows
// from them take the options that `o` gives into account; the caller ignores the lines of those options.
std::string choose_options(const Options& o, const TextTokens& tokens);
