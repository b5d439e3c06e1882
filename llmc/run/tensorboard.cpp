// Events are protocol buffers, each in a record as written by tensorflow/core/lib/io/record_writer.cc of
// github.com/tensorflow/tensorflow. Names and numbers of the fields are those of tensorboard/compat/proto/
// event.proto and summary.proto of github.com/tensorflow/tensorboard.
#include "llmc/run/tensorboard.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>

#include "llmc/base/error.h"
#include "llmc/base/file.h"  // asserts little-endian, which this format is, too
#include "llmc/base/os.h"
#include "llmc/base/system_files.h"
#include "llmc/base/utf8.h"
#include "llmc/run/run_folder.h"

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

// --- protocol buffers: a message is a sequence of fields, each with a key ---

static std::string varint(uint64_t value) {
    std::string bytes;
    for (; value >= 128; value >>= 7) bytes += char((value & 127) | 128);
    return bytes + char(value);
}

enum class WireType { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };
static std::string key(int number, WireType type) { return varint(uint64_t(number) << 3 | uint64_t(type)); }

static std::string field(int number, uint64_t value) { return key(number, WireType::varint) + varint(value); }
static std::string field(int number, std::string_view bytes) {
    return key(number, WireType::bytes) + varint(bytes.size()) + std::string(bytes);
}
template <class Number>
static std::string fixed_field(int number, Number value) {
    const WireType type = sizeof value == 8 ? WireType::fixed64 : WireType::fixed32;
    return key(number, type) + std::string(bytes_of(value));
}

// An Event of the present time, with the field that says what happened, unless that is empty. Protobuf writes
// no step 0, the default.
static std::string event_at(int step, const std::string& what) {
    return tf_record(fixed_field(1, unix_time()) + (step > 0 ? field(2, uint64_t(step)) : "") + what);
}

// A Summary of Values. Zeros are written, since readers ignore a value that is not there.
static std::string summary(const std::vector<Scalar>& scalars) {
    std::string values;
    for (const Scalar& scalar : scalars)
        values += field(1, field(1, std::string_view(scalar.tag)) + fixed_field(2, scalar.value));
    return values.empty() ? "" : field(5, values);
}

// --- files ---

static const std::string event_file = "events.out.tfevents.";

bool is_event_file(const std::string& name) { return fold_case(name).starts_with(event_file); }

// The present time in seconds, as the digits of a new file's name. Readers sort names as text, whatever their
// length: if an existing file is from the same second, from before a clock was set back, or has more digits,
// the new name is that file's with one more digit.
static std::string time_of_new_file(const std::string& folder) {
    std::string newest;
    for (const std::string& name : names_in(folder)) {
        if (!is_event_file(name)) continue;
        const std::string rest = name.substr(event_file.size()), digits = rest.substr(0, rest.find('.'));
        const bool is_time = digits.size() >= 10 && digits.size() < 100 && digits.size() < rest.size() &&
                             digits.find_first_not_of("0123456789") == std::string::npos;
        if (is_time) newest = digits;  // names are sorted
    }
    const std::string present = format_string("%010.0f", std::floor(unix_time()));
    return present > newest ? present : newest + "0";
}

std::string start_event_file(const std::string& folder, int resume_step) {
    create_subfolder(folder);
    std::string host = host_name().empty() ? "localhost" : host_name();
    std::replace_if(host.begin(), host.end(), is_separator, '_');
    const std::string path = folder + "/" + event_file + time_of_new_file(folder) + "." + host;
    std::string records = event_at(0, field(3, std::string_view("brain.Event:2")));
    // a SessionLog whose status is START, which readers of version 2 honour: earlier events from here on are
    // void
    if (resume_step >= 0) records += event_at(resume_step, field(7, field(1, uint64_t(1))));
    if (append_to_file(path, records) < records.size() || errno != 0)
        fail("cannot write %s: %s", path.c_str(), strerror(errno));
    return path;
}

std::string event_record(int step, const std::vector<Scalar>& scalars) {
    return event_at(step, summary(scalars));
}
