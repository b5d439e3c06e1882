// The options of sampling that the trainer and `generate` have in common.
#pragma once
#include "llmc/generate/sampler.h"
#include "llmc/program/option_checks.h"

inline void add_sampler_options(CLI::App& app, SamplerOptions& sampler) {
    add(app, "--temperature", sampler.temperature, between(0, 1000),
        "divides the logits; 0: always the likeliest token");
    add(app, "--top-k", sampler.top_k, at_least(0), "sample from the k likeliest tokens (0: all)");
    add(app, "--top-p", sampler.top_p, between(0, 1),
        "sample from the smallest set of likeliest tokens whose probabilities add up to p");
}
