#include "llmc/options/command_line.h"

#include "llmc/base/error.h"
#include "llmc/base/os.h"
#include "llmc/options/arguments.h"
#include "llmc/options/start_program.h"

CommandLine::CommandLine(const char* program_name, const char* what_it_does)
    : OptionTable{.program = program_name, .description = what_it_does} {
    add_help_options(*this, machine);
    find("help")->flag = "h";
    add_cpu_options(*this, machine);
}

void CommandLine::add_device(std::string& device) {
    add("--device gpu", device,
        "auto, cpu, gpu, a number from " + command_of("train_gpt2") + " --list-devices, or part of a name");
    add_tensor_core_option(*this, machine);
}

void CommandLine::accept_cpu_as_device() {
    add("--device gpu", cpu, "the CPU: this program uses no GPU").one_of({"auto", "cpu"});
}

void CommandLine::note(const std::vector<InVain>& options) const {
    for (const std::string& line : notes_of(options)) print_line(stderr, "note: %s", line.c_str());
}

int CommandLine::run(int argc, char** argv, const std::function<void()>& work) {
    try {
        parse_arguments(*this, {argv + 1, argv + argc});
        if (!take_machine_options(*this, machine)) return 0;
        const Option* device = find("device");
        const bool is_on_cpu = device && device->texts()[0] == "cpu";
        for (const std::string& text : notes_of({{"tensor-cores", "it is for GPUs", is_on_cpu}}))
            print_line(stderr, "note: %s", text.c_str());
        if (machine.threads) {
            // for programs that it starts
            set_environment("OMP_NUM_THREADS", std::to_string(machine.threads));
            use_threads(machine.threads);
        }
        work();
        return 0;
    } catch (const std::exception& error) {
        return report_error(program.c_str(), error);
    }
}
