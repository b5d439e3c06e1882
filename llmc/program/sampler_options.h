// The options of sampling that the trainer and `generate` have in common.
#pragma once
#include "llmc/generate/sampler.h"
#include "llmc/program/option_checks.h"

inline void add_sampler_options(CLI::App& app, SamplerOptions& sampler) {
    app.add_option("--temperature", sampler.temperature, "divides the logits; 0: always the likeliest token")
        ->check(between(0, 1000))
        ->capture_default_str();
    app.add_option("--top-k", sampler.top_k, "sample from the k likeliest tokens (0: all)")
        ->check(at_least(0))
        ->capture_default_str();
    app.add_option("--top-p", sampler.top_p,
                   "sample from the smallest set of likeliest tokens whose probabilities add up to p")
        ->check(between(0, 1))
        ->capture_default_str();
}
