// Benchmark of layernorm_backward: bench.h tells how to run it.
#include "llmc/layers/layernorm.h"

#include "dev/vulkan/bench.h"

// In place, as in training.
template <class Real>
static LayerNormBackward<Real> make_params(int num_rows, int C) {
    const size_t n = size_t(num_rows) * C;
    Real* dinp = bench_array<Real>(n);
    return {.dinp = dinp,
            .dweight = bench_array<Real>(C),
            .dbias = bench_array<Real>(C),
            .added = dinp,
            .dout = bench_array<Real>(n),
            .inp = bench_array<Real>(n),
            .weight = bench_array<Real>(C),
            .mean = bench_array(num_rows),
            .rstd = bench_array(num_rows),
            .num_rows = num_rows,
            .C = C};
}

template <class Real>
static void register_gpu() {
    const int num_rows = bench().small ? 512 : 65536;
    for (int C : {768, 1600})
        for (const auto& version : layernorm_backward_versions<Real>())
            for (int block : version.configs)
                bench_gpu(format_string("%s/%s/%s/N:%d/C:%d", version.name, real_name<Real>(),
                                        config_name(block).c_str(), num_rows, C),
                          {.bytes = 4.0 * sizeof(Real) * num_rows * C}, [=] {
                              const LayerNormBackward<Real> params = make_params<Real>(num_rows, C);
                              return [=] { version.launch(*bench().pad, params, block); };
                          });
}

static void register_all() {
    register_gpu<float>();
    register_gpu<bf16>();
    bench_cpu("layernorm_backward_cpu/N:1024/C:768", {.bytes = 16.0 * 1024 * 768}, [=] {
        static std::vector<float> x(1024 * 768, 0.5f), dy(x), dx(x), w(768, 1.0f), dw(w), db(w), m(1024),
            s(1024);
        layernorm_backward<float>(nullptr, {.dinp = dx.data(),
                                            .dweight = dw.data(),
                                            .dbias = db.data(),
                                            .added = dx.data(),
                                            .dout = dy.data(),
                                            .inp = x.data(),
                                            .weight = w.data(),
                                            .mean = m.data(),
                                            .rstd = s.data(),
                                            .num_rows = 1024,
                                            .C = 768});
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
