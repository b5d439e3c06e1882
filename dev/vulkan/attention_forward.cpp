// Benchmark of attention_forward; bench.h says how to run it.
#include "llmc/layers/attention.h"

#include "dev/vulkan/baselines/baselines.h"
#include "dev/vulkan/bench.h"

// Two T x T x hs GEMMs per head, half of whose work the causal mask removes.
static double forward_flops(int B, int T, int C) { return 2.0 * B * T * (T + 1.0) * C; }

struct Shape {
    int B, T, C, NH;
};

template <class Real>
static void register_gpu() {
    const std::vector<Shape> shapes =
        bench().small ? std::vector<Shape>{{4, 64, 768, 12}, {1, 256, 768, 12}}
                      : std::vector<Shape>{{4, 64, 768, 12},     {32, 1024, 768, 12},  {64, 1024, 768, 12},
                                           {16, 1024, 1024, 16}, {16, 1024, 1280, 20}, {16, 1024, 1600, 25}};
    for (const Shape s : shapes) {
        const size_t num_rows = size_t(s.B) * s.T;
        for (const auto& version : with_baselines(attention_forward_versions<Real>()))
            for (int block_size : version.configs)
                bench_gpu(format_string("%s/%s/%s/B:%d/T:%d/C:%d/NH:%d", version.name, real_name<Real>(),
                                        config_name(block_size).c_str(), s.B, s.T, s.C, s.NH),
                          {.flops = forward_flops(s.B, s.T, s.C)}, [=] {
                              Real* qkv = bench_array<Real>(num_rows * 3 * s.C);
                              const AttentionForward<Real> p = {.out = bench_array<Real>(num_rows * s.C),
                                                                .lse = bench_array(num_rows * s.NH),
                                                                .qkv = qkv,
                                                                .B = s.B,
                                                                .T = s.T,
                                                                .C = s.C,
                                                                .NH = s.NH};
                              return [=] { version.launch(*bench().pad, p, block_size); };
                          });
    }
}

static void register_all() {
    register_gpu<float>();
    register_gpu<bf16>();
    for (const Shape s : {Shape{4, 64, 768, 12}, Shape{1, 1024, 768, 12}})
        bench_cpu(format_string("attention_forward_cpu/B:%d/T:%d/C:%d/NH:%d", s.B, s.T, s.C, s.NH),
                  {.flops = forward_flops(s.B, s.T, s.C)}, [=] {
                      static std::vector<float> qkv(1024 * 3 * 768, 0.5f), out(1024 * 768), lse(1024 * 12);
                      attention_forward_cpu<float>({.out = out.data(),
                                                    .lse = lse.data(),
                                                    .qkv = qkv.data(),
                                                    .B = s.B,
                                                    .T = s.T,
                                                    .C = s.C,
                                                    .NH = s.NH});
                  });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
