// The program `env` of POSIX systems, which tests start: env [-u NAME] [-C FOLDER] [NAME=VALUE]... PROGRAM
// ARGS... It passes console events on, since it waits for PROGRAM, where POSIX systems replace it.
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>

#include "llmc/base/os.h"
#include "llmc/base/process.h"
#include "llmc/base/signals.h"

int main(int argc, char** argv) {
    prepare_standard_streams();
    int i = 1;
    for (; i < argc; i++) {
        char* const equals = strchr(argv[i], '=');
        if (!strcmp(argv[i], "-u"))
            set_environment(argv[++i], "");
        else if (!strcmp(argv[i], "-C"))
            std::filesystem::current_path(argv[++i]);
        else if (equals)
            set_environment(std::string(argv[i], equals).c_str(), equals + 1);
        else
            break;
    }
    catch_stop_signals();
    bool passed_on = false;
    try {
        Process program({argv + i, argv + argc});
        for (bool open = true; open;) {
            std::string out, err;
            open = program.read(out, err, 0.05);
            if (stop_signal() && !passed_on) {
                program.send(stop_signal());
                passed_on = true;
            }
            fwrite(out.data(), 1, out.size(), stdout);
            fwrite(err.data(), 1, err.size(), stderr);
            fflush(stdout);
        }
        return program.wait();
    } catch (const std::exception& error) {
        fprintf(stderr, "env: %s\n", error.what());
        return 127;
    }
}
