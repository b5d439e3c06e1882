// The options of train_gpt2 in files: --config, a run's options.toml, and its checkpoints.
#pragma once
#include <filesystem>

#include "llmc/options/train_options.h"

// Sets the options of a file that no stronger source, and no file before, has set. Error if it has an unknown
// one, or one that is for the command line only.
void read_options(OptionTable& table, const std::string& text, const std::string& path, Source source);

// A text's path without "." and "..", and without a slash at its end. Unchanged: "stories", which is no path.
std::filesystem::path whole_path(const std::string& text);

// The file in a run's folder that holds its options.
std::string options_path(const std::string& output);

// A line for each option that a run keeps, as --config reads them, with absolute paths. Those of tokens in
// the run's folder are relative to it: it may move.
std::string options_text(const Options& o);

// The same by name, for comparisons between processes; and those that somebody gave, with their dashes.
using NamedText = std::pair<std::string, std::string>;
using NamedTexts = std::vector<NamedText>;
NamedTexts saved_options(const Options& o, bool only_compared = false);
NamedTexts given_options(const Options& o);

// A line for each option that differs from those in a file of the run's folder.
std::vector<std::string> changed_options(const std::string& before, const Options& o);

// The paths or other values of an option in a run's options.toml; none if it is not there.
std::vector<std::string> option_of_run(const std::string& folder, const std::string& name);
