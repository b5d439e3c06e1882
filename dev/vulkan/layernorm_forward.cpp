// Benchmark of layernorm_forward, also of a sum: bench.h tells how to run it.
#include "llmc/layers/layernorm.h"

#include "dev/vulkan/baselines/baselines.h"
#include "dev/vulkan/bench.h"

template <class Real>
static LayerNormForward<Real> make_params(int num_rows, int C, bool adds) {
    const size_t n = size_t(num_rows) * C;
    return {.out = bench_array<Real>(n),
            .mean = bench_array(num_rows),
            .rstd = bench_array(num_rows),
            .inp = bench_array<Real>(n),
            .added = adds ? bench_array<Real>(n) : nullptr,
            .sum = adds ? bench_array<Real>(n) : nullptr,
            .weight = bench_array<Real>(C),
            .bias = bench_array<Real>(C),
            .num_rows = num_rows,
            .C = C};
}

// Bytes that the layer reads and writes.
template <class Real>
static double bytes_of(int num_rows, int C, bool adds) {
    return (adds ? 4.0 : 2.0) * sizeof(Real) * num_rows * C;
}

template <class Real>
static void register_gpu(int C, bool adds) {
    const int num_rows = bench().small ? 512 : 65536;
    for (const auto& version : with_baselines(layernorm_forward_versions<Real>()))
        for (int block : version.configs)
            bench_gpu(format_string("%s/%s%s/%s/N:%d/C:%d", version.name, adds ? "residual/" : "",
                                    real_name<Real>(), config_name(block).c_str(), num_rows, C),
                      {.bytes = bytes_of<Real>(num_rows, C, adds)}, [=] {
                          const LayerNormForward<Real> params = make_params<Real>(num_rows, C, adds);
                          return [=] { version.launch(*bench().pad, params, block); };
                      });
}

template <class Real>
static void register_cpu(const char* name, bool adds) {
    bench_cpu(name, {.bytes = bytes_of<Real>(1024, 768, adds)}, [=] {
        static std::vector<Real> x(1024 * 768, Real(0.5f)), b(x), sum(x), y(x), w(768, Real(1.0f));
        static std::vector<float> m(1024), s(1024);
        layernorm_forward<Real>(nullptr, {.out = y.data(),
                                          .mean = m.data(),
                                          .rstd = s.data(),
                                          .inp = x.data(),
                                          .added = adds ? b.data() : nullptr,
                                          .sum = adds ? sum.data() : nullptr,
                                          .weight = w.data(),
                                          .bias = w.data(),
                                          .num_rows = 1024,
                                          .C = 768});
    });
}

template <class Real>
static void register_type() {
    register_gpu<Real>(768, false);
    for (int C : {768, 1600}) register_gpu<Real>(C, true);
}

static void register_all() {
    register_type<float>();
    register_type<bf16>();
    register_cpu<float>("layernorm_forward_cpu/N:1024/C:768", false);
    register_cpu<float>("residual_layernorm_forward_cpu/fp32/N:1024/C:768", true);
    register_cpu<bf16>("residual_layernorm_forward_cpu/bf16/N:1024/C:768", true);
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
