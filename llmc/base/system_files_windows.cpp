// Files of Windows: see files.h. Files are opened so that others may rename and remove them, as on POSIX
// systems.
#include "llmc/base/system_files.h"

#include <fcntl.h>
#include <io.h>
#include <windows.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

static std::wstring wide(const std::string& path) {
    std::wstring text(path.size(), 0);  // at least as long
    text.resize(size_t(
        MultiByteToWideChar(CP_UTF8, 0, path.data(), int(path.size()), text.data(), int(text.size()))));
    if (text.starts_with(L"\\\\?\\")) {  // no / there, and one separator at a time
        std::replace(text.begin(), text.end(), L'/', L'\\');
        const auto separate = [](wchar_t a, wchar_t b) { return a == L'\\' && b == L'\\'; };
        text.erase(std::unique(text.begin() + 4, text.end(), separate), text.end());
    }
    return text;
}

static int errno_of(DWORD error) {
    static const std::pair<DWORD, int> known[] = {
        {ERROR_FILE_NOT_FOUND, ENOENT},   {ERROR_PATH_NOT_FOUND, ENOENT},
        {ERROR_INVALID_NAME, ENOENT},     {ERROR_FILE_EXISTS, EEXIST},
        {ERROR_ALREADY_EXISTS, EEXIST},   {ERROR_DISK_FULL, ENOSPC},
        {ERROR_HANDLE_DISK_FULL, ENOSPC}, {ERROR_DIRECTORY, ENOTDIR},
        {ERROR_ACCESS_DENIED, EACCES},    {ERROR_SHARING_VIOLATION, EACCES},
        {ERROR_LOCK_VIOLATION, EACCES},   {ERROR_CANT_RESOLVE_FILENAME, ELOOP},
        {ERROR_NOT_SAME_DEVICE, EXDEV},   {ERROR_DIR_NOT_EMPTY, ENOTEMPTY},
        {ERROR_BAD_PATHNAME, ENOENT},     {ERROR_FILENAME_EXCED_RANGE, ENAMETOOLONG},
    };
    for (const auto& [code, number] : known)
        if (code == error) return number;
    return EIO;
}

static bool failed() {
    errno = errno_of(GetLastError());
    return false;
}

static constexpr DWORD share_all = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

// The console has a name for each direction, and none that can be asked for its attributes.
static HANDLE open_console(bool reads, DWORD share) {
    return CreateFileW(reads ? L"CONIN$" : L"CONOUT$", GENERIC_READ | GENERIC_WRITE, share, nullptr,
                       OPEN_EXISTING, 0, nullptr);
}

// Windows before 11 has the console in every folder, with any extension: CON.json.
static bool names_console(const std::string& path) {
    wchar_t full[8] = L"";
    return GetFullPathNameW(wide(path).c_str(), 8, full, nullptr) == 7 && _wcsicmp(full, L"\\\\.\\CON") == 0;
}

static HANDLE open_handle(const std::string& path, DWORD access, DWORD share, DWORD creation,
                          DWORD flags = 0) {
    if (names_console(path)) {
        const HANDLE console = open_console(access == GENERIC_READ, share);
        if (console == INVALID_HANDLE_VALUE) errno = ENXIO;  // the program has none
        return console;
    }
    // FILE_FLAG_BACKUP_SEMANTICS opens folders, too
    const HANDLE handle = CreateFileW(wide(path).c_str(), access, share, nullptr, creation,
                                      FILE_FLAG_BACKUP_SEMANTICS | flags, nullptr);
    if (handle == INVALID_HANDLE_VALUE) failed();
    return handle;
}

static HANDLE handle_of(int descriptor) { return HANDLE(_get_osfhandle(descriptor)); }

static bool has_attribute(HANDLE handle, DWORD attribute) {
    BY_HANDLE_FILE_INFORMATION info;
    return GetFileInformationByHandle(handle, &info) && (info.dwFileAttributes & attribute);
}
static bool is_folder(HANDLE handle) { return has_attribute(handle, FILE_ATTRIBUTE_DIRECTORY); }

// --- files ---

// Windows interrupts no calls. Control-Z ends what is typed at a console; some make a character of it.
int64_t read_when_ready(int descriptor, void* to, size_t bytes) {
    const int count = _read(descriptor, to, unsigned(std::min<size_t>(bytes, 1 << 30)));
    const bool ends = count > 0 && *static_cast<const char*>(to) == '\x1a';
    return ends && GetFileType(handle_of(descriptor)) == FILE_TYPE_CHAR ? 0 : count;
}
int64_t write_when_ready(int descriptor, const void* from, size_t bytes) {
    return _write(descriptor, from, unsigned(std::min<size_t>(bytes, 1 << 30)));
}

// A colon after the one of a disk makes a name that of a stream, which no folder lists.
static bool names_stream(const std::string& path) {
    const size_t separator = path.find_last_of(separators);
    return path.find(':', separator == path.npos ? 2 : separator) != path.npos;
}

int open_path(const std::string& path, Access access) {
    const bool writes = access == Access::write || access == Access::create;
    const bool appends = access == Access::append;
    if ((access == Access::create || appends) && names_stream(path)) {
        errno = EINVAL;
        return -1;
    }
    const bool keeps_link = access == Access::read_itself || appends;
    const HANDLE handle =
        open_handle(path, writes || appends ? GENERIC_WRITE | FILE_READ_ATTRIBUTES : GENERIC_READ, share_all,
                    access == Access::create ? CREATE_NEW
                    : appends                ? OPEN_ALWAYS
                                             : OPEN_EXISTING,
                    keeps_link ? FILE_FLAG_OPEN_REPARSE_POINT : 0);
    if (handle == INVALID_HANDLE_VALUE) return -1;
    const bool is_wrong_kind = access == Access::folder && !is_folder(handle);
    if (is_wrong_kind || (keeps_link && has_attribute(handle, FILE_ATTRIBUTE_REPARSE_POINT))) {
        CloseHandle(handle);
        errno = is_wrong_kind ? ENOTDIR : ELOOP;
        return -1;
    }
    return _open_osfhandle(intptr_t(handle), _O_BINARY | _O_NOINHERIT |
                                                 (writes    ? _O_WRONLY
                                                  : appends ? _O_WRONLY | _O_APPEND
                                                            : _O_RDONLY));
}

bool close_written(int descriptor) { return _close(descriptor) == 0; }

void redirect(FILE* stream, int descriptor) {
    fflush(stream);
    _dup2(descriptor, _fileno(stream));
}

int duplicate(int descriptor) {
    HANDLE copy = nullptr;
    const HANDLE self = GetCurrentProcess();
    if (!DuplicateHandle(self, handle_of(descriptor), self, &copy, 0, FALSE, DUPLICATE_SAME_ACCESS))
        return failed() - 1;
    return _open_osfhandle(intptr_t(copy), _O_BINARY | _O_NOINHERIT);
}

static std::optional<FileStatus> status_of_handle(HANDLE handle) {
    FileStatus status;
    if (handle == INVALID_HANDLE_VALUE) return std::nullopt;
    if (GetFileType(handle) != FILE_TYPE_DISK) return status;
    BY_HANDLE_FILE_INFORMATION info;
    if (!GetFileInformationByHandle(handle, &info)) {
        failed();
        return std::nullopt;
    }
    const auto joined = [](DWORD high, DWORD low) { return uint64_t(high) << 32 | low; };
    status.kind = info.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT ? FileStatus::symbolic_link
                  : info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY   ? FileStatus::folder
                                                                       : FileStatus::regular;
    status.hidden = info.dwFileAttributes & FILE_ATTRIBUTE_HIDDEN;
    status.device = uint64_t(1) << 32 | info.dwVolumeSerialNumber;  // 0: no disk
    status.number = joined(info.nFileIndexHigh, info.nFileIndexLow);
    status.size = joined(info.nFileSizeHigh, info.nFileSizeLow);
    status.written =
        100 * int64_t(joined(info.ftLastWriteTime.dwHighDateTime, info.ftLastWriteTime.dwLowDateTime));
    return status;
}

std::optional<FileStatus> get_status(const std::string& path, Links links) {
    const HANDLE handle = open_handle(path, FILE_READ_ATTRIBUTES, share_all, OPEN_EXISTING,
                                      links == Links::keep ? FILE_FLAG_OPEN_REPARSE_POINT : 0);
    const std::optional<FileStatus> found = status_of_handle(handle);
    if (handle != INVALID_HANDLE_VALUE) CloseHandle(handle);
    return found;
}

std::optional<FileStatus> get_status(int descriptor) { return status_of_handle(handle_of(descriptor)); }

// A kernel object whose name tells the folder: it is there as long as the program that created it.
static HANDLE folder_lock = nullptr;

static bool lock_folder(int descriptor) {
    const std::optional<FileStatus> status = get_status(descriptor);
    if (folder_lock || !status) return true;
    const std::string name =
        "Global\\vulkan_gpt2-" + std::to_string(status->device) + "-" + std::to_string(status->number);
    folder_lock = CreateMutexA(nullptr, FALSE, name.c_str());
    if (!folder_lock || GetLastError() != ERROR_ALREADY_EXISTS) return true;
    CloseHandle(std::exchange(folder_lock, nullptr));
    return false;
}

bool lock_file(int descriptor) {
    const HANDLE handle = handle_of(descriptor);
    if (is_folder(handle)) return lock_folder(descriptor);
    OVERLAPPED beyond_the_end = {};  // where nobody reads or writes: a lock keeps others from that
    beyond_the_end.OffsetHigh = 0x7fffffff;
    return LockFileEx(handle, LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0,
                      &beyond_the_end) ||
           (GetLastError() != ERROR_LOCK_VIOLATION && GetLastError() != ERROR_IO_PENDING);
}

bool flush_to_disk(int descriptor) {
    const HANDLE handle = handle_of(descriptor);
    // names are in the file system's journal: folders and pipes cannot be flushed
    if (GetFileType(handle) != FILE_TYPE_DISK || is_folder(handle)) return true;
    return FlushFileBuffers(handle) || failed();
}

bool touch_file(const std::string& path) {
    const HANDLE handle =
        open_handle(path, FILE_WRITE_ATTRIBUTES, share_all, OPEN_EXISTING, FILE_FLAG_OPEN_REPARSE_POINT);
    FILETIME time;
    GetSystemTimeAsFileTime(&time);
    const bool is_set = handle != INVALID_HANDLE_VALUE && SetFileTime(handle, nullptr, nullptr, &time);
    if (handle != INVALID_HANDLE_VALUE) CloseHandle(handle);
    return is_set || failed();
}

// Virus scanners and indexers open new files for a moment, which keeps others from renaming or removing them.
template <class Call>
static bool retry(Call call) {
    for (int tries = 0; tries < 50; tries++) {
        if (call()) return true;
        if (GetLastError() != ERROR_SHARING_VIOLATION && GetLastError() != ERROR_ACCESS_DENIED) break;
        Sleep(20);
    }
    return failed();
}

bool rename_path(const std::string& from, const std::string& to) {
    return retry([&] {
        return MoveFileExW(wide(from).c_str(), wide(to).c_str(),
                           MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH);
    });
}

bool unlink_path(const std::string& path) {
    if (retry([&] { return DeleteFileW(wide(path).c_str()); })) return true;
    const int error = errno;
    const std::optional<FileStatus> status = get_status(path);
    const bool is_folder = error == EACCES && status && status->kind == FileStatus::folder;
    errno = is_folder ? EISDIR : error;
    return false;
}

// --- folders ---

bool make_folder(const std::string& path) {
    return CreateDirectoryW(wide(path).c_str(), nullptr) || failed();
}

bool is_mount(const std::string&) { return false; }

bool remove_folder(const std::string& path) {
    return retry([&] { return RemoveDirectoryW(wide(path).c_str()); });
}

bool list_folder(const std::string& path, std::vector<std::string>& names) {
    const int descriptor = open_path(path, Access::folder);
    if (descriptor < 0) return false;
    _close(descriptor);
    WIN32_FIND_DATAW found;
    const char* all = path.find_last_of(separators) + 1 == path.size() ? "*" : "/*";
    const HANDLE search = FindFirstFileW(wide(path + all).c_str(), &found);
    if (search == INVALID_HANDLE_VALUE) return failed();
    do {
        char name[4 * MAX_PATH] = "";
        WideCharToMultiByte(CP_UTF8, 0, found.cFileName, -1, name, sizeof name, nullptr, nullptr);
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0) names.push_back(name);
    } while (FindNextFileW(search, &found));
    const DWORD error = GetLastError();
    FindClose(search);
    errno = errno_of(error);
    return error == ERROR_NO_MORE_FILES;
}

uint64_t free_bytes(const std::string& folder) {
    ULARGE_INTEGER available;
    return GetDiskFreeSpaceExW(wide(folder).c_str(), &available, nullptr, nullptr) ? available.QuadPart
                                                                                   : ~uint64_t(0);
}

// Nobody can rename the folder while the handle is open.
int hold_folder(const std::string& path) {
    const HANDLE handle = open_handle(path, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE, OPEN_EXISTING);
    if (handle == INVALID_HANDLE_VALUE) return -1;
    if (is_folder(handle)) return _open_osfhandle(intptr_t(handle), _O_BINARY | _O_NOINHERIT);
    CloseHandle(handle);
    errno = ENOTDIR;
    return -1;
}

void release_folder(int descriptor) {
    if (folder_lock) CloseHandle(std::exchange(folder_lock, nullptr));
    _close(descriptor);
}

// --- patterns ---

const char* const separators = "/\\";
bool is_separator(char c) { return c == '/' || c == '\\'; }

// Letter case is ignored for ASCII.
static bool matches(const char* pattern, const char* name) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; };
    for (; *pattern; pattern++, name++) {
        if (*pattern == '*') {
            for (;; name++) {
                if (matches(pattern + 1, name)) return true;
                if (!*name || is_separator(*name)) return false;
            }
        }
        if (!*name) return false;
        const bool has_set = *pattern == '[' && pattern[1];
        const char* end = has_set ? std::find(pattern + 2, pattern + strlen(pattern), ']') : pattern;
        if (has_set && *end) {
            const bool other = pattern[1] == '!';
            bool found = false;
            for (const char* c = pattern + 1 + other; c < end; c++) {
                const bool range = c + 2 < end && c[1] == '-';
                found |= lower(*c) <= lower(*name) && lower(*name) <= lower(range ? c[2] : *c);
                if (range) c += 2;
            }
            if (found == other) return false;
            pattern = end;
        } else if (*pattern == '?' ? is_separator(*name)
                                   : lower(*pattern) != lower(*name) &&
                                         !(is_separator(*pattern) && is_separator(*name))) {
            return false;
        }
    }
    return !*name;
}

bool matches_pattern(const std::string& pattern, const std::string& path) {
    return matches(pattern.c_str(), path.c_str());
}

std::string escaped_pattern(const std::string& path) {
    std::string pattern;
    for (const char c : path) pattern += c == '[' ? std::string("[[]") : std::string(1, c);
    return pattern;
}
