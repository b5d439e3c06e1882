// Arguments of the chain's kernels (chain.h): steps of one matmul and five pointwise operations. Included
// after shaders/args.h, by C++ and GLSL.
#ifndef CHAIN_ARGS_H
#define CHAIN_ARGS_H

struct ChainArgs {
    Floats next, state;  // (BATCH, n): after and before the step
    Floats x;            // (BATCH, n): passed between the kernels of a step
    Floats weight;       // (n, n)
    Floats inputs;       // (CHAIN_PERIOD, n)
    Floats gain, leak;   // (n)
    int n;
    int step, steps;  // index of the first step, number of steps
};
const int CHAIN_PERIOD = 10;  // steps after which the inputs repeat
const int CHAIN_ADD = 0;      // x += input
const int CHAIN_TANH = 1;     // x = tanh(x)
const int CHAIN_SCALE = 2;    // x *= gain
const int CHAIN_MIX = 3;      // x += leak * (state - x)
const int CHAIN_SQUASH = 4;   // x /= 1 + |x|

#endif
