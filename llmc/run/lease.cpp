#include "llmc/run/lease.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>

#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/os.h"
#include "llmc/base/system_files.h"

// What another job sees of a lease.
struct Seen {
    std::string text;
    int64_t written;
    bool operator==(const Seen&) const = default;
};

// Nothing: there is no lease. It is opened each time, since network file systems ask their server then. This
// is no sign of progress (heartbeat.h): a job that hangs renews its lease, too.
static std::optional<Seen> look_at(const std::string& path) {
    if (const auto there = get_status(path, Links::keep); there && there->kind != FileStatus::regular)
        fail("%s is not a file, as a job's lease is: remove it, or choose another folder", path.c_str());
    const int descriptor = open_path(path, Access::read_itself);
    if (descriptor < 0 && errno == ENOENT) return std::nullopt;
    std::string text(4096, '\0');
    const std::optional<FileStatus> status = descriptor < 0 ? std::nullopt : get_status(descriptor);
    int64_t count = status ? 1 : -1;
    size_t filled = 0;  // some file systems read less than is there
    for (; count > 0; filled += size_t(std::max<int64_t>(count, 0)))
        count = read_when_ready(descriptor, text.data() + filled, text.size() - filled);
    const int error = errno;
    if (descriptor >= 0) close(descriptor);
    if (count < 0) throw FileError(format_string("cannot read %s: %s", path.c_str(), strerror(error)));
    text.resize(filled);
    return Seen{text, status->written};
}

// The job of the scheduler, for people; empty if there is none.
static std::string scheduled_job() {
    for (const char* name : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"})
        if (const char* id = getenv(name); id && *id && strlen(id) < 100) return printable(id);
    return "";
}

static std::string own_text() {
    char time_text[32] = "";
    const time_t time = std::time(nullptr);
    std::strftime(time_text, sizeof time_text, "%Y-%m-%d %H:%M:%S UTC", std::gmtime(&time));
    return json_text({{"host", printable(host_name())},
                      {"job", scheduled_job()},
                      {"process", process_id()},
                      {"processes_of", process_space()},
                      {"started", process_start(process_id())},
                      {"since", time_text}}) +
           "\n";
}

// The job that a lease names, and whether its process is known to have ended.
struct Holder {
    std::string name = "another job";
    bool has_ended = false;
};

static Holder holder_of(const Seen& seen, const std::string& path) {
    if (seen.text.empty()) return {};  // it is being written, or the job has ended meanwhile
    try {
        const nlohmann::json lease = parse_json_object(seen.text, path);
        const int64_t process = lease.at("process");
        const std::string job = lease.at("job"), host = lease.at("host"), start = lease.at("started");
        const std::string scheduled = job.empty() ? "" : "job " + job + ", ";
        return {.name = format_string("%sprocess %lld on %s, since %s", printable(scheduled).c_str(),
                                      (long long)process, printable(host).c_str(),
                                      printable(lease.at("since").get<std::string>()).c_str()),
                .has_ended = lease.at("processes_of") == process_space() && has_ended(process, start)};
    } catch (const std::exception&) {
        fail("%s was not written by this program: move it, or choose another folder", path.c_str());
    }
}

// Writes the lease if there is none, and returns whether. Two machines cannot both do so.
bool Lease::create_unless_there() const {
    const int descriptor = open_path(path, Access::create);
    if (descriptor < 0 && errno == EEXIST) return false;
    bool is_written = descriptor >= 0 && write_bytes(descriptor, text) == text.size();
    int error = errno;
    if (descriptor >= 0 && !close_written(descriptor)) {
        is_written = false;
        error = errno;
    }
    if (descriptor >= 0 && !is_written) unlink_path(path);
    if (!is_written) throw FileError(format_string("cannot write %s: %s", path.c_str(), strerror(error)));
    return true;
}

void Lease::take(const std::string& of_folder, const Times& with_times) {
    times = with_times;
    folder = of_folder;
    path = folder + "/lease.json";
    text = own_text();
    while (!create_unless_there()) wait_until_stale();
    is_held = true;
    renewer = std::thread([this] { keep(); });
}

// Removes the lease if its job has ended.
void Lease::wait_until_stale() const {
    const std::optional<Seen> before = look_at(path);
    if (!before) return;
    const Holder holder = holder_of(*before, path);
    const int most = before->text.empty() ? std::min(times.looks, 5) : times.looks;
    std::optional<Seen> now = before;
    if (!holder.has_ended && !before->text.empty())
        print_line(stdout, "note: %s is of %s: waiting up to %g s for a sign of life", path.c_str(),
                   holder.name.c_str(), most * times.look_every);
    for (int i = 0; i < most && now == before && !holder_of(*before, path).has_ended; i++) {
        std::this_thread::sleep_for(std::chrono::duration<double>(times.look_every));
        now = look_at(path);
    }
    if (!now) return;
    if (now != before)
        fail("-o %s: %s is using this folder; wait for it, or choose another folder", folder.c_str(),
             holder_of(*now, path).name.c_str());
    if (look_at(path) != before) return;  // another job was faster
    remove_file(path);
    print_line(stdout, "note: %s was left by %s, which %s: this job takes the folder over", path.c_str(),
               holder.name.c_str(), holder.has_ended ? "has ended" : "gives no sign of life");
}

// Renews the lease until the destructor. One that somebody removed is written again.
void Lease::keep() {
    std::unique_lock lock(mutex);
    while (!ends.wait_for(lock, std::chrono::duration<double>(times.renew_every), [this] { return stops; }))
        try {
            const std::optional<Seen> seen = look_at(path);
            if (!seen)
                create_unless_there();
            else if (seen->text != text)
                was_lost = true;
            else
                touch_file(path);
        } catch (const FileError&) {  // the next time
        }
}

void Lease::check() const {
    if (path.empty()) return;
    const std::optional<Seen> seen = look_at(path);
    check_lost(was_lost || (seen && seen->text != text));
}

void Lease::check_lost(bool is_lost) const {
    if (is_lost)
        throw LostLease(
            format_string("-o %s: another job has taken this folder over, as %s says: this job, which had "
                          "given no sign of life, ends without a further checkpoint",
                          folder.c_str(), path.c_str()));
}

Lease::~Lease() {
    if (!is_held) return;
    {
        const std::lock_guard lock(mutex);
        stops = true;
    }
    ends.notify_all();
    if (renewer.joinable()) renewer.join();
    try {
        const std::optional<Seen> seen = look_at(path);
        if (seen && seen->text == text) remove_file(path);
    } catch (const FileError&) {  // the next job finds that this process has ended
    }
}
