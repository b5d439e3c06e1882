// The rule of train_gpt2 --text: the best model of a text that a device makes in a given time. Tokenizer,
// model, batch, steps and regularization follow from the bytes of the text, the measured time of a step, and
// the time. The constants come from sweeps: docs/experiments.md, "Own text".
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

// The layers of a model, and the batch that trains it best.
struct ModelShape {
    int layers, heads, channels;
    int sequence;         // T
    int tokens_per_step;  // in all processes

    bool operator==(const ModelShape&) const = default;
};

// What a user or a text decides. 0: free, unless another value is named.
struct RuleInputs {
    uint64_t text_bytes = 0;    // to train on
    uint64_t train_tokens = 0;  // in the prepared data; 0: not prepared yet
    uint64_t val_tokens = 0;    // that a validation reads; 0: not prepared yet
    uint64_t val_bytes = 0;     // of text that it reads
    double seconds = 0;         // of training with its validations
    int vocab_size = 0;         // of the given tokenizer; bytes: 257
    int layers = 0, heads = 0, channels = 0, sequence = 0;
    int most_sequence = 0;    // of a given model
    int first_sequence = 0;   // of a trained model: shorter only where the data holds no batch
    int batch = 0;            // sequences in a micro-batch of each process
    int tokens_per_step = 0;  // -d
    int steps = -1;           // -1: free
    double epochs = 0;
    int processes = 1, sources = 1;  // of a mixture, each with a validation part

    bool has_length() const { return steps >= 0 || epochs > 0; }
};

struct TextRecipe {
    ModelShape shape = {};
    int vocab_size = 0;
    int batch = 0;
    int steps = 0;
    int validations = 0;      // in the run, after the one before the first step
    int val_batches = -1;     // in a validation; -1: all
    double step_seconds = 0;  // measured; 0: not
    double epochs = 0;        // passes over the text
    float dropout = 0, weight_decay = 0;
    double rate_factor = 1;    // of the width's learning rate
    double bits_per_byte = 0;  // that such a run reaches on technical documentation
    double parameters = 0;     // of the model
    double seconds() const;    // of the steps
    double tokens_read() const { return double(steps) * shape.tokens_per_step; }
};

// The time of a step of a new model of this shape, with this vocabulary and batch; infinite if it does not
// fit in memory.
using StepSeconds = std::function<double(const TextRecipe&)>;

// The models that choose_for_time() compares, smallest first, with their batches.
std::vector<TextRecipe> candidates_for(const RuleInputs& in);

// Calls measure() for the candidates that it compares, one to five, and again for one that is too slow for
// its batch.
TextRecipe choose_for_time(const RuleInputs& in, const StepSeconds& measure);

// A recipe that was chosen, with the steps and the regularization for other inputs, such as the number of
// tokens once they are prepared.
TextRecipe adapt(const RuleInputs& in, TextRecipe chosen);

// Size of the tokenizer for so many bytes of text and a model of that width: 257, bytes, or that of a BPE.
int choose_vocab_size(uint64_t text_bytes, int channels);
