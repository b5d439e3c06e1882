// Benchmark of the three kernels of a linear layer's backward pass (dinp, dweight, dbias): see bench.h for
// how to run it.
#include "dev/vulkan/baselines/baselines.h"
#include "dev/vulkan/bench.h"
#include "dev/vulkan/linear_shapes.h"
#include "llmc/layers/matmul.h"
#include "llmc/layers/tensor_core.h"

// With many rows, versions 1, 2 and 4 take half a second per launch. The 16-bit types are measured with
// tensor cores only.
template <class Real>
static bool is_skipped(const char* version, int num_rows) {
    const bool slow = num_rows > 4096 && version[strlen(version) - 1] != '3';
    return !is_tensor_core_gemm(version) && (slow || !std::is_same_v<Real, float>);
}

template <class Real, class Config>
static std::string name_of(const char* version, Config config, int num_rows, int C, int OC) {
    return format_string("%s/%s/%s/N:%d/C:%d/OC:%d", version, real_name<Real>(), config_name(config).c_str(),
                         num_rows, C, OC);
}

template <class Real>
static void register_shape(int num_rows, int C, int OC) {
    const size_t n = num_rows, c = C, oc = OC;
    const Work work = {.flops = 2.0 * num_rows * C * OC};
    for (const auto& version : with_baselines(matmul_dinp_versions<Real>()))
        for (const Tile tile : version.configs) {
            if (is_skipped<Real>(version.name, num_rows)) continue;
            bench_gpu("dinp/" + name_of<Real>(version.name, tile, num_rows, C, OC), work, [=] {
                const MatmulBackwardInput<Real> p = {.dinp = bench_array<Real>(n * c),
                                                     .dout = bench_array<Real>(n * oc),
                                                     .weight = bench_array<Real>(oc * c),
                                                     .num_rows = num_rows,
                                                     .C = C,
                                                     .OC = OC};
                return [=] { version.launch(*bench().pad, p, tile); };
            });
        }
    for (const auto& version : with_baselines(matmul_dweight_versions<Real>()))
        for (const Tile tile : version.configs) {
            if (is_skipped<Real>(version.name, num_rows)) continue;
            bench_gpu("dweight/" + name_of<Real>(version.name, tile, num_rows, C, OC), work, [=] {
                const MatmulBackwardParameters<Real> p = {.dweight = bench_array<Real>(oc * c),
                                                          .dout = bench_array<Real>(n * oc),
                                                          .inp = bench_array<Real>(n * c),
                                                          .num_rows = num_rows,
                                                          .C = C,
                                                          .OC = OC,
                                                          .accumulate = false};
                return [=] { version.launch(*bench().pad, p, tile); };
            });
        }
    for (const auto& version : with_baselines(matmul_dbias_versions<Real>()))
        for (const int block_size : version.configs)
            bench_gpu(name_of<Real>(version.name, block_size, num_rows, C, OC),
                      memory_traffic<Real>(double(num_rows) * OC), [=] {
                          const MatmulDbias<Real> p = {.dbias = bench_array<Real>(oc),
                                                       .dout = bench_array<Real>(n * oc),
                                                       .num_rows = num_rows,
                                                       .OC = OC};
                          return [=] { version.launch(*bench().pad, p, block_size); };
                      });
}

// dinp, dweight and dbias together.
static void register_cpu(int num_rows, int C, int OC) {
    bench_cpu(format_string("matmul_backward_cpu/N:%d/C:%d/OC:%d", num_rows, C, OC),
              {.flops = 4.0 * num_rows * C * OC}, [=] {
                  static std::vector<float> inp(size_t(num_rows) * C, 0.5f), weight(size_t(OC) * C, 0.5f),
                      dout(size_t(num_rows) * OC);
                  static std::vector<float> dinp(inp), dweight(weight), dbias(OC);
                  matmul_backward<float>(nullptr, {.dinp = dinp.data(),
                                                   .dweight = dweight.data(),
                                                   .dbias = dbias.data(),
                                                   .dout = dout.data(),
                                                   .inp = inp.data(),
                                                   .weight = weight.data(),
                                                   .num_rows = num_rows,
                                                   .C = C,
                                                   .OC = OC,
                                                   .accumulate = false});
              });
}

template <class Real>
static void register_shapes() {
    register_linear_shapes<Real>(register_shape<Real>);
}

static void register_all() {
    register_shapes<float>();
    register_shapes<bf16>();
    register_cpu(256, 768, 3072);
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
