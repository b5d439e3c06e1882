// Memory that processes of one machine share: a file in /dev/shm that each of them maps. On Linux the file
// has no name, so it is gone with the last process, however that ends. Elsewhere it is unlinked once all have
// opened it, before it gets its size. Windows has jobs of one process only: all but map() is an Error.
#pragma once
#include <cstddef>
#include <string>
#include <utility>

struct SharedMemory {
    char* address = nullptr;
    size_t bytes = 0;    // a multiple of 64 KiB, as is the address
    int file = -1;       // may be closed after map()
    std::string path;    // for open() in other processes
    bool named = false;  // the path must be unlinked

    SharedMemory() = default;
    ~SharedMemory();
    SharedMemory(SharedMemory&& other) noexcept
        : address(std::exchange(other.address, nullptr)),
          bytes(other.bytes),
          file(std::exchange(other.file, -1)),
          path(std::move(other.path)),
          named(std::exchange(other.named, false)) {}

    // In this order: create() in one process, open() of its path in the others, unlink() and resize() in the
    // first, map() and reserve() in each. Error on failure. reserve() takes the space of one process of
    // several, so that all of it can be touched later, and lies in the memory next to that process's cores.
    void create();
    void open(const std::string& path_of_creator);
    void unlink();
    void resize(size_t size, const std::string& purpose);
    // map() without create() and open(): memory of this process alone, with the same alignment.
    void map(size_t size, const std::string& purpose);
    void reserve(int process, int num_processes, const std::string& purpose);
    void close_file();

   private:
    bool map_aligned(size_t size);
};
