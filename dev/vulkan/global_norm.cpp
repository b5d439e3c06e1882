// Benchmark of global_norm over the 148 gradients of GPT-2 124M (on a software device, of one layer): bench.h
// tells how to run it.
#include "llmc/layers/global_norm.h"

#include "dev/vulkan/baselines/baselines.h"
#include "dev/vulkan/bench.h"

template <class Real>
static void register_gpu() {
    const size_t C = 768, layers = bench().small ? 1 : 12;
    std::vector<size_t> sizes = {C, C};
    if (!bench().small) sizes.insert(sizes.end(), {50304 * C, 1024 * C});
    for (size_t layer = 0; layer < layers; layer++)
        for (size_t n : {C, C, 3 * C * C, 3 * C, C * C, C, C, C, 4 * C * C, 4 * C, 4 * C * C, C})
            sizes.push_back(n);
    size_t total = 0;
    for (size_t n : sizes) total += n;
    const Work work = {.bytes = double(sizeof(Real)) * double(total)};
    for (const auto& version : with_baselines(global_norm_versions<Real>()))
        for (int block_size : version.configs)
            bench_gpu(
                format_string("%s/%s/%s/n:%zu", version.name, real_name<Real>(),
                              config_name(block_size).c_str(), total),
                work, [=] {
                    std::vector<GradientSlice<Real>> gradients;
                    for (size_t n : sizes) gradients.push_back({bench_array<Real>(n), n});
                    float* norm_and_scale = bench_array(2);
                    return [=] {
                        version.launch(
                            *bench().pad,
                            {.norm_and_scale = norm_and_scale, .gradients = gradients, .max_norm = 1.0f},
                            block_size);
                    };
                });
}

template <class Real>
static void register_cpu() {
    const size_t n = 1 << 22;
    bench_cpu(format_string("global_norm_cpu/%s/n:%zu", real_name<Real>(), n),
              {.bytes = double(sizeof(Real) * n)}, [=] {
                  static std::vector<Real> grads(n, Real(0.5f));
                  static std::vector<float> result(2);
                  global_norm<Real>(nullptr, {.norm_and_scale = result.data(),
                                              .gradients = {{grads.data(), grads.size()}},
                                              .max_norm = 1.0f});
              });
}

static void register_all() {
    register_gpu<float>();
    register_gpu<bf16>();
    register_cpu<float>();
    register_cpu<bf16>();
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
