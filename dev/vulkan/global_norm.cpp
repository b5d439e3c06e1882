// Benchmark of global_norm over the 148 gradients of GPT-2 124M (or of one of its layers): see bench.h for
// how to run it.
#include "llmc/global_norm.h"

#include "dev/vulkan/bench.h"

static void register_all() {
    const size_t C = 768, layers = bench().small ? 1 : 12;
    std::vector<size_t> sizes = {C, C};
    if (!bench().small) sizes.insert(sizes.end(), {50304 * C, 1024 * C});
    for (size_t layer = 0; layer < layers; layer++)
        for (size_t n : {C, C, 3 * C * C, 3 * C, C * C, C, C, C, 4 * C * C, 4 * C, 4 * C * C, C})
            sizes.push_back(n);
    std::vector<GradientSlice<float>> gradients;
    size_t total = 0;
    for (size_t n : sizes) {
        gradients.push_back({bench_array(n), n});
        total += n;
    }
    float *norm = bench_array(2), *scratch = bench_array(global_norm_scratch(bench().pad.get(), gradients));
    const Work work = {.bytes = 4.0 * double(total)};
    for (const auto& version : global_norm_versions<float>())
        for (int block : version.block_sizes)
            bench_gpu(format_string("%s/block:%d/n:%zu", version.name, block, total), work,
                      [=] { version.launch(*bench().pad, norm, scratch, gradients, 1.0f, block); });
    bench_cpu(format_string("global_norm_cpu/n:%d", 1 << 22), {.bytes = 4.0 * (1 << 22)}, [=] {
        static std::vector<float> x(1 << 22, 0.5f), result(2);
        global_norm_cpu<float>(result.data(), {{x.data(), x.size()}}, 1.0f);
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
