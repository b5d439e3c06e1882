#include "llmc/run/same_inputs.h"

#include <algorithm>
#include <optional>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/system_files.h"
#include "llmc/data/saved_shards.h"
#include "llmc/files/checkpoint.h"
#include "llmc/files/model_file.h"
#include "llmc/options/option_files.h"

static void add_data(NamedTexts& all, const char* what, const std::vector<SavedShard>& shards) {
    for (const SavedShard& shard : shards)
        all.emplace_back(what,
                         format_string("%s %s of %llu tokens with the checksum %s", what, shard.name.c_str(),
                                       (unsigned long long)shard.tokens, shard.checksum.c_str()));
}

// What tells the file from others, also from one in its place on another machine.
static std::string identity_of(const std::string& path) {
    const FileStatus status = status_of(open_to_read(path), path);
    return format_string("%llu %llu %llu %lld", (unsigned long long)status.device,
                         (unsigned long long)status.number, (unsigned long long)status.size,
                         (long long)status.written);
}

// The checksum of the weights that a run starts from, which one process of each node reads, and others if
// they see another file. A checkpoint that is resumed says it itself.
static std::string checksum_of_weights(const RunInputs& inputs, Communicator& job) {
    const Start& start = inputs.start;
    const int first = job.rank - job.local_rank;
    const std::string& model = inputs.model.path;
    const bool is_sealed = start.resumed && file_exists(run_path(start.folder, start.step));
    const bool is_file = !is_sealed && is_model_file(model);
    const std::vector<std::string> files = job.gather(is_file ? identity_of(model) : "");
    const bool reads = is_file && (job.local_rank == 0 || files[job.rank] != files[first]);
    const std::string own = reads ? checksum_of_file(model) : "";
    const std::vector<std::string> all = job.gather(own);
    return reads ? own : all[first];
}

// What a process sees of a run.
static NamedTexts description(const RunInputs& inputs, Communicator& job) {
    NamedTexts all;
    const auto add = [&](const std::string& what, const std::string& path) {
        all.emplace_back(what, what + " with the checksum " + checksum_of_file(path));
    };
    all.emplace_back("start", format_string("starts at step %d", inputs.start.step));
    if (inputs.loader) add_data(all, "training data", shards_of(*inputs.loader));
    for (const DataLoader& val : inputs.val) add_data(all, "validation data", shards_of(val));
    const std::string weights = checksum_of_weights(inputs, job);
    if (!weights.empty()) all.emplace_back("weights", "weights with the checksum " + weights);
    // has the checksums of its other files
    const std::string state = run_path(inputs.start.folder, inputs.start.step);
    if (inputs.start.resumed && file_exists(state)) add("a checkpoint", state);
    if (inputs.tokenizer)
        all.emplace_back("tokenizer", "a tokenizer with the checksum " + info_of(*inputs.tokenizer).checksum);
    if (!inputs.hellaswag_file.empty()) add("HellaSwag", inputs.hellaswag_file);
    return all;
}

// The first of one's own that the other does not have; nothing if it has all.
static std::optional<NamedText> first_not_in(const NamedTexts& own, const NamedTexts& other) {
    for (const NamedText& text : own)
        if (!std::count(other.begin(), other.end(), text)) return text;
    return std::nullopt;
}

static std::string text_of(const NamedTexts& texts, const std::string& name) {
    for (const NamedText& text : texts)
        if (text.first == name) return text.second;
    return "nothing";
}

// Throws Error in all processes if they do not have the same.
static void expect_same(const NamedTexts& own, Communicator& job) {
    const auto lossy = nlohmann::json::error_handler_t::replace;  // paths need not be UTF-8
    const std::vector<std::string> all = job.gather(nlohmann::json(own).dump(-1, ' ', false, lossy));
    job.agree([&] {
        if (all[job.rank] == all[0]) return;
        const NamedTexts first = nlohmann::json::parse(all[0]);
        const auto extra = first_not_in(own, first), missing = first_not_in(first, own);
        const std::string name = extra ? extra->first : missing ? missing->first : "";
        const bool is_pair = extra && missing && extra->first == missing->first;
        fail("this process has '%s', rank 0 has '%s': give all processes the same options and data",
             extra ? extra->second.c_str() : text_of(own, name).c_str(),
             is_pair || !extra ? missing->second.c_str() : text_of(first, name).c_str());
    });
}

void check_same_options(const Options& o, Communicator& job) { expect_same(given_options(o), job); }

void check_all_options(const Options& o, Communicator& job) { expect_same(saved_options(o, true), job); }

void check_same_inputs(const RunInputs& inputs, Communicator& job) {
    if (job.size > 1) expect_same(description(inputs, job), job);
}
