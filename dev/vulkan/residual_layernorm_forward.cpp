// Benchmark of layernorm_forward of a sum: bench.h tells how to run it.
#include "llmc/layers/layernorm.h"

#include "dev/vulkan/baselines/baselines.h"
#include "dev/vulkan/bench.h"

template <class Real>
static LayerNormForward<Real> make_params(int num_rows, int C) {
    const size_t n = size_t(num_rows) * C;
    return {.out = bench_array<Real>(n),
            .mean = bench_array(num_rows),
            .rstd = bench_array(num_rows),
            .inp = bench_array<Real>(n),
            .added = bench_array<Real>(n),
            .sum = bench_array<Real>(n),
            .weight = bench_array<Real>(C),
            .bias = bench_array<Real>(C),
            .num_rows = num_rows,
            .C = C};
}

template <class Real>
static void register_gpu() {
    const int num_rows = bench().small ? 512 : 65536;
    for (int C : {768, 1600})
        for (const auto& version : with_baselines(layernorm_forward_versions<Real>()))
            for (int block : version.configs)
                bench_gpu(format_string("%s/residual/%s/%s/N:%d/C:%d", version.name, real_name<Real>(),
                                        config_name(block).c_str(), num_rows, C),
                          {.bytes = 4.0 * sizeof(Real) * num_rows * C}, [=] {
                              const auto params = make_params<Real>(num_rows, C);
                              return [=] { version.launch(*bench().pad, params, block); };
                          });
}

template <class Real>
static void register_cpu() {
    bench_cpu(format_string("residual_layernorm_forward_cpu/%s/N:1024/C:768", real_name<Real>()),
              {.bytes = 4.0 * sizeof(Real) * 1024 * 768}, [=] {
                  static std::vector<Real> a(1024 * 768, Real(0.5f)), b(a), sum(a), y(a), w(768, Real(1.0f));
                  static std::vector<float> m(1024), s(1024);
                  layernorm_forward_cpu<Real>({.out = y.data(),
                                               .mean = m.data(),
                                               .rstd = s.data(),
                                               .inp = a.data(),
                                               .added = b.data(),
                                               .sum = sum.data(),
                                               .weight = w.data(),
                                               .bias = w.data(),
                                               .num_rows = 1024,
                                               .C = 768});
              });
}

static void register_all() {
    register_gpu<float>();
    register_gpu<bf16>();
    register_cpu<float>();
    register_cpu<bf16>();
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
