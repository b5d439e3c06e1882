// Benchmark of encoder_backward: see bench.h for how to run it.
#include "llmc/encoder.h"

#include "dev/vulkan/bench.h"
#include "dev/vulkan/tokens.h"

static const int V = 50257;

static void register_all() {
    const int B = bench().small ? 4 : 64, T = bench().small ? 64 : 1024, C = 768;
    const size_t count = size_t(B) * T;
    const std::vector<int> tokens = word_like_tokens(count, V);
    std::vector<int> lists(encoder_bucket_ints(int(count)));
    build_encoder_buckets(lists.data(), tokens.data(), int(count));
    int* buckets = bench().pad->allocate<int>(lists.size(), "benchmark");
    bench().pad->upload(buckets, lists.data(), lists.size() * sizeof(int));
    float *dwte = bench_array(size_t(V) * C), *dwpe = bench_array(size_t(T) * C),
          *dout = bench_array(count * C);
    const Work work = {.bytes = 4.0 * C *
                                (2.0 * double(count) + 2.0 * lists[0] + 2.0 * T)};  // dout once for each sum
    for (const auto& version : encoder_backward_versions<float>())
        for (int block : version.block_sizes)
            bench_gpu(format_string("%s/block:%d/B:%d/T:%d/C:%d", version.name, block, B, T, C), work,
                      [=] { version.launch(*bench().pad, dwte, dwpe, dout, buckets, B, T, C, block); });
    bench_cpu("encoder_backward_cpu/B:4/T:64/C:768", {.bytes = 8.0 * 4 * 64 * 768}, [=] {
        static std::vector<float> dw(size_t(V) * 768), dp(64 * 768), dy(256 * 768, 0.5f);
        static const std::vector<int> few = [] {
            std::vector<int> made(encoder_bucket_ints(256));
            build_encoder_buckets(made.data(), word_like_tokens(256, V).data(), 256);
            return made;
        }();
        encoder_backward_cpu(dw.data(), dp.data(), dy.data(), few.data(), 4, 64, 768);
    });
    bench_cpu("build_encoder_buckets/count:65536", {}, [=] {
        static const std::vector<int> x = word_like_tokens(65536, V);
        static std::vector<int> made(encoder_bucket_ints(65536));
        build_encoder_buckets(made.data(), x.data(), 65536);
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
