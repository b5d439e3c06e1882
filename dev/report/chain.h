// The chain of operations that small recurrent models are made of: a state goes through rounds of one product
// and five pointwise operations, each of which needs what the one before left. There is little to do in a
// round, so what counts is how long it takes to begin. The CPU's version and four forms for the GPU, which
// give the same states.
//
// A round of a state s (n), for each of `batch` states:
//     x = W s;  x += input;  x = tanh(x);  x *= gain;  x += leak (s - x);  s = x / (1 + |x|)
// The map contracts (the norm of W is below 1), so that rounding errors fade, and the inputs differ from
// round to round (with period CHAIN_PERIOD of shaders/args.h), so that a round too many or too few would
// show.
#pragma once
#include <vector>

#include "llmc/launchpad.h"

struct Chain {
    int n, batch;
    std::vector<float> weight;      // (n, n)
    std::vector<float> inputs;      // (CHAIN_PERIOD, n)
    std::vector<float> gain, leak;  // (n)
    std::vector<float> start;       // (batch, n)
};
Chain make_chain(int n, int batch, unsigned seed = 1);

// The states (batch, n) after that many more rounds; `first` is the number of the first one. threads: of
// OpenMP.
void run_chain_cpu(const Chain& chain, std::vector<float>& states, int first, int rounds, int threads);

enum class ChainForm {
    unfused,      // 6 dispatches a round: the product, then each operation by itself
    fused,        // 2: the product, then the five operations in one kernel
    whole_round,  // 1: the invocations that hold the product go on with the operations
    workgroup     // many rounds in one dispatch: a single workgroup, its states in shared memory
};
const ChainForm chain_forms[] = {ChainForm::unfused, ChainForm::fused, ChainForm::whole_round,
                                 ChainForm::workgroup};
const char* chain_form_name(ChainForm form);  // for people

// A chain on the GPU in one form, recorded once.
class ChainOnGpu {
   public:
    // Rounds come in chunks, a multiple of CHAIN_PERIOD. The object must not outlive the launchpad.
    ChainOnGpu(LaunchPad& pad, const Chain& chain, ChainForm form, int chunk);
    ~ChainOnGpu();
    ChainOnGpu(const ChainOnGpu&) = delete;

    // Whether the device can: the states of the form `workgroup` must fit into the shared memory of one.
    static bool possible(const LaunchPad& pad, const Chain& chain, ChainForm form);

    void restart();                 // sets the states to the chain's start
    void run(int rounds);           // a multiple of the chunk; returns at once
    std::vector<float> download();  // the states (batch, n); waits

   private:
    struct Buffers;
    void record(int round);
    int record_workgroup(int round, int most);  // how many rounds the dispatch makes

    LaunchPad& pad;
    const Chain& chain;
    const ChainForm form;
    const int chunk;
    std::unique_ptr<Buffers> buffers;
    Recording* recording = nullptr;
};

// The largest difference, relative to the largest number of the reference; NaN where any number is.
double chain_error(const std::vector<float>& states, const std::vector<float>& reference);
