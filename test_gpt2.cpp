// Checks the whole model against PyTorch's numbers: logits, loss, the gradient of every parameter and, with a
// losses file, ten AdamW steps. dev/make_reference.py writes such files for any shape; llm.c's own debug
// state works too.
//
//     test_gpt2 [--device D] [--precision P] [--losses FILE] MODEL.bin STATE.bin
//
// Without files it takes the small reference in tests/reference. Exits 0 only if everything is within the
// limits below.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "llmc/checkpoint.h"
#include "llmc/debug_state.h"
#include "llmc/gpt2_update.h"
#include "llmc/openmp_waiting.h"

// The largest errors that pass: relative L2 of tensors, relative of losses.
struct ErrorLimits {
    double logits, gradients, loss;
};

// In fp32 the sums' own errors are what is seen, and GPUs have their own exp. In 16 bits it is the rounding
// of what is stored, u = 2^-8 (bf16) or 2^-11 (fp16) relative at most: models of 2 and 3 layers show 2.0 u in
// the logits, 3.4 u in the worst gradient and 0.18 u in the worst of ten losses, alike in both types, on the
// CPU and on lavapipe. The limits are twice that; errors of more layers add up as random ones do.
template <class Real>
static ErrorLimits error_limits(bool gpu, int layers) {
    const double tensors = gpu ? 5e-5 : 1e-5;
    if (std::is_same_v<Real, float>) return {tensors, tensors, 5e-5};
    const double u = std::is_same_v<Real, bf16> ? 0x1p-8 : 0x1p-11,
                 depth = std::sqrt(std::max(layers, 3) / 3.0);
    return {4 * u * depth, 7 * u * depth, 0.4 * u * depth};
}

// What was compared so far; a NaN anywhere fails.
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

// Forward and backward on the state's batch; returns the loss. Fills logits (B,T,V) unless null.
template <class Real>
static float forward_backward(GPT2<Real>& g, const DebugState& s, std::vector<float>* logits) {
    const int V = g.config.vocab_size, Vp = g.config.padded_vocab_size;
    gpt2_zero_gradients(g);
    gpt2_set_batch(g, s.inputs.data(), s.targets.data(), s.B * s.T, true);
    gpt2_forward(g, s.B, s.T);
    gpt2_head(g, s.B, s.T, 1.0f / (float(s.B) * float(s.T)), Gradients::overwrite, [&](int first, int rows) {
        if (!logits) return;
        std::vector<float> chunk(size_t(rows) * Vp);
        g.memory.download_floats(chunk.data(), g.logits, chunk.size());
        for (int r = 0; r < rows; r++)
            std::copy_n(chunk.data() + size_t(r) * Vp, V, logits->data() + size_t(first + r) * V);
    });
    gpt2_backward(g, s.B, s.T, Gradients::overwrite);
    float loss;
    g.memory.download(&loss, g.stats, 1);
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

// The optimizer settings of llm.c's test: lr 1e-4, betas 0.9 and 0.999, eps 1e-8, decay 0.01 on everything,
// no clipping.
template <class Real>
static void check_training(GPT2<Real>& g, const DebugState& s, const std::vector<double>& losses,
                           double limit, Verdict& verdict) {
    for (size_t step = 0; step < losses.size(); step++) {
        verdict.loss(format_string("step %zu", step), forward_backward(g, s, nullptr), losses[step], limit);
        const AdamWStep numbers = adamw_step(1e-4f, 0.9f, 0.999f, 1e-8f, int(step) + 1);
        g.memory.upload(g.adamw, &numbers, 1);
        gpt2_gradient_norm(g, 0.0f);
        gpt2_update(g, 0.01f, true);
    }
}

template <class Real>
static bool check_model(const std::string& device, const std::string& model, const std::string& state_path,
                        const std::string& losses_path) {
    const ModelConfig config = read_model_header(model);
    const DebugState s = read_debug_state(state_path, config);
    const std::vector<double> losses = losses_path.empty() ? std::vector<double>() : read_losses(losses_path);
    const DeviceChoice choice = choose_device(device);
    std::unique_ptr<LaunchPad> pad;
    if (choice.device) {
        LaunchPadOptions options;
        options.device = std::to_string(choice.device->index);
        pad = std::make_unique<LaunchPad>(options);
    }
    printf("%s in %s on %s\n", model.c_str(), real_name<Real>(),
           pad ? pad->device().name.c_str() : "the CPU");
    GPT2<Real> g(config, pad.get(), true);
    read_model(model, parameter_writer(g));
    gpt2_allocate(g, s.B, s.T, true);
    const ErrorLimits limits = error_limits<Real>(pad != nullptr, config.num_layers);
    Verdict verdict;
    std::vector<float> logits(s.logits.size());
    const float loss = forward_backward(g, s, &logits);
    verdict.tensor("logits", logits.data(), s.logits.data(), logits.size(), limits.logits);
    verdict.loss("loss", loss, s.loss, limits.loss);
    check_gradients(g, s, limits.gradients, verdict);
    check_training(g, s, losses, limits.loss, verdict);
    return verdict.passed;
}

// The folder of the reference that comes with the source: from the current folder, or beside the build
// folder.
static std::filesystem::path reference_folder() {
    std::error_code ignored;
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
    for (const std::filesystem::path& root : {std::filesystem::path("."), program.parent_path() / ".."})
        if (std::filesystem::exists(root / "tests/reference/tiny.bin")) return root / "tests/reference";
    fail("tests/reference is not here: run from the project's folder, or give MODEL.bin and STATE.bin");
}

int main(int argc, char** argv) {
    wait_briefly(argv);
    std::string device = "auto", precision = "fp32", losses, model, state;
    CLI::App app("Checks the model against PyTorch's numbers.", "test_gpt2");
    app.set_help_flag("--help", "show this text");
    app.add_option("--device", device,
                   "auto, cpu, gpu, a number of train_gpt2 --list-devices, or part of a name")
        ->capture_default_str();
    app.add_option("--precision", precision, "fp32, bf16 or fp16")
        ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
        ->capture_default_str();
    app.add_option("--losses", losses, "losses of ten AdamW steps, to be checked too");
    CLI::Option* first = app.add_option("MODEL", model, "llm.c checkpoint, such as gpt2_124M.bin");
    CLI::Option* second = app.add_option("STATE", state, "debug state, such as gpt2_124M_debug_state.bin");
    first->needs(second);
    try {
        app.parse(argc, argv);
        if (model.empty()) {
            const std::filesystem::path folder = reference_folder();
            model = (folder / "tiny.bin").string();
            state = (folder / "tiny_debug_state.bin").string();
            losses = (folder / "tiny_losses.txt").string();
        }
        const auto check = precision == "bf16"   ? check_model<bf16>
                           : precision == "fp16" ? check_model<fp16>
                                                 : check_model<float>;
        const bool passed = check(device, model, state, losses);
        printf("%s\n", passed ? "all within the limits" : "FAILED: see the lines above");
        return passed ? 0 : 1;
    } catch (const CLI::Success& help) {
        return app.exit(help);
    } catch (const std::exception& error) {
        fprintf(stderr, "test_gpt2: %s\n", error.what());
        return 1;
    }
}
