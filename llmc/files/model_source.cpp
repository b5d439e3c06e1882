#include "llmc/files/model_source.h"

#include <algorithm>
#include <filesystem>

#include "llmc/base/ceil_div.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/lines.h"
#include "llmc/base/os.h"
#include "llmc/base/paths.h"
#include "llmc/base/system_files.h"
#include "llmc/base/toml.h"
#include "llmc/base/utf8.h"
#include "llmc/files/checkpoint.h"
#include "llmc/files/hugging_face.h"
#include "llmc/files/model_file.h"
#include "llmc/text/bpe_trainer.h"

namespace fs = std::filesystem;

std::string recorded_option(const nlohmann::json& run, const std::string& name, const std::string& path) {
    for (const nlohmann::json& line : run.value("options", nlohmann::json::array())) {
        if (!line.is_string() || !line.get<std::string>().starts_with(name)) continue;
        try {
            for (const TomlEntry& entry : read_toml(line.get<std::string>(), path))
                if (const std::string text = joined(entry.values, "\n"); entry.name == name)
                    return text == "-1" ? "" : text;  // -1: chosen by the program
        } catch (const Error&) {                      // somebody else wrote it
        }
    }
    return "";
}

// automatic: another name, or none.
static DocumentSplit split_named(const std::string& name) {
    const std::vector<std::string>& names = document_split_names;
    const auto found = std::find(names.begin(), names.end(), name);
    return found == names.end() ? DocumentSplit::automatic : DocumentSplit(found - names.begin());
}

// Takes what a run's JSON object says about the model.
static void take_record(ModelSource& model, const std::string& run, const std::string& path) {
    if (run.empty()) return;
    model.run = run;
    const nlohmann::json object = parse_json_object(run, path);
    if (object.contains("tokenizer"))
        model.tokenizer = tokenizer_info_from_json(json_text(object["tokenizer"]), path);
    const nlohmann::json positions = object.value("positions", nlohmann::json(0));
    if (!positions.is_number_unsigned() || positions > 1 << 20)
        fail("%s was not written by this program: positions", path.c_str());
    model.positions = positions;
    if (recorded_option(object, "text", path).empty()) return;
    model.split = split_named(recorded_option(object, "split-documents", path));
    const bool is_text = recorded_option(object, "field", path).empty();
    if (model.split == DocumentSplit::automatic)
        model.split = is_text ? DocumentSplit::blank_line : DocumentSplit::none;
}

// What the files beside model.safetensors say.
static std::optional<TokenizerInfo> tokenizer_beside(const fs::path& model, bool& has_unusable_one) {
    for (const char* name : {"tokenizer.json", "vocab.json"}) {
        const std::string file = generic_text(model.parent_path() / name);
        if (!optional_file_exists(file)) continue;
        try {
            return info_of(open_tokenizer(file));
        } catch (const FileError&) {
            throw;
        } catch (const Error& error) {
            warn("this tokenizer cannot be used: %s", error.what());
            has_unusable_one = true;
            return std::nullopt;  // another file's tokens may have other ids
        }
    }
    return std::nullopt;
}

static ModelSource find_file(const std::string& name, const std::string& path) {
    ModelSource model = {.name = name, .path = path, .is_file = true, .tokenizer = {}};
    if (!fold_case(path).ends_with(".bin")) {
        model.tokenizer = tokenizer_beside(path, model.has_unusable_tokenizer);
        model.split = split_named(split_of_hugging_face(path));
    } else if (const auto [folder, step] = checkpoint_of(path); step >= 0)
        take_record(model, check_model_of_checkpoint(folder, step), run_path(folder, step));
    return model;
}

// The checkpoint with the lowest validation loss, as the newest one's run file says; step -1: it does not.
struct BestCheckpoint {
    int step = -1;
    double loss = 0;
};
static BestCheckpoint best_of_run(const FoundCheckpoint& newest, const std::string& folder) {
    if (newest.run.empty()) return {};
    try {
        const nlohmann::json run = parse_json_object(newest.run, "it");
        if (!run.contains("validations")) return {};
        const nlohmann::json& best = run["validations"].at("best");
        return {best.at("step").get<int>(), best.at("loss").get<double>()};
    } catch (const nlohmann::json::exception&) {
        fail("%s was not written by this program", run_path(folder, newest.step).c_str());
    }
}

static std::string last_of_run(const std::string& folder, int step) {
    return format_string("%s: taking the last checkpoint, of step %d", printable(folder).c_str(), step);
}

// Takes the best checkpoint instead of the newest one, if it is there and intact. Returns a line that says
// which is taken.
static std::string choose_best(const std::string& folder, FoundCheckpoint& found) {
    const BestCheckpoint best = best_of_run(found, folder);
    const std::string newest = last_of_run(folder, found.step);
    const int last_step = found.step;
    if (best.step < 0) return newest + "; no validation says which is best";
    if (best.step != found.step) {
        if (!file_exists(done_path(folder, best.step)))
            return newest + format_string("; the best one, of step %d, was not kept", best.step);
        try {
            found.run = check_model_of_checkpoint(folder, best.step);
        } catch (const FileError&) {
            throw;
        } catch (const Error& error) {
            return newest +
                   format_string("; the best one, of step %d, is broken: %s", best.step, error.what());
        }
        found.step = best.step;
    }
    const std::string last =
        best.step == last_step ? "the last one, too" : format_string("the last one is step %d's", last_step);
    return format_string("%s: taking the best checkpoint, of step %d, with validation loss %.4f; %s",
                         printable(folder).c_str(), best.step, best.loss, last.c_str());
}

enum class Choice { best, last };

static const int most_attempts = 10;  // while a run writes and deletes checkpoints

// The checkpoint that is chosen of the newest ones, and a line that says which it is; step -1: none is
// intact.
static FoundCheckpoint find_chosen(const std::string& folder, Choice choice, std::string& line) {
    for (int attempts_left = most_attempts;; attempts_left--) {
        const std::vector<int> before = list_checkpoints(folder);
        FoundCheckpoint found = find_latest_model(folder);
        if (found.step >= 0)
            line = choice == Choice::best ? choose_best(folder, found) : last_of_run(folder, found.step);
        if (attempts_left == 0 || list_checkpoints(folder) == before) return found;
    }
}

// A run's folder in this one; "": there is none that can be read.
static std::string run_inside(const std::string& folder) {
    for (const std::string& name : names_in(folder)) try {
            const std::string run = generic_text(fs::path(folder) / name);
            if (is_folder(run) && !list_checkpoints(run).empty()) return run;
        } catch (const FileError&) {
        }
    return "";
}

static ModelSource find_in_folder(const std::string& name, const std::string& folder, Choice choice) {
    std::string chosen;
    const FoundCheckpoint found = find_chosen(folder, choice, chosen);
    for (const std::string& line : found.broken) print_line(stderr, "note: %s", line.c_str());
    if (found.step >= 0) {
        ModelSource model = {.name = name,
                             .path = model_path(folder, found.step),
                             .is_file = true,
                             .tokenizer = {},
                             .chosen = chosen};
        take_record(model, found.run, run_path(folder, found.step));
        return model;
    }
    if (!found.broken.empty())
        fail("-e %s: no checkpoint in this folder is intact; %s", name.c_str(), found.broken.front().c_str());
    for (const char* file : {"model.safetensors", "model.safetensors.index.json"}) {
        const std::string path = generic_text(fs::path(folder) / file);
        if (optional_file_exists(path)) return find_file(name, path);
        refuse_unreachable(path);
    }
    for (const std::string& file : names_in(folder))
        for (const char* end : {".bin", ".pt", ".pth", ".ckpt", ".gguf"})
            if (const fs::path path = fs::path(folder) / file;
                fold_case(file).ends_with(end) && fs::is_regular_file(path))
                refuse_other_format(generic_text(path));
    if (const std::string run = run_inside(folder); !run.empty())
        fail("-e %s: the folder has no model itself: name one inside it, such as -e %s", name.c_str(),
             shell_word(run).c_str());
    fail(
        "-e %s: the folder has no complete checkpoint of a run (%s -o %s writes one at its end) and no "
        "model.safetensors",
        name.c_str(), command_of("train_gpt2").c_str(), shell_word(folder).c_str());
}

// The run's folder in FOLDER:last; "": it is something else.
static std::string folder_of_last(const std::string& name) {
    const std::string suffix = ":last";
    if (!name.ends_with(suffix) || is_folder(name)) return "";
    const std::string folder = name.substr(0, name.size() - suffix.size());
    return is_folder(folder) ? folder : "";
}

bool names_model_file(const std::string& name) {
    return is_model_file(name) || is_folder(name) || !folder_of_last(name).empty();
}

bool looks_like_model_file(const std::string& name) { return names_model_file(name) || has_separator(name); }

// Error if the name is that of a model of OpenAI's, or of its folder, which is not there.
static void refuse_published(const std::string& name) {
    const std::string size =
        (fs::path(name) / "").lexically_normal().parent_path().filename().generic_string();
    for (const char* published : {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"}) {
        if (size != published) continue;
        const std::string folder = "data/" + size;
        if (name != folder && is_folder(folder))
            fail("-e %s: it is in %s: -e %s", name.c_str(), folder.c_str(), shell_word(folder).c_str());
        fail(
            "-e %s: it is not there: `data/download.sh gpt2 %s` downloads it to %s, for -e %s; a new model "
            "is -e d12",
            name.c_str(), published, folder.c_str(), shell_word(folder).c_str());
    }
}

ModelSource find_model(const std::string& name) {
    if (is_folder(name)) return find_in_folder(name, name, Choice::best);
    if (const std::string folder = folder_of_last(name); !folder.empty())
        return find_in_folder(name, folder, Choice::last);
    if (is_model_file(name)) return find_file(name, name);
    if (file_exists(name)) refuse_other_format(name);
    const std::string before_colon = name.substr(0, name.rfind(':'));
    const bool is_shape = before_colon == "custom" || before_colon == "gpt2" || before_colon == "gpt3";
    if (!is_shape && is_folder(before_colon))
        fail("-e %s: after a run's folder comes :last, or nothing for its best checkpoint", name.c_str());
    refuse_published(name);
    if (has_separator(name)) {
        refuse_unreachable(name);
        fail("-e %s: %s", name.c_str(),
             file_exists(name) ? "a model is a folder, or a file whose name ends with .bin or .safetensors"
                               : "there is no such file or folder");
    }
    return {.name = name, .path = name, .is_file = false, .tokenizer = {}};
}

void read_found_model(ModelSource& model, const std::function<void()>& read) {
    for (int attempts_left = most_attempts;; attempts_left--) {
        try {
            return read();
        } catch (const Error&) {
            if (attempts_left == 0 || !model.is_file || file_exists(model.path)) throw;
        }
        model = find_model(model.name);
    }
}

void read_same_model(ModelSource& model, const ModelConfig& config, const std::function<void()>& read) {
    read_found_model(model, [&] {
        if (model.is_file && read_model_file_header(model.path) != config)
            fail("%s is another model now: start again", model.name.c_str());
        read();
    });
}

ModelConfig read_shape(ModelSource& model) {
    if (!model.is_file) return parse_descriptor(model.path);
    ModelConfig config;
    read_found_model(model, [&] { config = read_model_file_header(model.path); });
    return config;
}

int trained_positions(const ModelSource& model, const ModelConfig& config) {
    return model.positions ? std::min(model.positions, config.max_seq_len) : config.max_seq_len;
}

// A vocabulary with padding.
static int padded(int tokens) { return int(ceil_div(tokens, 128)) * 128; }

void check_data_fits(const TokenizerInfo& data, const std::string& data_name, const ModelSource& model,
                     const ModelConfig& config) {
    const std::string advice =
        "prepare the text with the model's tokenizer (" + command_of("prepare_data") + " --tokenizer)";
    if (model.tokenizer && model.tokenizer->checksum != data.checksum)
        fail("'%s' was made with %s, but the model %s was trained with %s: %s", data_name.c_str(),
             describe(data).c_str(), model.name.c_str(), describe(*model.tokenizer).c_str(), advice.c_str());
    // a descriptor may ask for more, and so does the checkpoint of its run
    const bool may_be_larger = !model.is_file || model.tokenizer;
    const bool fits = config.vocab_size >= data.vocab_size &&
                      (may_be_larger || config.vocab_size <= padded(data.vocab_size));
    if (!fits)
        fail("'%s' was made with %s, but the model %s has a vocabulary of %d: %s", data_name.c_str(),
             describe(data).c_str(), model.name.c_str(), config.vocab_size, advice.c_str());
}

// The tokenizer of a model that no file names: bytes for a vocabulary of 257, else one that lies nearby, if
// it fits up to padding to a multiple of 128.
static std::optional<Tokenizer> nearby_tokenizer(const std::string& model, const std::string& data,
                                                 int vocab_size) {
    if (vocab_size == 257) return open_tokenizer("bytes");
    const std::string path = usual_tokenizer(
        {generic_text(fs::path(model).parent_path()), generic_text(fs::path(data).parent_path())});
    if (path.empty()) return std::nullopt;
    Tokenizer tokenizer = open_tokenizer(path);
    if (tokenizer.vocab_size() > vocab_size || vocab_size > padded(tokenizer.vocab_size()))
        return std::nullopt;
    return tokenizer;
}

std::optional<Tokenizer> tokenizer_for(const std::string& asked, const ModelSource& model, int vocab_size,
                                       const std::optional<TokenizerInfo>& recorded,
                                       const std::string& data) {
    std::optional<Tokenizer> tokenizer;
    if (!asked.empty() && !(recorded && recorded->name == asked && parse_bpe(asked)))
        tokenizer = open_tokenizer(asked);
    else if (recorded) {
        tokenizer = open_recorded_tokenizer(*recorded);
        if (!tokenizer && model.tokenizer && model.tokenizer->checksum == recorded->checksum) {
            TokenizerInfo copy = *recorded;  // which the model has
            copy.file = model.tokenizer->file;
            tokenizer = open_recorded_tokenizer(copy);
        }
        if (!tokenizer && !recorded->file.empty() && get_status(recorded->file, Links::keep))
            warn("the tokenizer that made the data of the model %s is no longer in %s", model.name.c_str(),
                 recorded->file.c_str());
    } else if (!model.has_unusable_tokenizer)
        tokenizer = nearby_tokenizer(model.path, data, vocab_size);
    if (!tokenizer) return std::nullopt;
    const int tokens = tokenizer->vocab_size();
    if (tokens > vocab_size)
        fail("%s %s has %d tokens, but the model %s has only %d: give the tokenizer that made its data",
             asked.empty() ? "the recorded tokenizer" : "--tokenizer", tokenizer->name.c_str(), tokens,
             model.name.c_str(), vocab_size);
    if (asked.empty()) return tokenizer;
    if (vocab_size > padded(tokens))
        warn("--tokenizer %s has %d of the %d tokens of the model %s; the others are never sampled",
             tokenizer->name.c_str(), tokens, vocab_size, model.name.c_str());
    if (recorded && info_of(*tokenizer).checksum != recorded->checksum)
        fail("--tokenizer %s is not the one that made the data of the model %s, %s; leave it out",
             asked.c_str(), model.name.c_str(), describe(*recorded).c_str());
    if (recorded) take_chat_template(*tokenizer, *recorded);
    return tokenizer;
}
