// The defaults of an optimizer for a new model, with and without a text: docs/experiments.md, "Muon".
#pragma once
#include <string>

struct Options;

// The peak rate of Muon for a new model, through the tuned ones for 96 (0.005) and 768 channels (0.0036), to
// three digits.
float muon_rate(int channels);

// Adds a note that lists the values that were chosen for something.
void note_chosen(Options& o, const std::string& what);

// Sets the rates and the batch that `--optimizer` alone trains a new model with.
void take_optimizer_defaults(Options& o);
