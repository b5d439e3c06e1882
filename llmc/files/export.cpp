#include "llmc/files/export.h"

#include <filesystem>
#include <set>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/output.h"
#include "llmc/base/paths.h"
#include "llmc/base/system_files.h"
#include "llmc/files/gguf.h"
#include "llmc/files/hugging_face.h"

namespace fs = std::filesystem;

static const char* const card_name = "README.md";
// Sorted, so config.json is the first to be removed.
static const std::set<std::string> file_names = {
    "README.md",  "config.json",       "generation_config.json", "merges.txt",
    "vocab.json", "model.safetensors", "tokenizer.json",         "tokenizer_config.json"};

void check_export_folder(const std::string& folder) {
    const std::string card = folder + "/" + card_name;
    std::string first;
    std::set<std::string> own;  // as the folder spells them
    for (const std::string& name : file_names)
        for (const std::string& file : {folder + "/" + name, temporary_of(folder + "/" + name)})
            own.insert(path_as_listed(file));
    for (const std::string& name : names_in(folder)) {
        if (name.starts_with(".")) continue;
        if (!own.contains(folder + "/" + name))
            fail("--export hf %s: this folder holds %s, which an export does not write; name a new folder",
                 folder.c_str(), name.c_str());
        if (first.empty()) first = name;
    }
    if (first.empty()) return;
    if (!file_exists(card) || !is_model_card(read_whole_file(card)))
        fail("--export hf %s: this folder holds %s, and no %s of an earlier export; name a new folder",
             folder.c_str(), first.c_str(), card_name);
}

// Error if an export to the folder would replace a file that it reads.
static void refuse_own_inputs(const std::string& folder, const ExportedModel& model) {
    for (const std::string& input : {model.source.path, model.tokenizer ? model.tokenizer->name : ""})
        for (const char* name : {".", "tokenizer.json", "vocab.json", "model.safetensors"})
            if (is_same_file(input, folder + "/" + name))
                fail("--export hf %s: %s is an input, too, and would be lost: name a new folder",
                     folder.c_str(), input.c_str());
}

// Each file is replaced as a whole. config.json goes first and comes last, so no tool loads a mixture of two
// models' files if the program is stopped, and the next export accepts the folder, since it has a README.md.
void export_hugging_face(const std::string& folder, const ExportedModel& model) {
    check_export_folder(folder);
    refuse_own_inputs(folder, model);
    create_folders(folder);
    const FileWriter lock = lock_outputs(folder + "/.export");
    const uint64_t bytes = stored_bytes(model.type, num_parameters(model.config));
    if (free_bytes(folder) < bytes)
        fail("no room for the model in %s: it takes %.1f MiB, and %.1f are free", folder.c_str(),
             double(bytes) / (1 << 20), double(free_bytes(folder)) / (1 << 20));
    for (const std::string& old : file_names) check_can_move(folder + "/" + old);
    const std::string name = absolute_path(fs::path(folder) / "").parent_path().filename().generic_string();
    write_whole_file(folder + "/" + card_name,
                     {model_card(name, model.source, model.config, model.tokenizer)});
    for (const std::string& old : file_names)
        if (old != card_name && file_exists(folder + "/" + old)) remove_file(folder + "/" + old);
    if (model.tokenizer) write_hugging_face_tokenizer(folder, *model.tokenizer, model.config.max_seq_len);
    write_hugging_face(
        folder, model.config, model.read, model.type, model.tokenizer ? model.tokenizer->end_of_text : -1,
        model.tokenizer ? model.tokenizer->roles : "",
        model.source.split == DocumentSplit::automatic ? ""
                                                       : document_split_names[size_t(model.source.split)]);
    print_line(stdout, "wrote %s: model.safetensors, config.json, generation_config.json and README.md%s",
               folder.c_str(),
               model.tokenizer
                   ? ", and the tokenizer: tokenizer.json, vocab.json, merges.txt, tokenizer_config.json"
                   : "; no tokenizer is known for it: name one with --tokenizer");
}

void check_export_file(const std::string& path) {
    check_output(path, {}, is_gpt2_gguf);  // no input is a GGUF file
}

void export_gguf(const std::string& path, const ExportedModel& model) {
    if (!model.tokenizer)
        fail(
            "--export gguf: no tokenizer is known for %s, and the file must hold one: name it with "
            "--tokenizer",
            model.source.name.c_str());
    check_export_file(path);
    if (const fs::path folder = fs::path(path).parent_path(); !folder.empty())
        create_folders(generic_text(folder));
    const int replaced =
        write_gguf(path, {model.config, model.read, *model.tokenizer, fs::path(path).stem().generic_string()},
                   model.type);
    print_line(is_same_file(path, "/dev/stdout") ? stderr : stdout, "wrote %s%s", path.c_str(),
               replaced ? format_string("; %d matrices, whose rows are no multiple of %zu values, are fp16",
                                        replaced, q8_0_block)
                              .c_str()
                        : "");
}
