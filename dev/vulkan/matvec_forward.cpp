// Benchmark of matvec_forward: see bench.h for how to run it.
#include "llmc/matvec.h"

#include "dev/vulkan/bench.h"

template <class T>
static void register_shape(int C, int OC) {
    const size_t n = size_t(C) * OC;
    const Work work = {.bytes = double(sizeof(T)) * double(n)};
    for (const auto& version : matvec_forward_versions<T>())
        for (int block : version.block_sizes)
            bench_gpu(format_string("%s/%s/block:%d/C:%d/OC:%d", version.name, real_name<T>(), block, C, OC),
                      work, [=] {
                          T *out = bench_array<T>(OC), *inp = bench_array<T>(C), *weight = bench_array<T>(n);
                          return
                              [=] { version.launch(*bench().pad, out, inp, weight, nullptr, C, OC, block); };
                      });
}

// GPT-2 124M's head, whose weights no CPU's cache holds.
template <class T>
static void register_cpu() {
    bench_cpu(format_string("matvec_forward_cpu/%s/C:768/OC:50304", real_name<T>()),
              {.bytes = double(sizeof(T)) * 768 * 50304}, [=] {
                  static std::vector<T> weight(size_t(768) * 50304, T(0.5f)), inp(768, T(1.0f)), out(50304);
                  matvec_forward_cpu<T>(out.data(), inp.data(), weight.data(), nullptr, 768, 50304);
              });
}

static void register_all() {
    for (auto [C, OC] : {std::pair{768, 2304}, {3072, 768}, {768, 50304}}) {
        register_shape<float>(C, OC);
        register_shape<bf16>(C, OC);
    }
    register_cpu<float>();
    register_cpu<bf16>();
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
