// Scalars for TensorBoard: a run's FOLDER/tensorboard/events.out.tfevents.SECONDS.HOST, which
// `tensorboard --logdir FOLDER` follows while the run writes it.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

inline const std::string tensorboard_folder = "tensorboard";  // in a run's folder

struct Scalar {
    const char* tag;  // what stands before a slash is the section of the page
    float value;
};

// Every event goes to the file at once, in one piece, so that a reader follows and a killed run loses
// nothing.
struct EventFile {
    EventFile() = default;
    ~EventFile();
    EventFile(const EventFile&) = delete;

    // Begins a new file in `folder`, which is created, and whose name sorts after those that are there: so
    // readers take them in the order of writing. resume_step >= 0: earlier files' events of that step and
    // later ones are void, since the resumed run writes them again. Error where the disk refuses.
    void open(const std::string& folder, int resume_step);

    // One event, of this moment. Nothing happens before open(). Error where the disk refuses.
    void write(int step, std::initializer_list<Scalar> scalars) const;

    std::string path;  // empty: not open

   private:
    void append(const std::string& event) const;
    int file = -1;
};

// CRC-32C (Castagnoli), the check sum of the file's records.
uint32_t crc32c(std::string_view bytes);

// An event's bytes as they stand in the file, a TFRecord: length, its check sum, bytes, their check sum.
std::string tf_record(std::string_view event);
