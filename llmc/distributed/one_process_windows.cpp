// Windows has jobs of one process only: see shared_memory.h and node_barrier.h.
#include <windows.h>

#include "llmc/base/ceil_div.h"
#include "llmc/base/error.h"
#include "llmc/distributed/node_barrier.h"
#include "llmc/distributed/transport.h"
#include "llmc/distributed/watch.h"

bool built_with_mpi() { return false; }

[[noreturn]] static void refuse(int expected = 0) {
    const std::string processes = expected ? format_string("%d processes", expected) : "several processes";
    fail("this program cannot run as %s on Windows: start one, or use Linux (also in WSL 2)",
         processes.c_str());
}

Transport join_mpi(int expected) { refuse(expected); }

// --- memory, whose addresses are multiples of 64 KiB on Windows ---

SharedMemory::~SharedMemory() {
    if (address) VirtualFree(address, 0, MEM_RELEASE);
}

void SharedMemory::map(size_t size, const std::string& purpose) {
    bytes = ceil_div(size ? size : 1, size_t(65536)) * 65536;
    address = static_cast<char*>(VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE));
    if (!address) fail("cannot get %.1f MiB of memory for %s", double(bytes) / (1 << 20), purpose.c_str());
}

void SharedMemory::create() { refuse(); }
void SharedMemory::open(const std::string&) { refuse(); }
void SharedMemory::unlink() {}
void SharedMemory::resize(size_t, const std::string&) { refuse(); }
void SharedMemory::reserve(int, int, const std::string&) {}
void SharedMemory::close_file() {}

// --- other processes ---

struct NodeState {};

size_t NodeBarrier::bytes() { return 1; }
NodeBarrier::NodeBarrier(SharedMemory shared, int ranks_of_node)
    : memory(std::move(shared)),
      state(*reinterpret_cast<NodeState*>(memory.address)),
      local_size(ranks_of_node) {
    refuse();
}
void NodeBarrier::wait() { refuse(); }
bool NodeBarrier::claim_abort() { return true; }
void Polling::pause() {}

struct Watch::Thread {};
Watch::Watch(WatchedRanks) {}
Watch::~Watch() {}
std::string Watch::listen() { refuse(); }
bool Watch::connect(const std::string&) { refuse(); }
void Watch::accept_all() {}
void Watch::start() {}
Watch::Waiting::Waiting(const std::unique_ptr<Watch>& of) : watch(of.get()) {}
Watch::Waiting::~Waiting() {}
void Watch::set_timeout(double) {}
void Watch::set_advice(const std::string&) {}
void Watch::leave() {}
void Watch::end_others() {}
