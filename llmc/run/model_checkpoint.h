// A GPT2 from and to files, wherever its memory is.
#pragma once
#include <cstdio>
#include <functional>
#include <string>

#include "llmc/base/error.h"
#include "llmc/base/os.h"
#include "llmc/files/checkpoint.h"
#include "llmc/files/model_file.h"
#include "llmc/model/gpt2.h"
#include "llmc/model/initialize.h"
#include "llmc/run/progress.h"
#include "llmc/run/run_state.h"

// Writes the parameters, and tells `show` how many bytes these are.
template <class Real>
WriteTensor shown_writer(GPT2<Real>& g, const Optimizer<Real>* optimizer, const BytesRead& show) {
    return [write = parameter_writer(g, optimizer), show](int tensor, size_t offset, const float* values,
                                                          size_t count) {
        write(tensor, offset, values, count);
        if (show) show(count * sizeof(float));
    };
}

// The parameters of `model`, as -e gives it: from its file, or random ones if it is a descriptor.
template <class Real>
void load_parameters(GPT2<Real>& g, const std::string& model, uint64_t seed,
                     const Optimizer<Real>* optimizer = nullptr, const BytesRead& show = nullptr,
                     Communicator* job = nullptr) {
    const WriteTensor write = shown_writer(g, optimizer, show);
    const auto read = [&](const WriteTensor& to) { read_model_file(model, to); };
    if (is_model_file(model))
        job ? read_once_per_node(*job, read, write) : read(write);
    else
        initialize_parameters(g.config, seed, write);
}

// Error if the parameters, and what `use` counts besides, do not fit in the memory that is free: a system
// that grants all of it and then runs out, as in a control group, ends the program without a line. `use` gets
// a model that only counts its memory.
template <class Real>
void check_model_fits(const std::string& name, const ModelConfig& config, LaunchPad* pad,
                      const std::function<void(GPT2<Real>&)>& use = nullptr) {
    if (pad && pad->device().is_gpu()) return;
    GPT2<Real> counted(config, pad, MemoryUse::count);
    if (use) use(counted);
    const uint64_t free = memory_for_tensors();
    if (counted.memory.bytes > free)
        fail("out of memory: %s needs %s in %s, and this machine has %s free: use a smaller model or batch",
             name.c_str(), gib(counted.memory.bytes).c_str(), real_name<Real>(), gib(free).c_str());
}

// Parameters and moments of a checkpoint, which several processes verify as they read it, of any precision,
// with or without master weights. If `precision`, in which the run saved it, is this model's, the state is
// bit-identical. Otherwise the parameters come from the unrounded weights, all of which each process reads.
template <class Real>
void load_checkpoint(GPT2<Real>& g, const Optimizer<Real>& optimizer, const std::string& folder, int step,
                     const std::string& precision, const BytesRead& show, Communicator& job) {
    const bool same_precision = precision == real_name<Real>();
    const WriteTensor write_tensor = shown_writer(g, &optimizer, show);
    const WriteMoment write_moment = [&](Moment moment, int tensor, size_t offset, const float* values,
                                         size_t count) {
        optimizer.store(moment, {tensor, offset, count}, values);
        if (moment == MASTER_WEIGHTS && !same_precision)
            g.memory.upload_floats(g.params[tensor] + offset, values, count);
        if (show) show(count * sizeof(float));
    };
    if (job.size > 1 && same_precision) {
        read_checkpoint(folder, step, {g.config, optimizer.share, write_tensor, write_moment}, job);
    } else {
        if (job.size > 1 && job.rank == 0) check_checkpoint(folder, step);
        read_model(model_path(folder, step), write_tensor);
        read_all_moments(folder, step, g.config, write_moment);
    }
}

// Writes the checkpoint of present.step and prints its name. Error, with no checkpoint, if a value is NaN or
// infinite: no program would read it. The model's file is in bf16 if the model is,
// and in fp32 otherwise: llm.c has no files in fp16. All processes of the job call it if each of them holds
// a part of the moments; otherwise one does. `expect_folder` is as in Checkpoint.
template <class Real>
void save_checkpoint(const GPT2<Real>& g, const Optimizer<Real>& optimizer, const std::string& folder,
                     const OptimizerState& present, const RunState& run, Communicator& job,
                     const std::function<void()>& expect_folder) {
    OptimizerState state = present;
    state.share = optimizer.share;
    const uint64_t weight_bytes = std::is_same_v<Real, bf16> ? sizeof(bf16) : sizeof(float);
    ByteProgress progress("writing the checkpoint",
                          num_parameters(g.config) * weight_bytes +
                              moment_bytes(g.config, state.use_master_weights, state.share));
    const auto expect_finite = [&](const TensorPart& part, const char* values_are) {
        const std::string found = find_not_finite(part, g.config, values_are);
        if (!found.empty())
            fail("step %d cannot be saved: %s: the model has diverged; take a lower learning rate (-l)",
                 present.step, found.c_str());
    };
    const ReadTensor read_parameter = parameter_reader(g),
                     read_tensor = [&](int tensor, size_t offset, float*values, size_t count) {
                         read_parameter(tensor, offset, values, count);
                         expect_finite({tensor, offset, values, count}, "tensor");
                         progress.add(count * weight_bytes);
                     };
    const ReadMoment read_moment = [&](Moment moment, int tensor, size_t offset, float* values,
                                       size_t count) {
        optimizer.load(moment, {tensor, offset, count}, values);
        expect_finite({tensor, offset, values, count}, "the optimizer's state of");
        progress.add(count * sizeof(float));
    };
    write_checkpoint(folder,
                     {.config = g.config,
                      .optimizer = state,
                      .read_tensor = read_tensor,
                      .read_moment = read_moment,
                      .in_bf16 = std::is_same_v<Real, bf16>,
                      .run = run_state_to_json(run),
                      .expect_folder = expect_folder},
                     optimizer.share.count > 1 ? &job : nullptr);
    print_line(stdout, "wrote checkpoint %s", model_path(folder, present.step).c_str());
}
