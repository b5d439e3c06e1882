// Benchmark of transpose: bench.h tells how to run it.
#include "llmc/layers/transpose.h"

#include "dev/vulkan/bench.h"

template <class Real>
static void register_gpu() {
    for (const auto& [rows, columns] : {std::pair{768, 768}, {2304, 768}, {3072, 768}, {768, 3072}})
        for (const auto& version : transpose_versions<Real>())
            for (int block_size : version.configs) {
                const int r = rows, c = columns;
                const size_t n = size_t(r) * c;
                bench_gpu(format_string("%s/%s/%s/%dx%d", version.name, real_name<Real>(),
                                        config_name(block_size).c_str(), r, c),
                          memory_traffic<Real>(2.0 * double(n)), [=] {
                              const Transpose<Real> p = {.out = bench_array<Real>(n),
                                                         .inp = bench_array<Real>(n),
                                                         .rows = r,
                                                         .columns = c};
                              return [=] { version.launch(*bench().pad, p, block_size); };
                          });
            }
}

static void register_all() {
    register_gpu<float>();
    register_gpu<bf16>();
    bench_cpu("transpose_cpu/768x3072", memory_traffic<float>(2.0 * 768 * 3072), [] {
        static std::vector<float> inp(768 * 3072, 0.5f), out(inp);
        transpose_cpu<float>({.out = out.data(), .inp = inp.data(), .rows = 768, .columns = 3072});
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
