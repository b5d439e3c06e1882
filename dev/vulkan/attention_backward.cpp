// Benchmark of attention_backward: see bench.h for how to run it.
#include "llmc/attention.h"

#include "dev/vulkan/bench.h"

// Five products of T x T x hs for each head, half of which the causal mask leaves; versions that recompute do
// seven.
static double backward_flops(int B, int T, int C) { return 5.0 * B * T * (T + 1.0) * C; }

struct Shape {
    int B, T, C, NH;
};

template <class T>
static void register_gpu() {
    const std::vector<Shape> shapes =
        bench().small ? std::vector<Shape>{{4, 64, 768, 12}, {1, 256, 768, 12}}
                      : std::vector<Shape>{{4, 64, 768, 12}, {32, 1024, 768, 12}, {64, 1024, 768, 12}};
    for (const auto [B, seq_len, C, NH] : shapes) {
        const size_t rows = size_t(B) * seq_len;
        for (const auto& version : attention_backward_versions<T>())
            for (int block : version.block_sizes)
                bench_gpu(format_string("%s/%s/block:%d/B:%d/T:%d/C:%d/NH:%d", version.name, real_name<T>(),
                                        block, B, seq_len, C, NH),
                          {.flops = backward_flops(B, seq_len, C)},
                          [=, B = B, seq_len = seq_len, C = C, NH = NH] {
                              T *qkv = bench_array<T>(rows * 3 * C), *out = bench_array<T>(rows * C);
                              T *dqkv = bench_array<T>(rows * 3 * C), *dout = bench_array<T>(rows * C);
                              float *lse = bench_array(rows * NH), *delta = bench_array(rows * NH);
                              attention_forward(bench().pad.get(), out, lse, qkv, B, seq_len, C, NH);
                              return [=] {
                                  version.launch(*bench().pad, dqkv, delta, dout, out, lse, qkv, B, seq_len,
                                                 C, NH, block);
                              };
                          });
    }
}

static void register_all() {
    register_gpu<float>();
    register_gpu<bf16>();
    for (const auto [B, T, C, NH] : {Shape{4, 64, 768, 12}, Shape{1, 1024, 768, 12}})
        bench_cpu(format_string("attention_backward_cpu/B:%d/T:%d/C:%d/NH:%d", B, T, C, NH),
                  {.flops = backward_flops(B, T, C)}, [B = B, T = T, C = C, NH = NH] {
                      static std::vector<float> qkv(1024 * 3 * 768, 0.5f), dqkv(qkv), out(1024 * 768, 0.5f),
                          dout(out);
                      static std::vector<float> lse(1024 * 12, 7.0f), delta(lse);
                      attention_backward_cpu(dqkv.data(), delta.data(), dout.data(), out.data(), lse.data(),
                                             qkv.data(), B, T, C, NH);
                  });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
