// Benchmark of fused_classifier, losses and gradients: see bench.h for how to run it. Each run works on the
// gradients that the run before left in place of the logits, which costs the same.
#include "llmc/classifier.h"

#include "dev/vulkan/bench.h"

static const int V = 50257, Vp = 50304;

template <class T>
static void register_gpu() {
    const int N = bench().small ? 64 : 4096;
    const size_t n = size_t(N) * Vp;
    const Work work = {.bytes = 2.0 * sizeof(T) * double(n)};
    for (const auto& version : fused_classifier_versions<T>())
        for (int block : version.block_sizes)
            bench_gpu(format_string("%s/%s/block:%d/N:%d/V:%d", version.name, real_name<T>(), block, N, V),
                      work, [=] {
                          T* logits = bench_array<T>(n);
                          float* losses = bench_array(N);
                          int* targets = bench_array(N, std::vector<int>(1, 1000));
                          return [=] {
                              version.launch(*bench().pad, logits, losses, targets, 1.0f, N, V, Vp, true,
                                             block);
                          };
                      });
}

template <class T>
static void register_cpu() {
    bench_cpu(format_string("fused_classifier_cpu/%s/N:%d/V:%d", real_name<T>(), 64, V),
              {.bytes = 2.0 * sizeof(T) * 64 * Vp}, [=] {
                  static std::vector<T> x(size_t(64) * Vp, T(0.5f));
                  static std::vector<float> l(64);
                  static const std::vector<int> t(64, 1000);
                  fused_classifier_cpu(x.data(), l.data(), t.data(), 1.0f, 64, V, Vp, true);
              });
}

static void register_all() {
    register_gpu<float>();
    register_gpu<bf16>();
    register_cpu<float>();
    register_cpu<bf16>();
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
