// The options of reading text that prepare_data and train_gpt2 --text have in common.
#pragma once
#include "llmc/prepare/preparation.h"
#include "llmc/program/option_checks.h"

inline void add_text_options(CLI::App& app, TextOptions& text) {
    app.add_option("--include", text.include,
                   "of a folder, read only the files whose names match this quoted pattern, such as '*.md'; "
                   "may be repeated")
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
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
