// Benchmark of fused_classifier, losses and gradients: see bench.h for how to run it. Each run works on the
// gradients that the run before left in place of the logits, which costs the same.
#include "llmc/classifier.h"

#include "dev/vulkan/bench.h"

static void register_all() {
    const int N = bench().small ? 64 : 4096, V = 50257, Vp = 50304;
    const size_t n = size_t(N) * Vp;
    float *logits = bench_array(n), *losses = bench_array(N);
    int* targets = bench().pad->allocate<int>(N, "benchmark");
    bench().pad->fill(targets, 1000, N * sizeof(int));
    const Work work = {.bytes = 8.0 * double(n)};
    for (const auto& version : fused_classifier_versions<float>())
        for (int block : version.block_sizes)
            bench_gpu(format_string("%s/block:%d/N:%d/V:%d", version.name, block, N, V), work, [=] {
                version.launch(*bench().pad, logits, losses, targets, 1.0f, N, V, Vp, true, block);
            });
    bench_cpu(format_string("fused_classifier_cpu/N:%d/V:%d", 64, V), {.bytes = 8.0 * 64 * Vp}, [=] {
        static std::vector<float> x(size_t(64) * 50304, 0.5f), l(64);
        static const std::vector<int> t(64, 1000);
        fused_classifier_cpu(x.data(), l.data(), t.data(), 1.0f, 64, 50257, 50304, true);
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
