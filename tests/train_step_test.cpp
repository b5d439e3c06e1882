// A training step's gradients, on the CPU and on a device: whatever their memory held before, they are
// bit-identical to zeroing all of it and accumulating each micro-step's; and within rounding the sum of each
// micro-step's. Steps that are replayed are bit-identical to their parts run one by one.
#include "llmc/model/train_step.h"

#include <functional>
#include <map>
#include <set>

#include "llmc/data/ignored_target.h"
#include "llmc/distributed/transport.h"
#include "llmc/layers/tensor_core.h"
#include "llmc/model/gradient_exchange.h"
#include "llmc/model/initialize.h"
#include "tests/layer_test.h"
#include "tests/message_of.h"

static const ModelConfig config = {19, 53, 128, 2, 3, 24};
static const ModelConfig wide_vocabulary = {19, 601, 640, 3, 3, 24};  // wte has more than two layers' weights
static const int B = 3, T = 17, num_rows = B * T;
static const float dropout_rate = 0.3f;

template <class Real>
static std::unique_ptr<GPT2<Real>> make_model(LaunchPad* pad, const ModelConfig& c = config,
                                              float dropout = 0) {
    auto g = std::make_unique<GPT2<Real>>(c, pad);
    g->dropout = dropout;
    initialize_parameters(c, 42, parameter_writer(*g));
    gpt2_allocate(*g, B, T, true);
    g->acts.logit_rows = 20;  // the head has three chunks, the last one smaller
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

using TokensOf = std::function<std::vector<int>(int micro)>;
static std::vector<int> all_inputs(int micro) { return tokens_of(micro, 1); }
static std::vector<int> all_targets(int micro) { return tokens_of(micro, 2); }

// Loss and gradients of micro-steps `first` to before `end` of a step with so many targets. Dropout has the
// masks of step 0.
template <class Real>
static std::vector<std::vector<float>> zeroed_and_accumulated(GPT2<Real>& g, int targets, int first, int end,
                                                              const TokensOf& targets_of = all_targets) {
    for (const auto& slice : g.gradient_slices) g.memory.zero(slice.data, slice.n);
    g.memory.zero(g.stats, 1);
    for (int i = first; i < end; i++) {
        gpt2_set_batch(g, tokens_of(i, 1).data(), targets_of(i).data(), num_rows, true);
        if (g.dropout > 0) g.memory.upload(g.acts.dropout_key, dropout_key(42, 0, i, 0).data(), 2);
        gpt2_forward(g, B, T, Pass::training);
        gpt2_head(g, B, T, 1.0f / float(targets), Gradients::accumulate);
        gpt2_backward(g, B, T, Gradients::accumulate);
    }
    float loss;
    g.memory.download(&loss, &g.stats->loss, 1);
    return read_gradients(g, loss);
}

template <class Real>
static StepStats run_step(StepRunner<Real>& runner, int step, float rate, const TokensOf& inputs_of,
                          const TokensOf& targets_of) {
    int micro = 0;
    const Ticket ticket = runner.run(step, rate, [&](int* inputs, int* targets) {
        std::ranges::copy(inputs_of(micro), inputs);
        std::ranges::copy(targets_of(micro++), targets);
    });
    return runner.stats(step, ticket);
}

// Compares the gradients of two micro-steps with the sum of both.
template <class Real>
static void check_sum(GPT2<Real>& g, const std::vector<std::vector<float>>& expected) {
    std::vector<std::vector<float>> sums = zeroed_and_accumulated(g, 2 * num_rows, 0, 1);
    const std::vector<std::vector<float>> second = zeroed_and_accumulated(g, 2 * num_rows, 1, 2);
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
    const auto expected = zeroed_and_accumulated(*g, micro_steps * num_rows, 0, micro_steps);
    if (micro_steps == 2) check_sum(*g, expected);
    // without master weights: from those, the update would round the weights anew even at a rate of 0
    Optimizer<Real> optimizer(c, g->memory, {.weight_decay = 0.1f});
    StepRunner<Real> runner = {.g = *g, .optimizer = optimizer, .B = B, .T = T, .micro_steps = micro_steps};
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) {
            const std::vector<float> garbage = nans(parameter_size(c, i));
            g->memory.upload_floats(g->grads[i], garbage.data(), garbage.size());
        }
        const float loss = run_step<Real>(runner, step, 0, all_inputs, all_targets).loss;
        EXPECT_TRUE(std::isfinite(loss));
        EXPECT_TRUE(read_gradients(*g, loss) == expected) << "other gradients in step " << step;
    }
    runner.forget_recordings();
}

// Loss and gradients are means over the targets that count in all micro-steps together, of which the second
// has few.
template <class Real>
static void check_ignored_targets(LaunchPad* pad) {
    const auto targets_of = [](int micro) {
        std::vector<int> targets = tokens_of(micro, 2);
        for (int i = 0; i < num_rows; i++)
            if (micro == 1 ? i != 5 : i % 4 == 1) targets[i] = ignored_target;
        return targets;
    };
    const auto g = make_model<Real>(pad);
    int counted = 0;
    for (int i = 0; i < 3; i++) counted += num_rows - int(std::ranges::count(targets_of(i), ignored_target));
    const auto gradients = zeroed_and_accumulated(*g, counted, 0, 3, targets_of);
    gpt2_gradient_norm(*g, 0);
    float norm;
    g->memory.download(&norm, &g->stats->gradient_norm, 1);
    Optimizer<Real> optimizer(config, g->memory, {.weight_decay = 0.1f});
    StepRunner<Real> runner = {
        .g = *g, .optimizer = optimizer, .B = B, .T = T, .micro_steps = 3, .gradient_clip = 0};
    for (int step = 0; step < 2; step++) {
        const StepStats stats = run_step<Real>(runner, step, 0, all_inputs, targets_of);
        EXPECT_NEAR(stats.loss, gradients[0][0], 2e-6 * gradients[0][0]);
        EXPECT_NEAR(stats.gradient_norm, norm, tolerance<Real>(2e-6) * norm);
        auto weighted = read_gradients(*g, 0);
        for (auto& slice : weighted)
            for (float& x : slice) x *= stats.gradient_scale * g->gradient_scale;
        for (size_t s = 1; s < gradients.size(); s++)
            expect_close("gradients", weighted[s], gradients[s], 2 * tolerance<Real>(1e-6));
    }
    runner.forget_recordings();
}

// A run of four steps.
struct Run {
    ModelConfig config;
    bool master_weights;
    int micro_steps;
    int skipped;  // step whose update is not accepted; -1: none
    OptimizerKind kind = OptimizerKind::adamw;
};

template <class Real>
static void read_tensors(std::vector<std::vector<float>>& results, const Memory& memory, const ModelConfig& c,
                         Real* const* tensors) {
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) {
        if (!tensors[i]) continue;  // no such moment
        results.emplace_back(parameter_size(c, i));
        memory.download_floats(results.back().data(), tensors[i], results.back().size());
    }
}

// What a run leaves: losses, parameters, moments.
template <class Real>
struct Trainee {
    const Run& run;
    std::unique_ptr<GPT2<Real>> g;
    Optimizer<Real> optimizer{run.config,
                              g->memory,
                              {.master_weights = run.master_weights, .weight_decay = 0.1f},
                              {.kind = run.kind}};
    std::vector<std::vector<float>> results;

    Trainee(LaunchPad* pad, const Run& r) : run(r), g(make_model<Real>(pad, r.config)) {
        initialize_parameters(run.config, 42, parameter_writer(*g, &optimizer));
    }
    // The tokens of micro-step i of a step.
    std::vector<int> tokens(int step, int i, uint32_t what) const {
        return tokens_of(4 * step + i, what, run.config.vocab_size);
    }
    std::vector<std::vector<float>> finish() {
        read_tensors(results, g->memory, run.config, g->params);
        read_tensors(results, g->memory, run.config, optimizer.master);
        read_tensors(results, g->memory, run.config, optimizer.m);
        read_tensors(results, g->memory, run.config, optimizer.v);
        return results;
    }
};

template <class Real>
static std::vector<std::vector<float>> run_steps(LaunchPad* pad, const Run& run) {
    Trainee<Real> t(pad, run);
    StepRunner<Real> runner = {
        .g = *t.g, .optimizer = t.optimizer, .B = B, .T = T, .micro_steps = run.micro_steps};
    int step = 0;
    if (run.skipped >= 0) runner.should_update = [&](const StepStats&) { return step != run.skipped; };
    for (; step < 4; step++) {
        const auto part = [&](uint32_t what) { return [&, what](int i) { return t.tokens(step, i, what); }; };
        t.results.push_back({run_step<Real>(runner, step, 0.01f, part(1), part(2)).loss});
    }
    runner.forget_recordings();
    return t.finish();
}

// The same steps, part by part.
template <class Real>
static std::vector<std::vector<float>> run_parts(LaunchPad* pad, const Run& run) {
    Trainee<Real> t(pad, run);
    GPT2<Real>& g = *t.g;
    LossScaling scaling;
    for (int step = 0; step < 4; step++) {
        if (std::is_same_v<Real, fp16>) g.gradient_scale = scaling.for_step(step);
        gpt2_zero_gradients(g);
        for (int i = 0; i < run.micro_steps; i++) {
            const Gradients gradients = i ? Gradients::accumulate : Gradients::overwrite;
            gpt2_set_batch(g, t.tokens(step, i, 1).data(), t.tokens(step, i, 2).data(), num_rows, true);
            gpt2_forward(g, B, T, Pass::training);
            gpt2_head(g, B, T, 1.0f / float(num_rows * run.micro_steps), gradients);
            gpt2_backward(g, B, T, gradients);
        }
        gpt2_gradient_norm(g, 1);
        t.optimizer.begin_step(step, 0.01f);
        if (step != run.skipped) t.optimizer.update(pad, g.tensors());
        StepStats stats;
        g.memory.download(&stats, g.stats, 1);
        t.results.push_back({stats.loss});
        if (std::is_same_v<Real, fp16>)
            scaling.add(step, stats.gradient_scale == 0 ? NAN : stats.gradient_norm);
    }
    return t.finish();
}

template <class Real>
struct TrainStep : testing::Test {
    static constexpr bool is_16_bit = sizeof(Real) == 2;
};
TYPED_TEST_SUITE(TrainStep, RealTypes);

TYPED_TEST(TrainStep, FirstMicroStepOverwritesGradientsOnTheCpu) {
    for (int micro_steps : {1, 2}) check_steps<TypeParam>(nullptr, micro_steps);
}

TYPED_TEST(TrainStep, MeansAreOverTheTargetsThatCount) {
    check_ignored_targets<TypeParam>(nullptr);
    for (const auto& pad : test_pads()) check_ignored_targets<TypeParam>(pad.get());
}

TYPED_TEST(TrainStep, StepsAreTheirParts) {
    std::vector<LaunchPad*> places = {nullptr};
    if (!test_pads().empty()) places.push_back(test_pads()[0].get());
    for (LaunchPad* pad : places) {
        const auto expected = run_steps<TypeParam>(pad, {config, false, 1, -1});
        EXPECT_NE(expected[0], expected[3]) << "nothing was learned";
        std::vector<Run> runs = {{config, false, 1, -1},
                                 {config, false, 2, -1},
                                 {config, false, 1, 1},
                                 {wide_vocabulary, true, 1, 2}};
        for (const OptimizerInfo& optimizer : all_optimizers())
            runs.push_back({config, true, 2, 1, optimizer.kind});
        for (const Run& run : runs) {
            const auto steps = run_steps<TypeParam>(pad, run);
            EXPECT_TRUE(run_parts<TypeParam>(pad, run) == steps)
                << run.config.num_layers << " layers, master weights " << run.master_weights << ", "
                << run.micro_steps << " micro-steps, skipped " << run.skipped;
            if (run.skipped == 1) {
                EXPECT_FALSE(steps == expected) << "the step was not skipped";
            }
        }
    }
}

TYPED_TEST(TrainStep, FirstMicroStepOverwritesGradientsOnADevice) {
    if (test_pads().empty()) GTEST_SKIP() << "LLMC_TEST_DEVICE=none: no Vulkan device is to be used";
    for (int micro_steps : {1, 2}) check_steps<TypeParam>(test_pads()[0].get(), micro_steps);
}

// On tensor cores, a model so wide that GEMMs split K.
TYPED_TEST(TrainStep, MatrixSplitK) {
    using Real = TypeParam;
    if (test_pads().empty() || !on_tensor_cores<Real>(*test_pads()[0], 8, 8))
        GTEST_SKIP() << "no tensor cores for " << real_name<Real>() << " here";
    LaunchPad* pad = test_pads()[0].get();
    const bool software = pad->device().type == DeviceType::software;  // whose fragments are smaller
    const ModelConfig wide = {19, 53, 128, 1, software ? 2 : 12, software ? 128 : 768};
    const int C = wide.channels;
    const auto g = make_model<Real>(pad, wide), on_cpu = make_model<Real>(nullptr, wide);
    for (const GemmShape& gemm :
         {GemmShape{GemmLayout::nt, num_rows, C, 4 * C, EPILOGUE_BIAS},   // fcproj
          GemmShape{GemmLayout::nn, num_rows, C, 4 * C, EPILOGUE_NONE},   // gradient of ln2
          GemmShape{GemmLayout::nn, num_rows, C, 3 * C, EPILOGUE_NONE}})  // gradient of ln1
        EXPECT_TRUE(software || plan_gemm<Real>(*pad, gemm, std::nullopt, true).splits > 1);
    const auto got = zeroed_and_accumulated(*g, num_rows, 0, 1),
               want = zeroed_and_accumulated(*on_cpu, num_rows, 0, 1);
    for (size_t i = 0; i < want.size(); i++)
        expect_close("loss or gradients", got[i], want[i], 4 * tolerance<Real>());
    check_steps<Real>(pad, 2, wide);
    // dropout comes between such a GEMM and the LayerNorm
    const auto drops = make_model<Real>(pad, wide, dropout_rate),
               drops_on_cpu = make_model<Real>(nullptr, wide, dropout_rate);
    const auto dropped = zeroed_and_accumulated(*drops, num_rows, 0, 1),
               want_dropped = zeroed_and_accumulated(*drops_on_cpu, num_rows, 0, 1);
    for (size_t i = 0; i < want.size(); i++)
        expect_close("loss or gradients with dropout", dropped[i], want_dropped[i], 4 * tolerance<Real>());
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
    for (int i = 0; i < num_rows; i++) sum += g.acts.losses[i];
    std::copy(before.begin(), before.end(), params);
    return sum / num_rows;
}

// The gradient of each tensor against finite differences of the loss under the same masks.
TEST(DropoutStep, GradientsMatchFiniteDifferences) {
    for (const Recompute recompute : {RECOMPUTE_NOTHING, RECOMPUTE_GELU_AND_LAYERNORM, RECOMPUTE_LAYERS}) {
        const auto g = std::make_unique<GPT2<float>>(config, nullptr);
        g->dropout = dropout_rate;
        initialize_parameters(config, 42, parameter_writer(*g));
        gpt2_allocate(*g, B, T, true, recompute);
        for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) {  // so that no gradient is tiny
            const std::vector<float> noise = random_values(parameter_size(config, i), 7 + uint32_t(i), 0.2f);
            for (size_t k = 0; k < noise.size(); k++) g->params[i][k] += noise[k];
        }
        zeroed_and_accumulated(*g, num_rows, 0, 1);
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

// Whatever memory activations share, the losses are bit-identical.
TYPED_TEST(TrainStep, ActivationsThatShareMemoryGiveTheSameLosses) {
    using Real = TypeParam;
    std::vector<LaunchPad*> places = {nullptr};
    if (!test_pads().empty()) places.push_back(test_pads()[0].get());
    for (LaunchPad* pad : places) {
        const auto losses_with = [&](bool training, Recompute recompute) {
            GPT2<Real> g(config, pad);
            initialize_parameters(config, 42, parameter_writer(g));
            gpt2_allocate(g, B, T, training, recompute);
            gpt2_set_batch(g, tokens_of(0, 1).data(), tokens_of(0, 2).data(), num_rows, false);
            gpt2_forward(g, B, T);
            gpt2_head(g, B, T, 1, Gradients::none);
            std::vector<float> losses = nans(num_rows);
            g.memory.download(losses.data(), g.acts.losses, num_rows);
            return losses;
        };
        const std::vector<float> expected = losses_with(true, RECOMPUTE_NOTHING);
        for (Recompute recompute : {RECOMPUTE_GELU, RECOMPUTE_GELU_AND_LAYERNORM, RECOMPUTE_LAYERS})
            EXPECT_EQ(losses_with(true, recompute), expected) << recompute;
        EXPECT_EQ(losses_with(false, RECOMPUTE_NOTHING), expected);
    }
}

// Losses of a few steps at a learning rate of 0, whose data are all the same.
template <class Real>
static std::vector<float> dropout_losses(LaunchPad* pad, float dropout, int process = 0) {
    const auto g = make_model<Real>(pad, config, dropout);
    Optimizer<Real> optimizer(config, g->memory, {});
    StepRunner<Real> runner = {.g = *g, .optimizer = optimizer, .B = B, .T = T, .micro_steps = 2};
    runner.process = process;
    std::vector<float> losses;
    const auto same = [](uint32_t what) { return [what](int) { return tokens_of(0, what); }; };
    for (int step = 0; step < 3; step++)
        losses.push_back(run_step<Real>(runner, step, 0, same(1), same(2)).loss);
    runner.forget_recordings();
    return losses;
}

// The masks are the same on CPU and device, so the gradients agree as they do without dropout.
TYPED_TEST(TrainStep, DropoutOnADeviceMatchesTheCpu) {
    using Real = TypeParam;
    const auto on_cpu = make_model<Real>(nullptr, config, dropout_rate);
    const auto want = zeroed_and_accumulated(*on_cpu, 2 * num_rows, 0, 2);
    for (const auto& pad : test_pads()) {
        const auto g = make_model<Real>(pad.get(), config, dropout_rate);
        const auto got = zeroed_and_accumulated(*g, 2 * num_rows, 0, 2);
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
    const auto with = make_model<float>(nullptr, config, dropout_rate), without = make_model<float>(nullptr);
    auto losses = [](GPT2<float>& g) {
        gpt2_set_batch(g, tokens_of(0, 1).data(), tokens_of(0, 2).data(), num_rows, false);
        gpt2_forward(g, B, T);
        gpt2_head(g, B, T, 1.0f / num_rows, Gradients::none);
        return std::vector<float>(g.acts.losses, g.acts.losses + num_rows);
    };
    EXPECT_EQ(losses(*with), losses(*without));
    EXPECT_EQ(without->acts.ddropped, nullptr);
    EXPECT_LT(without->memory.bytes, with->memory.bytes);
}

// A step has the kernels of a model without dropout, and dropout's.
TEST(DropoutStep, AddsItsKernelOnlyWhereItIsOn) {
    if (test_pads().empty()) GTEST_SKIP() << "LLMC_TEST_DEVICE=none: no Vulkan device is to be used";
    LaunchPad* pad = test_pads()[0].get();
    auto has_dropout = [&](float rate) {
        const auto g = make_model<float>(pad, config, rate);
        const Requirements needs = pad->dry_run([&] {
            gpt2_forward(*g, B, T, Pass::training);
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
        Optimizer<float> optimizer(config, g->memory, {.weight_decay = 0.5f});
        const StepStats stats = {.loss = 1, .gradient_norm = 1, .gradient_scale = 1, .unused = 0};
        optimizer.begin_step(0, 0.1f);
        g->memory.upload(g->stats, &stats, 1);
        auto read = [&](int tensor) {
            std::vector<float> values(parameter_size(config, tensor));
            g->memory.download(values.data(), g->params[tensor], values.size());
            return values;
        };
        for (int tensor = 0; tensor < NUM_PARAMETER_TENSORS; tensor++) {  // so that biases could change
            const std::vector<float> ones(parameter_size(config, tensor), 1.0f);
            g->memory.upload(g->params[tensor], ones.data(), ones.size());
        }
        optimizer.update(pad, g->tensors());
        for (int tensor = 0; tensor < NUM_PARAMETER_TENSORS; tensor++) {
            const std::set<int> decaying = {WTE, WPE, QKVW, ATTPROJW, FCW, FCPROJW};
            const float want = decaying.count(tensor) ? 0.95f : 1.0f;
            for (const float value : read(tensor)) ASSERT_EQ(value, want) << parameter_info[tensor].name;
        }
    }
}

// The exchange refuses a layer before which the processes should have synchronized.
TEST(TrainStep, ExchangeNeedsItsSynchronization) {
    const ModelConfig four_layers = {19, 53, 128, 4, 3, 24};
    const auto job = join_job();
    job->form_nodes();
    auto g = make_model<float>(nullptr, four_layers);
    GradientExchange<float> exchange(*g, ownership_of(four_layers, OptimizerKind::adamw, 1), *job);
    ASSERT_EQ(exchange.synchronization_layer(), 1);
    const std::string refusal = "gradient exchange: synchronize() comes before the call for layer 1";
    for (const bool synchronizes : {true, false}) {
        for (int layer = 3; layer > 1; layer--) exchange.after_layer(layer);
        if (synchronizes) exchange.synchronize();
        EXPECT_EQ(message_of([&] { exchange.after_layer(1); }), synchronizes ? "" : refusal);
    }
    for (const int layer : {1, 2})
        EXPECT_EQ(exchange.synchronizes_before(layer),
                  message_of([&] { exchange.before_layer(layer); }) != "");
}

// 64 machines of 8 processes: what each process sends to, and receives from, each of its peers.
static void check_messages(const ModelConfig& c, OptimizerKind kind) {
    GPT2<bf16> g(c, nullptr, MemoryUse::count);
    const auto job = join_job();
    job->size = 512, job->num_nodes = 64, job->local_size = 8;
    job->node = 5, job->local_rank = 3, job->rank = 43;
    job->first_ranks.clear();
    for (int first = 0; first <= 512; first += 8) job->first_ranks.push_back(first);
    GradientExchange<bf16> exchange(g, ownership_of(c, kind, 512), *job);
    ASSERT_EQ(exchange.num_groups(), 4);
    for (const bool of_weights : {false, true}) {
        std::map<std::pair<int, bool>, int> packets;  // by peer, and whether it is sent
        uint64_t bytes[2] = {}, last_group[2] = {};   // received, sent
        for (int group = 0; group < exchange.num_groups(); group++) {
            const auto messages =
                of_weights ? exchange.weight_messages(group) : exchange.gradient_messages(group);
            for (const bool sends : {true, false})
                for (const Packet& p : packets_of(sends ? messages.sends : messages.receives, job->max_part,
                                                  job->size, job->rank, sends)) {
                    packets[{p.rank, sends}]++;
                    bytes[sends] += p.bytes;
                    if (group == 3) last_group[sends] += p.bytes;
                }
        }
        EXPECT_LE(packets.size(), 2 * 63u);
        for (const auto& [peer, count] : packets) EXPECT_LE(count, 4) << peer.first;
        if (kind == OptimizerKind::muon) continue;
        EXPECT_EQ(packets.size(), 2 * 63u);
        // without announced inputs, all rows of wte travel twice; gradients with two sets of tokens
        const double wte = double(parameter_size(c, WTE)), all = double(num_parameters(c)) + wte,
                     sets = of_weights ? 0 : 63 * 2 * 4 * double(token_set_words(c));
        EXPECT_NEAR(double(bytes[!of_weights]), 63.0 / 64 * all * 2 / 8 + sets, 1e5);
        EXPECT_GE(double(last_group[!of_weights]), 63.0 / 64 * wte * 2 / 8);
    }
}

TEST(TrainStep, FewMessagesBetweenManyMachines) {
    for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::muon}) {
        check_messages({1024, 50257, 50304, 48, 25, 1600}, kind);
        check_messages({1024, 50257, 50304, 6, 6, 384}, kind);
    }
}
