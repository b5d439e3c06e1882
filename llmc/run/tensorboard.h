// Scalars for TensorBoard, in FOLDER/tensorboard/events.out.tfevents.SECONDS.HOST of a run's folder.
// `tensorboard --logdir FOLDER` follows the file while the run writes it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

inline const std::string tensorboard_folder = "tensorboard";  // in a run's folder

bool is_event_file(const std::string& name);

struct Scalar {
    const char* tag;  // the part before a slash is a section of TensorBoard's page
    float value;
};

// Creates `folder` and in it a new file of events, whose name sorts after the existing ones: readers read the
// files in that order. If resume_step >= 0, events of earlier files become void from that step on, since the
// resumed run writes them again. Returns the file's path. Throws Error if it cannot be written.
std::string start_event_file(const std::string& folder, int resume_step);

// An event with the present time, to be appended to the file.
std::string event_record(int step, const std::vector<Scalar>& scalars);

// CRC-32C (Castagnoli), the checksum of the file's records.
uint32_t crc32c(std::string_view bytes);

// The TFRecord of an event's bytes: their length, its checksum, the bytes, their checksum.
std::string tf_record(std::string_view event);
