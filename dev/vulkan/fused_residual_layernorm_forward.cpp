// Benchmark of fused_residual_layernorm_forward: see bench.h for how to run it.
#include "llmc/residual.h"

#include "dev/vulkan/bench.h"

template <class T>
static void register_gpu() {
    const int N = bench().small ? 512 : 65536;
    for (int C : {768, 1600}) {
        const size_t n = size_t(N) * C;
        for (const auto& version : fused_residual_layernorm_forward_versions<T>())
            for (int block : version.block_sizes)
                bench_gpu(
                    format_string("%s/%s/block:%d/N:%d/C:%d", version.name, real_name<T>(), block, N, C),
                    {.bytes = 4.0 * sizeof(T) * double(n)}, [=] {
                        T *inp1 = bench_array<T>(n), *inp2 = bench_array<T>(n), *residual = bench_array<T>(n),
                          *normed = bench_array<T>(n), *weight = bench_array<T>(C), *bias = bench_array<T>(C);
                        float *mean = bench_array(N), *rstd = bench_array(N);
                        return [=] {
                            version.launch(*bench().pad, residual, normed, mean, rstd, inp1, inp2, weight,
                                           bias, N, C, block);
                        };
                    });
    }
}

template <class T>
static void register_cpu() {
    bench_cpu(format_string("fused_residual_layernorm_forward_cpu/%s/N:1024/C:768", real_name<T>()),
              {.bytes = 4.0 * sizeof(T) * 1024 * 768}, [=] {
                  static std::vector<T> a(1024 * 768, T(0.5f)), b(a), sum(a), y(a), w(768, T(1.0f));
                  static std::vector<float> m(1024), s(1024);
                  fused_residual_layernorm_forward_cpu(sum.data(), y.data(), m.data(), s.data(), a.data(),
                                                       b.data(), w.data(), w.data(), 1024, 768);
              });
}

static void register_all() {
    register_gpu<float>();
    register_gpu<bf16>();
    register_cpu<float>();
    register_cpu<bf16>();
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
