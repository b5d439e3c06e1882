#include "llmc/options/shared_options.h"

#include <cstdlib>

#include "llmc/base/error.h"
#include "llmc/base/os.h"
#include "llmc/cpu/simd.h"
#include "llmc/layers/sampler.h"
#include "llmc/options/arguments.h"
#include "llmc/options/version.h"
#include "llmc/text/text_reader.h"

void add_text_options(OptionTable& table, TextOptions& text) {
    table.add(
        "--include", text.include,
        "of a folder, read only the files whose names match this quoted pattern, such as '*.md'; may be "
        "repeated");
    table.add(
        "--field text-field text-column column key", text.field,
        "the files are JSONL; this field of each object is a document; repeated: the fields, a line each");
    table
        .add(
            "--split-documents", text.split,
            "blank-line: put end-of-text after every blank line, too; endoftext: the text <|endoftext|> ends "
            "a document; none; auto: blank-line for " +
                command_of("train_gpt2") + " --text without --field, else none")
        .one_of(document_split_names);
    table.add("--special-tokens", text.special_tokens,
              "the texts of the tokenizer's added tokens, such as <|endoftext|>, are these tokens");
    table.add("--skip-bad-lines", text.skip_bad_lines,
              "JSONL: leave out lines without this field, or without question and answer, and count them");
    table.add("--as-text", text.as_text, "read JSONL as plain text");
    table
        .add("--template", text.chat_template,
             "of questions and answers: a file with {user}, {assistant} and possibly {system} where the "
             "texts are, or Jinja (default: the model's own, else ### Question, ### Answer)")
        .is(PathKind::file)
        .not_empty();
    table.add("--loss-on-questions", text.loss_on_questions,
              "of questions and answers: the loss counts all tokens, not those of the answers alone");
}

void refuse_text_options(OptionTable& table) {
    TextOptions text;
    OptionTable defaults;
    add_text_options(defaults, text);
    for (const Option& row : defaults.rows)
        if (const Option& given = *table.find(row.name); given.texts() != row.texts())
            fail("%s says how a text is read: name a file or folder with --text", given.shown().c_str());
}

void add_sampler_options(OptionTable& table, SamplerOptions& sampler) {
    table.add("--temperature", sampler.temperature, "divides the logits; 0: always the likeliest token")
        .between(0, 1000);
    table.add("--top-k", sampler.top_k, "sample from the k likeliest tokens (0: all)");
    table
        .add("--top-p", sampler.top_p,
             "sample from the smallest set of likeliest tokens whose probabilities add up to p")
        .between(0, 1);
}

// --- the machine ---

void add_help_options(OptionTable& table, MachineOptions& o) {
    table.add("--help", o.help, "show this text").not_saved();
    table.add("--version", o.version, "show the version").not_saved();
}

void add_cpu_options(OptionTable& table, MachineOptions& o) {
    table
        .add("--threads num-threads", o.threads,
             "CPU threads; 0: OMP_NUM_THREADS, or the cores that the process may use, at most its CPU quota")
        .between(0, 1024)
        .of_process()
        .not_saved();
    Option& simd = table.add(
        "--simd", o.simd,
        "instruction set of the CPU's GEMM and attention micro-kernels: " + simd_option_names(SIMD_AMX));
    simd.problem = choose_simd_by_name;  // which takes it
    simd.of_process().not_saved();
}

void add_tensor_core_option(OptionTable& table, MachineOptions& o) {
    Option& row = table.add("--tensor-cores", o.tensor_cores,
                            "use the GPU's tensor cores even if its driver is known to crash or hang with "
                            "them; or use none");
    row.one_of({"by driver", "false", "true"}).not_saved().of_process();
    row.bare = "true";
    row.has_negation = true;
}

bool take_machine_options(OptionTable& table, const MachineOptions& o) {
    if (o.help) fputs(help_text(table).c_str(), stdout);
    if (o.version && !o.help) printf("%s\n", version_text(table.program.c_str()).c_str());
    if (o.help || o.version) return false;
    Option& simd = *table.find("simd");
    const char* wanted = getenv("LLMC_SIMD");
    if (simd.source == Source::built_in && wanted && *wanted) table.set(simd, {wanted}, Source::config);
    if (simd.source == Source::command_line) set_environment("LLMC_SIMD", o.simd);
    if (o.tensor_cores != TensorCores::by_driver)
        set_environment("LAUNCHPAD_TENSOR_CORES", o.tensor_cores == TensorCores::always ? "1" : "0");
    return true;
}
