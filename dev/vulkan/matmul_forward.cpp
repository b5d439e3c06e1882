// Benchmark of matmul_forward: see bench.h for how to run it.
#include "llmc/layers/matmul.h"

#include "dev/vulkan/baselines/baselines.h"
#include "dev/vulkan/bench.h"
#include "dev/vulkan/linear_shapes.h"
#include "llmc/layers/tensor_core.h"

// With many rows, versions 1, 2 and 4 take half a second per launch. The 16-bit types are measured with
// tensor cores only.
template <class Real>
static bool is_skipped(const char* version, int num_rows) {
    const bool slow = num_rows > 4096 && version[strlen(version) - 1] != '3';
    return !is_tensor_core_gemm(version) && (slow || !std::is_same_v<Real, float>);
}

template <class Real>
static MatmulForward<Real> make_params(int num_rows, int C, int OC) {
    const size_t n = num_rows, c = C, oc = OC;
    return {.out = bench_array<Real>(n * oc),
            .inp = bench_array<Real>(n * c),
            .weight = bench_array<Real>(oc * c),
            .bias = bench_array<Real>(oc),
            .num_rows = num_rows,
            .C = C,
            .OC = OC};
}

template <class Real>
static void register_shape(int num_rows, int C, int OC) {
    const Work work = {.flops = 2.0 * num_rows * C * OC};
    const std::string shape = format_string("N:%d/C:%d/OC:%d", num_rows, C, OC);
    for (const auto& version : with_baselines(matmul_forward_versions<Real>()))
        for (const Tile tile : version.configs) {
            if (is_skipped<Real>(version.name, num_rows)) continue;
            bench_gpu(format_string("%s/%s/%s/%s", version.name, real_name<Real>(), config_name(tile).c_str(),
                                    shape.c_str()),
                      work, [=] {
                          const MatmulForward<Real> p = make_params<Real>(num_rows, C, OC);
                          return [=] { version.launch(*bench().pad, p, tile); };
                      });
        }
    // the function that training calls
    for (const bool gelu : {false, true})
        bench_gpu(
            format_string("matmul%s_forward/%s/%s", gelu ? "_gelu" : "", real_name<Real>(), shape.c_str()),
            work, [=] {
                MatmulForward<Real> p = make_params<Real>(num_rows, C, OC);
                if (gelu) p.pre = bench_array<Real>(size_t(num_rows) * OC);
                return [=] { matmul_forward(bench().pad.get(), p); };
            });
}

template <class Real>
static void register_shapes() {
    register_linear_shapes<Real>(register_shape<Real>);
}

static void register_cpu(int num_rows, int C, int OC) {
    bench_cpu(format_string("matmul_forward_cpu/N:%d/C:%d/OC:%d", num_rows, C, OC),
              {.flops = 2.0 * num_rows * C * OC}, [=] {
                  static std::vector<float> inp(size_t(num_rows) * C, 0.5f), weight(size_t(OC) * C, 0.5f),
                      out(size_t(num_rows) * OC);
                  matmul_forward_cpu<float>({.out = out.data(),
                                             .inp = inp.data(),
                                             .weight = weight.data(),
                                             .num_rows = num_rows,
                                             .C = C,
                                             .OC = OC});
              });
}

static void register_all() {
    register_shapes<float>();
    register_shapes<bf16>();
    register_cpu(256, 768, 3072);
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
