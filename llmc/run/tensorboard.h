// Scalars for TensorBoard, in FOLDER/tensorboard/events.out.tfevents.SECONDS.HOST of a run's folder.
// `tensorboard --logdir FOLDER` follows the file while the run writes it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

inline const std::string tensorboard_folder = "tensorboard";  // in a run's folder

struct Scalar {
    const char* tag;  // the part before a slash is a section of TensorBoard's page
    float value;
};

// Every event is written to the file at once, so that a reader can follow and a killed run loses nothing.
struct EventFile {
    EventFile() = default;
    ~EventFile();
    EventFile(const EventFile&) = delete;

    // Creates `folder` and in it a new file, whose name sorts after the existing ones: readers read the files
    // in that order. If resume_step >= 0, events of earlier files become void from that step on, since the
    // resumed run writes them again. Throws Error if the file cannot be written.
    void open(const std::string& folder, int resume_step);

    // Writes one event, with the present time. Nothing happens before open(). Throws Error if it cannot be
    // written; the file is then as before, so that the event may be written later.
    void write(int step, const std::vector<Scalar>& scalars) const;

    std::string path;  // empty: not open

   private:
    void append(const std::string& event) const;
    int file = -1;
};

// CRC-32C (Castagnoli), the checksum of the file's records.
uint32_t crc32c(std::string_view bytes);

// The TFRecord of an event's bytes: their length, its checksum, the bytes, their checksum.
std::string tf_record(std::string_view event);
