// The lease of a run's folder: the file lease.json, which says which job writes to the folder. A lock
// excludes the programs of one machine; many network file systems have none, or keep it to the machine. A
// file is seen by all machines.
#pragma once
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "llmc/base/error.h"

// Another job has taken the folder over: this one must not change it any more.
struct LostLease : Error {
    using Error::Error;
};

// The holder renews its lease: it changes the file's time, by the file server's clock. A job that finds the
// lease of another one looks at it again and again: one that changes is in use, and one that does not is
// stale. Looks are counted, and no clocks of two machines are compared. The lease of a process of this
// machine that has ended is stale at once.
struct Lease {
    struct Times {
        double renew_every = 5, look_every = 1;  // seconds
        int looks = 60;                          // without a change, after which a lease is stale
    };
    // The folder is held (HeldFolder) for longer than the lease. Error if another job uses it.
    void take(const std::string& of_folder) { take(of_folder, Times()); }
    void take(const std::string& of_folder, const Times& with_times);
    ~Lease();
    void check() const;                                // reads the file; Error if it is lost
    void check_soon() const { check_lost(was_lost); }  // what the last renewal has found

   private:
    bool create_unless_there() const;
    void wait_until_stale() const;
    void keep();
    void check_lost(bool is_lost) const;

    std::string folder, path, text;
    Times times;
    bool is_held = false, stops = false;
    std::atomic<bool> was_lost = false;
    std::mutex mutex;
    std::condition_variable ends;
    std::thread renewer;
};
