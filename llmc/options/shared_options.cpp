#include "llmc/options/shared_options.h"

#include "llmc/base/error.h"

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
            "a document; none; auto: blank-line for train_gpt2 --text without --field, else none")
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
