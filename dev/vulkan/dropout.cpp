// Benchmark of dropout: bench.h tells how to run it.
#include "llmc/layers/dropout.h"

#include "dev/vulkan/baselines/baselines.h"
#include "dev/vulkan/bench.h"

template <class Real>
static void register_gpu() {
    const size_t n = size_t(bench().small ? 512 : 65536) * 768;
    for (const auto& version : with_baselines(dropout_versions<Real>()))
        for (int block : version.configs)
            bench_gpu(format_string("%s/%s/%s/n:%zu", version.name, real_name<Real>(),
                                    config_name(block).c_str(), n),
                      {.bytes = 2.0 * sizeof(Real) * double(n)}, [=] {
                          const Dropout<Real> params = {.out = bench_array<Real>(n),
                                                        .inp = bench_array<Real>(n),
                                                        .key = bench_array<uint32_t>(2),
                                                        .site = 1,
                                                        .rate = 0.1f,
                                                        .n = n};
                          return [=] { version.launch(*bench().pad, params, block); };
                      });
}

template <class Real>
static void register_cpu() {
    const size_t n = size_t(512) * 768;
    bench_cpu(
        format_string("dropout_cpu/%s/n:%zu", real_name<Real>(), n),
        {.bytes = 2.0 * sizeof(Real) * double(n)}, [=] {
            static std::vector<Real> inp(n, Real(0.5f)), out(n);
            const auto key = dropout_key(42, 0, 0, 0);
            dropout<Real>(
                nullptr,
                {.out = out.data(), .inp = inp.data(), .key = key.data(), .site = 1, .rate = 0.1f, .n = n});
        });
}

static void register_all() {
    register_gpu<float>();
    register_gpu<bf16>();
    register_cpu<float>();
    register_cpu<bf16>();
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
