// Takes the place of mpi_communicator.cpp if CMake finds no MPI.
#include "llmc/base/error.h"
#include "llmc/distributed/transport.h"

bool built_with_mpi() { return false; }

Transport join_mpi(int expected) {
    const std::string processes = expected ? format_string("%d processes", expected) : "several processes";
    fail(
        "this program was built without MPI and cannot run as %s: install MPI (Debian: libopenmpi-dev "
        "openmpi-bin), then run cmake and build it again",
        processes.c_str());
}
