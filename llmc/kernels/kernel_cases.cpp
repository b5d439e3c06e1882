// The table of kernels: see kernel_cases.h.
#include "llmc/kernels/kernel_cases.h"

#include <algorithm>

#include "llmc/kernels/tokens.h"
#include "llmc/layers/adamw.h"
#include "llmc/layers/attention.h"
#include "llmc/layers/classifier.h"
#include "llmc/layers/decode_attention.h"
#include "llmc/layers/decode_linear.h"
#include "llmc/layers/dropout.h"
#include "llmc/layers/encoder.h"
#include "llmc/layers/gelu.h"
#include "llmc/layers/global_norm.h"
#include "llmc/layers/gradient_sum.h"
#include "llmc/layers/layernorm.h"
#include "llmc/layers/matmul.h"
#include "llmc/layers/muon.h"
#include "llmc/layers/next_token.h"
#include "llmc/layers/tensor_core.h"

static bool fits_block(const LaunchPad& pad, uint32_t block) { return block <= pad.limits().max_block; }

// Adds rows for one type.
template <class Real>
struct CaseList {
    const KernelShape& s;
    std::vector<KernelCase> cases = {};
    std::map<std::string, int> longest_sum = {};  // of each layer's GEMMs so far
    size_t num_rows = size_t(s.B) * size_t(s.T), C = size_t(s.C);

    template <class Params>
    using Maker = std::type_identity_t<std::function<Params(Operands& operands)>>;
    template <class Params>
    using Layer = std::type_identity_t<std::function<void(LaunchPad* pad, const Params& params)>>;

    // A row without versions.
    template <class Params>
    KernelCase& add_layer(const std::string& layer, const std::string& shape, const Work& work,
                          Layer<Params> function, Maker<Params> make) {
        const Prepare prepare = [=](Operands& o) {
            return [=, params = make(o), pad = o.pad] { function(pad, params); };
        };
        cases.push_back({layer, shape, work, {layer + "/" + real_name<Real>(), prepare}, {}});
        return cases.back();
    }
    template <class Params, class Config>
    static KernelRun run_of(const KernelVersion<Params, Config>& version, Config config,
                            const std::function<Params(Operands&)>& make) {
        const Prepare prepare = [=](Operands& o) {
            return [=, params = make(o), pad = o.pad] { version.launch(*pad, params, config); };
        };
        return {version_name<Real>(version.name, config), prepare};
    }
    // A row whose versions are launched with block sizes.
    template <class Params>
    void add(const std::string& layer, const std::string& shape, const Work& work,
             const std::vector<KernelVersion<Params>>& versions, Layer<Params> function, Maker<Params> make) {
        KernelCase& c = add_layer<Params>(layer, shape, work, function, make);
        const auto with_block = [=](const KernelVersion<Params>& version, int block) {
            KernelRun run = run_of<Params, int>(version, block, make);
            run.fits = [=](const LaunchPad& pad) { return fits_block(pad, uint32_t(block)); };
            return run;
        };
        for (const auto& version : with_added(versions))
            for (const int block : version.configs) c.versions.push_back(with_block(version, block));
        c.with_block = [=](const std::string& name) -> std::optional<KernelRun> {
            const int block = atoi(name.c_str() + name.rfind(':') + 1);
            for (const auto& version : versions)
                if (version_name<Real>(version.name, block) == name) return with_block(version, block);
            return std::nullopt;
        };
    }
    std::string n_text(size_t n) const { return format_string("n:%zu", n); }
    std::string rows_text(size_t rows, int channels) const {
        return format_string("N:%zu/C:%d", rows, channels);
    }

    void add_elementwise();
    void add_optimizers();
    void add_muon(int rows, int columns, int count);
    void add_tokens();
    void add_classifier();
    void add_layernorm();
    void add_attention();
    void add_linear(int in, int out);
    void add_dbias(int out);
    template <class Params>
    void add_gemm(const std::string& layer, const GemmShape& gemm,
                  const std::vector<KernelVersion<Params, Tile>>& versions, Layer<Params> function,
                  Maker<Params> make);
    void add_decoding(int texts);
    void add_sampling(int texts);
    size_t linear_rows() const { return s.linear_rows ? size_t(s.linear_rows) : num_rows; }
};

// --- elementwise, sums ---

template <class Real>
void CaseList<Real>::add_elementwise() {
    const size_t n = 4 * num_rows * C, part = n / 4;
    add("gelu_forward", n_text(n), memory_traffic<Real>(2.0 * double(n)), gelu_forward_versions<Real>(),
        gelu_forward<Real>, [=](Operands& o) {
            return GeluForward<Real>{.out = o.output<Real>(n), .inp = o.input<Real>(n), .n = n};
        });
    add("gelu_backward", n_text(n), memory_traffic<Real>(3.0 * double(n)), gelu_backward_versions<Real>(),
        gelu_backward<Real>, [=](Operands& o) {
            return GeluBackward<Real>{
                .dinp = o.output<Real>(n), .inp = o.input<Real>(n), .dout = o.input<Real>(n), .n = n};
        });
    add("dropout", n_text(n), memory_traffic<Real>(2.0 * double(n)), dropout_versions<Real>(), dropout<Real>,
        [=](Operands& o) {
            const auto key = dropout_key(42, 0, 0, 0);
            return Dropout<Real>{.out = o.output<Real>(n),
                                 .inp = o.input<Real>(n),
                                 .key = o.copy_of<uint32_t>({key[0], key[1]}),
                                 .site = 1,
                                 .rate = 0.1f,
                                 .n = n};
        });
    add("gradient_sum", n_text(part), memory_traffic<Real>(5.0 * double(part)), gradient_sum_versions<Real>(),
        gradient_sum<Real>, [=](Operands& o) {
            return GradientSum<Real>{.out = o.output<Real>(part),
                                     .inp = o.input<Real>(n),
                                     .own = o.input<Real>(part),
                                     .n = part,
                                     .stride = part,
                                     .count = 4,
                                     .own_index = 0};
        });
}

// --- optimizers ---

template <class Real>
void CaseList<Real>::add_optimizers() {
    const size_t n = size_t(s.Vp) * C + 12 * size_t(s.layers) * C * C;
    for (const bool master : {false, true}) {
        if (master && sizeof(Real) == 4) continue;
        // reads all arrays (but not params if there are master weights), and writes all but the gradients
        const double bytes = master ? 2.0 * sizeof(Real) + 24 : 3.0 * sizeof(Real) + 16;
        add(master ? "adamw_update+master" : "adamw_update", n_text(n), {.bytes = bytes * double(n)},
            adamw_update_versions<Real>(), adamw_update<Real>, [=](Operands& o) {
                const AdamWStep now = adamw_step(1e-4f, 0.9f, 0.95f, 1e-8f, 1);
                return AdamWUpdate<Real>{.params = o.input<Real>(n),
                                         .master = master ? o.input<float>(n) : nullptr,
                                         .m = o.input<float>(n, 0),
                                         .v = o.input<float>(n, 0),
                                         .grads = o.input<Real>(n),
                                         .n = n,
                                         .step = o.copy_of<AdamWStep>({now}),
                                         .weight_decay = 0.1f,
                                         .norm_and_scale = o.copy_of<float>({1, 1})};
            });
    }
    add_muon(s.C, s.C, 4 * s.layers);
    add_muon(4 * s.C, s.C, s.layers);
    add_muon(s.C, 4 * s.C, s.layers);
    const size_t sizes[] = {size_t(s.Vp) * C, size_t(s.T) * C, 12 * C * C, 13 * C};
    size_t total = 0;
    for (const size_t size : sizes) total += size;
    add("global_norm", n_text(total), memory_traffic<Real>(double(total)), global_norm_versions<Real>(),
        global_norm<Real>, [=](Operands& o) {
            std::vector<GradientSlice<Real>> slices;
            for (const size_t size : sizes) slices.push_back({o.input<Real>(size), size});
            return GlobalNorm<Real>{
                .norm_and_scale = o.output<float>(2), .gradients = o.keep(slices), .max_norm = 1};
        });
}

// `count` matrices, so that GEMMs are batched.
template <class Real>
void CaseList<Real>::add_muon(int rows, int columns, int count) {
    const double least = std::min(rows, columns), most = std::max(rows, columns);
    // as much as orthogonalizing takes if only one half of symmetric results is computed
    const Work work = {.flops = 5.0 * count * least * least * (3 * most + least)};
    const size_t n = size_t(rows) * size_t(columns);
    add("muon_update", format_string("%dx%dx%d", count, rows, columns), work, muon_update_versions<Real>(),
        muon_update<Real>, [=](Operands& o) {
            MuonUpdate<Real> p = {.matrices = {},
                                  .rows = rows,
                                  .columns = columns,
                                  .step = o.copy_of<MuonStep>({muon_step(1e-3f, 0.95f, 1)}),
                                  .weight_decay = 0.1f,
                                  .norm_and_scale = o.copy_of<float>({1, 1})};
            for (int i = 0; i < count; i++)
                p.matrices.push_back({.params = o.input<Real>(n),
                                      .master = sizeof(Real) == 2 ? o.input<float>(n) : nullptr,
                                      .m = o.input<float>(n, 0),
                                      .grads = o.input<Real>(n)});
            return p;
        });
}

// --- tokens ---

template <class Real>
void CaseList<Real>::add_tokens() {
    const int B = s.B, T = s.T, channels = s.C;
    const size_t rows = num_rows, wte = size_t(s.Vp) * C, wpe = size_t(T) * C, n = rows * C;
    const std::string shape = format_string("B:%d/T:%d/C:%d", B, T, channels);
    const std::vector<int> tokens = word_like_tokens(rows, s.V);
    std::vector<int> buckets(encoder_bucket_ints(int(rows)));
    build_encoder_buckets(buckets.data(), tokens.data(), int(rows));
    add("encoder_forward", shape, memory_traffic<Real>(2.0 * double(n)), encoder_forward_versions<Real>(),
        encoder_forward<Real>, [=](Operands& o) {
            return EncoderForward<Real>{.out = o.output<Real>(n),
                                        .inp = o.copy_of(tokens),
                                        .wte = o.input<Real>(wte),
                                        .wpe = o.input<Real>(wpe),
                                        .B = B,
                                        .T = T,
                                        .C = channels};
        });
    // dout is read for each of the two gradients; the rows of these are read and written
    add("encoder_backward", shape,
        memory_traffic<Real>(double(C) * (2.0 * double(rows) + 2.0 * buckets[0] + 2.0 * T)),
        encoder_backward_versions<Real>(), encoder_backward<Real>, [=](Operands& o) {
            return EncoderBackward<Real>{.dwte = o.input<Real>(wte),
                                         .dwpe = o.input<Real>(wpe),
                                         .dout = o.input<Real>(n),
                                         .buckets = o.copy_of(buckets),
                                         .B = B,
                                         .T = T,
                                         .C = channels};
        });
}

template <class Real>
void CaseList<Real>::add_classifier() {
    const int rows = int(std::min<size_t>(num_rows, 4096)), V = s.V, Vp = s.Vp;
    const size_t n = size_t(rows) * size_t(Vp);
    add("fused_classifier", format_string("N:%d/V:%d", rows, V), memory_traffic<Real>(2.0 * double(n)),
        fused_classifier_versions<Real>(), fused_classifier<Real>, [=](Operands& o) {
            return FusedClassifier<Real>{.logits = o.input<Real>(n, 4),
                                         .losses = o.output<float>(size_t(rows)),
                                         .targets = o.copy_of(word_like_tokens(size_t(rows), V)),
                                         .dloss = 1,
                                         .num_rows = rows,
                                         .V = V,
                                         .Vp = Vp,
                                         .write_gradients = true};
        });
    if (sizeof(Real) == 2) return;
    const int losses = int(num_rows);
    add("sum_losses", n_text(num_rows), memory_traffic<float>(double(num_rows)), sum_losses_versions(),
        sum_losses, [=](Operands& o) {
            return SumLosses{.total = o.input<float>(1, 0),
                             .losses = o.input<float>(size_t(losses)),
                             .n = losses,
                             .scale = 1};
        });
}

// --- rows ---

template <class Real>
void CaseList<Real>::add_layernorm() {
    const size_t rows = num_rows, n = rows * C;
    const int channels = s.C;
    for (const bool adds : {false, true})
        add(adds ? "residual_layernorm_forward" : "layernorm_forward", rows_text(rows, channels),
            memory_traffic<Real>((adds ? 4.0 : 2.0) * double(n)), layernorm_forward_versions<Real>(),
            layernorm_forward<Real>, [=](Operands& o) {
                return LayerNormForward<Real>{.out = o.output<Real>(n),
                                              .mean = o.output<float>(rows),
                                              .rstd = o.output<float>(rows),
                                              .inp = o.input<Real>(n),
                                              .added = adds ? o.input<Real>(n) : nullptr,
                                              .sum = adds ? o.output<Real>(n) : nullptr,
                                              .weight = o.input<Real>(size_t(channels)),
                                              .bias = o.input<Real>(size_t(channels)),
                                              .num_rows = int(rows),
                                              .C = channels};
            });
    // in place, as in training
    add("layernorm_backward", rows_text(rows, channels), memory_traffic<Real>(4.0 * double(n)),
        layernorm_backward_versions<Real>(), layernorm_backward<Real>, [=](Operands& o) {
            Real* dinp = o.input<Real>(n);
            return LayerNormBackward<Real>{.dinp = dinp,
                                           .dweight = o.input<Real>(size_t(channels)),
                                           .dbias = o.input<Real>(size_t(channels)),
                                           .added = dinp,
                                           .dout = o.input<Real>(n),
                                           .inp = o.input<Real>(n),
                                           .weight = o.input<Real>(size_t(channels)),
                                           .mean = o.input<float>(rows),
                                           .rstd = o.input<float>(rows),
                                           .num_rows = int(rows),
                                           .C = channels};
        });
}

template <class Real>
void CaseList<Real>::add_attention() {
    const int B = s.B, T = s.T, channels = s.C, NH = s.NH;
    const size_t n = num_rows * C, heads = num_rows * size_t(NH);
    const std::string shape = format_string("B:%d/T:%d/C:%d/NH:%d", B, T, channels, NH);
    // a T x T x hs GEMM per head, half of whose work the causal mask removes
    const double gemm = double(B) * T * (T + 1.0) * channels;
    add("attention_forward", shape, {.flops = 2 * gemm}, attention_forward_versions<Real>(),
        attention_forward<Real>, [=](Operands& o) {
            return AttentionForward<Real>{.out = o.output<Real>(n),
                                          .lse = o.output<float>(heads),
                                          .qkv = o.input<Real>(3 * n),
                                          .B = B,
                                          .T = T,
                                          .C = channels,
                                          .NH = NH};
        });
    // five GEMMs; the GPU versions do seven, since both kernels recompute the scores and their gradients
    add("attention_backward", shape, {.flops = 5 * gemm}, attention_backward_versions<Real>(),
        attention_backward<Real>, [=](Operands& o) {
            return AttentionBackward<Real>{.dqkv = o.output<Real>(3 * n),
                                           .delta = o.scratch<float>(heads),
                                           .dout = o.input<Real>(n),
                                           .out = o.input<Real>(n),
                                           .lse = o.input<float>(heads),
                                           .qkv = o.input<Real>(3 * n),
                                           .B = B,
                                           .T = T,
                                           .C = channels,
                                           .NH = NH};
        });
}

// --- GEMMs ---

// Whether the device can run a version of a GEMM with this tile.
template <class Real>
static bool fits_tile(const LaunchPad& pad, const std::string& version, GemmShape gemm, Tile tile) {
    if (!is_tensor_core_gemm(version)) {
        const uint32_t block = version.ends_with('3') && tile.m == 32 ? 256 : uint32_t(tile.m * tile.n);
        return tile.m > 16 || version == "matmul4" || fits_block(pad, block);
    }
    if (!gemm_fragment<Real>(pad)) return false;
    const std::vector<Tile> same = interchangeable_tiles<Real>(pad, gemm, {tile, 1, gemm.K}, true);
    return std::find(same.begin(), same.end(), tile) != same.end();
}

template <class Real>
template <class Params>
void CaseList<Real>::add_gemm(const std::string& layer, const GemmShape& gemm,
                              const std::vector<KernelVersion<Params, Tile>>& versions,
                              Layer<Params> function, Maker<Params> make) {
    const bool weight = layer.find("dweight") != std::string::npos;  // whose K is the number of rows
    const int rows = weight ? gemm.K : gemm.M, in = layer == "matmul_forward" ? gemm.K : gemm.N,
              out = weight                      ? gemm.M
                    : layer == "matmul_forward" ? gemm.N
                                                : gemm.K;
    // of given widths, a longer sum than before may be split; another one takes the kernels that are known
    if (int& longest = longest_sum[layer]; s.linear.empty() || gemm.K > longest)
        longest = gemm.K;
    else
        return;
    KernelCase& c = add_layer<Params>(layer, format_string("N:%d/C:%d/OC:%d", rows, in, out),
                                      {.flops = 2.0 * gemm.M * gemm.N * gemm.K}, function, make);
    for (const auto& version : with_added(versions)) {
        const std::string name = version.name;
        const bool tensor_cores = is_tensor_core_gemm(name);
        GemmShape shape = gemm;
        if (name == "matmul6") shape.layout = GemmLayout::packed;
        for (const Tile tile : tensor_cores ? tensor_core_tiles<Real>(shape.layout) : version.configs) {
            c.versions.push_back(run_of<Params, Tile>(version, tile, make));
            c.versions.back().fits = [=](const LaunchPad& pad) {
                return fits_tile<Real>(pad, name, shape, tile);
            };
            // half a second with many rows; tensor cores are what 16-bit types are for
            c.versions.back().slow =
                !tensor_cores && (sizeof(Real) == 2 || (rows > 4096 && !name.ends_with('3')));
        }
    }
}

template <class Real>
void CaseList<Real>::add_linear(int in, int out) {
    const size_t rows = linear_rows(), weights = size_t(in) * size_t(out);
    const int N = int(rows);
    add_gemm<MatmulForward<Real>>("matmul_forward", {GemmLayout::nt, N, out, in, EPILOGUE_BIAS},
                                  matmul_forward_versions<Real>(), matmul_forward<Real>, [=](Operands& o) {
                                      return MatmulForward<Real>{.out = o.output<Real>(rows * size_t(out)),
                                                                 .inp = o.input<Real>(rows * size_t(in)),
                                                                 .weight = o.input<Real>(weights),
                                                                 .bias = o.input<Real>(size_t(out)),
                                                                 .num_rows = N,
                                                                 .C = in,
                                                                 .OC = out};
                                  });
    add_gemm<MatmulBackwardInput<Real>>(
        "matmul_dinp", {GemmLayout::nn, N, in, out, EPILOGUE_NONE}, matmul_dinp_versions<Real>(),
        matmul_backward_input<Real>, [=](Operands& o) {
            return MatmulBackwardInput<Real>{.dinp = o.output<Real>(rows * size_t(in)),
                                             .dout = o.input<Real>(rows * size_t(out)),
                                             .weight = o.input<Real>(weights),
                                             .num_rows = N,
                                             .C = in,
                                             .OC = out};
        });
    for (const bool accumulate : {false, true})
        add_gemm<MatmulBackwardParameters<Real>>(
            accumulate ? "matmul_dweight_accumulate" : "matmul_dweight",
            {GemmLayout::tn, out, in, N, accumulate ? EPILOGUE_ADD : EPILOGUE_NONE},
            matmul_dweight_versions<Real>(), matmul_backward_parameters<Real>, [=](Operands& o) {
                return MatmulBackwardParameters<Real>{
                    .dweight = accumulate ? o.input<Real>(weights) : o.output<Real>(weights),
                    .dout = o.input<Real>(rows * size_t(out)),
                    .inp = o.input<Real>(rows * size_t(in)),
                    .num_rows = N,
                    .C = in,
                    .OC = out,
                    .accumulate = accumulate};
            });
    add_dbias(out);
}

template <class Real>
void CaseList<Real>::add_dbias(int out) {
    const size_t rows = linear_rows();
    const int N = int(rows);
    const auto dbias = [](LaunchPad* pad, const MatmulDbias<Real>& p) {
        const auto version = matmul_dbias_versions<Real>().back();
        pad ? version.launch(*pad, p, version.configs[0]) : matmul_dbias_cpu(p);
    };
    add<MatmulDbias<Real>>("matmul_dbias", format_string("N:%d/OC:%d", N, out),
                           memory_traffic<Real>(double(rows) * out), matmul_dbias_versions<Real>(), dbias,
                           [=](Operands& o) {
                               return MatmulDbias<Real>{.dbias = o.input<Real>(size_t(out)),
                                                        .dout = o.input<Real>(rows * size_t(out)),
                                                        .num_rows = N,
                                                        .OC = out};
                           });
}

// --- generating ---

// What a token of some texts takes: linear layers with their LayerNorm, or with the residual, and attention.
template <class Real>
void CaseList<Real>::add_decoding(int texts) {
    struct Linear {
        int in, out;
        DecodeEpilogue epilogue;
    };
    for (const Linear& l : {Linear{s.C, 3 * s.C, DecodeEpilogue::store},
                            {s.C, s.C, DecodeEpilogue::add},
                            {s.C, 4 * s.C, DecodeEpilogue::gelu},
                            {4 * s.C, s.C, DecodeEpilogue::add},
                            {s.C, s.Vp, DecodeEpilogue::store}}) {
        const size_t in = size_t(l.in), out = size_t(l.out), count = size_t(texts);
        const bool adds = l.epilogue == DecodeEpilogue::add;
        add("decode_linear", format_string("B:%d/C:%d/OC:%d", texts, l.in, l.out),
            memory_traffic<Real>(double(in) * double(out)), decode_linear_versions<Real>(),
            decode_linear<Real>, [=](Operands& o) {
                return DecodeLinear<Real>{.out = adds ? nullptr : o.output<Real>(count * out),
                                          .stream = o.input<float>(count * (adds ? out : in)),
                                          .inp = adds ? o.input<Real>(count * in) : nullptr,
                                          .gain = adds ? nullptr : o.input<Real>(in),
                                          .shift = adds ? nullptr : o.input<Real>(in),
                                          .weight = o.input<Real>(in * out),
                                          .bias = o.input<Real>(out),
                                          .text_stride = out,
                                          .num_texts = texts,
                                          .C = l.in,
                                          .OC = l.out,
                                          .epilogue = l.epilogue};
            });
    }
    for (const int rows : {std::min(64, s.T), s.T})
        add("decode_attention", format_string("B:%d/rows:%d", texts, rows),
            memory_traffic<Real>(2.0 * rows * double(C) * texts), decode_attention_versions<Real>(),
            decode_attention<Real>, [=, shape = s](Operands& o) {
                const size_t row = size_t(shape.C);
                return DecodeAttention<Real>{
                    .out = o.output<Real>(size_t(texts) * row),
                    .cache = o.input<Real>(size_t(texts) * size_t(shape.T) * 3 * row),
                    .positions = o.copy_of(std::vector<int>(size_t(texts), rows - 1)),
                    .num_texts = texts,
                    .T = shape.T,
                    .C = shape.C,
                    .NH = shape.NH};
            });
}

// The tokens themselves are not compared, but their embeddings.
template <class Real>
void CaseList<Real>::add_sampling(int texts) {
    const int V = s.V, Vp = s.Vp, channels = s.C, T = s.T;
    const size_t count = size_t(texts);
    add("next_token", format_string("B:%d/V:%d", texts, V), memory_traffic<Real>(double(count) * V),
        next_token_versions<Real>(), next_token<Real>, [=](Operands& o) {
            return NextToken<Real>{
                .tokens = o.copy_of(std::vector<int>(count * size_t(T + 1))),
                .positions = o.copy_of(std::vector<int>(count, T / 2)),
                .random_states = o.copy_of(std::vector<uint64_t>(count, 1337)),
                .seen = o.copy_of(std::vector<int>(count * size_t(seen_words(V)), 0x55555555)),
                .weights = o.scratch<int>(count * size_t(V)),
                .stream = o.output<float>(count * size_t(channels)),
                .logits = o.input<Real>(count * size_t(Vp), 4),
                .wte = o.input<Real>(size_t(Vp) * size_t(channels)),
                .wpe = o.input<Real>(size_t(T) * size_t(channels)),
                .num_texts = texts,
                .V = V,
                .Vp = Vp,
                .C = channels,
                .T = T,
                .options = {.top_k = 40, .top_p = 0.9f},
                .penalty = 1.25f};
        });
}

const std::vector<KernelShape>& self_test_shapes() {
    const auto shape = [](int B, int T, const std::vector<std::pair<int, int>>& linear, int linear_rows) {
        return KernelShape{.B = B,
                           .T = T,
                           .C = 128,
                           .NH = 2,
                           .V = 301,
                           .Vp = 384,
                           .layers = 1,
                           .linear = linear,
                           .linear_rows = linear_rows};
    };
    // With 101 keys, some lanes of a subgroup of attention_forward4 load keys and others do not, while
    // another subgroup skips keys. All sizes of the linear layer leave partial tiles, and both are long sums.
    static const std::vector<KernelShape> shapes = {shape(2, 101, {{544, 288}}, 0),
                                                    shape(1, 128, {{128, 256}}, 1152)};
    return shapes;
}

template <class Real>
std::vector<KernelCase> kernel_cases(const KernelShape& shape) {
    CaseList<Real> list = {shape};
    list.add_elementwise();
    list.add_optimizers();
    list.add_tokens();
    list.add_classifier();
    list.add_layernorm();
    list.add_attention();
    std::vector<std::pair<int, int>> linear = shape.linear;
    if (linear.empty())
        linear = {{shape.C, 3 * shape.C}, {shape.C, shape.C}, {shape.C, 4 * shape.C}, {4 * shape.C, shape.C}};
    for (const auto& [in, out] : linear) list.add_linear(in, out);
    for (const int texts : {1, 10}) list.add_decoding(texts);
    list.add_sampling(3);
    return list.cases;
}

std::optional<KernelRun> find_run(const KernelCase& of, const std::string& name) {
    for (const KernelRun& run : of.versions)
        if (run.name == name) return run;
    return of.with_block ? of.with_block(name) : std::nullopt;
}

Difference check_run(const KernelCase& of, const KernelRun& run, Operands& device, const Operands& host) {
    device.restart();
    run.prepare(device)();
    device.pad->commit(true);
    return device.compare(host, of.layer + ": " + run.name + "/" + of.shape);
}

int check_kernels(LaunchPad& pad, const KernelCase& of) {
    Operands host(nullptr), device(&pad);
    of.layer_run.prepare(host)();
    int checked = 0;
    const auto check = [&](const KernelRun& run) {
        if (run.fits && !run.fits(pad)) return;
        check_run(of, run, device, host);
        checked++;
    };
    check(of.layer_run);
    for (const KernelRun& run : of.versions) check(run);
    return checked;
}

#define INSTANTIATE(Real) template std::vector<KernelCase> kernel_cases<Real>(const KernelShape&);
FOR_EACH_REAL(INSTANTIATE)
#undef INSTANTIATE
