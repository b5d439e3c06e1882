// Benchmark of encoder_forward: bench.h tells how to run it.
#include "llmc/layers/encoder.h"

#include "dev/vulkan/baselines/baselines.h"
#include "dev/vulkan/bench.h"
#include "dev/vulkan/tokens.h"

static const int V = 50257;

template <class Real>
static void register_gpu() {
    const int B = bench().small ? 4 : 64, T = bench().small ? 64 : 1024, C = 768;
    const size_t count = size_t(B) * T;
    const std::vector<int> tokens = word_like_tokens(count, V);
    for (const auto& version : with_baselines(encoder_forward_versions<Real>()))
        for (int block_size : version.configs)
            bench_gpu(format_string("%s/%s/%s/B:%d/T:%d/C:%d", version.name, real_name<Real>(),
                                    config_name(block_size).c_str(), B, T, C),
                      {.bytes = 2.0 * sizeof(Real) * double(count) * C}, [=] {
                          const EncoderForward<Real> p = {.out = bench_array<Real>(count * C),
                                                          .inp = bench_array(count, tokens),
                                                          .wte = bench_array<Real>(size_t(V) * C),
                                                          .wpe = bench_array<Real>(size_t(T) * C),
                                                          .B = B,
                                                          .T = T,
                                                          .C = C};
                          return [=] { version.launch(*bench().pad, p, block_size); };
                      });
}

template <class Real>
static void register_cpu() {
    bench_cpu(format_string("encoder_forward_cpu/%s/B:4/T:64/C:768", real_name<Real>()),
              {.bytes = 2.0 * sizeof(Real) * 4 * 64 * 768}, [=] {
                  static std::vector<Real> weights(size_t(V) * 768, Real(0.5f)), out(256 * 768);
                  static const std::vector<int> tokens = word_like_tokens(256, V);
                  encoder_forward<Real>(nullptr, {.out = out.data(),
                                                  .inp = tokens.data(),
                                                  .wte = weights.data(),
                                                  .wpe = weights.data(),
                                                  .B = 4,
                                                  .T = 64,
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
