// Benchmark of cached_attention_forward, the last row of GPT-2 124M's 1024: see bench.h for how to run it.
#include "llmc/cached_attention.h"

#include "dev/vulkan/bench.h"

template <class T>
static void register_gpu() {
    const int rows = 1024, C = 768, NH = 12;
    const Work work = {.bytes = 2.0 * sizeof(T) * rows * C};
    for (const auto& version : cached_attention_forward_versions<T>())
        for (int block : version.block_sizes)
            bench_gpu(
                format_string("%s/%s/block:%d/rows:%d/C:%d", version.name, real_name<T>(), block, rows, C),
                work, [=] {
                    T *out = bench_array<T>(C), *qkv = bench_array<T>(size_t(rows) * 3 * C);
                    return [=] { version.launch(*bench().pad, out, qkv, rows - 1, 1, C, NH, block); };
                });
}

static void register_all() {
    register_gpu<float>();
    register_gpu<bf16>();
    bench_cpu("cached_attention_forward_cpu/rows:1024/C:768", {.bytes = 8.0 * 1024 * 768}, [=] {
        static std::vector<float> qkv(1024 * 3 * 768, 0.5f), out(768);
        cached_attention_forward_cpu(out.data(), qkv.data(), 1023, 1, 768, 12);
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
