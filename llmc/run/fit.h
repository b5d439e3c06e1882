// Whether a run fits in memory, and options with which it does: -b, -r and --offload change a run's memory
// and time, but not its steps.
#pragma once
#include <functional>

#include "llmc/options/train_options.h"
#include "llmc/run/processes.h"
#include "llmc/run/run_plan.h"

// Options that decide a run's memory.
struct RunShape {
    int B, T;  // batches of B sequences of T tokens in each process
    Recompute recompute;
    bool in_bf16 = false;    // instead of the run's own precision
    bool no_master = false;  // without master weights
    bool offload = false;    // of the optimizer's state
};
RunShape shape_of(const Options& o);

// What runs need and what there is, in all processes of a job.
struct MemoryCheck {
    std::function<MemoryNeed(const RunShape&)> need;  // of this process
    MemoryRoom room;
    Communicator* job = nullptr;  // null: a single process
    bool own_memory = false;      // of the device, so that offloading helps

    bool fits_here(const RunShape& shape) const { return room.holds(need(shape)); }
    // In every process of the job, all of which call it.
    bool fits(const RunShape& shape) const;
};

// Of a run with these options.
template <class Real>
MemoryCheck memory_check(const Options& o, const ModelConfig& config, LaunchPad* pad, Communicator& job) {
    const auto need = [&o, &job, config, pad](const RunShape& shape) {
        const TrainingShape training = {
            .master_weights = o.master_weights && !shape.no_master,
            .B = shape.B,
            .T = shape.T,
            .recompute = shape.recompute,
            .dropout = o.dropout,
            .share = share_of_process(o, job),
            .job = &job,
            .sample_tokens = o.sample_every && job.rank == 0 ? o.sample_tokens : 0,
            .offload = shape.offload,
            .on_device = o.plans_device()};
        return shape.in_bf16 ? memory_need<bf16>(config, pad, training)
                             : memory_need<Real>(config, pad, training);
    };
    // processes with unlike devices choose for themselves
    Communicator* const others = o.is_divided ? nullptr : &job;
    if (o.plans_device()) return {need, room_of_device(o.device_memory), others, true};
    const int processes = pad ? o.processes_on_device : job.machine_size;
    MemoryRoom room = memory_room(pad, processes, o.device_memory);
    room.host_bytes = host_room(pad, job.machine_size);
    return {need, room, others, has_own_memory(pad)};
}

// The largest batch that the options allow and that fits; 0: not even 1. All processes call it.
int largest_batch(const MemoryCheck& memory, const Options& o);

// For -b auto, and for a run that chose neither -b nor -r and does not fit with the defaults: sets the
// fastest -b that fits, with -r and --offload (unless they were given) and -d, and prints them. All processes
// call it. A batch reads less than `tokens`, which the data has.
void choose_fit(Options& o, const MemoryCheck& memory, uint64_t tokens);

// Prints the free memory and the largest batch that fits. All processes call it.
void print_room(const MemoryCheck& memory, const Options& o);

// Throws Error, which names options with which it would fit, if the run does not fit. All processes call it.
void check_memory(const MemoryCheck& memory, const Options& o);
