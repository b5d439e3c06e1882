// Benchmark of residual_forward: see bench.h for how to run it.
#include "llmc/residual.h"

#include "dev/vulkan/bench.h"

static void register_all() {
    const size_t n = size_t(bench().small ? 512 : 65536) * 768, few = size_t(512) * 768;
    float *inp1 = bench_array(n), *inp2 = bench_array(n), *out = bench_array(n);
    for (const auto& version : residual_forward_versions<float>())
        for (int block : version.block_sizes)
            bench_gpu(format_string("%s/block:%d/n:%zu", version.name, block, n), {.bytes = 12.0 * double(n)},
                      [=] { version.launch(*bench().pad, out, inp1, inp2, n, block); });
    bench_cpu(format_string("residual_forward_cpu/n:%zu", few), {.bytes = 12.0 * double(few)}, [=] {
        static std::vector<float> a(few, 0.5f), b(few, 1.0f), sum(few);
        residual_forward_cpu(sum.data(), a.data(), b.data(), few);
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
