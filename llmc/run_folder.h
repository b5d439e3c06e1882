// The folder of a run (-o): one run at a time, never the files of two, and the checkpoints that are kept.
#pragma once
#include <string>
#include <vector>

// Held for as long as the program runs; another program that asks for the same folder gets an Error.
struct RunFolder {
    // Creates the folder and takes hold of it; waits two seconds for a program that may be ending there.
    void open(const std::string& folder);
    ~RunFolder();
    RunFolder() = default;
    RunFolder(const RunFolder&) = delete;

   private:
    int lock = -1;
};

// Moves all that an earlier run left in the folder (logs, events, options, checkpoints; no other files) to a
// new folder below it. Returns that folder's path, empty where there was nothing.
std::string move_earlier_run(const std::string& folder);

// Removes half-written files that a killed run left.
void remove_temporary_files(const std::string& folder);

// Deletes all checkpoints up to step `newest` but the last `keep` (0: all are kept) and those whose step
// `major` (0: none) divides.
void prune_checkpoints(const std::string& folder, int newest, int keep, int major);
