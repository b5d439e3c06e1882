// The commands of a model: see model_commands.h.
#include "dev/vulkan/model_commands.h"

#include "dev/vulkan/baselines/baselines.h"
#include "llmc/generate/text_generator.h"
#include "llmc/kernels/kernel_cases.h"
#include "llmc/model/train_step.h"

template <class Real>
static void give_training_commands(LaunchPad& pad, const ModelConfig& config, int B, int T,
                                   OptimizerKind kind, float dropout) {
    GPT2<Real> g(config, &pad);
    g.dropout = dropout;
    gpt2_allocate(g, B, T, true);
    Optimizer<Real> optimizer(config, g.memory, {.master_weights = true}, {.kind = kind});
    StepRunner<Real> runner = {.g = g, .optimizer = optimizer, .B = B, .T = T, .micro_steps = 2};
    runner.prepare();
    gpt2_forward(g, B, T);
    gpt2_head(g, B, T, 1, Gradients::accumulate);  // of a later micro-step
    gpt2_backward(g, B, T, Gradients::accumulate);
    TextGenerator<Real> generator(g, T, 1);
    generator.reader.read(0, std::vector<int>(size_t(T / 2), 0));
    generator.decode_step();
}

template <class Real>
void give_default_commands(LaunchPad& pad, const ModelConfig& config, int B, int T) {
    for (const OptimizerInfo& optimizer : all_optimizers())
        give_training_commands<Real>(pad, config, B, T, optimizer.kind, 0);
    give_training_commands<Real>(pad, config, B, T, OptimizerKind::adamw, 0.1f);
    pad.commit();
}

template <class Real>
void give_all_versions(LaunchPad& pad, const ModelConfig& config, int B, int T) {
    add_baselines();
    const KernelShape shape = {.B = B,
                               .T = T,
                               .C = config.channels,
                               .NH = config.num_heads,
                               .V = config.vocab_size,
                               .Vp = int(config.padded_vocab_size)};
    for (const KernelCase& c : kernel_cases<Real>(shape))
        for (const KernelRun& run : c.versions) {
            if (!run.fits(pad)) continue;
            Operands operands(&pad, Fill::nothing);
            run.prepare(operands)();
        }
    pad.commit();
}

#define INSTANTIATE(Real)                                                                \
    template void give_default_commands<Real>(LaunchPad&, const ModelConfig&, int, int); \
    template void give_all_versions<Real>(LaunchPad&, const ModelConfig&, int, int);
FOR_EACH_REAL(INSTANTIATE)
#undef INSTANTIATE
