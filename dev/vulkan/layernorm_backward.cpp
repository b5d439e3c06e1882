// Benchmark of layernorm_backward: see bench.h for how to run it.
#include "llmc/layernorm.h"

#include "dev/vulkan/bench.h"

static void register_all() {
    const int N = bench().small ? 512 : 65536;
    for (int C : {768, 1600}) {
        const size_t n = size_t(N) * C;
        float *inp = bench_array(n), *dout = bench_array(n), *dinp = bench_array(n), *weight = bench_array(C);
        float *mean = bench_array(N), *rstd = bench_array(N), *dweight = bench_array(C),
              *dbias = bench_array(C);
        float* scratch = bench_array(layernorm_backward_scratch(bench().pad.get(), N, C));
        for (const auto& version : layernorm_backward_versions<float>())
            for (int block : version.block_sizes)
                bench_gpu(format_string("%s/block:%d/N:%d/C:%d", version.name, block, N, C),
                          {.bytes = 16.0 * double(n)}, [=] {
                              version.launch(*bench().pad, dinp, dweight, dbias, scratch, dout, inp, weight,
                                             mean, rstd, N, C, block);
                          });
    }
    bench_cpu("layernorm_backward_cpu/N:1024/C:768", {.bytes = 16.0 * 1024 * 768}, [=] {
        static std::vector<float> x(1024 * 768, 0.5f), dy(x), dx(x), w(768, 1.0f), dw(w), db(w), m(1024),
            s(1024);
        layernorm_backward_cpu(dx.data(), dw.data(), db.data(), dy.data(), x.data(), w.data(), m.data(),
                               s.data(), 1024, 768);
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
