// Benchmark of matmul_forward: see bench.h for how to run it.
#include "llmc/matmul.h"

#include "dev/vulkan/bench.h"

// Versions 1 and 4 of the products take half a second a launch there.
static bool too_slow(const std::string& version, int N) {
    return N > 4096 && (version.back() == '1' || version.back() == '4');
}

static void register_shape(int N, int C, int OC) {
    const size_t n = N, c = C, oc = OC;
    float *inp = bench_array(n * c), *weight = bench_array(oc * c), *bias = bench_array(oc),
          *out = bench_array(n * oc);
    const Work work = {.flops = 2.0 * N * C * OC};
    const std::string shape = format_string("N:%d/C:%d/OC:%d", N, C, OC);
    for (const auto& version : matmul_forward_versions<float>())
        for (int block : version.block_sizes) {
            if (too_slow(version.name, N)) continue;
            bench_gpu(format_string("%s/block:%d/%s", version.name, block, shape.c_str()), work,
                      [=] { version.launch(*bench().pad, out, inp, weight, bias, N, C, OC, block); });
        }
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
    if (bench().small)
        register_shape(128, 768, 768);
    else
        for (int N : {256, 4096, 65536}) {  // B=4 T=64, B=4 T=1024, B=64 T=1024
            register_shape(N, 768, 3072);
            register_shape(N, 3072, 768);
        }
    register_cpu(256, 768, 3072);
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
