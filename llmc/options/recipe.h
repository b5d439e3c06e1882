// The options that train_gpt2 --text chooses for a text.
#pragma once
#include <cstdint>
#include <string>

struct LaunchPad;
struct Options;

// The subfolder of a run's folder that holds the tokens of its text.
inline constexpr const char* tokens_folder = "tokens";

struct TextTokens {
    std::string train, val;  // patterns, as -i and -j take them
    uint64_t train_tokens = 0, val_tokens = 0;
};

// Chooses everything that a run on these tokens needs and that is not given. Steps and what follows from them
// take the given options into account. pad: the device that trains; null: the CPU.
void choose_options(Options& o, const TextTokens& tokens, LaunchPad* pad);
