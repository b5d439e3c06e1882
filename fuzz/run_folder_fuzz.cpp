// Files in a run's folder that a resumed run reads besides the checkpoint: run_....json (given a valid
// checksum), the logs and the options.
#include <cstdio>
#include <filesystem>

#include "fuzz/fuzz.h"
#include "fuzz/seeds.h"
#include "llmc/base/checksum.h"
#include "llmc/base/json.h"
#include "llmc/options/option_files.h"
#include "llmc/run/run_folder.h"
#include "llmc/run/run_state.h"

// A folder with a checkpoint, removed at exit.
struct Folder {
    std::string path = (std::filesystem::temp_directory_path() / "run_folder_fuzz.XXXXXX").string();
    Folder() {
        if (!mkdtemp(path.data())) abort();
        write_seed_checkpoint(path);
    }
    ~Folder() { std::filesystem::remove_all(path); }
};

static void write_text(const std::string& path, std::string_view text) {
    FILE* file = fopen(path.c_str(), "wb");
    require(file && fwrite(text.data(), 1, text.size(), file) == text.size() && fclose(file) == 0);
}

static void read_run(const std::string& folder, std::string_view all) {
    const std::string path = run_path(folder, seed_step);
    try {
        const nlohmann::json content = parse_json_object(all, "input");
        const std::string checksum = checksum_of(json_text(content));
        write_text(path, json_text(nlohmann::json{{"checksum", checksum}, {"content", content}}));
    } catch (const Error&) {  // not a JSON object
        write_text(path, all);
    }
    expect_no_crash([&] { run_state_from_json(check_checkpoint(folder, seed_step), path); });
}

static void read_log(std::string_view all, std::string_view before, char after) {
    const std::string kept = lines_before(all, before, after, 7);
    require(kept.size() <= all.size() && (kept.empty() || kept.back() == '\n'));
    require(lines_before(kept, before, after, 7) == kept && lines_before(kept, before, after, 0).empty());
}

static void read_options(const std::string& folder, std::string_view all) {
    write_text(options_path(folder), all);
    std::string arguments[] = {"train_gpt2", "-o", folder, "-y", "1"};
    char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(),
                    arguments[3].data(), arguments[4].data(), nullptr};
    expect_no_crash([&] {
        Options options;
        if (!parse_options(5, argv, options)) return;
        require(options.batch >= 1 && options.sequence >= 1 && options.learning_rate >= 0);
        changed_options(std::string(all), options);
        require(changed_options(options_text(options), options).empty());
    });
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const Folder folder;
    const std::string_view all = text_of(data, size);
    if (all.starts_with('{')) {
        read_run(folder.path, all);
        return 0;
    }
    read_log(all, "s:", ' ');
    read_log(all, "", ',');
    read_options(folder.path, all);
    return 0;
}
