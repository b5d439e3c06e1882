// Benchmark of fused_classifier, losses and gradients: bench.h tells how to run it. Each run takes the
// gradients of the previous run as its logits, which costs the same.
#include "llmc/layers/classifier.h"

#include "dev/vulkan/baselines/baselines.h"
#include "dev/vulkan/bench.h"

static const int V = 50257, Vp = 50304;

template <class Real>
static void register_gpu() {
    const int num_rows = bench().small ? 64 : 4096;
    const size_t n = size_t(num_rows) * Vp;
    const Work work = {.bytes = 2.0 * sizeof(Real) * double(n)};
    for (const auto& version : with_baselines(fused_classifier_versions<Real>()))
        for (int block_size : version.configs)
            bench_gpu(format_string("%s/%s/%s/N:%d/V:%d", version.name, real_name<Real>(),
                                    config_name(block_size).c_str(), num_rows, V),
                      work, [=] {
                          const FusedClassifier<Real> p = {
                              .logits = bench_array<Real>(n),
                              .losses = bench_array(num_rows),
                              .targets = bench_array(num_rows, std::vector<int>(1, 1000)),
                              .dloss = 1.0f,
                              .num_rows = num_rows,
                              .V = V,
                              .Vp = Vp,
                              .write_gradients = true};
                          return [=] { version.launch(*bench().pad, p, block_size); };
                      });
}

template <class Real>
static void register_cpu() {
    bench_cpu(format_string("fused_classifier_cpu/%s/N:%d/V:%d", real_name<Real>(), 64, V),
              {.bytes = 2.0 * sizeof(Real) * 64 * Vp}, [=] {
                  static std::vector<Real> logits(size_t(64) * Vp, Real(0.5f));
                  static std::vector<float> losses(64);
                  static const std::vector<int> targets(64, 1000);
                  fused_classifier<Real>(nullptr, {.logits = logits.data(),
                                                   .losses = losses.data(),
                                                   .targets = targets.data(),
                                                   .dloss = 1.0f,
                                                   .num_rows = 64,
                                                   .V = V,
                                                   .Vp = Vp,
                                                   .write_gradients = true});
              });
}

static void register_all() {
    register_gpu<float>();
    register_gpu<bf16>();
    register_cpu<float>();
    register_cpu<bf16>();
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
