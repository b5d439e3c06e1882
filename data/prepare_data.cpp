// prepare_data: turns text files into the token shards that train_gpt2 reads.
//     prepare_data --tokenizer gpt2_tokenizer.bin --split-documents blank-line --val-tokens 32768
//                  --out data --name shakespeare tinyshakespeare.txt
// writes data/shakespeare_val.bin and data/shakespeare_train.bin. With --field text, the files are JSONL.
// They may be compressed, and folders stand for the files below them. All threads tokenize; their number does
// not change the tokens.
//     prepare_data hellaswag --tokenizer gpt2_tokenizer.bin --out hellaswag_val.bin hellaswag_val.jsonl
// makes llm.c's HellaSwag file.
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/lines.h"
#include "llmc/base/output.h"
#include "llmc/data/hellaswag.h"
#include "llmc/data/preparation.h"
#include "llmc/options/command_line.h"
#include "llmc/options/shared_options.h"
#include "llmc/options/start_program.h"
#include "llmc/text/text_file.h"
#include "llmc/text/tokenizer.h"

struct Options : PreparationOptions {
    std::string hellaswag;  // the JSONL file of the subcommand
};

// Where to print what was written to `path`.
static FILE* summary_of(const std::string& path) {
    return is_same_file(path, "/dev/stdout") ? stderr : stdout;
}

static void prepare_hellaswag(const Options& options) {
    check_output(options.out, {options.hellaswag, options.tokenizer}, is_hellaswag);
    check_writable(options.out);
    Tokenizer tokenizer = open_tokenizer(options.tokenizer);
    std::vector<HellaSwagExample> examples;
    size_t number = 0;
    for (const std::string& line : lines_of(read_text_file(options.hellaswag, 1 << 28))) {
        number++;
        if (line.find_first_not_of(" \t\r") == line.npos) continue;
        const std::string where = format_string("%s: line %zu", options.hellaswag.c_str(), number);
        examples.push_back(parse_hellaswag(line, where, tokenizer));
    }
    if (examples.empty()) fail("%s has no examples", options.hellaswag.c_str());
    write_hellaswag(options.out, examples);
    print_line(summary_of(options.out), "%s: %s", options.out.c_str(),
               counted(examples.size(), "example").c_str());
}

// The command line that begins with the word hellaswag.
static int run_hellaswag(int argc, char** argv) {
    Options options;
    CommandLine line("prepare_data", "Turns HellaSwag's JSONL into llm.c's file.");
    line.accept_cpu_as_device();
    line.add("FILE", options.hellaswag, "hellaswag_val.jsonl, as published").is(PathKind::file).required();
    line.add("--tokenizer", options.tokenizer, "tokenizer file, or bytes").is(PathKind::tokenizer);
    line.add("--out", options.out, "file to write").is(PathKind::file).required();
    return line.run(argc - 1, argv + 1, [&] {
        const StopWritingAtSignals stops;
        prepare_hellaswag(options);
    });
}

static void add_options(CommandLine& line, Options& options) {
    line.add("FILE", options.files,
             "text files, plain or compressed (gzip, zstd), folders of them, or - for standard input")
        .is(PathKind::file);
    line.add("--files-from", options.files_from,
             "read more names of files from this file, one per line; may be repeated")
        .is(PathKind::file);
    line.add("--tokenizer", options.tokenizer,
             "tokenizer file, bytes, or bpe:N, as in bpe:4096: one of N tokens, trained on all of the text")
        .is(PathKind::tokenizer);
    line.add("--min-frequency", options.bpe.min_frequency,
             "bpe: how often a pair that becomes a token occurs");
    line.add("--max-token-length", options.bpe.max_token_length,
             "bpe: tokens have fewer bytes, unless they have 1 or 2 (0: no limit)");
    line.add("--special-token", options.bpe.special_tokens,
             "bpe: a text that is one token; may be repeated. <|endoftext|> is the first if not named");
    add_text_options(line, options);
    line.add("-t,--sequence-length", options.pack_tokens, "tokens of the sequences for questions and answers")
        .between(2, 1 << 20);
    line.add("--val-tokens", options.val_tokens, "number of tokens, from the start, for validation");
    line.add("--val-fraction val-split", options.val_fraction,
             "instead: fraction of the documents, drawn from all of the text, for validation")
        .between(0, 0.5);
    line.add("--seed", options.seed, "seed of the draw of --val-fraction");
    line.add("--shard-tokens shard-size", options.shard_tokens, "maximum tokens in a shard");
    line.add("--out output out-dir output-dir", options.out, "folder for the shards, created if missing")
        .is(PathKind::file);
    line.add("--name", options.name, "name of the shards");
}

int main(int argc, char** argv) {
    start_program(argv);
    if (argc > 1 && std::string(argv[1]) == "hellaswag") return run_hellaswag(argc, argv);
    Options options;
    CommandLine line(
        "prepare_data",
        "Turns text files into token shards DIR/NAME_train.bin and DIR/NAME_val.bin; prepare_data "
        "hellaswag makes another file, and has options of its own.");
    line.accept_cpu_as_device();
    add_options(line, options);
    return line.run(argc, argv, [&] {
        const StopWritingAtSignals stops;
        line.note({{"seed", "it is for --val-fraction", options.val_fraction == 0}});
        prepare_tokens(options);
    });
}
