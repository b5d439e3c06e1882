// Benchmark of decode_attention on the last of 64 and 1024 rows of GPT-2 124M; bench.h says how to run it.
#include "llmc/layers/decode_attention.h"

#include "dev/vulkan/bench.h"

template <class Real>
static void register_rows(int rows, int B) {
    const int T = 1024, C = 768, NH = 12;
    const Work work = {.bytes = 2.0 * sizeof(Real) * rows * C * B};
    for (const auto& version : decode_attention_versions<Real>())
        for (int block_size : version.configs)
            bench_gpu(format_string("%s/%s/%s/B:%d/rows:%d", version.name, real_name<Real>(),
                                    config_name(block_size).c_str(), B, rows),
                      work, [=] {
                          const std::vector<int> last(B, rows - 1);
                          int* positions = bench_array<int>(B);
                          bench().pad->upload(positions, last.data(), B * sizeof(int));
                          const DecodeAttention<Real> p = {.out = bench_array<Real>(size_t(B) * C),
                                                           .cache = bench_array<Real>(size_t(B) * T * 3 * C),
                                                           .positions = positions,
                                                           .num_texts = B,
                                                           .T = T,
                                                           .C = C,
                                                           .NH = NH};
                          return [=] { version.launch(*bench().pad, p, block_size); };
                      });
}

static void register_all() {
    for (int rows : {64, 1024})
        for (int B : {1, 10}) {
            register_rows<float>(rows, B);
            register_rows<bf16>(rows, B);
        }
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
