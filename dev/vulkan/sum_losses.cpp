// Benchmark of sum_losses: see bench.h for how to run it.
#include "llmc/classifier.h"

#include "dev/vulkan/bench.h"

static void register_all() {
    const int n = bench().small ? 1024 : 65536;
    const Work work = {.bytes = 4.0 * n};
    for (const auto& version : sum_losses_versions())
        for (int block : version.block_sizes)
            bench_gpu(format_string("%s/block:%d/n:%d", version.name, block, n), work, [=] {
                float *losses = bench_array(n), *total = bench_array(1);
                return [=] { version.launch(*bench().pad, total, losses, n, 1.0f, block); };
            });
    bench_cpu(format_string("sum_losses_cpu/n:%d", 65536), {.bytes = 4.0 * 65536}, [=] {
        static std::vector<float> x(65536, 0.5f), sum(1);
        sum_losses_cpu(sum.data(), x.data(), 65536, 1.0f);
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
