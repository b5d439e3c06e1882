#include "llmc/options/shared_options.h"

#include <CLI/CLI.hpp>

#include "llmc/base/os.h"
#include "llmc/cpu/simd.h"
#include "llmc/options/option_checks.h"

CLI::Option* add_simd_option(CLI::App& app) {
    const CLI::Validator check(
        [](std::string& name) {
            const std::string problem = choose_simd_by_name(name);
            if (problem.empty()) set_environment("LLMC_SIMD", name);
            return problem;
        },
        "");
    const std::string help =
        "instruction set of the CPU's GEMM and attention micro-kernels: " + simd_option_names(SIMD_AMX);
    return app
        .add_option_function<std::string>(
            "--simd", [](const std::string&) {}, help)
        ->check(check)
        ->envname("LLMC_SIMD");
}

CLI::Option* add_tensor_core_option(CLI::App& app) {
    return app.add_flag_function(
        "--tensor-cores,!--no-tensor-cores",
        [](int64_t count) { set_environment("LAUNCHPAD_TENSOR_CORES", count > 0 ? "1" : "0"); },
        "use the GPU's tensor cores even if its driver is known to crash or hang with them; or use none");
}

void add_text_options(CLI::App& app, TextOptions& text) {
    app.add_option("--include", text.include,
                   "of a folder, read only the files whose names match this quoted pattern, such as '*.md'; "
                   "may be repeated")
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->default_str("");
    app.add_option("--field", text.field, "the files are JSONL; this field of each object is a document");
    add(app, "--split-documents", text.split, one_of({"auto", "none", "blank-line", "endoftext"}),
        "blank-line: put end-of-text after every blank line, too; endoftext: the text <|endoftext|> ends a "
        "document; none; auto: blank-line for train_gpt2 --text without --field, else none");
    app.add_flag("--special-tokens", text.special_tokens,
                 "the texts of the tokenizer's added tokens, such as <|endoftext|>, are these tokens");
    app.add_flag("--skip-bad-lines", text.skip_bad_lines,
                 "JSONL: leave out lines without this field, and count them");
    app.add_flag("--as-text", text.as_text, "read JSONL as plain text");
}

void add_sampler_options(CLI::App& app, SamplerOptions& sampler) {
    add(app, "--temperature", sampler.temperature, between(0, 1000),
        "divides the logits; 0: always the likeliest token");
    add(app, "--top-k", sampler.top_k, at_least(0), "sample from the k likeliest tokens (0: all)");
    add(app, "--top-p", sampler.top_p, between(0, 1),
        "sample from the smallest set of likeliest tokens whose probabilities add up to p");
}
