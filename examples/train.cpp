// Trains a small model to repeat a sentence, byte by byte, and writes it to a file: example_train model.bin
#include "llmc/base/error.h"
#include "llmc/base/output.h"
#include "llmc/files/checkpoint.h"
#include "llmc/launchpad/open_device.h"
#include "llmc/model/initialize.h"
#include "llmc/model/train_step.h"

int main(int argc, char** argv) try {
    if (argc != 2) fail("usage: example_train model.bin");
    check_output(argv[1], {}, [](const std::string& path) { return read_model_header(path), true; });
    const std::string text = "the quick brown fox jumps over the lazy dog. ";
    const int B = 4, T = 32;
    const auto pad = open_device("auto", {}, stderr);  // null: the CPU
    const ModelConfig config =
        parse_descriptor("custom:layers=2,heads=2,channels=32,max_seq_len=32,vocab=257");
    GPT2<float> model(config, pad.get());
    initialize_parameters(config, 42, parameter_writer(model));
    gpt2_allocate(model, B, T, true);
    Optimizer<float> optimizer(config, model.memory, {});
    StepRunner<float> runner = {.g = model, .optimizer = optimizer, .B = B, .T = T, .micro_steps = 1};
    for (int step = 0; step < 200; step++) {
        const Ticket ticket = runner.run(step, 1e-2f, [&](int* inputs, int* targets) {
            for (int i = 0; i < B * T; i++) inputs[i] = text[(step + i) % text.size()];
            for (int i = 0; i < B * T; i++) targets[i] = text[(step + i + 1) % text.size()];
        });
        if (step % 50 == 0) printf("step %d: loss %.3f\n", step, double(runner.stats(step, ticket).loss));
    }
    write_model(argv[1], config, parameter_reader(model));
} catch (const std::exception& error) {
    fprintf(stderr, "%s\n", error.what());
    return 1;
}
