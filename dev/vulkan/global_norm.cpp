// Benchmark of global_norm over the 148 gradients of GPT-2 124M (or of one of its layers): see bench.h for
// how to run it.
#include "llmc/global_norm.h"

#include "dev/vulkan/bench.h"

template <class T>
static void register_gpu() {
    const size_t C = 768, layers = bench().small ? 1 : 12;
    std::vector<size_t> sizes = {C, C};
    if (!bench().small) sizes.insert(sizes.end(), {50304 * C, 1024 * C});
    for (size_t layer = 0; layer < layers; layer++)
        for (size_t n : {C, C, 3 * C * C, 3 * C, C * C, C, C, C, 4 * C * C, 4 * C, 4 * C * C, C})
            sizes.push_back(n);
    size_t total = 0;
    for (size_t n : sizes) total += n;
    const Work work = {.bytes = double(sizeof(T)) * double(total)};
    for (const auto& version : global_norm_versions<T>())
        for (int block : version.block_sizes)
            bench_gpu(
                format_string("%s/%s/block:%d/n:%zu", version.name, real_name<T>(), block, total), work, [=] {
                    std::vector<GradientSlice<T>> gradients;
                    for (size_t n : sizes) gradients.push_back({bench_array<T>(n), n});
                    float *norm = bench_array(2),
                          *scratch = bench_array(global_norm_scratch(bench().pad.get(), gradients));
                    return [=] {
                        version.launch(*bench().pad, norm, scratch, gradients, 1.0f, 1.0f, nullptr, block);
                    };
                });
}

template <class T>
static void register_cpu() {
    const size_t n = 1 << 22;
    bench_cpu(format_string("global_norm_cpu/%s/n:%zu", real_name<T>(), n), {.bytes = double(sizeof(T) * n)},
              [=] {
                  static std::vector<T> x(n, T(0.5f));
                  static std::vector<float> result(2);
                  global_norm_cpu<T>(result.data(), {{x.data(), x.size()}}, 1.0f);
              });
}

static void register_all() {
    register_gpu<float>();
    register_gpu<bf16>();
    register_cpu<float>();
    register_cpu<bf16>();
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
