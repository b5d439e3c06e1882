// Benchmark of gelu_backward: bench.h tells how to run it.
#include "llmc/layers/gelu.h"

#include "dev/vulkan/baselines/baselines.h"
#include "dev/vulkan/bench.h"

template <class Real>
static void register_gpu() {
    const size_t n = size_t(bench().small ? 512 : 65536) * 3072;
    for (const auto& version : with_baselines(gelu_backward_versions<Real>()))
        for (int block_size : version.configs)
            bench_gpu(format_string("%s/%s/%s/n:%zu", version.name, real_name<Real>(),
                                    config_name(block_size).c_str(), n),
                      {.bytes = 3.0 * sizeof(Real) * double(n)}, [=] {
                          const GeluBackward<Real> p = {.dinp = bench_array<Real>(n),
                                                        .inp = bench_array<Real>(n),
                                                        .dout = bench_array<Real>(n),
                                                        .n = n};
                          return [=] { version.launch(*bench().pad, p, block_size); };
                      });
}

template <class Real>
static void register_cpu() {
    const size_t n = size_t(512) * 3072;
    bench_cpu(format_string("gelu_backward_cpu/%s/n:%zu", real_name<Real>(), n),
              {.bytes = 3.0 * sizeof(Real) * double(n)}, [=] {
                  static std::vector<Real> inp(n, Real(0.5f)), dout(n, Real(1.0f)), dinp(n);
                  gelu_backward<Real>(nullptr,
                                      {.dinp = dinp.data(), .inp = inp.data(), .dout = dout.data(), .n = n});
              });
}

static void register_all() {
    register_gpu<float>();
    register_gpu<bf16>();
    register_cpu<float>();
    register_cpu<bf16>();
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
