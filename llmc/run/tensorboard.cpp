// Events are protocol buffers (tensorboard.proto), each in a record as written by
// tensorflow/core/lib/io/record_writer.cc of github.com/tensorflow/tensorflow.
#include "llmc/run/tensorboard.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "llmc/base/error.h"
#include "llmc/base/file.h"  // asserts little-endian, which this format is, too
#include "llmc/base/os.h"
#include "llmc/run/run_folder.h"
#include "tensorboard.pb.h"

using llmc::tensorboard::Event;
using llmc::tensorboard::SessionLog;

uint32_t crc32c(std::string_view bytes) {
    uint32_t c = 0xffffffff;
    for (const char byte : bytes) {
        c ^= uint8_t(byte);
        for (int bit = 0; bit < 8; bit++)
            c = (c >> 1) ^ (c & 1 ? 0x82f63b78 : 0);  // the reflected polynomial
    }
    return ~c;
}

// Masked as the format requires: the CRC of data that contains its own CRC would be a constant.
static uint32_t masked_crc32c(std::string_view bytes) {
    const uint32_t c = crc32c(bytes);
    return (c >> 15 | c << 17) + 0xa282ead8;
}

template <class Number>
static std::string_view bytes_of(const Number& number) {
    return {reinterpret_cast<const char*>(&number), sizeof(number)};
}

std::string tf_record(std::string_view event) {
    const uint64_t length = event.size();
    const uint32_t length_crc = masked_crc32c(bytes_of(length)), event_crc = masked_crc32c(event);
    std::string record;
    for (std::string_view part : {bytes_of(length), bytes_of(length_crc), event, bytes_of(event_crc)})
        record += part;
    return record;
}

static double unix_time() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

static Event event_at(int step) {
    Event event;
    event.set_wall_time(unix_time());
    event.set_step(step);
    return event;
}

static std::string host_in_a_name() {
    std::string name = host_name();
    std::replace(name.begin(), name.end(), '/', '_');
    return name.empty() ? "localhost" : name;
}

// The present time in seconds, as the digits of a new file's name. Readers sort names as text, whatever their
// length: if an existing file is from the same second, from before a clock was set back, or has more digits,
// the new name is that file's with one more digit.
static std::string time_of_new_file(const std::string& folder) {
    const std::string before = "events.out.tfevents.";
    std::string newest;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const std::string name = entry.path().filename().generic_string();
        if (!name.starts_with(before)) continue;
        const std::string rest = name.substr(before.size()), digits = rest.substr(0, rest.find('.'));
        const bool is_time = digits.size() >= 10 && digits.size() < 100 && digits.size() < rest.size() &&
                             digits.find_first_not_of("0123456789") == std::string::npos;
        if (is_time) newest = std::max(newest, digits);
    }
    const std::string present = format_string("%010.0f", std::floor(unix_time()));
    return present > newest ? present : newest + "0";
}

std::string start_event_file(const std::string& folder, int resume_step) {
    create_subfolder(folder);
    std::string path;
    try {
        path = folder + "/events.out.tfevents." + time_of_new_file(folder) + "." + host_in_a_name();
    } catch (const std::filesystem::filesystem_error& error) {
        fail("cannot write into directory %s: %s", folder.c_str(), error.code().message().c_str());
    }
    Event first = event_at(0), start = event_at(resume_step);
    first.set_file_version("brain.Event:2");  // since version 2, readers honour START
    start.mutable_session_log()->set_status(SessionLog::START);
    std::string records = tf_record(first.SerializeAsString());
    if (resume_step >= 0) records += tf_record(start.SerializeAsString());
    if (append_to_file(path, records) < records.size())
        fail("cannot write %s: %s", path.c_str(), strerror(errno));
    return path;
}

std::string event_record(int step, const std::vector<Scalar>& scalars) {
    Event event = event_at(step);
    for (const Scalar& scalar : scalars) {
        auto* value = event.mutable_summary()->add_value();
        value->set_tag(scalar.tag);
        value->set_simple_value(scalar.value);
    }
    return tf_record(event.SerializeAsString());
}
