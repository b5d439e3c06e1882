// Benchmark of encoder_backward: see bench.h for how to run it.
#include "llmc/encoder.h"

#include "dev/vulkan/bench.h"
#include "dev/vulkan/tokens.h"

static const int V = 50257;

template <class T>
static void register_gpu() {
    const int B = bench().small ? 4 : 64, seq = bench().small ? 64 : 1024, C = 768;
    const size_t count = size_t(B) * seq;
    const std::vector<int> tokens = word_like_tokens(count, V);
    std::vector<int> lists(encoder_bucket_ints(int(count)));
    build_encoder_buckets(lists.data(), tokens.data(), int(count));
    // dout once for each sum
    const Work work = {.bytes = double(sizeof(T)) * C * (2.0 * double(count) + 2.0 * lists[0] + 2.0 * seq)};
    for (const auto& version : encoder_backward_versions<T>())
        for (int block : version.block_sizes)
            bench_gpu(format_string("%s/%s/block:%d/B:%d/T:%d/C:%d", version.name, real_name<T>(), block, B,
                                    seq, C),
                      work, [=] {
                          int* buckets = bench_array(lists.size(), lists);
                          T *dwte = bench_array<T>(size_t(V) * C), *dwpe = bench_array<T>(size_t(seq) * C),
                            *dout = bench_array<T>(count * C);
                          return [=] {
                              version.launch(*bench().pad, dwte, dwpe, dout, buckets, B, seq, C, block);
                          };
                      });
}

template <class T>
static void register_cpu() {
    bench_cpu(format_string("encoder_backward_cpu/%s/B:4/T:64/C:768", real_name<T>()),
              {.bytes = 2.0 * sizeof(T) * 4 * 64 * 768}, [=] {
                  static std::vector<T> dw(size_t(V) * 768, T(0.0f)), dp(64 * 768, T(0.0f)),
                      dy(256 * 768, T(0.5f));
                  static const std::vector<int> few = [] {
                      std::vector<int> made(encoder_bucket_ints(256));
                      build_encoder_buckets(made.data(), word_like_tokens(256, V).data(), 256);
                      return made;
                  }();
                  encoder_backward_cpu(dw.data(), dp.data(), dy.data(), few.data(), 4, 64, 768);
              });
}

static void register_all() {
    register_gpu<float>();
    register_gpu<bf16>();
    register_cpu<float>();
    register_cpu<bf16>();
    bench_cpu("build_encoder_buckets/count:65536", {}, [=] {
        static const std::vector<int> x = word_like_tokens(65536, V);
        static std::vector<int> made(encoder_bucket_ints(65536));
        build_encoder_buckets(made.data(), x.data(), 65536);
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
