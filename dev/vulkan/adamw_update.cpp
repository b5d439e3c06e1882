// Benchmark of adamw_update: see bench.h for how to run it.
#include "llmc/adamw.h"

#include "dev/vulkan/bench.h"

static void register_all() {
    LaunchPad& pad = *bench().pad;
    const size_t n = bench().small ? 1 << 20 : 124475904;  // GPT-2 124M with its vocabulary padded
    float *params = bench_array(n), *m = bench_array(n, 0), *v = bench_array(n, 0), *grads = bench_array(n);
    const AdamWStep now = adamw_step(1e-4f, 0.9f, 0.95f, 1e-8f, 1);
    AdamWStep* step = pad.allocate<AdamWStep>(1, "benchmark");
    pad.upload(step, &now, sizeof now);
    const float values[2] = {1, 1};
    float* norm = bench_array(2);
    pad.upload(norm, values, sizeof values);
    const Work work = {.bytes = 28.0 * double(n)};  // reads four arrays, writes three
    for (const auto& version : adamw_update_versions<float>())
        for (int block : version.block_sizes)
            bench_gpu(format_string("%s/block:%d/n:%zu", version.name, block, n), work,
                      [=] { version.launch(*bench().pad, params, m, v, grads, n, step, 0.1f, norm, block); });
    bench_cpu(format_string("adamw_update_cpu/n:%d", 1 << 22), {.bytes = 28.0 * (1 << 22)}, [=] {
        static std::vector<float> p(1 << 22, 0.5f), g(p), x(1 << 22), y(1 << 22);
        adamw_update_cpu(p.data(), x.data(), y.data(), g.data(), p.size(), &now, 0.1f, nullptr);
    });
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
