// Benchmark of gelu_forward: see bench.h for how to run it.
#include "llmc/gelu.h"

#include "dev/vulkan/bench.h"

static void register_all() {
    const size_t n = size_t(bench().small ? 512 : 65536) * 3072, few = size_t(512) * 3072;
    float *inp = bench_array(n), *out = bench_array(n);
    for (const auto& version : gelu_forward_versions<float>())
        for (int block : version.block_sizes)
            bench_gpu(format_string("%s/block:%d/n:%zu", version.name, block, n), {.bytes = 8.0 * double(n)},
                      [=] { version.launch(*bench().pad, out, inp, n, block); });
    bench_cpu(format_string("gelu_forward_cpu/n:%zu", few), {.bytes = 8.0 * double(few)}, [=] {
        static std::vector<float> x(few, 0.5f), y(few);
        gelu_forward_cpu(y.data(), x.data(), few);
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
