// Benchmark of gelu_backward: see bench.h for how to run it.
#include "llmc/gelu.h"

#include "dev/vulkan/bench.h"

static void register_all() {
    const size_t n = size_t(bench().small ? 512 : 65536) * 3072, few = size_t(512) * 3072;
    float *inp = bench_array(n), *dout = bench_array(n), *dinp = bench_array(n);
    for (const auto& version : gelu_backward_versions<float>())
        for (int block : version.block_sizes)
            bench_gpu(format_string("%s/block:%d/n:%zu", version.name, block, n), {.bytes = 12.0 * double(n)},
                      [=] { version.launch(*bench().pad, dinp, inp, dout, n, block); });
    bench_cpu(format_string("gelu_backward_cpu/n:%zu", few), {.bytes = 12.0 * double(few)}, [=] {
        static std::vector<float> x(few, 0.5f), dy(few, 1.0f), dx(few);
        gelu_backward_cpu(dx.data(), x.data(), dy.data(), few);
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
