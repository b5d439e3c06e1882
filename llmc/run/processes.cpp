#include "llmc/run/processes.h"

#include <omp.h>

#include <algorithm>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/lines.h"
#include "llmc/base/os.h"
#include "llmc/data/saved_shards.h"
#include "llmc/files/checkpoint.h"
#include "llmc/files/model_file.h"
#include "llmc/launchpad/device.h"

static std::vector<DeviceInfo> usable_gpus() {
    std::vector<DeviceInfo> gpus;
    try {
        for (const DeviceInfo& device : list_devices())
            if (device.is_gpu() && device.missing.empty()) gpus.push_back(device);
    } catch (const Error&) {
        // no Vulkan: no GPUs
    }
    return gpus;
}

// Unless mpirun has bound the processes to cores of their own, or the user has said how many threads to use.
static void take_share_of_cores(const Options& o, const Communicator& job) {
    const int cores = omp_get_num_procs();
    if (o.threads || getenv("OMP_NUM_THREADS") || cores < online_cpus()) return;
    omp_set_num_threads(std::max(1, cores / job.machine_size));
}

std::string device_of_process(const Options& o, const Communicator& job) {
    if (job.machine_size == 1) return o.device;
    if (o.device == "cpu") take_share_of_cores(o, job);
    if (o.device != "auto") return o.device;
    const std::vector<DeviceInfo> gpus = usable_gpus();
    if (gpus.empty()) {
        take_share_of_cores(o, job);
        return "cpu";
    }
    if (int(gpus.size()) < job.machine_size)
        fail(
            "--device auto: %d processes on a machine with %zu GPU%s: start one process per GPU, or name "
            "the device that all of them use with --device",
            job.machine_size, gpus.size(), gpus.size() == 1 ? "" : "s");
    return std::to_string(gpus[job.machine_rank].index);
}

// Owners of one local rank follow each other, so that their shards are neighbours: gradient_exchange.h.
OptimizerShare share_of_process(const Options& o, const Communicator& job) {
    for (int node = 0; node < job.num_nodes; node++) {
        const int processes = job.first_ranks[node + 1] - job.first_ranks[node];
        if (processes == job.local_size) continue;
        fail(
            "machine %d runs %d process%s, and machine %d runs %d: start the same number on each, for "
            "example with mpirun --map-by ppr:%d:node",
            job.node + 1, job.local_size, job.local_size == 1 ? "" : "es", node + 1, processes,
            std::min(processes, job.local_size));
    }
    return {job.local_rank * job.num_nodes + job.node, job.size, o.optimizer_kind()};
}

static std::string describe_data(const char* what, const std::optional<DataLoader>& loader) {
    std::string text;
    if (loader)
        for (const SavedShard& shard : shards_of(*loader))
            text += format_string("%s %s of %llu tokens with the checksum %s\n", what, shard.name.c_str(),
                                  (unsigned long long)shard.tokens, shard.checksum.c_str());
    return text;
}

// What a process sees of a run, a line each.
static std::string description(const Options& o, const RunInputs& inputs) {
    std::string text = o.effective + format_string("starts at step %d\n", inputs.start.step);
    text += describe_data("training data", inputs.loader) + describe_data("validation data", inputs.val);
    const std::string model =
        inputs.start.resumed ? model_path(o.output, inputs.start.step) : inputs.model_path;
    if (is_model_file(model)) text += "weights with the checksum " + checksum_of_file(model) + "\n";
    const std::string state = run_path(o.output, inputs.start.step);  // has the checksums of its other files
    if (inputs.start.resumed && file_exists(state))
        text += "a checkpoint with the checksum " + checksum_of_file(state) + "\n";
    if (inputs.tokenizer)
        text += "a tokenizer with the checksum " + info_of(*inputs.tokenizer).checksum + "\n";
    if (o.hellaswag) text += "HellaSwag with the checksum " + checksum_of_file(o.hellaswag_file) + "\n";
    return text;
}

// The first line that the other text does not have; "nothing" if it has all.
static std::string line_not_in(const std::string& text, const std::string& other) {
    for (const std::string& line : lines_of(text))
        if (("\n" + other).find("\n" + line + "\n") == std::string::npos) return line;
    return "nothing";
}

// The line with the same first word, which names an option or a file; "nothing" if there is none.
static std::string line_like(const std::string& line, const std::string& text) {
    const std::string name = line.substr(0, line.find(' ')) + " ";
    for (const std::string& other : lines_of(text))
        if (other.starts_with(name)) return other;
    return "nothing";
}

// Throws Error in all processes if their texts are not the same.
static void expect_same(const std::string& text, Communicator& job) {
    const std::vector<std::string> all = job.gather(text);
    job.agree([&] {
        if (all[job.rank] == all[0]) return;
        const std::string extra = line_not_in(all[job.rank], all[0]),
                          missing = line_not_in(all[0], all[job.rank]),
                          own_line = extra == "nothing" ? line_like(missing, all[job.rank]) : extra,
                          first_line = extra == "nothing" ? missing : line_like(extra, all[0]);
        fail("this process has '%s', rank 0 has '%s': give all processes the same options and data",
             own_line.c_str(), first_line.c_str());
    });
}

void check_same_options(const Options& o, Communicator& job) { expect_same(o.given, job); }

void check_agreement(const Options& o, const RunInputs& inputs, Communicator& job) {
    if (job.size > 1) expect_same(description(o, inputs), job);
}
