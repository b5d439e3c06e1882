// Windows: see os.h.
#include "llmc/base/os.h"

#include <fcntl.h>
#include <io.h>
#include <malloc.h>
#include <windows.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cwchar>
#include <utility>

// --- the program ---

static UINT code_page_of_input = 0, code_page_of_output = 0;

// The console outlives the program.
static void restore_console() {
    if (code_page_of_input) SetConsoleCP(code_page_of_input);
    if (code_page_of_output) SetConsoleOutputCP(code_page_of_output);
}

void end_at_once(int status) {
    restore_console();
    std::_Exit(status);
}

void prepare_standard_streams() {
    int opened = _open("NUL", _O_RDWR);
    while (opened >= 0 && opened <= 2) opened = _open("NUL", _O_RDWR);
    if (opened > 2) _close(opened);
    for (FILE* stream : {stdin, stdout, stderr}) _setmode(_fileno(stream), _O_BINARY);
    code_page_of_input = GetConsoleCP();
    code_page_of_output = GetConsoleOutputCP();
    SetConsoleOutputCP(CP_UTF8);
    SetConsoleCP(CP_UTF8);
    std::atexit(restore_console);
    const auto before_the_end = [](DWORD) -> BOOL { return restore_console(), FALSE; };
    SetConsoleCtrlHandler(before_the_end,
                          TRUE);  // called after all later ones, if none of them handles the key
}

// A path in UTF-8 with / between names.
static std::string utf8(const wchar_t* text) {
    std::string result(
        size_t(std::max(1, WideCharToMultiByte(CP_UTF8, 0, text, -1, nullptr, 0, nullptr, nullptr))), 0);
    WideCharToMultiByte(CP_UTF8, 0, text, -1, result.data(), int(result.size()), nullptr, nullptr);
    result.pop_back();
    std::replace(result.begin(), result.end(), '\\', '/');
    return result;
}

std::string program_path() {
    wchar_t path[32768];
    return GetModuleFileNameW(nullptr, path, DWORD(std::size(path))) ? utf8(path) : "";
}

void set_environment(const char* name, const std::string& value) { _putenv_s(name, value.c_str()); }

// No name of a file has a quote. cmd and PowerShell both know these. For the program that gets the word, a
// backslash before a quote needs another one.
std::string shell_word(const std::string& path) {
    const bool is_plain = !path.empty() && path.find_first_of(" &()[]{}^=;!'+,`~%$#@") == std::string::npos;
    const size_t at_end = path.size() - (path.find_last_not_of('\\') + 1);
    return is_plain ? path : "\"" + path + std::string(at_end, '\\') + "\"";
}

// --- processes ---

int64_t process_id() { return GetCurrentProcessId(); }

std::string process_space() { return host_name(); }

static HANDLE open_process(int64_t id) {
    return OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION | SYNCHRONIZE, FALSE, DWORD(id));
}

std::string process_start(int64_t id) {
    const HANDLE process = open_process(id);
    FILETIME created, others[3];
    const bool is_known = process && GetProcessTimes(process, &created, &others[0], &others[1], &others[2]);
    if (process) CloseHandle(process);
    return is_known ? std::to_string(uint64_t(created.dwHighDateTime) << 32 | created.dwLowDateTime) : "";
}

bool has_ended(int64_t id, const std::string& start) {
    const HANDLE process = open_process(id);
    if (!process) return GetLastError() == ERROR_INVALID_PARAMETER;  // no such process
    const bool has_exited = WaitForSingleObject(process, 0) == WAIT_OBJECT_0;
    CloseHandle(process);
    return has_exited || process_start(id) != start;
}

// --- the machine ---

static std::string variable(const wchar_t* name) {
    const wchar_t* value = _wgetenv(name);
    return value ? utf8(value) : "";
}

std::string host_name() { return variable(L"COMPUTERNAME"); }

static MEMORYSTATUSEX memory_status() {
    MEMORYSTATUSEX status = {sizeof status};
    GlobalMemoryStatusEx(&status);
    return status;
}

uint64_t physical_memory() { return memory_status().ullTotalPhys; }

int cpu_quota(const std::string&) { return INT_MAX; }

CpuUse cpu_use() { return {}; }

uint64_t available_memory(const std::string&) {
    const MEMORYSTATUSEX status = memory_status();
    return std::min({status.ullAvailPhys, status.ullAvailPageFile, status.ullAvailVirtual});
}

uint64_t lockable_memory() { return UINT64_MAX; }

int online_cpus() { return int(GetActiveProcessorCount(ALL_PROCESSOR_GROUPS)); }

uint64_t stack_limit() { return UINT64_MAX; }  // the program's file says it

std::string home_folder() { return variable(L"USERPROFILE"); }

std::string cache_folder() { return variable(L"LOCALAPPDATA"); }

// --- memory ---

const char* const out_of_memory_message =
    "out of memory: use a smaller batch or model, or a larger page file";

void* reserve_addresses(size_t bytes) { return VirtualAlloc(nullptr, bytes, MEM_RESERVE, PAGE_NOACCESS); }

void release_addresses(void* start, size_t) { VirtualFree(start, 0, MEM_RELEASE); }

void* allocate_aligned(size_t alignment, size_t bytes) { return _aligned_malloc(bytes, alignment); }

void free_aligned(void* memory) { _aligned_free(memory); }

void ask_for_huge_pages(void*, size_t) {}  // only users with a privilege of their own get them

// --- libraries ---

void* open_library(const char* name) { return LoadLibraryA(name); }

void* find_in_library(void* library, const char* symbol) {
    return reinterpret_cast<void*>(GetProcAddress(HMODULE(library), symbol));
}

const std::vector<const char*> vulkan_loaders = {"vulkan-1.dll"};

// --- the terminal ---

const char* const end_of_input_key = "Control-Z and Enter";
const bool interrupt_ends_input = true;
const bool terminals_are_pipes = true;

// Not isatty(), which takes NUL for a terminal.
static bool is_console(HANDLE handle) {
    DWORD mode;
    return GetConsoleMode(handle, &mode);
}

bool is_terminal(FILE* stream) { return is_console(HANDLE(_get_osfhandle(_fileno(stream)))); }

size_t columns_of_terminal() {
    const HANDLE output = GetStdHandle(STD_OUTPUT_HANDLE);
    CONSOLE_SCREEN_BUFFER_INFO info;
    DWORD mode;
    if (!GetConsoleMode(output, &mode) || !GetConsoleScreenBufferInfo(output, &info)) return 0;
    const bool obeys = SetConsoleMode(output, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
    return obeys ? size_t(info.srWindow.Right - info.srWindow.Left + 1) : 0;
}

// --- UTF-8 in the run-time library ---

// std::filesystem converts names by these functions. Those of msvcrt know no UTF-8, so that these take their
// place in the programs, which link the library statically. A character beyond U+FFFF takes two wchar_t: its
// first three bytes give one, its last byte the other, which meanwhile is the state.
extern "C" size_t mbrtowc(wchar_t* to, const char* from, size_t bytes, mbstate_t* state) {
    if (!from) return 0;
    if (!bytes) return size_t(-2);  // more is needed
    if (state && *state) {
        const wchar_t second = wchar_t(std::exchange(*state, 0));
        if (to) *to = second;
        return 1;
    }
    const uint8_t first = uint8_t(*from);
    const size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (bytes < length) return size_t(-2);
    unsigned code = length == 1 ? first : first & (0x7f >> length);
    bool valid = first < 0x80 || (first >= 0xc2 && (first < 0xf0 || state));
    for (size_t i = 1; i < length; i++) {
        valid = valid && (from[i] & 0xc0) == 0x80;
        code = code << 6 | (from[i] & 0x3f);
    }
    if (!valid || (length == 4 && (code < 0x10000 || code >= 0x110000))) {
        errno = EILSEQ;
        return size_t(-1);
    }
    if (length == 4) {
        *state = mbstate_t(0xdc00 | (code & 0x3ff));
        code = 0xd800 | (code - 0x10000) >> 10;
    }
    if (to) *to = wchar_t(code);
    return length == 4 ? 3 : code ? length : 0;
}

extern "C" size_t wcrtomb(char* to, wchar_t c, mbstate_t*) {
    const size_t length = c < 0x80 ? 1 : c < 0x800 ? 2 : 3;
    if (!to) return 1;
    *to = length == 1 ? char(c) : length == 2 ? char(0xc0 | c >> 6) : char(0xe0 | c >> 12);
    for (size_t i = 1; i < length; i++) to[i] = char(0x80 | (c >> 6 * (length - 1 - i) & 0x3f));
    return length;
}

extern "C" size_t mbrlen(const char* from, size_t bytes, mbstate_t*) {
    return mbrtowc(nullptr, from, bytes, nullptr);
}
