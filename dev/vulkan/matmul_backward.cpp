// Benchmark of the three kernels of a linear layer's backward pass (dinp, dweight, dbias): see bench.h for
// how to run it.
#include "llmc/matmul.h"

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
    auto make_scratch = [=] { return bench_array(matmul_dweight_scratch<T>(bench().pad.get(), N, C, OC)); };
    const Work work = {.flops = 2.0 * N * C * OC};
    auto name = [=](const char* version, int block) {
        return format_string("%s/%s/block:%d/N:%d/C:%d/OC:%d", version, real_name<T>(), block, N, C, OC);
    };
    for (const auto& version : matmul_dinp_versions<T>())
        for (int block : version.block_sizes) {
            if (too_slow<T>(version.name, N)) continue;
            bench_gpu(name(version.name, block), work, [=] {
                T *dinp = bench_array<T>(n * c), *dout = bench_array<T>(n * oc),
                  *weight = bench_array<T>(oc * c);
                return [=] { version.launch(*bench().pad, dinp, dout, weight, N, C, OC, block); };
            });
        }
    for (const auto& version : matmul_dweight_versions<T>())
        for (int block : version.block_sizes) {
            if (too_slow<T>(version.name, N)) continue;
            bench_gpu(name(version.name, block), work, [=] {
                T *dweight = bench_array<T>(oc * c), *dout = bench_array<T>(n * oc),
                  *inp = bench_array<T>(n * c);
                float* scratch = make_scratch();
                return [=] {
                    version.launch(*bench().pad, dweight, scratch, dout, inp, N, C, OC, false, block);
                };
            });
        }
    for (const auto& version : matmul_dbias_versions<T>())
        for (int block : version.block_sizes)
            bench_gpu(name(version.name, block), {.bytes = double(sizeof(T)) * N * OC}, [=] {
                T *dbias = bench_array<T>(oc), *dout = bench_array<T>(n * oc);
                float* scratch = make_scratch();
                return [=] { version.launch(*bench().pad, dbias, scratch, dout, N, OC, block); };
            });
}

// dinp, dweight and dbias one after the other.
static void register_cpu(int N, int C, int OC) {
    bench_cpu(
        format_string("matmul_backward_cpu/N:%d/C:%d/OC:%d", N, C, OC), {.flops = 4.0 * N * C * OC}, [=] {
            static std::vector<float> inp(size_t(N) * C, 0.5f), weight(size_t(OC) * C, 0.5f),
                dout(size_t(N) * OC);
            static std::vector<float> dinp(inp), dweight(weight), dbias(OC);
            matmul_backward_input<float>(nullptr, dinp.data(), nullptr, dout.data(), weight.data(), N, C, OC);
            matmul_backward_parameters<float>(nullptr, dweight.data(), dbias.data(), nullptr, dout.data(),
                                              inp.data(), N, C, OC, false);
        });
}

template <class T>
static void register_shapes() {
    if (bench().small) return register_shape<T>(128, 768, 768);
    for (int N : {256, 4096, 65536}) {  // B=4 T=64, B=4 T=1024, B=64 T=1024
        register_shape<T>(N, 768, 2304);
        register_shape<T>(N, 768, 768);
        register_shape<T>(N, 768, 3072);
        register_shape<T>(N, 3072, 768);
    }
    register_shape<T>(5632, 768, 50304);
}

static void register_all() {
    register_shapes<float>();
    register_shapes<bf16>();
    register_cpu(256, 768, 3072);
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
