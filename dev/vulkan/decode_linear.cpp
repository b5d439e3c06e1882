// Benchmark of decode_linear on the linear layers of GPT-2 124M; bench.h says how to run it.
#include "llmc/layers/decode_linear.h"

#include "dev/vulkan/bench.h"

struct Shape {
    int C, OC;
    DecodeEpilogue epilogue;
};

template <class Real>
static void register_shape(const Shape& s, int B) {
    const size_t n = size_t(s.C) * s.OC;
    const bool add = s.epilogue == DecodeEpilogue::add;
    for (const auto& version : decode_linear_versions<Real>())
        for (int block_size : version.configs)
            bench_gpu(format_string("%s/%s/%s/B:%d/C:%d/OC:%d", version.name, real_name<Real>(),
                                    config_name(block_size).c_str(), B, s.C, s.OC),
                      {.bytes = double(sizeof(Real)) * double(n)}, [=] {
                          const DecodeLinear<Real> p = {
                              .out = bench_array<Real>(size_t(B) * s.OC),
                              .stream = bench_array<float>(size_t(B) * (add ? s.OC : s.C)),
                              .inp = add ? bench_array<Real>(size_t(B) * s.C) : nullptr,
                              .gain = bench_array<Real>(s.C),
                              .shift = bench_array<Real>(s.C),
                              .weight = bench_array<Real>(n),
                              .bias = bench_array<Real>(s.OC),
                              .text_stride = size_t(s.OC),
                              .num_texts = B,
                              .C = s.C,
                              .OC = s.OC,
                              .epilogue = s.epilogue};
                          return [=] { version.launch(*bench().pad, p, block_size); };
                      });
}

static void register_all() {
    for (const Shape& s : {Shape{768, 2304, DecodeEpilogue::store},
                           {768, 768, DecodeEpilogue::add},
                           {768, 3072, DecodeEpilogue::gelu},
                           {3072, 768, DecodeEpilogue::add},
                           {768, 50304, DecodeEpilogue::store}})
        for (int B : {1, 10}) {
            register_shape<float>(s, B);
            register_shape<bf16>(s, B);
        }
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
