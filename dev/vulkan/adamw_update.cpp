// Benchmark of adamw_update, 16-bit parameters with and without master weights: see bench.h for how to run
// it.
#include "llmc/adamw.h"

#include "dev/vulkan/bench.h"

static const AdamWStep NOW = adamw_step(1e-4f, 0.9f, 0.95f, 1e-8f, 1);

template <class T>
static void register_gpu(bool with_master) {
    const size_t n = bench().small ? 1 << 20 : 124475904;  // GPT-2 124M with its vocabulary padded
    // reads everything, writes all but the gradients, and does not read params where there are master weights
    const double bytes = with_master ? 2.0 * sizeof(T) + 24 : 3.0 * sizeof(T) + 16;
    for (const auto& version : adamw_update_versions<T>())
        for (int block : version.block_sizes)
            bench_gpu(format_string("%s/%s%s/block:%d/n:%zu", version.name, real_name<T>(),
                                    with_master ? "+master" : "", block, n),
                      {.bytes = bytes * double(n)}, [=] {
                          T *params = bench_array<T>(n), *grads = bench_array<T>(n);
                          float *master = with_master ? bench_array(n) : nullptr, *m = bench_array(n, 0),
                                *v = bench_array(n, 0), *norm = bench_array<float>(2, {1, 1});
                          AdamWStep* step = bench_array<AdamWStep>(1, {NOW});
                          return [=] {
                              version.launch(*bench().pad, params, master, m, v, grads, n, step, 0.1f, norm,
                                             0, block);
                          };
                      });
}

template <class T>
static void register_cpu() {
    const size_t n = 1 << 22;
    bench_cpu(format_string("adamw_update_cpu/%s/n:%zu", real_name<T>(), n),
              {.bytes = (3.0 * sizeof(T) + 16) * double(n)}, [=] {
                  static std::vector<T> p(n, T(0.5f)), g(p);
                  static std::vector<float> x(n), y(n);
                  adamw_update_cpu<T>(p.data(), nullptr, x.data(), y.data(), g.data(), n, &NOW, 0.1f,
                                      nullptr);
              });
}

static void register_all() {
    register_gpu<float>(false);
    register_gpu<bf16>(false);
    register_gpu<bf16>(true);
    register_cpu<float>();
    register_cpu<bf16>();
    register_cpu<fp16>();
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
