// Benchmark of encoder_backward: bench.h tells how to run it.
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
    std::vector<int> bucket_values(encoder_bucket_ints(int(count)));
    build_encoder_buckets(bucket_values.data(), tokens.data(), int(count));
    // dout is read for each of the two gradients; the rows of these are read and written
    const Work work = {.bytes = double(sizeof(Real)) * C *
                                (2.0 * double(count) + 2.0 * bucket_values[0] + 2.0 * T)};
    for (const auto& version : with_baselines(encoder_backward_versions<Real>()))
        for (int block_size : version.configs)
            bench_gpu(format_string("%s/%s/%s/B:%d/T:%d/C:%d", version.name, real_name<Real>(),
                                    config_name(block_size).c_str(), B, T, C),
                      work, [=] {
                          const EncoderBackward<Real> p = {
                              .dwte = bench_array<Real>(size_t(V) * C),
                              .dwpe = bench_array<Real>(size_t(T) * C),
                              .dout = bench_array<Real>(count * C),
                              .buckets = bench_array(bucket_values.size(), bucket_values),
                              .B = B,
                              .T = T,
                              .C = C};
                          return [=] { version.launch(*bench().pad, p, block_size); };
                      });
}

template <class Real>
static void register_cpu() {
    bench_cpu(format_string("encoder_backward_cpu/%s/B:4/T:64/C:768", real_name<Real>()),
              {.bytes = 2.0 * sizeof(Real) * 4 * 64 * 768}, [=] {
                  static std::vector<Real> dwte(size_t(V) * 768, Real(0.0f)), dwpe(64 * 768, Real(0.0f)),
                      dout(256 * 768, Real(0.5f));
                  static const std::vector<int> buckets = [] {
                      std::vector<int> built(encoder_bucket_ints(256));
                      build_encoder_buckets(built.data(), word_like_tokens(256, V).data(), 256);
                      return built;
                  }();
                  encoder_backward<Real>(nullptr, {.dwte = dwte.data(),
                                                   .dwpe = dwpe.data(),
                                                   .dout = dout.data(),
                                                   .buckets = buckets.data(),
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
    bench_cpu("build_encoder_buckets/count:65536", {}, [=] {
        static const std::vector<int> tokens = word_like_tokens(65536, V);
        static std::vector<int> buckets(encoder_bucket_ints(65536));
        build_encoder_buckets(buckets.data(), tokens.data(), 65536);
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
