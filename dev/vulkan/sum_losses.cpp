// Benchmark of sum_losses: bench.h tells how to run it.
#include "llmc/layers/classifier.h"

#include "dev/vulkan/baselines/baselines.h"
#include "dev/vulkan/bench.h"

static void register_all() {
    const int n = bench().small ? 1024 : 65536;
    const Work work = {.bytes = 4.0 * n};
    for (const auto& version : with_baselines(sum_losses_versions()))
        for (int block_size : version.configs)
            bench_gpu(format_string("%s/%s/n:%d", version.name, config_name(block_size).c_str(), n), work,
                      [=] {
                          const SumLosses p = {
                              .total = bench_array(1), .losses = bench_array(n), .n = n, .scale = 1.0f};
                          return [=] { version.launch(*bench().pad, p, block_size); };
                      });
    bench_cpu(format_string("sum_losses_cpu/n:%d", 65536), {.bytes = 4.0 * 65536}, [=] {
        static std::vector<float> losses(65536, 0.5f), total(1);
        sum_losses(nullptr, {.total = total.data(), .losses = losses.data(), .n = 65536, .scale = 1.0f});
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
