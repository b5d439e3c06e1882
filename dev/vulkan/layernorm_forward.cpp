// Benchmark of layernorm_forward: see bench.h for how to run it.
#include "llmc/layernorm.h"

#include "dev/vulkan/bench.h"

template <class T>
static void register_gpu() {
    const int N = bench().small ? 512 : 65536, C = 768;
    const size_t n = size_t(N) * C;
    const Work work = {.bytes = 2.0 * sizeof(T) * double(n)};
    for (const auto& version : layernorm_forward_versions<T>())
        for (int block : version.block_sizes)
            bench_gpu(format_string("%s/%s/block:%d/N:%d/C:%d", version.name, real_name<T>(), block, N, C),
                      work, [=] {
                          T *inp = bench_array<T>(n), *out = bench_array<T>(n), *weight = bench_array<T>(C),
                            *bias = bench_array<T>(C);
                          float *mean = bench_array(N), *rstd = bench_array(N);
                          return [=] {
                              version.launch(*bench().pad, out, mean, rstd, inp, weight, bias, N, C, block);
                          };
                      });
}

static void register_all() {
    register_gpu<float>();
    register_gpu<bf16>();
    bench_cpu("layernorm_forward_cpu/N:1024/C:768", {.bytes = 8.0 * 1024 * 768}, [=] {
        static std::vector<float> x(1024 * 768, 0.5f), y(x), w(768, 1.0f), m(1024), s(1024);
        layernorm_forward_cpu(y.data(), m.data(), s.data(), x.data(), w.data(), w.data(), 1024, 768);
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
