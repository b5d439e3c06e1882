#include "llmc/base/warning.h"

#include <cstdio>

#include "llmc/base/error.h"

void warn(const std::string& message) {
    fflush(stdout);
    fprintf(stderr, "warning: %s\n", printable(message).c_str());
}
