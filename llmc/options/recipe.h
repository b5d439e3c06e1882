// The options that train_gpt2 chooses for a text, whose new model comes from time_rule.h.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/model/model_config.h"
#include "llmc/options/time_rule.h"

class LaunchPad;
struct Options;

// The subfolder of a run's folder that holds the tokens of its text.
inline constexpr const char* tokens_folder = "tokens";

struct TextTokens {
    std::vector<std::string> train, val;  // patterns, as -i and -j take them
    uint64_t train_tokens = 0, val_tokens = 0;
    uint64_t bytes = 0;                     // of the text, without validation
    uint64_t val_bytes = 0;                 // about
    bool are_counted = false;               // false: not prepared yet, and estimated
    std::vector<uint64_t> of_sources = {};  // training tokens of each source of a mixture
    bool is_english = false;                // and no questions and answers
};

// Error if the model of -e has too few positions for -t, or another vocabulary than the tokenizer: before
// tokens are prepared.
void check_model_of_text(const Options& o);

// The models that choose_recipe() may measure.
std::vector<TextRecipe> candidates_of(const Options& o, const TextTokens& tokens, const LaunchPad* pad);

// Chooses model, batch, steps and regularization: in the time of --minutes, or for the given steps.
TextRecipe choose_recipe(const Options& o, const TextTokens& tokens, const LaunchPad* pad,
                         const StepSeconds& measure);

// The same model with the steps for the number of tokens that were prepared.
TextRecipe recount(const Options& o, const TextTokens& tokens, const LaunchPad* pad,
                   const TextRecipe& recipe);

// Sets the tokenizer, which prepares the tokens, unless it is given or that of a model to finetune.
void take_tokenizer(Options& o, const TextRecipe& recipe);

// Muon, or AdamW for a model to finetune, unless another is given.
void take_optimizer(Options& o);

// Sets everything else that a run on a text needs and that is not given, and notes what was chosen.
void take_recipe(Options& o, const TextTokens& tokens, const TextRecipe& recipe);

// The new model that a recipe describes.
ModelConfig config_of(const TextRecipe& recipe);

// "6 layers of 384 channels, 16 x 512 tokens"
std::string describe_shape(const TextRecipe& recipe);
// What was chosen, and what it will make of the text, in a line or two.
std::string describe(const Options& o, const TextTokens& tokens, const TextRecipe& recipe);
