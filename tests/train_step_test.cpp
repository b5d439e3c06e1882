// A training step's gradients, on the CPU and on a device: whatever their memory held before, they are
// bit-identical to zeroing all of it and accumulating each micro-step's; and within rounding the sum of each
// micro-step's. The parameters, whichever way they are updated; and which of them are updated when.
#include "llmc/model/train_step.h"

#include <map>
#include <set>

#include "llmc/gemm/tensor_core.h"
#include "llmc/model/initialize.h"
#include "tests/layer_test.h"

static const ModelConfig config = {19, 53, 128, 2, 3, 24};
static const ModelConfig wide_vocabulary = {19, 601, 640, 3, 3, 24};  // wte has more than two layers' weights
static const int B = 3, T = 17, num_rows = B * T;
static const float dropout_rate = 0.3f;

// By default without master weights: from those, the update would round the weights anew even at a learning
// rate of 0.
template <class Real>
static std::unique_ptr<GPT2<Real>> make_model(LaunchPad* pad, const ModelConfig& c = config,
                                              bool master_weights = false, float dropout = 0) {
    auto g = std::make_unique<GPT2<Real>>(c, pad, master_weights);
    g->dropout = dropout;
    initialize_parameters(c, 42, parameter_writer(*g));
    gpt2_allocate(*g, B, T, true);
    g->logit_rows = 20;  // the head has three chunks, the last one smaller
    return g;
}

// The tokens of micro-step i.
static std::vector<int> tokens_of(int i, uint32_t what, int vocab_size = config.vocab_size) {
    return random_integers(num_rows, 10 * what + uint32_t(i), vocab_size);
}

// Loss, then all gradients.
template <class Real>
static std::vector<std::vector<float>> read_gradients(GPT2<Real>& g, float loss) {
    std::vector<std::vector<float>> all = {{loss}};
    for (const auto& slice : g.gradient_slices) {
        all.emplace_back(slice.n);
        g.memory.download_floats(all.back().data(), slice.data, slice.n);
    }
    return all;
}

// Loss and gradients of micro-steps `first` to before `end` of a step with `micro_steps`. Dropout has the
// masks of step 0.
template <class Real>
static std::vector<std::vector<float>> zeroed_and_accumulated(GPT2<Real>& g, int micro_steps, int first,
                                                              int end) {
    for (const auto& slice : g.gradient_slices) g.memory.zero(slice.data, slice.n);
    g.memory.zero(g.stats, 4);
    for (int i = first; i < end; i++) {
        gpt2_set_batch(g, tokens_of(i, 1).data(), tokens_of(i, 2).data(), num_rows, true);
        if (g.dropout > 0) g.memory.upload(g.dropout_key, dropout_key(42, 0, i, 0).data(), 2);
        gpt2_forward(g, B, T, Pass::training);
        gpt2_head(g, B, T, 1.0f / float(num_rows * micro_steps), Gradients::accumulate);
        gpt2_backward(g, B, T, Gradients::accumulate);
    }
    float loss;
    g.memory.download(&loss, g.stats, 1);
    return read_gradients(g, loss);
}

// Compares the gradients of two micro-steps with the sum of both.
template <class Real>
static void check_sum(GPT2<Real>& g, const std::vector<std::vector<float>>& expected) {
    std::vector<std::vector<float>> sums = zeroed_and_accumulated(g, 2, 0, 1);
    const std::vector<std::vector<float>> second = zeroed_and_accumulated(g, 2, 1, 2);
    for (size_t s = 0; s < sums.size(); s++) {
        for (size_t i = 0; i < sums[s].size(); i++) sums[s][i] += second[s][i];
        expect_close("loss or gradients", expected[s], sums[s], tolerance<Real>());
    }
}

// Two steps with a learning rate of 0, so both see the same weights. A launchpad replays the second.
template <class Real>
static void check_steps(LaunchPad* pad, int micro_steps, const ModelConfig& c = config) {
    SCOPED_TRACE(format_string("%s, %d micro-steps", pad ? "device" : "CPU", micro_steps));
    const auto g = make_model<Real>(pad, c);
    const auto expected = zeroed_and_accumulated(*g, micro_steps, 0, micro_steps);
    if (micro_steps == 2) check_sum(*g, expected);
    StepRunner<Real> runner = {*g, B, T, micro_steps, 0.1f};
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) {
            const std::vector<float> garbage = nans(parameter_size(c, i));
            g->memory.upload_floats(g->grads[i], garbage.data(), garbage.size());
        }
        int micro = 0;
        const Ticket ticket = runner.run(step, 0, [&](int* inputs, int* targets) {
            std::ranges::copy(tokens_of(micro, 1), inputs);
            std::ranges::copy(tokens_of(micro++, 2), targets);
        });
        const float loss = runner.stats(step, ticket)[0];
        EXPECT_TRUE(std::isfinite(loss));
        EXPECT_TRUE(read_gradients(*g, loss) == expected) << "other gradients in step " << step;
        runner.finish_update();  // with these gradients
    }
    runner.forget_recordings();
}

// A run of four steps. Each update runs on its own, or (but for the last) overlapped with the next forward
// pass.
struct Run {
    ModelConfig config;
    bool master_weights;
    int micro_steps;
    int skipped;  // step whose clip factor is 0; -1: none
};

template <class Real>
static void read_tensors(std::vector<std::vector<float>>& results, const Memory& memory, const ModelConfig& c,
                         Real* const* tensors) {
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) {
        if (!tensors[i]) continue;
        results.emplace_back(parameter_size(c, i));
        memory.download_floats(results.back().data(), tensors[i], results.back().size());
    }
}

// Losses, parameters and AdamW's moments.
template <class Real>
static std::vector<std::vector<float>> train_steps(LaunchPad* pad, const Run& run, bool overlapped) {
    const auto g = make_model<Real>(pad, run.config, run.master_weights);
    StepRunner<Real> runner = {*g, B, T, run.micro_steps, 0.1f};
    std::vector<std::vector<float>> results;
    for (int step = 0; step < 4; step++) {
        int micro = 4 * step;
        const Ticket ticket = runner.run(step, 0.01f, [&](int* inputs, int* targets) {
            std::ranges::copy(tokens_of(micro, 1, run.config.vocab_size), inputs);
            std::ranges::copy(tokens_of(micro++, 2, run.config.vocab_size), targets);
        });
        results.push_back({runner.stats(step, ticket)[0]});
        const float none = 0;
        if (step == run.skipped) g->memory.upload(g->stats + 2, &none, 1);
        if (!overlapped || step == 3) runner.finish_update();
    }
    read_tensors(results, g->memory, run.config, g->params);
    read_tensors(results, g->memory, run.config, g->master);
    read_tensors(results, g->memory, run.config, g->m);
    read_tensors(results, g->memory, run.config, g->v);
    runner.forget_recordings();
    return results;
}

template <class Real>
struct TrainStep : testing::Test {
    static constexpr bool is_16_bit = sizeof(Real) == 2;
};
TYPED_TEST_SUITE(TrainStep, RealTypes);

TYPED_TEST(TrainStep, FirstMicroStepOverwritesGradientsOnTheCpu) {
    for (int micro_steps : {1, 2}) check_steps<TypeParam>(nullptr, micro_steps);
}

TYPED_TEST(TrainStep, OverlappedUpdateIsTheSame) {
    if (test_pads().empty()) GTEST_SKIP() << "LLMC_TEST_DEVICE=none: no Vulkan device is to be used";
    LaunchPad* pad = test_pads()[0].get();
    const int messages = validation_message_count();
    const auto expected = train_steps<TypeParam>(pad, {config, false, 1, -1}, false);
    EXPECT_NE(expected[0], expected[3]) << "nothing was learned";
    for (const Run& run : {Run{config, false, 1, -1},
                           {config, false, 2, -1},
                           {config, false, 1, 1},
                           {wide_vocabulary, false, 1, -1},
                           {wide_vocabulary, true, 1, 2}}) {
        const auto separate = train_steps<TypeParam>(pad, run, false);
        EXPECT_TRUE(train_steps<TypeParam>(pad, run, true) == separate)
            << run.config.num_layers << " layers, master weights " << run.master_weights << ", "
            << run.micro_steps << " micro-steps, skipped " << run.skipped;
        if (run.skipped == 1) {
            EXPECT_FALSE(separate == expected) << "the step was not skipped";
        }
    }
    EXPECT_EQ(validation_message_count(), messages) << "the validation layer printed messages";
}

TYPED_TEST(TrainStep, FirstMicroStepOverwritesGradientsOnADevice) {
    if (test_pads().empty()) GTEST_SKIP() << "LLMC_TEST_DEVICE=none: no Vulkan device is to be used";
    const int messages = validation_message_count();
    for (int micro_steps : {1, 2}) check_steps<TypeParam>(test_pads()[0].get(), micro_steps);
    EXPECT_EQ(validation_message_count(), messages) << "the validation layer printed messages";
}

// On tensor cores, a model so wide that GEMMs split K and leave the partial sums to the LayerNorms that
// follow.
TYPED_TEST(TrainStep, MatrixSplitKIsReducedByLayerNorms) {
    using Real = TypeParam;
    if (test_pads().empty() || !on_tensor_cores<Real>(*test_pads()[0], 8, 8))
        GTEST_SKIP() << "no tensor cores for " << real_name<Real>() << " here";
    LaunchPad* pad = test_pads()[0].get();
    const bool software = pad->device().type == DeviceType::software;  // whose fragments are smaller
    const ModelConfig wide = {19, 53, 128, 1, software ? 2 : 12, software ? 128 : 768};
    const int messages = validation_message_count(), C = wide.channels;
    const auto g = make_model<Real>(pad, wide), on_cpu = make_model<Real>(nullptr, wide);
    for (const GemmShape& gemm :
         {GemmShape{GemmLayout::nt, num_rows, C, 4 * C, EPILOGUE_BIAS, true},   // fcproj
          GemmShape{GemmLayout::nn, num_rows, C, 4 * C, EPILOGUE_NONE, true},   // gradient of ln2
          GemmShape{GemmLayout::nn, num_rows, C, 3 * C, EPILOGUE_NONE, true}})  // gradient of ln1
        EXPECT_GT(plan_gemm<Real>(*pad, gemm, std::nullopt, true).splits, 1);
    const auto got = zeroed_and_accumulated(*g, 1, 0, 1), want = zeroed_and_accumulated(*on_cpu, 1, 0, 1);
    for (size_t i = 0; i < want.size(); i++)
        expect_close("loss or gradients", got[i], want[i], 4 * tolerance<Real>());
    check_steps<Real>(pad, 2, wide);
    // dropout comes between such a GEMM and the LayerNorm
    const auto drops = make_model<Real>(pad, wide, false, dropout_rate),
               drops_on_cpu = make_model<Real>(nullptr, wide, false, dropout_rate);
    const auto dropped = zeroed_and_accumulated(*drops, 1, 0, 1),
               want_dropped = zeroed_and_accumulated(*drops_on_cpu, 1, 0, 1);
    for (size_t i = 0; i < want.size(); i++)
        expect_close("loss or gradients with dropout", dropped[i], want_dropped[i], 4 * tolerance<Real>());
    EXPECT_EQ(validation_message_count(), messages) << "the validation layer printed messages";
}

// Whatever the model's shape, each weight of every layer but the first, and each element of wte, is updated
// in exactly one interval of one layer.
TEST(UpdateDuringLayers, HasEveryElementOnce) {
    for (const ModelConfig& c : {config,
                                 wide_vocabulary,
                                 parse_descriptor("d12"),
                                 parse_descriptor("gpt2:d48"),
                                 ModelConfig{8, 50, 128, 1, 1, 5},
                                 {8, 999, 1024, 4, 3, 15}}) {
        std::map<int, std::map<size_t, size_t>> found;  // per tensor: where ranges begin and end
        for (int l = 0; l < c.num_layers; l++) {
            const auto parts = split_evenly(updated_during_layer(c, l), LAYER_INTERVALS);
            EXPECT_LE(parts.size(), size_t(LAYER_INTERVALS));
            for (const auto& part : parts)
                for (const TensorRange& e : part) {
                    EXPECT_GT(e.count, 0u);
                    EXPECT_TRUE(found[e.tensor].emplace(e.first, e.first + e.count).second);
                }
        }
        for (int tensor = 0; tensor < NUM_PARAMETER_TENSORS; tensor++) {
            if (!is_overwritten(tensor)) {
                EXPECT_FALSE(found.contains(tensor));
                continue;
            }
            size_t at = tensor == WTE ? 0 : parameter_layer_size(c, tensor);
            for (const auto& [first, end] : found[tensor]) {
                EXPECT_EQ(first, at);
                at = end;
            }
            EXPECT_EQ(at, parameter_size(c, tensor)) << parameter_info[tensor].name;
        }
    }
}

TEST(UpdateDuringLayers, GivesEveryIntervalTheSame) {
    const ModelConfig c = parse_descriptor("d12");
    const size_t all = parameter_size(c, WTE) + 11 * count_elements(layer_weights(c, 1));
    const double each = double(all) / (12 * LAYER_INTERVALS);
    for (int l = 0; l < 12; l++) {
        const auto parts = split_evenly(updated_during_layer(c, l), LAYER_INTERVALS);
        EXPECT_EQ(parts.size(), size_t(LAYER_INTERVALS));
        for (const auto& part : parts) {
            EXPECT_NEAR(double(count_elements(part)), each, 0.001 * each);
            for (const TensorRange& e : part) EXPECT_EQ(e.first % 64, 0u);
        }
    }
}

// --- dropout ---

// The loss of micro-step 0 with the parameters moved by `distance` along their normalized gradient, in one
// tensor.
static double moved_loss(GPT2<float>& g, int tensor, const std::vector<float>& direction, double distance) {
    float* params = g.params[tensor];
    const std::vector<float> before(params, params + direction.size());
    for (size_t i = 0; i < direction.size(); i++) params[i] = float(before[i] + distance * direction[i]);
    gpt2_forward(g, B, T, Pass::training);
    gpt2_head(g, B, T, 1.0f / num_rows, Gradients::none);
    double sum = 0;
    for (int i = 0; i < num_rows; i++) sum += g.losses[i];
    std::copy(before.begin(), before.end(), params);
    return sum / num_rows;
}

// The gradient of each tensor against finite differences of the loss under the same masks.
TEST(DropoutStep, GradientsMatchFiniteDifferences) {
    for (const Recompute recompute : {RECOMPUTE_NOTHING, RECOMPUTE_GELU_AND_LAYERNORM}) {
        const auto g = std::make_unique<GPT2<float>>(config, nullptr, false);
        g->dropout = dropout_rate;
        initialize_parameters(config, 42, parameter_writer(*g));
        gpt2_allocate(*g, B, T, true, recompute);
        for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) {  // so that no gradient is tiny
            const std::vector<float> noise = random_values(parameter_size(config, i), 7 + uint32_t(i), 0.2f);
            for (size_t k = 0; k < noise.size(); k++) g->params[i][k] += noise[k];
        }
        zeroed_and_accumulated(*g, 1, 0, 1);
        for (int tensor = 0; tensor < NUM_PARAMETER_TENSORS; tensor++) {
            std::vector<float> direction(g->grads[tensor], g->grads[tensor] + parameter_size(config, tensor));
            double squares = 0;
            for (const float d : direction) squares += double(d) * d;
            const double norm = std::sqrt(squares), h = 0.02;
            ASSERT_GT(norm, 1e-3) << parameter_info[tensor].name;
            for (float& d : direction) d = float(d / norm);
            const double slope =
                (moved_loss(*g, tensor, direction, h) - moved_loss(*g, tensor, direction, -h)) / (2 * h);
            EXPECT_NEAR(slope, norm, 0.01 * norm) << parameter_info[tensor].name;
        }
    }
}

// Losses of a few steps at a learning rate of 0, whose data are all the same.
template <class Real>
static std::vector<float> dropout_losses(LaunchPad* pad, float dropout, int process = 0) {
    const auto g = make_model<Real>(pad, config, false, dropout);
    StepRunner<Real> runner = {*g, B, T, 2, 0.0f};
    runner.process = process;
    std::vector<float> losses;
    for (int step = 0; step < 3; step++) {
        const Ticket ticket = runner.run(step, 0, [&](int* inputs, int* targets) {
            std::ranges::copy(tokens_of(0, 1), inputs);
            std::ranges::copy(tokens_of(0, 2), targets);
        });
        losses.push_back(runner.stats(step, ticket)[0]);
        runner.finish_update();
    }
    runner.forget_recordings();
    return losses;
}

// The masks are the same on CPU and device, so the gradients agree as they do without dropout.
TYPED_TEST(TrainStep, DropoutOnADeviceMatchesTheCpu) {
    using Real = TypeParam;
    const auto on_cpu = make_model<Real>(nullptr, config, false, dropout_rate);
    const auto want = zeroed_and_accumulated(*on_cpu, 2, 0, 2);
    for (const auto& pad : test_pads()) {
        const auto g = make_model<Real>(pad.get(), config, false, dropout_rate);
        const auto got = zeroed_and_accumulated(*g, 2, 0, 2);
        for (size_t i = 0; i < want.size(); i++)
            expect_close("loss or gradients", got[i], want[i], 4 * tolerance<Real>());
        if (sizeof(Real) == 2) break;
    }
}

TYPED_TEST(TrainStep, EachStepAndProcessDropsOtherElements) {
    std::vector<LaunchPad*> places = {nullptr};
    if (!test_pads().empty() && !TestFixture::is_16_bit) places.push_back(test_pads()[0].get());
    for (LaunchPad* pad : places) {
        const std::vector<float> without = dropout_losses<TypeParam>(pad, 0),
                                 with = dropout_losses<TypeParam>(pad, dropout_rate);
        EXPECT_EQ(without[0], without[1]);
        EXPECT_EQ(std::set<float>(with.begin(), with.end()).size(), 3u);
        EXPECT_NE(with[0], without[0]);
        EXPECT_EQ(dropout_losses<TypeParam>(pad, dropout_rate), with) << "not reproducible";
        EXPECT_NE(dropout_losses<TypeParam>(pad, dropout_rate, 1)[0], with[0]) << "as process 0";
    }
}

TEST(DropoutStep, EachPlaceHasItsOwnMask) {
    std::set<uint32_t> sites = {DROPOUT_EMBEDDING};
    for (int l = 0; l < 48; l++)
        for (const DropoutSite what : {DROPOUT_ATTENTION, DROPOUT_MLP})
            EXPECT_TRUE(sites.insert(dropout_site(what, l)).second) << l;
}

// Validation sees the whole model, and dropout costs nothing where it is off.
TEST(DropoutStep, EvaluationDropsNothing) {
    const auto with = make_model<float>(nullptr, config, false, dropout_rate),
               without = make_model<float>(nullptr);
    auto losses = [](GPT2<float>& g) {
        gpt2_set_batch(g, tokens_of(0, 1).data(), tokens_of(0, 2).data(), num_rows, false);
        gpt2_forward(g, B, T);
        gpt2_head(g, B, T, 1.0f / num_rows, Gradients::none);
        return std::vector<float>(g.losses, g.losses + num_rows);
    };
    EXPECT_EQ(losses(*with), losses(*without));
    EXPECT_EQ(without->ddropped, nullptr);
    EXPECT_LT(without->memory.bytes, with->memory.bytes);
}

// A step has the kernels of a model without dropout, and dropout's.
TEST(DropoutStep, AddsItsKernelOnlyWhereItIsOn) {
    if (test_pads().empty()) GTEST_SKIP() << "LLMC_TEST_DEVICE=none: no Vulkan device is to be used";
    LaunchPad* pad = test_pads()[0].get();
    auto has_dropout = [&](float rate) {
        const auto g = make_model<float>(pad, config, false, rate);
        const Needs needs = pad->dry_run([&] {
            gpt2_update_and_forward(*g, 0, B, T);
            gpt2_backward(*g, B, T, Gradients::overwrite);
        });
        for (const auto& [name, constants] : needs.kernels)
            if (name.find("dropout") != std::string::npos) return true;
        return false;
    };
    EXPECT_FALSE(has_dropout(0));
    EXPECT_TRUE(has_dropout(dropout_rate));
}

// Gradients of zero leave the decay of the embeddings and matrices, and nothing else.
TEST(Update, OnlyMatricesAndEmbeddingsDecay) {
    std::vector<LaunchPad*> places = {nullptr};
    for (const auto& pad : test_pads()) places.push_back(pad.get());
    for (LaunchPad* pad : places) {
        const auto g = make_model<float>(pad);
        for (const auto& slice : g->gradient_slices) g->memory.zero(slice.data, slice.n);
        const AdamWStep step = adamw_step(0.1f, 0.9f, 0.95f, 1e-8f, 1);
        const float stats[4] = {1, 1, 1, 0};  // loss, norm, scale
        g->memory.upload(g->adamw, &step, 1);
        g->memory.upload(g->stats, stats, 4);
        auto read = [&](int tensor) {
            std::vector<float> values(parameter_size(config, tensor));
            g->memory.download(values.data(), g->params[tensor], values.size());
            return values;
        };
        for (int tensor = 0; tensor < NUM_PARAMETER_TENSORS; tensor++) {  // so that biases could change
            const std::vector<float> ones(parameter_size(config, tensor), 1.0f);
            g->memory.upload(g->params[tensor], ones.data(), ones.size());
        }
        gpt2_update(*g, 0.5f);
        for (int tensor = 0; tensor < NUM_PARAMETER_TENSORS; tensor++) {
            const std::set<int> decaying = {WTE, WPE, QKVW, ATTPROJW, FCW, FCPROJW};
            const float want = decaying.count(tensor) ? 0.95f : 1.0f;
            for (const float value : read(tensor)) ASSERT_EQ(value, want) << parameter_info[tensor].name;
        }
    }
}
