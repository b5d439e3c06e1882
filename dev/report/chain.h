// A benchmark of launch overhead: the recurrence of a small recurrent model. A step is a matrix-vector
// product and five pointwise operations, each of which needs the result of the one before. It is so little
// work that launching dominates. There is a CPU version and four GPU variants with the same results.
//
// One step of a state s (n), for each of `batch` states:
//     x = W s;  x += input;  x = tanh(x);  x *= gain;  x += leak (s - x);  s = x / (1 + |x|)
// The map is a contraction (the norm of W is below 1), so that rounding errors fade. The inputs differ from
// step to step, with period CHAIN_PERIOD, so that a missing or additional step changes the
// result.
#pragma once
#include <vector>

#include "llmc/launchpad/launchpad.h"
#include "shaders/args.h"

#include "dev/report/chain_args.h"

struct Chain {
    int n, batch;
    std::vector<float> weight;      // (n, n)
    std::vector<float> inputs;      // (CHAIN_PERIOD, n)
    std::vector<float> gain, leak;  // (n)
    std::vector<float> start;       // (batch, n)
};
Chain make_chain(int n, int batch, unsigned seed = 1);

// Advances the states (batch, n) by `steps` steps, from step number `first` on. threads: of OpenMP.
void run_chain_cpu(const Chain& chain, std::vector<float>& states, int first, int steps, int threads);

enum class ChainVariant {
    unfused,       // 6 dispatches per step: the matrix-vector product, then each pointwise operation
    fused,         // 2 dispatches per step: the matrix-vector product, then the five operations
    one_dispatch,  // 1 dispatch per step: the invocations that computed the elements of W s also apply the
                   // operations
    many_steps     // many steps per dispatch: a single workgroup keeps the states in shared memory
};
const ChainVariant chain_variants[] = {ChainVariant::unfused, ChainVariant::fused, ChainVariant::one_dispatch,
                                       ChainVariant::many_steps};
const char* chain_variant_name(ChainVariant variant);  // for readers

// A chain on the GPU, recorded once in one variant.
class ChainOnGpu {
   public:
    // chunk: the number of steps recorded, a multiple of CHAIN_PERIOD. The launchpad must outlive the object.
    ChainOnGpu(LaunchPad& pad, const Chain& chain, ChainVariant variant, int chunk);
    ~ChainOnGpu();
    ChainOnGpu(const ChainOnGpu&) = delete;

    // Whether the device can run it: the states of many_steps must fit into the shared memory of a workgroup.
    static bool possible(const LaunchPad& pad, const Chain& chain, ChainVariant variant);

    void restart();                 // sets the states to the chain's start
    void run(int steps);            // a multiple of the chunk; returns at once
    std::vector<float> download();  // the states (batch, n); waits

   private:
    struct Buffers;
    void record_step(int step);
    int record_many_steps(int first, int max_steps);  // returns the number of steps recorded

    LaunchPad& pad;
    const Chain& chain;
    const ChainVariant variant;
    const int chunk;
    std::unique_ptr<Buffers> buffers;
    Recording* recording = nullptr;
};

// The largest difference, relative to the largest element of the reference; NaN if any element is NaN.
double chain_error(const std::vector<float>& states, const std::vector<float>& reference);
