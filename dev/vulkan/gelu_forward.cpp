// Benchmark of gelu_forward: see bench.h for how to run it.
#include "llmc/gelu.h"

#include "dev/vulkan/bench.h"

template <class T>
static void register_gpu() {
    const size_t n = size_t(bench().small ? 512 : 65536) * 3072;
    for (const auto& version : gelu_forward_versions<T>())
        for (int block : version.block_sizes)
            bench_gpu(format_string("%s/%s/block:%d/n:%zu", version.name, real_name<T>(), block, n),
                      {.bytes = 2.0 * sizeof(T) * double(n)}, [=] {
                          T *inp = bench_array<T>(n), *out = bench_array<T>(n);
                          return [=] { version.launch(*bench().pad, out, inp, n, block); };
                      });
}

template <class T>
static void register_cpu() {
    const size_t n = size_t(512) * 3072;
    bench_cpu(format_string("gelu_forward_cpu/%s/n:%zu", real_name<T>(), n),
              {.bytes = 2.0 * sizeof(T) * double(n)}, [=] {
                  static std::vector<T> x(n, T(0.5f)), y(n);
                  gelu_forward_cpu(y.data(), x.data(), n);
              });
}

static void register_all() {
    register_gpu<float>();
    register_gpu<bf16>();
    register_cpu<float>();
    register_cpu<bf16>();
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
