// TensorBoard's event files: the bytes of records and events, and the files of whole runs, also killed and
// resumed ones, compared to metrics.csv.
#include "llmc/run/tensorboard.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <fstream>

#include "llmc/base/file.h"
#include "llmc/base/lines.h"
#include "llmc/files/checkpoint.h"
#include "llmc/run/log.h"
#include "tests/message_of.h"
#include "tests/tiny_run.h"

// Tiny models gain nothing from threads.
static const int one_thread = setenv("OMP_NUM_THREADS", "1", 1);

// An event of a file: its time, and the bytes behind that.
struct Event {
    double time;
    std::string rest;
};

// All complete records. A killed program may leave an incomplete one at the end.
static std::vector<Event> read_events(const std::string& path) {
    const std::string file = read_whole_file(path);
    std::vector<Event> events;
    uint64_t length = 0;
    for (size_t at = 0; at + 16 <= file.size(); at += 16 + length) {
        memcpy(&length, &file[at], sizeof length);
        if (length > file.size() - at - 16) break;
        const std::string message = file.substr(at + 12, length);
        EXPECT_EQ(file.substr(at, 16 + length), tf_record(message)) << path;
        events.push_back({0, message.substr(9)});
        memcpy(&events.back().time, &message[1], sizeof(double));
    }
    return events;
}

static std::string rest_of(const std::string& record) { return record.substr(21, record.size() - 25); }

// Of steps below 128.
static int step_of(const Event& event) { return event.rest[0] == 0x10 ? event.rest[1] : 0; }
static std::string start_at(int step) {
    return (step ? std::string{0x10, char(step)} : "") + "\x3a\x02\x08\x01";
}

// The event files in the order in which TensorBoard reads them.
static Words event_files(const std::string& run) {
    Words paths;
    for (const std::string& name : names_in(run + "/tensorboard"))
        paths.push_back(run + "/tensorboard/" + name);
    return paths;
}

// Expects the events of the rows of metrics.csv, whose speeds, at the end of an event, are rounded.
static void expect_metrics(const std::string& run, const std::vector<Event>& events) {
    const Words rows = lines_of(read_whole_file(run + "/metrics.csv"));
    ASSERT_EQ(events.size() + 1, rows.size());
    for (size_t i = 0; i < events.size(); i++) {
        SCOPED_TRACE(rows[i + 1]);
        Words fields;
        std::istringstream row(rows[i + 1]);
        for (std::string field; std::getline(row, field, ',');) fields.push_back(field);
        const auto number = [&](size_t column) { return strtof(fields.at(column).c_str(), nullptr); };
        std::vector<Scalar> scalars = {{"loss/validation", number(6)}};
        if (!fields[7].empty()) scalars = {{"hellaswag/accuracy", number(7)}};
        if (!fields[1].empty())
            scalars = {{"loss/train", number(1)},
                       {"training/gradient_norm", number(3)},
                       {"training/learning_rate", number(2)},
                       {"training/tokens_per_second", number(4)}};
        const std::string expected = rest_of(event_record(int(number(0)), scalars));
        const size_t same = expected.size() - (fields[1].empty() ? 0 : sizeof(float));
        EXPECT_EQ(events[i].rest.substr(0, same), expected.substr(0, same));
        EXPECT_EQ(events[i].rest.size(), expected.size());
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
    for (const auto& [record, expected] : events) EXPECT_EQ(rest_of(record), expected);
    TemporaryFolder run;
    for (const int step : {0, 7})
        EXPECT_EQ(read_events(start_event_file(run / std::to_string(step), step)).at(1).rest, start_at(step));
}

// --- files ---

TEST(TensorBoard, LaterFilesSortLater) {
    TemporaryFolder run;
    Words written;
    for (int i = 0; i < 4; i++) {  // within a second
        written.push_back(start_event_file(run / "tensorboard", i - 1));
        const std::vector<Event> events = read_events(written.back());
        ASSERT_EQ(events.size(), i == 0 ? 1u : 2u);
        EXPECT_TRUE(i == 0 || events[1].rest == start_at(i - 1));
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
    std::vector<Event> events = read_events(event_files(run.path)[0]);
    events.erase(events.begin());  // the version
    EXPECT_EQ(events.size(), 5u);
    expect_metrics(run.path, events);
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
    const std::vector<Event> events = read_events(file.path);
    ASSERT_EQ(events.size(), 4u);
    for (const int i : {1, 2, 3}) EXPECT_EQ(step_of(events[size_t(i)]), std::max(1, i - 1));
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
    std::vector<Event> events = read_events(event_files(a)[0]);
    double last = before - 1e-3;
    for (const Event& event : events) {
        EXPECT_GE(event.time, last);
        last = event.time;
    }
    events.erase(events.begin());
    EXPECT_EQ(events.size(), 12u + 5u);  // steps and validations
    expect_metrics(a, events);
    EXPECT_LE(last, now() + 1e-3);
    EXPECT_FALSE(std::filesystem::exists(b + "/tensorboard"));
    expect_bit_identical(a, b, 12);
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
    // the first file's events from step 8 on are void
    std::vector<Event> shown = read_events(first), resumed = read_events(event_files(a)[1]);
    EXPECT_EQ(resumed.at(1).rest, start_at(8));
    std::erase_if(shown, [](const Event& event) { return step_of(event) >= 8; });
    shown.erase(shown.begin());
    shown.insert(shown.end(), resumed.begin() + 2, resumed.end());
    expect_metrics(a, shown);
    expect_ok(resume(a, {"--tensorboard=false"}));  // already done
    EXPECT_EQ(event_files(a).size(), 2u);
}
