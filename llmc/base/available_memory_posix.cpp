// The memory and CPU time that limits of the process and of its control groups leave: see os.h.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "llmc/base/os.h"
#include "llmc/base/system_files.h"

static constexpr uint64_t unlimited = std::numeric_limits<uint64_t>::max();

// The number after the word `name` in a file; `otherwise` if there is none.
static uint64_t number_in(const std::string& path, const std::string& name, uint64_t otherwise) {
    std::ifstream file(path);
    uint64_t number = 0;
    for (std::string word; file >> word;)
        if (word == name) return file >> number ? number : otherwise;
    return otherwise;
}

// The number that a file consists of; `otherwise` for "max", or if there is no such file.
static uint64_t number_of(const std::string& path, uint64_t otherwise) {
    std::ifstream file(path);
    uint64_t number = 0;
    return file >> number ? number : otherwise;
}

// --- control groups ---

// The names of the files of one version.
struct GroupFiles {
    const char *limit, *used, *file_cache;  // the last one is a line of memory.stat
};
static const GroupFiles version1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
static const GroupFiles version2 = {"memory.max", "memory.current", "inactive_file"};

// The memory that a group leaves. The file cache counts as used, but is given back when memory is needed.
static uint64_t memory_in_group(const std::string& folder, bool is_version2) {
    const GroupFiles& files = is_version2 ? version2 : version1;
    const uint64_t limit = number_of(folder + "/" + files.limit, unlimited);
    if (limit == unlimited) return unlimited;
    const uint64_t used = number_of(folder + "/" + files.used, 0);
    return left_of(limit, left_of(used, number_in(folder + "/memory.stat", files.file_cache, 0)));
}

// The CPU time that a group leaves, in thousandths of a CPU: so many microseconds in each period.
static uint64_t cpu_in_group(const std::string& folder, bool is_version2) {
    double quota = 0, period = 0;
    std::ifstream both(folder + "/cpu.max"), quota1(folder + "/cpu.cfs_quota_us"),
        period1(folder + "/cpu.cfs_period_us");
    const bool is_limited =
        is_version2 ? bool(both >> quota >> period) : bool(quota1 >> quota && period1 >> period);
    return is_limited && quota > 0 && period > 0 ? uint64_t(std::ceil(1000 * quota / period)) : unlimited;
}

static bool lists(const std::string& words, const std::string& word) {
    return ("," + words + ",").find("," + word + ",") != std::string::npos;
}

// The path of the process's group in the hierarchy of a controller, "memory" or "cpu"; a line of
// /proc/self/cgroup is "NUMBER:CONTROLLERS:PATH", with no controllers in version 2. Empty if there is none.
static std::string group_of_process(const std::string& root, bool is_version2, const char* controller) {
    std::ifstream file(root + "/proc/self/cgroup");
    std::string number, controllers, path;
    while (std::getline(file, number, ':') && std::getline(file, controllers, ':') &&
           std::getline(file, path))
        if (is_version2 ? controllers.empty() : lists(controllers, controller)) return path;
    return "";
}

// Where a cgroup namespace hides the names of so many groups: the group below them that lists this process,
// as a path in the folder; "" if none does.
static std::string hidden_group(const std::string& folder, size_t hidden, const std::string& below) {
    if (hidden == 0) {
        std::ifstream processes(folder + below + "/cgroup.procs");
        for (int64_t id; processes >> id;)
            if (id == process_id()) return below;
        return "";
    }
    std::vector<std::string> names;
    list_folder(folder, names);
    for (const std::string& name : names)
        if (const std::string group = hidden_group(folder + "/" + name, hidden - 1, below); !group.empty())
            return "/" + name + group;
    return "";
}

// The groups from a path's beginning on that are above the root of the cgroup namespace: "/..", each.
static size_t groups_above(const std::string& path) {
    size_t count = 0;
    while (path.compare(3 * count, 3, "/..") == 0) count++;
    return count;
}

using RoomInGroup = uint64_t(const std::string& folder, bool is_version2);

// What the process's group and those above it leave, in a hierarchy whose group `top` is mounted at `mount`.
static uint64_t room_below(const std::string& mount, const std::string& top, std::string group,
                           bool is_version2, RoomInGroup* in_group) {
    const size_t levels = groups_above(top), levels_of_group = groups_above(group);
    if (levels > levels_of_group)
        group = hidden_group(mount, levels - levels_of_group, group.substr(3 * levels_of_group) + "/");
    else if (top != "/" && group.starts_with(top))
        group = group.substr(top.size());
    uint64_t room = unlimited;
    for (;; group = group.substr(0, group.rfind('/'))) {
        room = std::min(room, in_group(mount + group, is_version2));
        if (group.find('/') == std::string::npos) return room;
    }
}

// A path of mountinfo, where blanks and backslashes are \ and three octal digits.
static std::string unescaped(const std::string& path) {
    std::string text;
    for (size_t i = 0; i < path.size(); i++)
        if (path[i] == '\\') {
            text += char(std::strtol(path.substr(i + 1, 3).c_str(), nullptr, 8));
            i += 3;
        } else {
            text += path[i];
        }
    return text;
}

// A line of /proc/self/mountinfo is "ID PARENT DEVICE TOP MOUNT OPTIONS ... - TYPE SOURCE OPTIONS".
static uint64_t room_in_groups(const std::string& root, const char* controller, RoomInGroup* in_group) {
    std::ifstream file(root + "/proc/self/mountinfo");
    uint64_t room = unlimited;
    for (std::string line; std::getline(file, line);) {
        std::istringstream before(line), after(line.substr(std::min(line.find(" - "), line.size())));
        std::string skipped, top, mount, type, options;
        before >> skipped >> skipped >> skipped >> top >> mount;
        after >> skipped >> type >> skipped >> options;
        const bool is_version2 = type == "cgroup2";
        if (!is_version2 && !(type == "cgroup" && lists(options, controller))) continue;
        const std::string group = group_of_process(root, is_version2, controller);
        room =
            std::min(room, room_below(root + unescaped(mount), unescaped(top), group, is_version2, in_group));
    }
    return room;
}

// --- limits of the process ---

// What a limit leaves, given the line of /proc/self/status that says how much is used.
static uint64_t room_in_limit(rlimit value, const char* used) {
    if (value.rlim_cur == RLIM_INFINITY) return unlimited;
    return left_of(value.rlim_cur, 1024 * number_in("/proc/self/status", used, 0));
}

uint64_t available_memory(const std::string& root) {
    const uint64_t available = number_in("/proc/meminfo", "MemAvailable:", physical_memory() / 1024) * 1024;
    rlimit addresses = {RLIM_INFINITY, RLIM_INFINITY}, data = addresses;
    getrlimit(RLIMIT_AS, &addresses);
    getrlimit(RLIMIT_DATA, &data);
    return std::min({available, room_in_groups(root, "memory", memory_in_group),
                     room_in_limit(addresses, "VmSize:"), room_in_limit(data, "VmData:")});
}

uint64_t lockable_memory() {
    rlimit locked = {RLIM_INFINITY, RLIM_INFINITY};
    getrlimit(RLIMIT_MEMLOCK, &locked);
    return locked.rlim_cur == RLIM_INFINITY ? unlimited : locked.rlim_cur;
}

int cpu_quota(const std::string& root) {
    const uint64_t thousandths = room_in_groups(root, "cpu", cpu_in_group);
    return int(std::min<uint64_t>(std::numeric_limits<int>::max(), (thousandths - 1) / 1000 + 1));
}
