// Benchmark of transpose: see bench.h for how to run it.
#include "llmc/transpose.h"

#include "dev/vulkan/bench.h"

template <class T>
static void register_gpu() {
    for (const auto& [rows, columns] : {std::pair{768, 768}, {2304, 768}, {3072, 768}, {768, 3072}})
        for (const auto& version : transpose_versions<T>())
            for (int block : version.block_sizes) {
                const int r = rows, c = columns;
                const size_t n = size_t(r) * c;
                bench_gpu(format_string("%s/%s/block:%d/%dx%d", version.name, real_name<T>(), block, r, c),
                          moves<T>(2.0 * double(n)), [=] {
                              T *inp = bench_array<T>(n), *out = bench_array<T>(n);
                              return [=] { version.launch(*bench().pad, out, inp, r, c, block); };
                          });
            }
}

static void register_all() {
    register_gpu<float>();
    register_gpu<bf16>();
    bench_cpu("transpose_cpu/768x3072", moves<float>(2.0 * 768 * 3072), [] {
        static std::vector<float> inp(768 * 3072, 0.5f), out(inp);
        transpose_cpu(out.data(), inp.data(), 768, 3072);
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
