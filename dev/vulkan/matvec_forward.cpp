// Benchmark of matvec_forward: see bench.h for how to run it.
#include "llmc/layers/matvec.h"

#include "dev/vulkan/bench.h"

template <class Real>
static void register_shape(int C, int OC) {
    const size_t n = size_t(C) * OC;
    const Work work = {.bytes = double(sizeof(Real)) * double(n)};
    for (const auto& version : matvec_forward_versions<Real>())
        for (int block_size : version.configs)
            bench_gpu(format_string("%s/%s/%s/C:%d/OC:%d", version.name, real_name<Real>(),
                                    config_name(block_size).c_str(), C, OC),
                      work, [=] {
                          const MatvecForward<Real> p = {.out = bench_array<Real>(OC),
                                                         .inp = bench_array<Real>(C),
                                                         .weight = bench_array<Real>(n),
                                                         .bias = nullptr,
                                                         .C = C,
                                                         .OC = OC};
                          return [=] { version.launch(*bench().pad, p, block_size); };
                      });
}

// GPT-2 124M's classifier head, whose weight exceeds every CPU's cache.
template <class Real>
static void register_cpu() {
    bench_cpu(format_string("matvec_forward_cpu/%s/C:768/OC:50304", real_name<Real>()),
              {.bytes = double(sizeof(Real)) * 768 * 50304}, [=] {
                  static std::vector<Real> weight(size_t(768) * 50304, Real(0.5f)), inp(768, Real(1.0f)),
                      out(50304);
                  matvec_forward_cpu<Real>({.out = out.data(),
                                            .inp = inp.data(),
                                            .weight = weight.data(),
                                            .bias = nullptr,
                                            .C = 768,
                                            .OC = 50304});
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
