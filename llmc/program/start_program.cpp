#include "llmc/program/start_program.h"

#include <cstdio>

#include "llmc/base/openmp_waiting.h"

void start_program(char** argv) {
    wait_briefly(argv);
    setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
}
