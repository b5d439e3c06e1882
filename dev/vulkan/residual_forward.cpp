// Benchmark of residual_forward: bench.h tells how to run it.
#include "llmc/layers/residual.h"

#include "dev/vulkan/baselines/baselines.h"
#include "dev/vulkan/bench.h"

template <class Real>
static void register_gpu() {
    const size_t n = size_t(bench().small ? 512 : 65536) * 768;
    for (const auto& version : with_baselines(residual_forward_versions<Real>()))
        for (int block : version.configs)
            bench_gpu(format_string("%s/%s/%s/n:%zu", version.name, real_name<Real>(),
                                    config_name(block).c_str(), n),
                      {.bytes = 3.0 * sizeof(Real) * double(n)}, [=] {
                          const ResidualForward<Real> params = {.out = bench_array<Real>(n),
                                                                .inp1 = bench_array<Real>(n),
                                                                .inp2 = bench_array<Real>(n),
                                                                .n = n};
                          return [=] { version.launch(*bench().pad, params, block); };
                      });
}

template <class Real>
static void register_cpu() {
    const size_t n = size_t(512) * 768;
    bench_cpu(format_string("residual_forward_cpu/%s/n:%zu", real_name<Real>(), n),
              {.bytes = 3.0 * sizeof(Real) * double(n)}, [=] {
                  static std::vector<Real> a(n, Real(0.5f)), b(n, Real(1.0f)), sum(n);
                  residual_forward_cpu<Real>({.out = sum.data(), .inp1 = a.data(), .inp2 = b.data(), .n = n});
              });
}

static void register_all() {
    register_gpu<float>();
    register_gpu<bf16>();
    register_cpu<float>();
    register_cpu<bf16>();
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
