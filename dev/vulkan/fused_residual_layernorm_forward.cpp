// Benchmark of fused_residual_layernorm_forward: see bench.h for how to run it.
#include "llmc/residual.h"

#include "dev/vulkan/bench.h"

static void register_all() {
    const int N = bench().small ? 512 : 65536;
    for (int C : {768, 1600}) {
        const size_t n = size_t(N) * C;
        float *inp1 = bench_array(n), *inp2 = bench_array(n), *residual = bench_array(n),
              *normed = bench_array(n);
        float *weight = bench_array(C), *bias = bench_array(C), *mean = bench_array(N),
              *rstd = bench_array(N);
        for (const auto& version : fused_residual_layernorm_forward_versions<float>())
            for (int block : version.block_sizes)
                bench_gpu(format_string("%s/block:%d/N:%d/C:%d", version.name, block, N, C),
                          {.bytes = 16.0 * double(n)}, [=] {
                              version.launch(*bench().pad, residual, normed, mean, rstd, inp1, inp2, weight,
                                             bias, N, C, block);
                          });
    }
    bench_cpu("fused_residual_layernorm_forward_cpu/N:1024/C:768", {.bytes = 16.0 * 1024 * 768}, [=] {
        static std::vector<float> a(1024 * 768, 0.5f), b(a), sum(a), y(a), w(768, 1.0f), m(1024), s(1024);
        fused_residual_layernorm_forward_cpu(sum.data(), y.data(), m.data(), s.data(), a.data(), b.data(),
                                             w.data(), w.data(), 1024, 768);
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
