// Watches a job: a thread in each rank, with a TCP connection to rank 0, which needs neither the launcher nor
// MPI. It ends its process, whatever the main thread does, when
//   - a rank has died: the system closes its connection at once;
//   - a machine or its network is down: it acknowledges nothing for 45 s;
//   - the ranks wait for one that makes no progress, for longer than the timeout. After a minute, or half of
//     the timeout, the first rank of each waiting machine says so in a line.
// A rank makes progress if it enters a collective function, or reads or writes a file (base/heartbeat.h).
#pragma once
#include <memory>
#include <string>
#include <vector>

struct WatchedRanks {
    int rank = 0;
    std::vector<std::string> hosts;  // by rank
    std::vector<int> machines;       // by rank, as in Transport
};

struct Watch {
    // Rank 0 listens first, and all others connect to the address that it returns while it accepts them.
    // connect() returns whether rank 0 can be reached. Connections of other programs are refused.
    explicit Watch(WatchedRanks ranks);
    ~Watch();
    std::string listen();
    bool connect(const std::string& address);
    void accept_all();  // rank 0: all that come within 20 s; Error if connections cannot be accepted
    void start();

    // The main thread waits for other ranks during its lifetime.
    struct Waiting {
        explicit Waiting(const std::unique_ptr<Watch>& watch);
        ~Waiting();

       private:
        Watch* watch;
    };

    void set_timeout(double seconds);
    // What a line that ends the job adds: where to resume.
    void set_advice(const std::string& text);
    // This rank leaves; it still notices the death of those that have not said so.
    void leave();
    // Ends all other ranks, without a line of theirs.
    void end_others();

   private:
    struct Thread;
    std::unique_ptr<Thread> thread;
};
