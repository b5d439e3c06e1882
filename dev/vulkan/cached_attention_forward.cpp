// Benchmark of cached_attention_forward on the last of 1024 rows of GPT-2 124M; bench.h says how to run it.
#include "llmc/layers/cached_attention.h"

#include "dev/vulkan/bench.h"

template <class Real>
static void register_gpu() {
    const int rows = 1024, C = 768, NH = 12;
    const Work work = {.bytes = 2.0 * sizeof(Real) * rows * C};
    for (const auto& version : cached_attention_forward_versions<Real>())
        for (int block_size : version.configs)
            bench_gpu(format_string("%s/%s/%s/rows:%d/C:%d", version.name, real_name<Real>(),
                                    config_name(block_size).c_str(), rows, C),
                      work, [=] {
                          const CachedAttentionForward<Real> p = {
                              .out = bench_array<Real>(C),
                              .qkv = bench_array<Real>(size_t(rows) * 3 * C),
                              .first = rows - 1,
                              .num_rows = 1,
                              .C = C,
                              .NH = NH};
                          return [=] { version.launch(*bench().pad, p, block_size); };
                      });
}

static void register_all() {
    register_gpu<float>();
    register_gpu<bf16>();
    bench_cpu("cached_attention_forward_cpu/rows:1024/C:768", {.bytes = 8.0 * 1024 * 768}, [=] {
        static std::vector<float> qkv(1024 * 3 * 768, 0.5f), out(768);
        cached_attention_forward_cpu<float>(
            {.out = out.data(), .qkv = qkv.data(), .first = 1023, .num_rows = 1, .C = 768, .NH = 12});
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
