// Benchmark of layernorm_forward: see bench.h for how to run it.
#include "llmc/layernorm.h"

#include "dev/vulkan/bench.h"

static void register_all() {
    const int N = bench().small ? 512 : 65536, C = 768;
    const size_t n = size_t(N) * C;
    float *inp = bench_array(n), *out = bench_array(n), *weight = bench_array(C), *bias = bench_array(C);
    float *mean = bench_array(N), *rstd = bench_array(N);
    const Work work = {.bytes = 8.0 * double(n)};
    for (const auto& version : layernorm_forward_versions<float>())
        for (int block : version.block_sizes)
            bench_gpu(format_string("%s/block:%d/N:%d/C:%d", version.name, block, N, C), work,
                      [=] { version.launch(*bench().pad, out, mean, rstd, inp, weight, bias, N, C, block); });
    bench_cpu(format_string("layernorm_forward_cpu/N:%d/C:%d", 1024, C), {.bytes = 8.0 * 1024 * C}, [=] {
        static std::vector<float> x(1024 * 768, 0.5f), y(x), w(768, 1.0f), m(1024), s(1024);
        layernorm_forward_cpu(y.data(), m.data(), s.data(), x.data(), w.data(), w.data(), 1024, 768);
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
