#include "llmc/data/find_tokenizer.h"

#include <filesystem>

#include "llmc/base/error.h"

std::optional<Tokenizer> find_tokenizer(const std::string& name, const std::vector<std::string>& beside) {
    if (!name.empty()) return open_tokenizer(name);
    std::vector<std::string> folders;
    for (const std::string& file : beside) folders.push_back(std::filesystem::path(file).parent_path());
    const std::string usual = usual_tokenizer(folders);
    if (usual.empty()) return std::nullopt;
    return open_tokenizer(usual);
}

void match_tokenizer(std::optional<Tokenizer>& tokenizer, const std::string& name, int vocab_size,
                     const std::string& model) {
    if (!tokenizer || tokenizer->vocab_size() == vocab_size) return;
    if (!name.empty())
        fail("--tokenizer %s has %d tokens, but the model %s has %d: give the tokenizer that made its data",
             name.c_str(), tokenizer->vocab_size(), model.c_str(), vocab_size);
    tokenizer.reset();
}
