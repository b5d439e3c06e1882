// The folder of a run (-o): it belongs to one running program at a time and never holds the files of two
// runs.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/run/lease.h"

// A lock and a lease on the folder until the object goes. Another program that opens the same folder, on this
// or another machine, gets an Error. If the folder is renamed, this program's files stay in it (HeldFolder),
// and another program may use the path.
struct RunFolder {
    // Creates and locks the folder; waits up to two seconds for a program that is exiting. Then finishes what
    // a killed program began: moving an earlier run aside, writing or deleting a checkpoint.
    void open(const std::string& folder);
    // In the other processes of the job, which write to the folder too.
    void join(const std::string& folder) {
        create_folders(folder);
        held.open(folder);
    }

   private:
    HeldFolder held;

   public:
    Lease lease;  // of the first process
};

// Error if one of the inputs, or of the files that match it, has the name of a file of a run in this folder:
// a new run would move it, and what has a temporary name is removed.
void refuse_inputs(const std::string& folder, const std::vector<std::string>& inputs);

// Error if a folder in which the run would write is somebody else's: it has files, and none that a run
// writes.
void refuse_foreign_folder(const std::string& path,
                           const std::function<bool(const std::string& name)>& is_of_run);

// Creates a folder inside the folder of a run. Error if it is a link: somebody else may have made it.
void create_subfolder(const std::string& path);

// Whether files of a run are in the folder.
bool holds_run(const std::string& folder);

// Moves the files of an earlier run (logs, events, options, checkpoints; no other files) to a new subfolder,
// if there are any, and prints a note. Tokens of a text are then in both folders, as links: the next run may
// use them again, or replace its own. If the program is killed meanwhile, RunFolder::open() of the next one
// moves the rest.
void move_earlier_run(const std::string& folder);

// The name of a file of a run that no complete checkpoint explains, in a folder without any; "": none. A run
// that was killed before the first of its checkpoints, at step first_checkpoint, has left its options, and
// its log has no later step.
std::string unexplained_file(const std::string& folder, int first_checkpoint);

// Removes temporary files, and the files of checkpoints that a stopped program was writing or deleting.
void remove_leftovers(const std::string& folder);

// Why a checkpoint was written. The others are extra: they do not count among the newest.
enum class WrittenFor {
    schedule,  // -n or the run's end
    best,      // its validation loss; it goes when another is better
    signal     // to resume from; with -nk it goes when the next one is written
};

// Extra checkpoints, by step.
using ExtraCheckpoints = std::map<int, WrittenFor>;

// Which checkpoints stay.
struct KeptCheckpoints {
    int newest;                   // later ones are left alone
    int keep = 0, major = 0;      // the last `keep` (0: all) and those of steps that are multiples of `major`
    int healthy = -1, best = -1;  // steps that stay, whatever their age; -1: none
    const ExtraCheckpoints& extra = {};
};

// Deletes the checkpoints that do not stay. An error gives a warning: the next call tries again.
void prune_checkpoints(const std::string& folder, const KeptCheckpoints& kept);

// Checks that the folder's disk has room for a checkpoint of this many bytes, before a run that has
// `existing` ones writes `count` more. Error if there is none for the first; a note if there is none for all
// of the `keep` (0: all) that stay.
void check_room_for_run(const std::string& folder, uint64_t bytes, int existing, int count, int keep);

// The lines of a log (log.h) whose step is less than `step`: a resumed run keeps them. A line starts with
// `before`, the step and `after`. Other lines are dropped, and so is a last line without a newline, which a
// crash cut short.
std::string lines_before(std::string_view text, std::string_view before, char after, int step);
