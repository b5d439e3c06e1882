#include "llmc/data/find_tokenizer.h"

#include <filesystem>

#include "llmc/base/ceil_div.h"
#include "llmc/base/error.h"
#include "llmc/base/warning.h"

std::optional<Tokenizer> find_tokenizer(const std::string& name, const std::vector<std::string>& neighbours) {
    if (!name.empty()) return open_tokenizer(name);
    std::vector<std::string> folders;
    for (const std::string& file : neighbours)
        folders.push_back(std::filesystem::path(file).parent_path().generic_string());
    const std::string usual = usual_tokenizer(folders);
    if (usual.empty()) return std::nullopt;
    return open_tokenizer(usual);
}

void match_tokenizer(std::optional<Tokenizer>& tokenizer, TokenizerChoice choice, int vocab_size,
                     const std::string& model) {
    if (!tokenizer) return;
    const int tokens = tokenizer->vocab_size(), padded = int(ceil_div(tokens, 128)) * 128;
    if (choice == TokenizerChoice::found) {
        const bool fits = tokens <= vocab_size && vocab_size <= padded;
        if (!fits) tokenizer.reset();
        return;
    }
    if (tokens > vocab_size)
        fail("%s %s has %d tokens, but the model %s has only %d: give the tokenizer that made its data",
             choice == TokenizerChoice::asked ? "--tokenizer" : "the recorded tokenizer",
             tokenizer->name.c_str(), tokens, model.c_str(), vocab_size);
    if (choice == TokenizerChoice::asked && vocab_size > padded)
        warn(
            format_string("--tokenizer %s has %d of the %d tokens of the model %s; the others are never "
                          "sampled",
                          tokenizer->name.c_str(), tokens, vocab_size, model.c_str()));
}
