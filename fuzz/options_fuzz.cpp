// Option files of the trainer: --config, and the options.toml of a run that is resumed.
#include <filesystem>

#include "fuzz/fuzz.h"
#include "llmc/base/toml.h"
#include "llmc/options/option_files.h"

static void parse(std::vector<std::string> arguments) {
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    expect_no_crash([&] {
        Options options;
        if (!parse_options(int(argv.size()), argv.data(), options)) return;
        require(options.batch >= 1 && options.sequence >= 1 && options.learning_rate >= 0);
        require(options.list_devices || !options.train_data.empty() || options.overfit ||
                !options.text.empty());
        const std::string text = options_text(options);
        require(!read_toml(text, "the options").empty() && changed_options(text, options).empty());
    });
}

// The folder of a run that has only options.toml.
static std::string run_folder() {
    static const std::string folder =
        std::filesystem::temp_directory_path() / format_string("options_fuzz_%d", int(getpid()));
    std::filesystem::create_directories(folder);
    return folder;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const InputFile file(text_of(data, size));
    parse({"train_gpt2", "--config", file.path});
    const std::string link = options_path(run_folder());
    std::filesystem::remove(link);
    std::filesystem::create_symlink(file.path, link);
    parse({"train_gpt2", "-y", "1", "-o", run_folder()});
    return 0;
}
