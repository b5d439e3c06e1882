// Draws the next token of each text from its logits, where the logits are: the host need not wait for them.
// The text's position advances by one, and the token's embedding begins the next step. CPU and GPU draw the
// same token from the same logits.
#pragma once
#include "llmc/base/real.h"
#include "llmc/launchpad/kernel_version.h"
#include "llmc/layers/sampler.h"

template <class Real>
struct NextToken {
    int* tokens;              // (B,T+1): receives the token at the new position; -1: logits are not finite
    int* positions;           // (B) of the newest token, advanced by one
    uint64_t* random_states;  // (B) states of the random numbers
    int* seen;                // (B, seen_words) bits of the tokens of the text, for the penalty
    int* weights;             // (B,V) scratch
    float* stream;            // (B,C)
    const Real* logits;       // (B,Vp)
    const Real *wte, *wpe;    // (Vp,C), (T,C)
    int num_texts, V, Vp, C, T;
    SamplerOptions options;
    float penalty = 1;  // see penalize_repetitions()
};

inline int seen_words(int V) { return (V + 31) / 32; }

// pad: the device to run on; null: the CPU, where logits that are not finite throw Error.
template <class Real>
void next_token(LaunchPad* pad, const NextToken<Real>& p);

template <class Real>
std::vector<KernelVersion<NextToken<Real>>> next_token_versions();
