// Starts programs with CreateProcessW(): see process.h.
#include "llmc/os/process.h"

#include <io.h>
#include <windows.h>

#include <algorithm>
#include <system_error>

struct Process::Internals {
    HANDLE child = nullptr;
    DWORD id = 0;
    HANDLE pipes[2] = {};  // read ends of standard output and standard error; null: closed
};

// A word of a command line, as C's run-time library reads it.
static std::string quoted(const std::string& word) {
    if (!word.empty() && word.find_first_of(" \t\n\"") == std::string::npos) return word;
    std::string text = "\"";
    size_t slashes = 0;  // doubled before a quote, which ends with the word, too
    for (const char c : word) {
        if (c == '"') text.append(slashes + 1, '\\');
        slashes = c == '\\' ? slashes + 1 : 0;
        text += c;
    }
    return text + std::string(slashes, '\\') + '"';
}

[[noreturn]] static void fail_with(const std::string& what) {
    throw std::system_error(int(GetLastError()), std::system_category(), what);
}

// A handle for the child alone: others that are created as inheritable are inherited, too.
static HANDLE inheritable(HANDLE handle) {
    SetHandleInformation(handle, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT);
    return handle;
}

Process::Process(std::vector<std::string> argv, FILE* input) : internals(std::make_unique<Internals>()) {
    std::string line;
    for (const std::string& word : argv) line += quoted(word) + " ";
    HANDLE write_ends[2];
    for (const int i : {0, 1}) {
        if (!CreatePipe(&internals->pipes[i], &write_ends[i], nullptr, 4096))
            fail_with("cannot create a pipe");
        inheritable(write_ends[i]);
    }
    const HANDLE nothing = CreateFileW(L"NUL", GENERIC_READ, 0, nullptr, OPEN_EXISTING, 0, nullptr);
    STARTUPINFOW start = {};
    start.cb = sizeof start;
    start.dwFlags = STARTF_USESTDHANDLES;
    start.hStdInput = inheritable(input ? HANDLE(_get_osfhandle(_fileno(input))) : nothing);
    start.hStdOutput = write_ends[0];
    start.hStdError = write_ends[1];
    PROCESS_INFORMATION started = {};
    std::wstring command(line.size(), 0);
    MultiByteToWideChar(CP_UTF8, 0, line.data(), int(line.size()), command.data(), int(command.size()));
    const bool runs = CreateProcessW(nullptr, command.data(), nullptr, nullptr, TRUE,
                                     CREATE_NEW_PROCESS_GROUP, nullptr, nullptr, &start, &started);
    for (const HANDLE end : write_ends) CloseHandle(end);
    CloseHandle(nothing);
    if (!runs) fail_with("cannot start " + argv[0]);
    CloseHandle(started.hThread);
    internals->child = started.hProcess;
    internals->id = started.dwProcessId;
}

Process::~Process() {
    kill();
    wait();
    CloseHandle(internals->child);
    for (const HANDLE end : internals->pipes)
        if (end) CloseHandle(end);
}

// Reads what is there. False: the other end is closed.
static bool drain(HANDLE pipe, std::string& text) {
    DWORD available = 0, count = 0;
    char chunk[4096];
    if (!PeekNamedPipe(pipe, nullptr, 0, nullptr, &available, nullptr)) return false;
    if (!available) return true;
    if (!ReadFile(pipe, chunk, std::min<DWORD>(available, sizeof chunk), &count, nullptr)) return false;
    text.append(chunk, count);
    return true;
}

bool Process::read(std::string& out, std::string& err, double seconds) {
    std::string* texts[2] = {&out, &err};
    const size_t before = out.size() + err.size();
    const ULONGLONG end = GetTickCount64() + ULONGLONG(seconds * 1e3);
    for (;;) {
        bool open = false;
        for (const int i : {0, 1}) {
            if (internals->pipes[i] && !drain(internals->pipes[i], *texts[i])) {
                CloseHandle(internals->pipes[i]);
                internals->pipes[i] = nullptr;
            }
            open |= internals->pipes[i] != nullptr;
        }
        if (!open) return false;
        if (out.size() + err.size() > before || GetTickCount64() >= end) return true;
        Sleep(1);
    }
}

void Process::kill() { TerminateProcess(internals->child, 128 + 9); }  // the status of SIGKILL elsewhere

void Process::send(int signal) {
    if (signal == 9)
        kill();
    else
        GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, internals->id);
}

bool Process::has_ended() {
    DWORD code = 0;
    if (WaitForSingleObject(internals->child, 0) != WAIT_OBJECT_0) return false;
    GetExitCodeProcess(internals->child, &code);
    status = int(code);
    return true;
}

int Process::wait() {
    WaitForSingleObject(internals->child, INFINITE);
    has_ended();
    return status;
}
