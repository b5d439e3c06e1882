// Benchmark of attention_backward; bench.h says how to run it.
#include "llmc/layers/attention.h"

#include "dev/vulkan/baselines/baselines.h"
#include "dev/vulkan/bench.h"

// Five T x T x hs GEMMs per head, half of whose work the causal mask removes. The GPU versions do seven,
// since both kernels recompute the scores and their gradients.
static double backward_flops(int B, int T, int C) { return 5.0 * B * T * (T + 1.0) * C; }

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
        const size_t num_rows = size_t(s.B) * s.T, n = num_rows * s.C;
        for (const auto& version : with_baselines(attention_backward_versions<Real>()))
            for (int block_size : version.configs)
                bench_gpu(
                    format_string("%s/%s/%s/B:%d/T:%d/C:%d/NH:%d", version.name, real_name<Real>(),
                                  config_name(block_size).c_str(), s.B, s.T, s.C, s.NH),
                    {.flops = backward_flops(s.B, s.T, s.C)}, [=] {
                        Real *qkv = bench_array<Real>(3 * n), *out = bench_array<Real>(n);
                        Real *dqkv = bench_array<Real>(3 * n), *dout = bench_array<Real>(n);
                        float* lse = bench_array(num_rows * s.NH);
                        attention_forward<Real>(
                            bench().pad.get(),
                            {.out = out, .lse = lse, .qkv = qkv, .B = s.B, .T = s.T, .C = s.C, .NH = s.NH});
                        const AttentionBackward<Real> p = {.dqkv = dqkv,
                                                           .delta = bench_array(num_rows * s.NH),
                                                           .dout = dout,
                                                           .out = out,
                                                           .lse = lse,
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
        bench_cpu(format_string("attention_backward_cpu/B:%d/T:%d/C:%d/NH:%d", s.B, s.T, s.C, s.NH),
                  {.flops = backward_flops(s.B, s.T, s.C)}, [=] {
                      static std::vector<float> qkv(1024 * 3 * 768, 0.5f), dqkv(qkv), out(1024 * 768, 0.5f),
                          dout(out);
                      static std::vector<float> lse(1024 * 12, 7.0f), delta(lse);
                      attention_backward_cpu<float>({.dqkv = dqkv.data(),
                                                     .delta = delta.data(),
                                                     .dout = dout.data(),
                                                     .out = out.data(),
                                                     .lse = lse.data(),
                                                     .qkv = qkv.data(),
                                                     .B = s.B,
                                                     .T = s.T,
                                                     .C = s.C,
                                                     .NH = s.NH});
                  });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
