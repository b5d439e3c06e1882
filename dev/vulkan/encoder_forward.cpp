// Benchmark of encoder_forward: see bench.h for how to run it.
#include "llmc/encoder.h"

#include "dev/vulkan/bench.h"
#include "dev/vulkan/tokens.h"

static const int V = 50257;

static void register_all() {
    const int B = bench().small ? 4 : 64, T = bench().small ? 64 : 1024, C = 768;
    const size_t count = size_t(B) * T;
    const std::vector<int> tokens = word_like_tokens(count, V);
    int* inp = bench().pad->allocate<int>(count, "benchmark");
    bench().pad->upload(inp, tokens.data(), count * sizeof(int));
    float *wte = bench_array(size_t(V) * C), *wpe = bench_array(size_t(T) * C), *out = bench_array(count * C);
    for (const auto& version : encoder_forward_versions<float>())
        for (int block : version.block_sizes)
            bench_gpu(format_string("%s/block:%d/B:%d/T:%d/C:%d", version.name, block, B, T, C),
                      {.bytes = 8.0 * double(count) * C},
                      [=] { version.launch(*bench().pad, out, inp, wte, wpe, B, T, C, block); });
    bench_cpu("encoder_forward_cpu/B:4/T:64/C:768", {.bytes = 8.0 * 4 * 64 * 768}, [=] {
        static std::vector<float> w(size_t(V) * 768, 0.5f), y(256 * 768);
        static std::vector<int> x = word_like_tokens(256, V);
        encoder_forward_cpu(y.data(), x.data(), w.data(), w.data(), 4, 64, 768);
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
