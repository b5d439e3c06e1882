// Benchmark of matmul_backward's three kernels (dinp, dweight, dbias): see bench.h for how to run it.
#include "llmc/matmul.h"

#include "dev/vulkan/bench.h"

// Versions 1 and 4 of the products take half a second a launch there.
static bool too_slow(const std::string& version, int N) {
    return N > 4096 && (version.back() == '1' || version.back() == '4');
}

static void register_shape(int N, int C, int OC) {
    const size_t n = N, c = C, oc = OC;
    float *inp = bench_array(n * c), *weight = bench_array(oc * c), *dout = bench_array(n * oc);
    float *dinp = bench_array(n * c), *dweight = bench_array(oc * c), *dbias = bench_array(oc);
    float* scratch = bench_array(matmul_backward_scratch<float>(bench().pad.get(), N, C, OC));
    const Work work = {.flops = 2.0 * N * C * OC};
    auto name = [=](const char* version, int block) {
        return format_string("%s/block:%d/N:%d/C:%d/OC:%d", version, block, N, C, OC);
    };
    for (const auto& version : matmul_dinp_versions<float>())
        for (int block : version.block_sizes) {
            if (too_slow(version.name, N)) continue;
            bench_gpu(name(version.name, block), work,
                      [=] { version.launch(*bench().pad, dinp, dout, weight, N, C, OC, block); });
        }
    for (const auto& version : matmul_dweight_versions<float>())
        for (int block : version.block_sizes) {
            if (too_slow(version.name, N)) continue;
            bench_gpu(name(version.name, block), work,
                      [=] { version.launch(*bench().pad, dweight, scratch, dout, inp, N, C, OC, block); });
        }
    for (const auto& version : matmul_dbias_versions<float>())
        for (int block : version.block_sizes)
            bench_gpu(name(version.name, block), {.bytes = 4.0 * N * OC},
                      [=] { version.launch(*bench().pad, dbias, scratch, dout, N, OC, block); });
}

// dinp, dweight and dbias one after the other.
static void register_cpu(int N, int C, int OC) {
    bench_cpu(format_string("matmul_backward_cpu/N:%d/C:%d/OC:%d", N, C, OC), {.flops = 4.0 * N * C * OC},
              [=] {
                  static std::vector<float> inp(size_t(N) * C, 0.5f), weight(size_t(OC) * C, 0.5f),
                      dout(size_t(N) * OC);
                  static std::vector<float> dinp(inp), dweight(weight), dbias(OC);
                  matmul_backward<float>(nullptr, dinp.data(), dweight.data(), dbias.data(), nullptr,
                                         dout.data(), inp.data(), weight.data(), N, C, OC);
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
