#include "llmc/run/run_plan.h"

#include <algorithm>

#include "llmc/base/error.h"
#include "llmc/base/lines.h"
#include "llmc/base/os.h"
#include "llmc/data/weighted_path.h"
#include "llmc/launchpad/peak.h"
#include "llmc/run/loss_plot.h"
#include "llmc/run/progress.h"
#include "llmc/run/run_setup.h"

// What drivers of GPUs and the launchpad take besides a run's allocations: kernels, command buffers, page
// tables, the staging buffer.
static uint64_t reserve(DeviceType type) { return type == DeviceType::software ? 32 << 20 : 256 << 20; }

MemoryRoom memory_room(const LaunchPad* pad, int processes, uint64_t limit) {
    const std::string of_limit = limit ? " with --device-memory " + gib(limit) : "";
    MemoryRoom room = {memory_for_tensors(), ~uint64_t(0), "this machine" + of_limit, processes};
    if (limit) room.bytes = std::min(room.bytes, limit);
    if (!pad) return room;
    const DeviceType type = pad->device().type;
    const uint64_t of_each = left_of(pad->available_bytes(Placement::device, processes), reserve(type));
    uint64_t free = of_each * uint64_t(processes);
    // an integrated GPU's own heap may be a small part of the memory that it shares with the host
    if (type == DeviceType::integrated) free = std::max(free, room.bytes);
    if (!pad->device().is_gpu()) free = std::min(free, room.bytes);
    return {free, pad->limits().max_allocation, pad->device().name + of_limit, processes};
}

uint64_t host_room(const LaunchPad* pad, int processes) {
    const uint64_t granted = pad ? pad->available_bytes(Placement::host) : 0;
    return std::min(available_memory(), granted ? granted : ~uint64_t(0)) / uint64_t(processes);
}

MemoryRoom room_of_device(uint64_t bytes) {
    return {left_of(bytes, reserve(DeviceType::discrete)), ~uint64_t(0),
            format_string("a device of %s", gib(bytes).c_str())};
}

std::vector<std::string> source_names(const Options& o) {
    return distinct_names(without_weights(o.text.empty() ? o.train_data : o.text));
}

// How often each source of a mixture is read.
static void print_sources(const Options& o, const RunInputs& inputs) {
    const std::vector<std::string> names = source_names(o);
    const std::vector<double> shares = inputs.loader ? inputs.loader->shares : shares_of(o.text);
    const double read = double(inputs.length.max_steps) * inputs.length.tokens_per_step;
    for (size_t i = 0; i < shares.size(); i++) {
        const uint64_t tokens = inputs.loader ? inputs.loader->loaders[i].num_tokens() : o.expected_tokens[i];
        print_line(stdout, "source %s: %.4g%% of the tokens of a step; its %llu are read %.3g times",
                   names[i].c_str(), 100 * shares[i], (unsigned long long)tokens,
                   shares[i] * read / double(std::max<uint64_t>(tokens, 1)));
    }
}

void print_plan(const Options& o, const RunInputs& inputs, const MemoryNeed& need) {
    const ModelConfig& c = inputs.config;
    const bool master = o.master_weights && o.precision != StoredType::fp32;
    print_line(stdout, "model: %s, %s, %s, %d channels, vocabulary %d, %.1f M parameters in %s%s",
               o.model.c_str(), counted(c.num_layers, "layer").c_str(), counted(c.num_heads, "head").c_str(),
               c.channels, c.vocab_size, double(num_parameters(c)) / 1e6, stored_type_name(o.precision),
               master ? ", master weights in fp32" : "");
    if (inputs.loader)
        printf("data: %llu training tokens", static_cast<unsigned long long>(inputs.loader->num_tokens()));
    else
        printf("data: %s", o.expected_data.empty() ? "none" : o.expected_data.c_str());
    if (!inputs.val.empty()) {
        uint64_t all = 0;
        for (const DataLoader& val : inputs.val) all += val.num_tokens();
        const uint64_t read = validation_tokens(o, inputs.val);
        printf(", %llu validation tokens", static_cast<unsigned long long>(all));
        if (read < all && o.val_every)
            printf(", of which a validation reads %llu (-m %d; -m -1: all, whatever -b)",
                   static_cast<unsigned long long>(read), o.val_batches);
    }
    if (o.num_processes > 1) {
        printf("\nprocesses: %d", o.num_processes);
        if (o.num_nodes > 1) printf(" on %d machines", o.num_nodes);
    }
    printf("\nbatch: ");
    if (!o.is_divided) printf("%d x ", inputs.length.micro_steps);  // else each process has its own
    printf("%d x %d = %d tokens per step", o.global_batch(), o.sequence, inputs.length.tokens_per_step);
    if (inputs.loader || o.max_steps >= 0) printf(", %s", counted(inputs.length.max_steps, "step").c_str());
    printf("\n");
    print_sources(o, inputs);
    printf("memory: %s\n", need.by_kind.c_str());
}

double flops_per_token(const ModelConfig& c, int T) {
    return 6.0 * double(num_parameters(c)) + 6.0 * c.num_layers * double(c.channels) * T;
}

template <class Real>
double peak_rate(LaunchPad* pad) {
    if (!pad || !pad->device().is_gpu()) return 0;
    try {
        raise_clock(*pad, 0.3);
        double rate = 0;
        if constexpr (!std::is_same_v<Real, float>) rate = matrix_rate<Real>(*pad, {}, 3).median;
        if (rate == 0) rate = fma_rate(*pad, 3).median;
        pad->take_kernel_times();  // --profile shows the run's kernels only
        return rate;
    } catch (const DeviceLost&) {
        throw;
    } catch (const Error&) {  // not enough memory
        return 0;
    }
}
template double peak_rate<float>(LaunchPad*);
template double peak_rate<bf16>(LaunchPad*);
template double peak_rate<fp16>(LaunchPad*);
