// TensorBoard's event files: the bytes of records, their contents (parsed by the reader below), and the files
// of whole runs, also killed and resumed ones, compared to metrics.csv.
#include "llmc/run/tensorboard.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <fstream>
#include <map>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/files/checkpoint.h"
#include "llmc/run/log.h"
#include "tests/message_of.h"
#include "tests/tiny_run.h"

// Tiny models gain nothing from threads.
static const int one_thread = setenv("OMP_NUM_THREADS", "1", 1);

// --- a reader of events that shares no code with the writer ---

struct ReadEvent {
    double wall_time = 0;
    int64_t step = 0;
    std::string version;
    int status = 0;  // the SessionLog's
    std::vector<std::pair<std::string, float>> scalars;
};

// A field of a message: the value of a varint, or the bytes of anything else.
struct Field {
    int number;
    uint64_t value;
    std::string bytes;
};

static uint64_t take_varint(std::string_view& text) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const auto byte = uint8_t(text.at(0));
        text.remove_prefix(1);
        value |= uint64_t(byte & 127) << shift;
        if (byte < 128) return value;
    }
    throw std::runtime_error("a varint of more than 64 bits");
}

static std::vector<Field> fields_of(std::string_view message) {
    std::vector<Field> fields;
    while (!message.empty()) {
        const uint64_t key = take_varint(message);
        Field field = {int(key >> 3), 0, ""};
        if ((key & 7) == 0) {
            field.value = take_varint(message);
        } else {
            const std::map<int, size_t> fixed = {{1, 8}, {5, 4}};
            const size_t size = (key & 7) == 2 ? take_varint(message) : fixed.at(int(key & 7));
            if (size > message.size()) throw std::runtime_error("a truncated field");
            field.bytes = message.substr(0, size);
            message.remove_prefix(size);
        }
        fields.push_back(field);
    }
    return fields;
}

template <class Number>
static Number number_in(std::string_view bytes) {
    Number number;
    if (bytes.size() < sizeof(number)) throw std::runtime_error("too few bytes");
    memcpy(&number, bytes.data(), sizeof(number));
    return number;
}

static std::pair<std::string, float> scalar_of(const std::string& message) {
    std::pair<std::string, float> scalar;
    bool has_value = false;
    for (const Field& field : fields_of(message)) {
        if (field.number == 1) scalar.first = field.bytes;
        if (field.number == 2) scalar.second = number_in<float>(field.bytes);
        has_value |= field.number == 2;
    }
    EXPECT_TRUE(has_value) << scalar.first << ": a reader would ignore it";
    return scalar;
}

static ReadEvent event_of(const std::string& message) {
    ReadEvent event;
    for (const Field& field : fields_of(message)) {
        if (field.number == 1) event.wall_time = number_in<double>(field.bytes);
        if (field.number == 2) event.step = int64_t(field.value);
        if (field.number == 3) event.version = field.bytes;
        if (field.number == 5)
            for (const Field& value : fields_of(field.bytes)) event.scalars.push_back(scalar_of(value.bytes));
        if (field.number == 7) event.status = int(fields_of(field.bytes).at(0).value);
    }
    return event;
}

static uint32_t crc_bit_by_bit(std::string_view bytes) {
    uint32_t crc = ~0u;
    for (char byte : bytes) {
        crc ^= uint8_t(byte);
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

// All complete records. A killed program may leave an incomplete one at the end.
static std::vector<ReadEvent> read_events(const std::string& path) {
    const std::string file = read_whole_file(path);
    std::string_view rest = file;
    std::vector<ReadEvent> events;
    while (rest.size() >= 16) {
        const auto length = number_in<uint64_t>(rest);
        EXPECT_EQ(number_in<uint32_t>(rest.substr(8)), crc_bit_by_bit(rest.substr(0, 8))) << path;
        if (rest.size() - 16 < length) break;
        const std::string message(rest.substr(12, length));
        EXPECT_EQ(number_in<uint32_t>(rest.substr(12 + length)), crc_bit_by_bit(message)) << path;
        events.push_back(event_of(message));
        rest.remove_prefix(16 + length);
    }
    return events;
}

// The event files in the order in which TensorBoard reads them.
static Words event_files(const std::string& run) {
    Words paths;
    for (const auto& entry : std::filesystem::directory_iterator(run + "/tensorboard"))
        paths.push_back(entry.path().generic_string());
    std::sort(paths.begin(), paths.end());
    return paths;
}

using Curves = std::map<std::string, std::vector<std::pair<int64_t, float>>>;  // by tag: steps and values

static void drop_from(std::vector<std::pair<int64_t, float>>& curve, int64_t step) {
    std::erase_if(curve, [&](const auto& point) { return point.first >= step; });
}

// What TensorBoard shows of a run. It has two readers. event_accumulator.py drops earlier events at START.
// The data server (run.rs, reservoir.rs) ignores START, but a value of a tag drops the tag's values of its
// step and later steps.
enum class Reader { event_accumulator, data_server };
static Curves shown(const std::string& run, Reader reader) {
    Curves curves;
    for (const std::string& path : event_files(run))
        for (const ReadEvent& event : read_events(path)) {
            if (reader == Reader::event_accumulator && event.status == 1)
                for (auto& [tag, curve] : curves) drop_from(curve, event.step);
            for (const auto& [tag, value] : event.scalars) {
                if (reader == Reader::data_server) drop_from(curves[tag], event.step);
                curves[tag].push_back({event.step, value});
            }
        }
    return curves;
}

// The same curves from metrics.csv.
static Curves curves_of_metrics(const std::string& run) {
    static const char* tags[] = {"",
                                 "loss/train",
                                 "training/learning_rate",
                                 "training/gradient_norm",
                                 "training/tokens_per_second",
                                 "",
                                 "loss/validation",
                                 "hellaswag/accuracy",
                                 "",
                                 "",
                                 ""};
    Curves curves;
    std::ifstream file(run + "/metrics.csv");
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
        std::istringstream fields(line);
        std::string field;
        const int step = atoi(line.c_str());
        for (int column = 0; std::getline(fields, field, ','); column++)
            if (*tags[column] && !field.empty())
                curves[tags[column]].push_back({step, strtof(field.c_str(), nullptr)});
    }
    return curves;
}

static void expect_metrics_are_shown(const std::string& run) {
    const Curves expected = curves_of_metrics(run);
    ASSERT_FALSE(expected.empty());
    for (Reader reader : {Reader::event_accumulator, Reader::data_server}) {
        SCOPED_TRACE(reader == Reader::data_server ? "data server" : "event accumulator");
        Curves found = shown(run, reader);
        ASSERT_EQ(found.size(), expected.size());
        for (const auto& [tag, curve] : expected) {
            ASSERT_EQ(found[tag].size(), curve.size()) << tag;
            for (size_t i = 0; i < curve.size(); i++) {
                EXPECT_EQ(found[tag][i].first, curve[i].first) << tag;
                const bool whole = tag == "training/tokens_per_second";  // in metrics.csv
                EXPECT_NEAR(found[tag][i].second, curve[i].second, whole ? 1 : 0) << tag;
            }
        }
    }
}

static double now() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// --- records ---

TEST(TensorBoard, ChecksumsOfRfc3720) {
    EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
    EXPECT_EQ(crc32c(""), 0u);
    EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
    EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
    std::string ascending(32, '\0');
    for (size_t i = 0; i < 32; i++) ascending[i] = char(i);
    EXPECT_EQ(crc32c(ascending), 0x46dd794eu);
}

// The first record of a file written by TensorFlow, from TensorBoard's own test (data/server/tf_record.rs).
TEST(TensorBoard, ARecordIsIdenticalToTensorFlows) {
    const std::string_view event(
        "\x09\x00\x00\x80\x38\x99\xd6\xd7\x41\x1a\x0d"
        "brain.Event:2",
        24);
    const std::string_view record(
        "\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7f\x4b\x22"
        "\x09\x00\x00\x80\x38\x99\xd6\xd7\x41\x1a\x0d"
        "brain.Event:2\x12\x4b\x36\xab",
        40);
    EXPECT_EQ(tf_record(event), record);
    TemporaryFolder run;
    const std::string written = read_whole_file(start_event_file(run.path, -1));
    EXPECT_EQ(written.substr(0, 13), record.substr(0, 13));
    EXPECT_EQ(written.substr(21, 15), record.substr(21, 15));  // after the time
    EXPECT_EQ(written.size(), record.size());
}

// Events that protobuf's library wrote (Python's TensorBoard 2.21), without their time.
TEST(TensorBoard, EventsAreIdenticalToProtobufs) {
    // the key and the length of the step's field, of the summary, of each value; then tag and value
    const std::string long_tag(130, 't');
    const auto bytes = [](const char* text, size_t size) { return std::string(text, size); };
    const std::pair<std::string, std::string> events[] = {
        {event_record(0, {{"zero", 0.0f}, {"loss/train", -1.5f}}),
         bytes("\x2a\x20\x0a\x0b\x0a\x04zero\x15\0\0\0\0\x0a\x11\x0a\x0aloss/train\x15\0\0\xc0\xbf", 34)},
        {event_record(300, {{long_tag.c_str(), 1.0f}}),
         "\x10\xac\x02\x2a\x8d\x01\x0a\x8a\x01\x0a\x82\x01" + long_tag + bytes("\x15\0\0\x80\x3f", 5)},
        {event_record(2000000000, {{"x", 3.25f}}),
         bytes("\x10\x80\xa8\xd6\xb9\x07\x2a\x0a\x0a\x08\x0a\x01x\x15\0\0\x50\x40", 18)},
        {event_record(7, {}), "\x10\x07"},
    };
    for (const auto& [record, expected] : events) {
        const size_t before = 12 + 9, after = 4;  // the record's header, the time; the checksum
        EXPECT_EQ(record.substr(before, record.size() - before - after), expected);
    }
    TemporaryFolder run;
    for (const int step : {0, 7}) {
        const std::string file = read_whole_file(start_event_file(run / std::to_string(step), step));
        EXPECT_EQ(file.substr(40 + 12 + 9, file.size() - 65),
                  std::string(step ? "\x10\x07" : "") + "\x3a\x02\x08\x01");
    }
}

// --- files ---

TEST(TensorBoard, LaterFilesSortLater) {
    TemporaryFolder run;
    Words written;
    for (int i = 0; i < 4; i++) {  // within a second
        written.push_back(start_event_file(run / "tensorboard", i - 1));
        const std::vector<ReadEvent> events = read_events(written.back());
        ASSERT_EQ(events.size(), i == 0 ? 1u : 2u);
        if (i == 0) continue;
        EXPECT_EQ(events[1].status, 1);
        EXPECT_EQ(events[1].step, i - 1);
    }
    EXPECT_EQ(event_files(run.path), written);
    // from clocks that ran ahead, and with more digits than this century's times
    for (const char* name : {"4102444800.elsewhere", "9999999999.x", "10000000000.x", "9223372036854775807.x",
                             "99999999999999999999.x"}) {
        std::ofstream(run / "tensorboard/events.out.tfevents." + name);
        for (int i = 0; i < 2; i++) {
            const std::string path = start_event_file(run / "tensorboard", 7);
            EXPECT_EQ(event_files(run.path).back(), path);
        }
    }
    const size_t longest = event_files(run.path).back().size();
    for (const char* name : {"-1.x", "99999999999999999999999", "no.x"})
        std::ofstream(run / "tensorboard/events.out.tfevents." + name);  // no times
    EXPECT_EQ(start_event_file(run / "tensorboard", 8).size(), longest + 1);
}

TEST(TensorBoard, HasAllMetrics) {
    TemporaryFolder run;
    MainLog log;
    log.open(run.path, -1, true);
    log.log_val(0, 10.98768f);
    log.log_train(0, {10.98768f, 0.0f, 1.23456f, 1234.5});
    log.log_train(1, {11.5f, 1e-4f, 2.5f, 99999, "outlier"});
    log.log_eval(2, 0.29989f);
    log.log_val(2, 9.75f);
    EXPECT_EQ(curves_of_metrics(run.path).size(), 6u);
    expect_metrics_are_shown(run.path);
}

static void write_with_room(LogFile& file, size_t bytes) {
    rlimit before = {};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small = {std::filesystem::file_size(file.path) + bytes, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    file.append(event_record(1, {{"loss", 1}}));
    setrlimit(RLIMIT_FSIZE, &before);
}

TEST(TensorBoard, WriteErrors) {
    TemporaryFolder run;
    std::ofstream(run / "file") << "x";
    EXPECT_EQ(message_of([&] { start_event_file(run / "file/tensorboard", -1); }),
              "cannot create directory " + run.path + "/file: Not a directory");
    LogFile file;
    file.path = start_event_file(run / "tensorboard", -1);
    write_with_room(file, 10);  // less than a record
    write_with_room(file, 0);
    EXPECT_EQ(read_events(file.path).size(), 1u);
    file.append(event_record(2, {{"loss", 2}}));
    const std::vector<ReadEvent> events = read_events(file.path);
    ASSERT_EQ(events.size(), 4u);
    EXPECT_EQ(events[1].step, 1);
    EXPECT_EQ(events[2].step, 1);
    EXPECT_EQ(events[3].step, 2);
}

// --- runs ---

static const Words twelve = words_of("--device cpu -x 12 -n 4 -v 3 -s 0 -l 0.01 -u 3 -d 51");

TEST(TensorBoard, ARunWritesItsMetricsAndIsBitIdentical) {
    Data data;
    const std::string a = data / "a", b = data / "b";
    const double before = now();
    expect_ok(data.run(with(twelve, {"-o", a, "--tensorboard"})));
    expect_ok(data.run(with(twelve, {"-o", b})));
    ASSERT_EQ(event_files(a).size(), 1u);
    EXPECT_EQ(shown(a, Reader::event_accumulator)["loss/train"].size(), 12u);
    EXPECT_EQ(shown(a, Reader::event_accumulator)["loss/validation"].size(), 5u);
    expect_metrics_are_shown(a);
    double last = before - 1e-3;
    for (const ReadEvent& event : read_events(event_files(a)[0])) {
        EXPECT_GE(event.wall_time, last);
        last = event.wall_time;
    }
    EXPECT_LE(last, now() + 1e-3);
    EXPECT_FALSE(std::filesystem::exists(b + "/tensorboard"));
    for (auto path : {model_path, optimizer_path})
        EXPECT_TRUE(read_whole_file(path(a, 12)) == read_whole_file(path(b, 12))) << path(b, 12);
    EXPECT_EQ(read_whole_file(a + "/main.log"), read_whole_file(b + "/main.log"));
}

TEST(TensorBoard, AResumedRunShowsNoStepTwice) {
    Data data;
    const std::string a = data / "a";
    expect_ok(data.run(with(twelve, {"-o", a, "--tensorboard"})));
    const std::string first = event_files(a)[0];
    delete_checkpoint(a, 12);  // as if it was killed before this checkpoint, while it wrote an event
    std::filesystem::resize_file(first, std::filesystem::file_size(first) - 5);
    const std::string kept = read_whole_file(first);
    expect_ok(resume(a));  // the option is in the folder
    ASSERT_EQ(event_files(a).size(), 2u);
    EXPECT_EQ(event_files(a)[0], first);
    EXPECT_EQ(read_whole_file(first), kept);
    const std::vector<ReadEvent> events = read_events(event_files(a)[1]);
    EXPECT_EQ(events.at(1).status, 1);
    EXPECT_EQ(events.at(1).step, 8);
    expect_metrics_are_shown(a);
    expect_ok(resume(a, {"--tensorboard=false"}));  // already done
    EXPECT_EQ(event_files(a).size(), 2u);
}
