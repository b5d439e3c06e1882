// Command lines of the smaller programs. CLI11 takes ten seconds to compile, so command_line.cpp includes it
// for them.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

struct CommandLine {
    // Has --help, --version, which prints version_text(program), --threads and --simd.
    CommandLine(const char* program, const char* description);

    // Options, and positional arguments if the name has no dashes. Counts must not be negative.
    void add(const char* name, std::string& value, const char* help);
    void add(const char* name, std::vector<std::string>& values, const char* help);
    void add(const char* name, uint64_t& count, const char* help);
    void add(const char* name, double& value, double least, double most, const char* help);
    void add_flag(const char* name, bool& flag, const char* help);
    void add_choice(const char* name, std::string& value, const std::vector<std::string>& allowed,
                    const char* help);
    void require(const char* name);  // of an option added before
    void accept_cpu_as_device();     // --device of a program that uses no GPU: accepts auto and cpu

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
