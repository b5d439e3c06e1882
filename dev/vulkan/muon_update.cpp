// Benchmark of muon_update and, for comparison, adamw_update, for the matrices of GPT-2's layers: bench.h
// tells how to run it. The rows named "all" are the updates of a whole model's matrices, in all their shapes.
#include "llmc/layers/muon.h"

#include "dev/vulkan/bench.h"
#include "llmc/layers/adamw.h"

static const MuonStep NOW = muon_step(1e-3f, 0.95f, 1);
static const AdamWStep ADAMW_NOW = adamw_step(1e-3f, 0.9f, 0.95f, 1e-8f, 1);

struct Matrices {
    int rows, columns, count;
    size_t elements() const { return size_t(rows) * size_t(columns) * size_t(count); }
    // as much as orthogonalizing takes if only one half of symmetric results is computed
    double flops() const {
        const double n = std::min(rows, columns), longer = std::max(rows, columns);
        return 5.0 * count * n * n * (3 * longer + n);
    }
};

// Query, key and value, attention's projection; the two of the feed-forward layers.
static std::vector<Matrices> matrices_of(int C, int layers) {
    return {{C, C, 4 * layers}, {4 * C, C, layers}, {C, 4 * C, layers}};
}

static std::string name_of(const std::vector<Matrices>& all) {
    if (all.size() > 1) return format_string("all:%dx%dx%d", all[0].count / 4, all[0].rows, all[0].columns);
    return format_string("%dx%dx%d", all[0].count, all[0].rows, all[0].columns);
}

// `params` and so on: the memory of all matrices of the shape, one after the other.
template <class Real>
static MuonUpdate<Real> make_update(const Matrices& shape, MuonMatrix<Real> first) {
    MuonUpdate<Real> p = {.matrices = {},
                          .rows = shape.rows,
                          .columns = shape.columns,
                          .step = &NOW,
                          .weight_decay = 0.1f,
                          .norm_and_scale = nullptr};
    for (int i = 0; i < shape.count; i++) {
        const size_t offset = size_t(i) * size_t(shape.rows) * size_t(shape.columns);
        p.matrices.push_back({.params = first.params + offset,
                              .master = first.master ? first.master + offset : nullptr,
                              .m = first.m + offset,
                              .grads = first.grads + offset});
    }
    return p;
}

template <class Real>
static void register_gpu(const std::vector<Matrices>& all, bool with_master) {
    Work work;
    for (const Matrices& shape : all) work.flops += shape.flops();
    for (const auto& version : muon_update_versions<Real>())
        for (int block_size : version.configs)
            bench_gpu(
                format_string("%s/%s%s/%s/%s", version.name, real_name<Real>(), with_master ? "+master" : "",
                              config_name(block_size).c_str(), name_of(all).c_str()),
                work, [=] {
                    std::vector<MuonUpdate<Real>> updates;
                    for (const Matrices& shape : all) {
                        const size_t n = shape.elements();
                        updates.push_back(
                            make_update<Real>(shape, {.params = bench_array<Real>(n),
                                                      .master = with_master ? bench_array(n) : nullptr,
                                                      .m = bench_array(n, 0),
                                                      .grads = bench_array<Real>(n)}));
                        updates.back().step = bench_array<MuonStep>(1, {NOW});
                    }
                    return [=] {
                        for (const MuonUpdate<Real>& p : updates) version.launch(*bench().pad, p, block_size);
                    };
                });
}

template <class Real>
static void register_adamw_gpu(const std::vector<Matrices>& all, bool with_master) {
    size_t n = 0;
    for (const Matrices& shape : all) n += shape.elements();
    const double bytes = with_master ? 2.0 * sizeof(Real) + 24 : 3.0 * sizeof(Real) + 16;
    bench_gpu(format_string("adamw_update/%s%s/%s", real_name<Real>(), with_master ? "+master" : "",
                            name_of(all).c_str()),
              {.bytes = bytes * double(n)}, [=] {
                  const AdamWUpdate<Real> p = {.params = bench_array<Real>(n),
                                               .master = with_master ? bench_array(n) : nullptr,
                                               .m = bench_array(n, 0),
                                               .v = bench_array(n, 0),
                                               .grads = bench_array<Real>(n),
                                               .n = n,
                                               .step = bench_array<AdamWStep>(1, {ADAMW_NOW}),
                                               .weight_decay = 0.1f,
                                               .norm_and_scale = nullptr};
                  return [=] { adamw_update(bench().pad.get(), p); };
              });
}

// One layer of the model: twelve take twelve times as long.
template <class Real>
static void register_cpu(int C) {
    struct Memory {
        std::vector<Real> params, grads;
        std::vector<float> m, v;
        explicit Memory(size_t n) : params(n, Real(0.5f)), grads(n), m(n), v(n) {
            for (size_t i = 0; i < n; i++) grads[i] = Real(float(i * 2654435761u % 1024u) - 511.5f);
        }
    };
    const std::vector<Matrices> all = matrices_of(C, 1);
    const auto memory = std::make_shared<std::vector<Memory>>();
    Work work;
    for (const Matrices& shape : all) work.flops += shape.flops();
    const auto allocate = [=] {
        if (memory->empty())
            for (const Matrices& shape : all) memory->emplace_back(shape.elements());
    };
    bench_cpu(format_string("muon_update_cpu/%s/%s", real_name<Real>(), name_of(all).c_str()), work, [=] {
        allocate();
        for (size_t i = 0; i < all.size(); i++) {
            Memory& mem = (*memory)[i];
            muon_update(nullptr, make_update<Real>(all[i], {.params = mem.params.data(),
                                                            .master = nullptr,
                                                            .m = mem.m.data(),
                                                            .grads = mem.grads.data()}));
        }
    });
    const double n = 12.0 * C * C;
    bench_cpu(format_string("adamw_update_cpu/%s/%s", real_name<Real>(), name_of(all).c_str()),
              {.bytes = (3.0 * sizeof(Real) + 16) * n}, [=] {
                  allocate();
                  for (Memory& mem : *memory)
                      adamw_update<Real>(nullptr, {.params = mem.params.data(),
                                                   .master = nullptr,
                                                   .m = mem.m.data(),
                                                   .v = mem.v.data(),
                                                   .grads = mem.grads.data(),
                                                   .n = mem.params.size(),
                                                   .step = &ADAMW_NOW,
                                                   .weight_decay = 0.1f,
                                                   .norm_and_scale = nullptr});
              });
}

template <class Real>
static void register_model(int C, int layers, bool with_master) {
    const std::vector<Matrices> all = matrices_of(C, layers);
    for (const Matrices& shape : all) register_gpu<Real>({shape}, with_master);
    register_gpu<Real>(all, with_master);
    register_adamw_gpu<Real>(all, with_master);
}

static void register_all() {
    const bool small = bench().small;
    register_model<float>(small ? 64 : 768, small ? 1 : 12, false);
    register_model<bf16>(small ? 64 : 768, small ? 1 : 12, true);
    if (!small) register_model<bf16>(1600, 48, true);
    register_cpu<float>(768);
    register_cpu<bf16>(768);
}

int main(int argc, char** argv) { return run_benchmarks(argc, argv, register_all); }
