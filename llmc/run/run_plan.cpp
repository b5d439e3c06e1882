#include "llmc/run/run_plan.h"

#include <algorithm>

#include "llmc/base/available_memory.h"
#include "llmc/base/error.h"
#include "llmc/base/warning.h"
#include "llmc/measure/peak_cpu.h"
#include "llmc/run/run_setup.h"

static std::string gib(uint64_t bytes) { return format_string("%.1f GiB", double(bytes) / (1 << 30)); }

MemoryRoom memory_room(const LaunchPad* pad) {
    if (!pad) return {available_memory(), ~uint64_t(0), "this machine"};
    MemoryRoom room = {pad->device().free_bytes, pad->limits().max_allocation, pad->device().name};
    // an integrated GPU's own heap may be a small part of the memory that it shares with the host
    if (pad->device().type == DeviceType::integrated) room.bytes = std::max(room.bytes, available_memory());
    if (pad->device().type == DeviceType::software) room.bytes = std::min(room.bytes, available_memory());
    return room;
}

int largest_batch(const std::function<MemoryNeed(int B)>& need, const MemoryRoom& room, int T) {
    int fits = 0, too_large = 1;
    const int most = (1 << 30) / T;  // check_options() allows no more
    while (too_large <= most && room.holds(need(too_large))) {
        fits = too_large;
        too_large *= 2;
    }
    too_large = std::min(too_large, most + 1);
    while (too_large - fits > 1) {
        const int middle = fits + (too_large - fits) / 2;
        (room.holds(need(middle)) ? fits : too_large) = middle;
    }
    return fits;
}

void print_room(const std::function<MemoryNeed(int B)>& need, const MemoryRoom& room, int T) {
    const int most = largest_batch(need, room, T);
    const std::string fits =
        most > 0 ? format_string("the largest batch that fits is -b %d", most)
                 : "not even one sequence fits: use a smaller -t or -e, -r 2, or --precision bf16";
    print_line(stdout, "free memory on %s: %s; %s", room.where.c_str(), gib(room.bytes).c_str(),
               fits.c_str());
}

void check_memory(const std::function<MemoryNeed(int B)>& need, const MemoryRoom& room, int B, int T,
                  int total_batch) {
    const MemoryNeed needed = need(B);
    if (room.holds(needed)) return;
    int fits = largest_batch(need, room, T);
    while (total_batch > 0 && fits > 1 && total_batch % (int64_t(fits) * T)) fits--;
    const std::string missing =
        needed.bytes > room.bytes
            ? format_string("-b %d needs %s, and %s has %s free", B, gib(needed.bytes).c_str(),
                            room.where.c_str(), gib(room.bytes).c_str())
            : format_string("-b %d needs one allocation of %s, and %s allows at most %s", B,
                            gib(needed.largest).c_str(), room.where.c_str(), gib(room.largest).c_str());
    if (fits == 0)
        fail("out of memory: %s; not even -b 1 fits: use a smaller -t or -e, -r 2, or --precision bf16",
             missing.c_str());
    fail("out of memory: %s; use -b %d (with -d %lld the steps stay the same), or -r 2, or --precision bf16",
         missing.c_str(), fits, (long long)(total_batch > 0 ? total_batch : int64_t(B) * T));
}

void print_plan(const Options& o, const RunInputs& inputs, const MemoryNeed& need) {
    const ModelConfig& c = inputs.config;
    const bool master = o.master_weights && o.precision != "fp32";
    print_line(
        stdout, "model: %s, %d layers, %d heads, %d channels, vocabulary %d, %.1f M parameters in %s%s",
        o.model.c_str(), c.num_layers, c.num_heads, c.channels, c.vocab_size, double(num_parameters(c)) / 1e6,
        o.precision.c_str(), master ? ", master weights in fp32" : "");
    if (inputs.loader)
        printf("data: %llu training tokens", static_cast<unsigned long long>(inputs.loader->num_tokens()));
    else
        printf("data: none");
    if (inputs.val) {
        const uint64_t all = inputs.val->num_tokens(), read = validation_tokens(o, *inputs.val);
        printf(", %llu validation tokens", static_cast<unsigned long long>(all));
        if (read < all && o.val_every)
            printf(", of which a validation reads %llu (-m %d; -m -1: all, whatever -b)",
                   static_cast<unsigned long long>(read), o.val_batches);
    }
    if (o.num_processes > 1) {
        printf("\nprocesses: %d", o.num_processes);
        if (o.num_nodes > 1) printf(" on %d machines", o.num_nodes);
    }
    printf("\nbatch: %d x %d x %d = %d tokens per step", inputs.length.micro_steps, o.global_batch(),
           o.sequence, inputs.length.tokens_per_step);
    if (inputs.loader || o.max_steps >= 0) printf(", %d steps", inputs.length.max_steps);
    printf("\n");
    printf("memory: %s\n", need.by_kind.c_str());
}

double flops_per_token(const ModelConfig& c, int T) {
    return 6.0 * double(num_parameters(c)) + 6.0 * c.num_layers * double(c.channels) * T;
}

template <class Real>
double peak_rate(LaunchPad* pad) {
    const bool is_bf16 = std::is_same_v<Real, bf16>, is_fp16 = std::is_same_v<Real, fp16>;
    if (!pad || !pad->device().is_gpu())
        return std::max(cpu_fma_rate(0.5), is_bf16 && !pad ? cpu_bf16_rate(0.5) : 0.0);
    try {
        const Peaks peaks = measure_peaks(*pad);
        pad->reset_kernel_times();  // --profile shows the run's kernels only
        const double matrix_rate = is_bf16 ? peaks.bf16_matrix_rate : is_fp16 ? peaks.fp16_matrix_rate : 0;
        return std::max(matrix_rate, peaks.fma_rate);
    } catch (const Error&) {  // not enough memory
        return 0;
    }
}
template double peak_rate<float>(LaunchPad*);
template double peak_rate<bf16>(LaunchPad*);
template double peak_rate<fp16>(LaunchPad*);
