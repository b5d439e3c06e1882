// Benchmark of encoder_forward and, with an update of AdamW that is due, encoder_forward_updated: see bench.h
// for how to run it.
#include "llmc/encoder.h"

#include "dev/vulkan/bench.h"
#include "dev/vulkan/tokens.h"

static const int V = 50257;

template <class T>
static void register_gpu() {
    const int B = bench().small ? 4 : 64, seq = bench().small ? 64 : 1024, C = 768;
    const size_t count = size_t(B) * seq;
    const std::vector<int> tokens = word_like_tokens(count, V);
    for (const auto& version : encoder_forward_versions<T>())
        for (int block : version.block_sizes)
            bench_gpu(format_string("%s/%s/block:%d/B:%d/T:%d/C:%d", version.name, real_name<T>(), block, B,
                                    seq, C),
                      {.bytes = 2.0 * sizeof(T) * double(count) * C}, [=] {
                          int* inp = bench_array(count, tokens);
                          T *wte = bench_array<T>(size_t(V) * C), *wpe = bench_array<T>(size_t(seq) * C),
                            *out = bench_array<T>(count * C);
                          return [=] { version.launch(*bench().pad, out, inp, wte, wpe, B, seq, C, block); };
                      });
}

template <class T>
static void register_updated(int B, int seq) {
    const int C = 768, vocabulary = bench().small ? 5000 : V;
    const size_t count = size_t(B) * seq, n = size_t(vocabulary) * C;
    const bool with_master = sizeof(T) == 2;
    const std::vector<int> tokens = word_like_tokens(count, vocabulary);
    const double bytes = 8 + (with_master ? 4 : sizeof(T)) + 3.0 * sizeof(T);  // of an element
    for (const auto& version : encoder_forward_updated_versions<T>())
        for (int block : version.block_sizes)
            bench_gpu(format_string("%s/%s/block:%d/B:%d/T:%d/C:%d", version.name, real_name<T>(), block, B,
                                    seq, C),
                      {.bytes = bytes * double(count) * C}, [=] {
                          int* inp = bench_array(count, tokens);
                          T *wte = bench_array<T>(n), *wpe = bench_array<T>(size_t(seq) * C),
                            *out = bench_array<T>(count * C);
                          const AdamWDue<T> due = {
                              with_master ? bench_array(n) : nullptr,
                              bench_array(n, 0),
                              bench_array(n, 0),
                              bench_array<T>(n),
                              bench_array<AdamWStep>(1, {adamw_step(1e-4f, 0.9f, 0.95f, 1e-8f, 1)}),
                              0.1f,
                              bench_array<float>(2, {1, 1})};
                          return [=] {
                              version.launch(*bench().pad, out, inp, wte, wpe, due, B, seq, C, block);
                          };
                      });
}

template <class T>
static void register_cpu() {
    bench_cpu(format_string("encoder_forward_cpu/%s/B:4/T:64/C:768", real_name<T>()),
              {.bytes = 2.0 * sizeof(T) * 4 * 64 * 768}, [=] {
                  static std::vector<T> w(size_t(V) * 768, T(0.5f)), y(256 * 768);
                  static std::vector<int> x = word_like_tokens(256, V);
                  encoder_forward_cpu(y.data(), x.data(), w.data(), w.data(), 4, 64, 768);
              });
}

static void register_all() {
    register_gpu<float>();
    register_gpu<bf16>();
    register_updated<float>(4, 64);
    register_updated<bf16>(4, 64);
    if (!bench().small) register_updated<bf16>(64, 1024);
    register_cpu<float>();
    register_cpu<bf16>();
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
