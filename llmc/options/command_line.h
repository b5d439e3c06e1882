// Command lines of the smaller programs. CLI11 takes long to compile, so command_line.cpp includes it for
// them.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

// --help shows the options with their defaults, the values that the variables have when they are added. Of an
// option that is given twice, the last value counts. A name without dashes is that of a positional argument.
struct CommandLine {
    // Has --help, --version, which prints version_text(program), --threads and --simd.
    CommandLine(const char* program, const char* description);

    // Paths: a ~ at the start is the home folder.
    void add(const char* name, std::string& path, const char* help);
    void add(const char* name, std::vector<std::string>& paths, const char* help);
    void add_text(const char* name, std::string& text, const char* help);
    void add_texts(const char* name, std::vector<std::string>& texts, const char* help);  // may be repeated

    void add(const char* name, uint64_t& count, const char* help);
    void add(const char* name, int& value, int least, const char* help);
    void add(const char* name, int& value, int least, int most, const char* help);
    void add(const char* name, float& value, double least, double most, const char* help);
    void add(const char* name, double& value, double least, double most, const char* help);
    void add_flag(const char* name, bool& flag, const char* help);
    void add_choice(const char* name, std::string& value, const std::vector<std::string>& allowed,
                    const char* help);

    // A list, separated by commas: of the allowed values, unless there are none, and from `least` to `most`,
    // unless both are 0. Without `help`, --help does not list it.
    template <class T>
    void add_list(const char* name, std::vector<T>& values, const std::vector<std::string>& allowed,
                  double least, double most, const char* help);

    void add_device(std::string& device);  // --device and --tensor-cores
    void accept_cpu_as_device();           // --device of a program that uses no GPU: accepts auto and cpu
    void require(const char* name);        // of an option added before

    // A word that comes before the options; it has options of its own.
    CommandLine add_subcommand(const char* name, const char* description);
    bool given() const;  // of a subcommand, while run() does the work

    // Parses the command line, does the work and returns main's exit status. Each error is one line, preceded
    // by the program's name, and status 1.
    int run(int argc, char** argv, const std::function<void()>& work);

    std::shared_ptr<CLI::App> app;

   private:
    std::shared_ptr<int> threads = std::make_shared<int>(0);  // of --threads; the parser keeps its address
    explicit CommandLine(std::shared_ptr<CLI::App> subcommand);
};
