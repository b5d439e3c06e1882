// Benchmark of matmul_forward: see bench.h for how to run it.
#include "llmc/matmul.h"
#include "llmc/transpose.h"

#include "dev/vulkan/bench.h"

// Versions 1 and 4 of the products take half a second a launch there; version 5 is for the 16-bit types.
template <class T>
static bool too_slow(const std::string& version, int N) {
    const bool is_fp32 = std::is_same_v<T, float>;
    return version.back() == '5' ? is_fp32 : !is_fp32 || (N > 4096 && version.back() != '3');
}

template <class T>
static void register_shape(int N, int C, int OC) {
    const size_t n = N, c = C, oc = OC;
    const Work work = {.flops = 2.0 * N * C * OC};
    const std::string shape = format_string("N:%d/C:%d/OC:%d", N, C, OC);
    for (const auto& version : matmul_forward_versions<T>())
        for (int block : version.block_sizes) {
            if (too_slow<T>(version.name, N)) continue;
            bench_gpu(format_string("%s/%s/block:%d/%s", version.name, real_name<T>(), block, shape.c_str()),
                      work, [=] {
                          T *inp = bench_array<T>(n * c), *weight = bench_array<T>(oc * c),
                            *bias = bench_array<T>(oc), *out = bench_array<T>(n * oc);
                          return
                              [=] { version.launch(*bench().pad, out, inp, weight, bias, N, C, OC, block); };
                      });
        }
    // What training calls; weights also transposed before, as it does where rows are many.
    for (const bool gelu : {false, true})
        for (const bool transposed : {false, true})
            bench_gpu(format_string("matmul%s_forward%s/%s/%s", gelu ? "_gelu" : "",
                                    transposed ? "_transposed" : "", real_name<T>(), shape.c_str()),
                      work, [=] {
                          T *inp = bench_array<T>(n * c), *weight = bench_array<T>(oc * c),
                            *bias = bench_array<T>(oc), *out = bench_array<T>(n * oc),
                            *pre = gelu ? bench_array<T>(n * oc) : nullptr, *turned = bench_array<T>(oc * c);
                          LaunchPad* pad = bench().pad.get();
                          transpose<T>(pad, turned, weight, OC, C);
                          const T* at_hand = transposed ? turned : nullptr;
                          return [=] {
                              if (gelu)
                                  matmul_gelu_forward<T>(pad, out, pre, inp, weight, bias, N, C, OC, nullptr,
                                                         at_hand);
                              else
                                  matmul_forward<T>(pad, out, inp, weight, bias, N, C, OC, nullptr, at_hand);
                          };
                      });
}

// GPT-2 124M at B=4 T=64, B=4 T=1024, B=64 T=1024: the four products of a layer, and a chunk of the head.
template <class T>
static void register_shapes() {
    if (bench().small) return register_shape<T>(128, 768, 768);
    for (int N : {256, 4096, 65536}) {
        register_shape<T>(N, 768, 2304);
        register_shape<T>(N, 768, 768);
        register_shape<T>(N, 768, 3072);
        register_shape<T>(N, 3072, 768);
    }
    register_shape<T>(5632, 768, 50304);
}

static void register_cpu(int N, int C, int OC) {
    bench_cpu(format_string("matmul_forward_cpu/N:%d/C:%d/OC:%d", N, C, OC), {.flops = 2.0 * N * C * OC},
              [=] {
                  static std::vector<float> inp(size_t(N) * C, 0.5f), weight(size_t(OC) * C, 0.5f),
                      out(size_t(N) * OC);
                  matmul_forward_cpu<float>(out.data(), inp.data(), weight.data(), nullptr, N, C, OC);
              });
}

static void register_all() {
    register_shapes<float>();
    register_shapes<bf16>();
    register_cpu(256, 768, 3072);
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
