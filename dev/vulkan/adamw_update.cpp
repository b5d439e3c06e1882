// Benchmark of adamw_update, for 16-bit parameters with and without master weights: bench.h tells how to run
// it.
#include "llmc/layers/adamw.h"

#include "dev/vulkan/bench.h"

static const AdamWStep NOW = adamw_step(1e-4f, 0.9f, 0.95f, 1e-8f, 1);

template <class Real>
static void register_gpu(bool with_master) {
    const size_t n = bench().small ? 1 << 20 : 124475904;  // GPT-2 124M with a padded vocabulary
    // reads all arrays (but not params if there are master weights), and writes all but the gradients
    const double bytes = with_master ? 2.0 * sizeof(Real) + 24 : 3.0 * sizeof(Real) + 16;
    for (const auto& version : adamw_update_versions<Real>())
        for (int block_size : version.configs)
            bench_gpu(format_string("%s/%s%s/%s/n:%zu", version.name, real_name<Real>(),
                                    with_master ? "+master" : "", config_name(block_size).c_str(), n),
                      {.bytes = bytes * double(n)}, [=] {
                          const AdamWUpdate<Real> p = {.params = bench_array<Real>(n),
                                                       .master = with_master ? bench_array(n) : nullptr,
                                                       .m = bench_array(n, 0),
                                                       .v = bench_array(n, 0),
                                                       .grads = bench_array<Real>(n),
                                                       .n = n,
                                                       .step = bench_array<AdamWStep>(1, {NOW}),
                                                       .weight_decay = 0.1f,
                                                       .norm_and_scale = bench_array<float>(2, {1, 1})};
                          return [=] { version.launch(*bench().pad, p, block_size); };
                      });
}

template <class Real>
static void register_cpu() {
    const size_t n = 1 << 22;
    bench_cpu(format_string("adamw_update_cpu/%s/n:%zu", real_name<Real>(), n),
              {.bytes = (3.0 * sizeof(Real) + 16) * double(n)}, [=] {
                  static std::vector<Real> params(n, Real(0.5f)), grads(params);
                  static std::vector<float> m(n), v(n);
                  adamw_update<Real>(nullptr, {.params = params.data(),
                                               .master = nullptr,
                                               .m = m.data(),
                                               .v = v.data(),
                                               .grads = grads.data(),
                                               .n = n,
                                               .step = &NOW,
                                               .weight_decay = 0.1f,
                                               .norm_and_scale = nullptr});
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
