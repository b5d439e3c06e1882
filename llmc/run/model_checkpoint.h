// A GPT2 from and to files, wherever its memory is.
#pragma once
#include <cstdio>
#include <string>

#include "llmc/base/warning.h"
#include "llmc/files/checkpoint.h"
#include "llmc/files/model_file.h"
#include "llmc/model/gpt2.h"
#include "llmc/model/initialize.h"
#include "llmc/run/run_state.h"

// The parameters of `model`, as -e gives it: from its file, or random ones if it is a descriptor.
template <class Real>
void load_parameters(GPT2<Real>& g, const std::string& model, uint64_t seed,
                     const Optimizer<Real>* optimizer = nullptr) {
    if (is_model_file(model))
        read_model_file(model, parameter_writer(g, optimizer));
    else
        initialize_parameters(g.config, seed, parameter_writer(g, optimizer));
}

// Parameters and moments of a checkpoint of any precision, with or without master weights. If `precision`,
// in which the run saved it, is this model's, the state is bit-identical. Otherwise the parameters come from
// the unrounded weights.
template <class Real>
void load_checkpoint(GPT2<Real>& g, const Optimizer<Real>& optimizer, const std::string& folder, int step,
                     const std::string& precision) {
    const bool same_precision = precision == real_name<Real>();
    read_model_file(model_path(folder, step), parameter_writer(g, &optimizer));
    auto write_moment = [&](Moment moment, int tensor, size_t offset, const float* values, size_t count) {
        optimizer.store(moment, {tensor, offset, count}, values);
        if (moment == MASTER_WEIGHTS && !same_precision)
            g.memory.upload_floats(g.params[tensor] + offset, values, count);
    };
    read_all_moments(folder, step, g.config, write_moment);
}

// Writes the checkpoint of present.step and prints its name. The model's file is in bf16 if the model is,
// and in fp32 otherwise: llm.c has no files in fp16. All processes of the job call it if each of them holds
// a part of the moments; otherwise one does.
template <class Real>
void save_checkpoint(const GPT2<Real>& g, const Optimizer<Real>& optimizer, const std::string& folder,
                     const OptimizerState& present, const RunState& run, Communicator& job) {
    const ReadMoment read_moment = [&](Moment moment, int tensor, size_t offset, float* values,
                                       size_t count) {
        optimizer.load(moment, {tensor, offset, count}, values);
    };
    OptimizerState state = present;
    state.share = optimizer.share;
    write_checkpoint(folder,
                     {.config = g.config,
                      .optimizer = state,
                      .read_tensor = parameter_reader(g),
                      .read_moment = read_moment,
                      .in_bf16 = std::is_same_v<Real, bf16>,
                      .run = run_state_to_json(run)},
                     optimizer.share.count > 1 ? &job : nullptr);
    print_line(stdout, "wrote checkpoint %s", model_path(folder, present.step).c_str());
}
