// Benchmark of layernorm_backward: see bench.h for how to run it.
#include "llmc/layernorm.h"

#include "dev/vulkan/bench.h"

template <class T>
static void register_gpu() {
    const int N = bench().small ? 512 : 65536;
    for (int C : {768, 1600}) {
        const size_t n = size_t(N) * C;
        for (const auto& version : layernorm_backward_versions<T>())
            for (int block : version.block_sizes)
                bench_gpu(
                    format_string("%s/%s/block:%d/N:%d/C:%d", version.name, real_name<T>(), block, N, C),
                    {.bytes = 4.0 * sizeof(T) * double(n)}, [=] {
                        T *inp = bench_array<T>(n), *dout = bench_array<T>(n), *dinp = bench_array<T>(n),
                          *weight = bench_array<T>(C);
                        T *dweight = bench_array<T>(C), *dbias = bench_array<T>(C);
                        float *mean = bench_array(N), *rstd = bench_array(N);
                        float* scratch = bench_array(layernorm_backward_scratch(bench().pad.get(), N, C));
                        return [=] {
                            version.launch(*bench().pad, dinp, dweight, dbias, scratch, dinp, dout, inp,
                                           weight, mean, rstd, N, C, block);
                        };
                    });
    }
}

static void register_all() {
    register_gpu<float>();
    register_gpu<bf16>();
    bench_cpu("layernorm_backward_cpu/N:1024/C:768", {.bytes = 16.0 * 1024 * 768}, [=] {
        static std::vector<float> x(1024 * 768, 0.5f), dy(x), dx(x), w(768, 1.0f), dw(w), db(w), m(1024),
            s(1024);
        layernorm_backward_cpu(dx.data(), dw.data(), db.data(), dx.data(), dy.data(), x.data(), w.data(),
                               m.data(), s.data(), 1024, 768);
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
