// llm.c's checkpoint files, byte for byte: model_%08d.bin (version 3: fp32, version 5: bf16), the optimizer
// state in one or several state_%08d_%05d.bin, and the empty DONE_%08d, which marks both as complete. Layout:
// a header of 256 int32, then the tensors, little-endian. run_%08d.json, which llm.c ignores, holds
// everything else that a run needs to resume exactly, and the lengths and checksums (XXH3, 64 bits) of the
// other two files and of itself. Every file is checked completely (magic, version, shape, exact length)
// before anything is allocated from it.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "llmc/distributed/communicator.h"
#include "llmc/files/optimizer_state.h"

// Reads the model's shape. Error if the file is not an llm.c checkpoint or its length is wrong.
ModelConfig read_model_header(const std::string& path);

// Checks the file as read_model_header() does, then passes all tensors to `write` as floats.
// Error if there is a seal and the content is not what it says.
void read_model(const std::string& path, const WriteTensor& write, const FileSeal* seal = nullptr);

// Writes version 5, rounded to nearest even, if in_bf16, else version 3.
FileSeal write_model(const std::string& path, const ModelConfig& config, const ReadTensor& read,
                     bool in_bf16 = false);

// File names of a checkpoint in directory dir.
std::string model_path(const std::string& dir, int step);
std::string optimizer_path(const std::string& dir, int step);  // part 0
std::string optimizer_part_path(const std::string& dir, int step, int part);
std::string done_path(const std::string& dir, int step);
std::string run_path(const std::string& dir, int step);

// The most that write_checkpoint() takes of the disk, apart from rounding to blocks.
uint64_t checkpoint_bytes(const ModelConfig& config, const OptimizerState& state, bool in_bf16);

// Error, which says what to do, if the folder's file system has fewer free bytes.
void check_room(const std::string& dir, uint64_t bytes);

// What a checkpoint holds. If optimizer.share is a part, each process of a job has another one.
struct Checkpoint {
    const ModelConfig& config;
    const OptimizerState& optimizer;
    const ReadTensor& read_tensor;
    const ReadMoment& read_moment;
    bool in_bf16 = false;
    const std::string& run;  // the text of a JSON object
    // Throws, in the first process, if the folder is another job's by now. Called before anything is written,
    // before DONE, and before the files of a failed checkpoint are removed.
    std::function<void()> expect_folder = [] {};
};

// Writes a whole checkpoint of optimizer.step: creates dir, checks that there is room, removes an older DONE
// of the same step, writes the optimizer state, the model and the run's state, and DONE last. If that fails,
// for example because a flush to disk does, it warns and tries once more. After an Error there is no DONE,
// and no other file of the step unless it had a checkpoint before. With a job, all processes call it: each
// writes its part of the optimizer state, rank 0 everything else, and DONE after all others have finished.
void write_checkpoint(const std::string& dir, const Checkpoint& checkpoint, Communicator* job = nullptr);

// The folder and the step of a model file, from its path; step -1: its name is not that of a checkpoint's
// model. Steps from 10^8 on have more than eight digits.
struct CheckpointName {
    std::string folder;
    int step;
};
CheckpointName checkpoint_of(const std::string& model);

// A name as a run spells it, and whether a folder's `name` is that file: on a file system without case,
// Main.log is the run's main.log, and done_00000002 its DONE_00000002.
std::string own_spelling(const std::string& name);
bool is_spelled_as(const std::string& own, const std::string& folder, const std::string& name);

// Lists the steps of the checkpoints in dir that have DONE, newest first; empty if dir does not exist. Error
// if it cannot be read.
std::vector<int> list_checkpoints(const std::string& dir);

// Removes the files of checkpoints that a stopped program was writing or deleting. It left an empty file
// unfinished_%08d, which keeps apart what somebody else put there.
void remove_unfinished_checkpoints(const std::string& dir);

// Steps that have an optimizer state or run_%08d.json but no DONE.
std::vector<int> list_checkpoints_without_done(const std::string& dir);

// Verifies the checkpoint's files against their checksums. Without run_%08d.json, which llm.c does not write,
// it checks headers and lengths only; Error if the run wrote such files. Error, naming the file, on the first
// problem. Returns the text of the run's JSON object, empty if there is none.
// Verify::when_read: of the files' content, verifies nothing: read_checkpoint() does.
enum class Verify { now, when_read };
std::string check_checkpoint(const std::string& dir, int step, const BytesRead& progress = nullptr,
                             Verify verify = Verify::now);

// Passes the moments of all parts of the optimizer's state to `write`, as read_moments() does. Error if the
// parts do not belong together.
void read_all_moments(const std::string& dir, int step, const ModelConfig& config, const WriteMoment& write);

// Reads a checkpoint in a job, and verifies what it reads: one process of each node reads the model and
// passes it to the others, and each reads the moments that it owns. All processes call it. Error in at least
// one of them if a file is damaged.
struct CheckpointReader {
    ModelConfig config;
    OptimizerShare share;
    WriteTensor write_tensor;
    WriteMoment write_moment;
};
void read_checkpoint(const std::string& dir, int step, const CheckpointReader& reader, Communicator& job);

// Passes what `read` reads in one process of each node to `write` in all of them.
void read_once_per_node(Communicator& job, const std::function<void(const WriteTensor&)>& read,
                        const WriteTensor& write);

// Verifies the model's file of a checkpoint against its checksum in run_%08d.json. Returns as
// check_checkpoint() does; without that file, nothing is verified.
std::string check_model_of_checkpoint(const std::string& dir, int step);

// The text of the run's JSON object, verified against its own checksum only.
std::string read_run(const std::string& dir, int step);

// The options in the newest checkpoint's run_%08d.json, in the format of --config, and that file's name; both
// empty if no checkpoint has them.
struct SavedOptions {
    std::string text, path;
};
SavedOptions options_of_checkpoint(const std::string& folder);

// The newest intact checkpoint.
struct FoundCheckpoint {
    int step = -1;                    // -1: there is none
    std::string run;                  // as check_checkpoint() returns it
    std::vector<std::string> broken;  // one line per newer, broken checkpoint: its step and what is wrong
};
FoundCheckpoint find_latest_checkpoint(const std::string& dir, const BytesRead& progress = nullptr,
                                       Verify verify = Verify::now);

// The newest checkpoint whose model is intact, whatever the optimizer's state.
FoundCheckpoint find_latest_model(const std::string& dir);

// Renames DONE to unfinished_%08d first, so that DONE never exists without its files and the next start knows
// what to remove if this program is stopped. Missing files are not an error.
void delete_checkpoint(const std::string& dir, int step);
