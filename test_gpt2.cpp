// Checks the whole model against PyTorch: logits, loss, the gradient of every parameter and, with a losses
// file, ten AdamW steps. dev/make_reference.py writes such files for any shape; llm.c's debug state works,
// too.
//
//     test_gpt2 [--device D] [--precision P] [--losses FILE] MODEL.bin STATE.bin
//
// Without files it uses the small reference in tests/reference. Exits with 0 only if every error is within
// the limits below.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "llmc/base/error.h"
#include "llmc/base/os.h"
#include "llmc/base/precision.h"
#include "llmc/files/checkpoint.h"
#include "llmc/kernels/self_test.h"
#include "llmc/model/debug_state.h"
#include "llmc/model/gpt2.h"
#include "llmc/model/optimizer.h"
#include "llmc/options/command_line.h"
#include "llmc/options/start_program.h"

// The largest errors that pass: the relative L2 error of tensors, the relative error of losses.
struct ErrorLimits {
    double logits, gradients, loss;
};

// In fp32, errors come from the order of summation and from a GPU's own exp. In 16 bits they come from
// rounding when values are stored, by at most u = 2^-8 (bf16) or 2^-11 (fp16), relative. Models of 2 and 3
// layers show errors of 2.0 u in the logits, 3.4 u in the worst gradient and 0.18 u in the worst of ten
// losses, in both types, on the CPU and on lavapipe. The limits are twice that and grow with the square root
// of the depth, as independent errors do.
template <class Real>
static ErrorLimits error_limits(bool gpu, int layers) {
    const double tensors = gpu ? 5e-5 : 1e-5;
    if (std::is_same_v<Real, float>) return {tensors, tensors, 5e-5};
    const double u = std::is_same_v<Real, bf16> ? 0x1p-8 : 0x1p-11,
                 depth = std::sqrt(std::max(layers, 3) / 3.0);
    return {4 * u * depth, 7 * u * depth, 0.4 * u * depth};
}

// The result of all comparisons so far. A NaN fails.
struct Verdict {
    bool passed = true;

    void tensor(const char* name, const float* got, const float* want, size_t n, double limit) {
        double errors = 0, squares = 0, largest = 0;
        for (size_t i = 0; i < n; i++) {
            const double e = double(got[i]) - double(want[i]);
            errors += e * e;
            squares += double(want[i]) * want[i];
            if (!(std::abs(e) <= largest)) largest = std::abs(e);  // keeps a NaN
        }
        const double relative = std::sqrt(errors) / std::sqrt(squares);
        const bool good = relative <= limit || (errors == 0 && squares == 0);
        printf("%-12s relative L2 %.2e  max %.2e  %s\n", name, relative, largest, good ? "ok" : "FAIL");
        passed &= good;
    }
    void loss(const std::string& name, double got, double want, double limit) {
        const double relative = std::abs(got - want) / std::abs(want);
        const bool good = relative <= limit;
        printf("%-12s %.9f  expected %.9f  relative %.2e  %s\n", name.c_str(), got, want, relative,
               good ? "ok" : "FAIL");
        passed &= good;
    }
};

// Runs forward and backward on the state's batch and returns the loss. Fills logits (B,T,V) unless null.
template <class Real>
static float forward_backward(GPT2<Real>& g, const DebugState& s, std::vector<float>* logits) {
    const int V = g.config.vocab_size, Vp = g.config.padded_vocab_size;
    gpt2_zero_gradients(g);
    gpt2_set_batch(g, s.inputs.data(), s.targets.data(), s.B * s.T, true);
    gpt2_forward(g, s.B, s.T);
    gpt2_head(g, s.B, s.T, 1.0f / (float(s.B) * float(s.T)), Gradients::overwrite, [&](int first, int rows) {
        if (!logits) return;
        std::vector<float> chunk(size_t(rows) * Vp);
        g.memory.download_floats(chunk.data(), g.acts.logits, chunk.size());
        for (int r = 0; r < rows; r++)
            std::copy_n(chunk.data() + size_t(r) * Vp, V, logits->data() + size_t(first + r) * V);
    });
    gpt2_backward(g, s.B, s.T, Gradients::overwrite);
    float loss;
    g.memory.download(&loss, &g.stats->loss, 1);
    return loss;
}

template <class Real>
static void check_gradients(GPT2<Real>& g, const DebugState& s, double limit, Verdict& verdict) {
    const float* want = s.grads.data();
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) {
        const size_t n = parameter_size(g.config, i);
        std::vector<float> got(n);
        g.memory.download_floats(got.data(), g.grads[i], n);
        for (float& gradient : got) gradient /= g.gradient_scale;
        verdict.tensor(format_string("d%s", parameter_info[i].name).c_str(), got.data(), want, n, limit);
        want += n;
    }
}

// Runs AdamW steps with the settings of llm.c's test: lr 1e-4, betas 0.9 and 0.999, eps 1e-8, weight decay
// 0.01 on all parameters, no clipping.
template <class Real>
static void check_training(GPT2<Real>& g, Optimizer<Real>& optimizer, const DebugState& s,
                           const std::vector<double>& losses, double limit, Verdict& verdict) {
    for (size_t step = 0; step < losses.size(); step++) {
        verdict.loss(format_string("step %zu", step), forward_backward(g, s, nullptr), losses[step], limit);
        gpt2_gradient_norm(g, 0.0f);
        optimizer.begin_step(int(step), 1e-4f);
        optimizer.update(g.pad, g.tensors());
    }
}

struct TestOptions {
    std::string device = "auto", precision = "fp32", losses, model, state;
};

template <class Real>
static bool check_model(const TestOptions& o) {
    const ModelConfig config = read_model_header(o.model);
    const DebugState s = read_debug_state(o.state, config);
    const std::vector<double> losses = o.losses.empty() ? std::vector<double>() : read_losses(o.losses);
    const auto pad = open_checked_device(o.device);
    print_line(stdout, "model: %s in %s", o.model.c_str(), real_name<Real>());
    GPT2<Real> g(config, pad.get());
    gpt2_allocate(g, s.B, s.T, true);
    Optimizer<Real> optimizer(config, g.memory,
                              {.master_weights = true,
                               .beta1 = 0.9f,
                               .beta2 = 0.999f,
                               .epsilon = 1e-8f,
                               .weight_decay = 0.01f,
                               .decay_all = true});
    read_model(o.model, parameter_writer(g, &optimizer));
    const ErrorLimits limits = error_limits<Real>(pad != nullptr, config.num_layers);
    Verdict verdict;
    std::vector<float> logits(s.logits.size());
    const float loss = forward_backward(g, s, &logits);
    verdict.tensor("logits", logits.data(), s.logits.data(), logits.size(), limits.logits);
    verdict.loss("loss", loss, s.loss, limits.loss);
    check_gradients(g, s, limits.gradients, verdict);
    check_training(g, optimizer, s, losses, limits.loss, verdict);
    return verdict.passed;
}

// The folder of the reference in the source tree: below the current folder, or beside the build folder.
static std::string reference_folder() {
    const std::filesystem::path program = program_path();
    for (const std::filesystem::path& root : {std::filesystem::path("."), program.parent_path() / ".."})
        if (std::filesystem::exists(root / "tests/reference/tiny.bin"))
            return (root / "tests/reference").generic_string();
    fail("tests/reference is not here: run from the project's folder, or give MODEL.bin and STATE.bin");
}

static void add_options(CommandLine& line, TestOptions& o) {
    line.add_device(o.device);
    line.add("--precision dtype fp16 bf16 amp", o.precision, "fp32, bf16 or fp16").one_of(precision_names());
    line.add("--losses", o.losses, "losses of ten AdamW steps, to check them, too").is(PathKind::file);
    line.add("MODEL", o.model, "llm.c checkpoint, such as gpt2_124M.bin").is(PathKind::file);
    line.add("STATE", o.state, "debug state, such as gpt2_124M_debug_state.bin").is(PathKind::file);
}

int main(int argc, char** argv) {
    start_program(argv);
    TestOptions options;
    bool passed = true;
    CommandLine line("test_gpt2", "Checks the model against PyTorch.");
    add_options(line, options);
    const int status = line.run(argc, argv, [&] {
        if (options.model.empty() != options.state.empty()) fail("MODEL and STATE are given together");
        if (options.model.empty()) {
            const std::string folder = reference_folder();
            options.model = folder + "/tiny.bin";
            options.state = folder + "/tiny_debug_state.bin";
            options.losses = folder + "/tiny_losses.txt";
        }
        passed =
            with_precision(options.precision, [&]<class Real>(Real) { return check_model<Real>(options); });
        printf("%s\n", passed ? "all within the limits" : "FAILED: see the lines above");
    });
    return passed ? status : 1;
}
