// The folder of a run (-o): it belongs to one running program at a time and never holds the files of two
// runs.
#pragma once
#include <string>
#include <vector>

// A lock on the folder until the object goes. Another program that opens the same folder gets an Error.
struct RunFolder {
    // Creates and locks the folder; waits up to two seconds for a program that is exiting.
    void open(const std::string& folder);
    ~RunFolder();
    RunFolder() = default;
    RunFolder(const RunFolder&) = delete;

   private:
    int lock = -1;
};

// Moves the files of an earlier run (logs, events, options, checkpoints; no other files) to a new subfolder.
// Returns its path; "" if there were none.
std::string move_earlier_run(const std::string& folder);

// Removes the temporary files that a killed run left behind.
void remove_temporary_files(const std::string& folder);

// Deletes the checkpoints up to step `newest`, except the last `keep` (0: all) and those whose step is a
// multiple of `major` (0: none).
void prune_checkpoints(const std::string& folder, int newest, int keep, int major);
