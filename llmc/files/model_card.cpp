#include <cmath>
#include <filesystem>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/html.h"
#include "llmc/base/json.h"
#include "llmc/base/lines.h"
#include "llmc/files/checkpoint.h"
#include "llmc/files/export.h"

namespace fs = std::filesystem;

static const char* const front_matter =
    "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- gpt2\n---\n\n";
static const char* const mark =
    "<!-- Written by train_gpt2 --export hf, which replaces this file when it exports to this folder again. "
    "-->\n";

bool is_model_card(const std::string& text) { return text.find(mark) != text.npos; }

static std::string with_commas(uint64_t number) {
    std::string digits = std::to_string(number);
    for (int i = int(digits.size()) - 3; i > 0; i -= 3) digits.insert(size_t(i), 1, ',');
    return digits;
}

// A checkpoint's run, as far as it is known.
struct KnownRun {
    std::string folder;
    int step;  // -1: the model is not a checkpoint of a run
    nlohmann::json state;
};

static KnownRun find_run(const ModelSource& model) {
    const auto [folder, step] = checkpoint_of(model.path);
    if (step < 0 || model.run.empty()) return {folder, -1, {}};
    return {folder, step, parse_json_object(model.run, run_path(folder, step))};
}

// The last loss of a kind in main.log up to the model's step: "0.2737 (step 150)"; "" if there is none.
static std::string last_loss(const KnownRun& run, const char* kind) {
    const std::string path = run.folder + "/main.log";
    if (!file_exists(path)) return "";
    std::string found;
    for (const std::string& line : lines_of(read_whole_file(path))) {
        int step = 0;
        double loss = 0;
        const std::string format = std::string("s:%d ") + kind + ":%lf";
        const bool is_loss = sscanf(line.c_str(), format.c_str(), &step, &loss) == 2 && std::isfinite(loss);
        if (is_loss && step <= run.step) found = format_string("%.4f (step %d)", loss, step);
    }
    return found;
}

// A table's row; none if the value is unknown.
static std::string row(const char* name, const std::string& value) {
    return value.empty() ? "" : format_string("| %s | %s |\n", name, escape_markdown(value).c_str());
}

static std::string data_name(const KnownRun& run, const char* option) {
    std::vector<std::string> names =
        lines_of(recorded_option(run.state, option, run_path(run.folder, run.step)));
    for (std::string& name : names) name = fs::path(name).filename().generic_string();
    return joined(names, ", ");
}

static std::string training_table(const KnownRun& run) {
    const auto tokens = run.state.find("tokens");
    const bool has_tokens = tokens != run.state.end() && tokens->is_number_unsigned();
    uint64_t data_tokens = 0;
    for (const nlohmann::json& shard : run.state.value("shards", nlohmann::json::array()))
        if (shard.is_object() && shard.value("tokens", nlohmann::json()).is_number_unsigned())
            data_tokens += shard["tokens"].get<uint64_t>();
    std::string table = "| | |\n|---|---|\n";
    table += row("steps", with_commas(run.step));
    table += row("tokens trained on", has_tokens ? with_commas(tokens->get<uint64_t>()) : "");
    table += row("text", data_name(run, "text"));
    table += row("training data", data_name(run, "train-data"));
    table += row("tokens of the training data", data_tokens ? with_commas(data_tokens) : "");
    table += row("validation data", data_name(run, "val-data"));
    table += row("training loss", last_loss(run, "trl"));
    table += row("validation loss", last_loss(run, "tel"));
    for (const char* option :
         {"batch-size", "sequence-length", "total-batch-size", "learning-rate", "lr-scheduler",
          "warmup-steps", "final-lr-fraction", "weight-decay", "dropout", "precision", "seed"})
        table += row(option, recorded_option(run.state, option, run_path(run.folder, run.step)));
    return table;
}

std::string model_card(const std::string& name, const ModelSource& model, const ModelConfig& config,
                       const Tokenizer* tokenizer) {
    size_t parameters = num_parameters(config);
    parameters -= size_t(config.padded_vocab_size - config.vocab_size) * config.channels;
    std::string card = front_matter + std::string(mark) + "\n# " + escape_markdown(name) + "\n\n";
    card += format_string(
        "A GPT-2 with %s parameters: %s, %s, %d channels, %d positions, and a vocabulary of %s "
        "tokens. %s Losses are in nats per token.\n\n## Training\n\n",
        with_commas(parameters).c_str(), counted(config.num_layers, "layer").c_str(),
        counted(config.num_heads, "head").c_str(), config.channels, config.max_seq_len,
        with_commas(config.vocab_size).c_str(),
        tokenizer ? "In its training data, the token <|endoftext|> comes before each text."
                  : "Its tokenizer is unknown.");
    const KnownRun run = find_run(model);
    if (run.step < 0)
        return card +
               format_string("Nothing is known of its training: it was exported from the file %s.\n",
                             escape_markdown(fs::path(model.path).filename().generic_string()).c_str());
    return card + training_table(run);
}
