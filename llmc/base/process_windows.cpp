// Starts programs with CreateProcessW(): see process.h.
#include "llmc/base/process.h"

#include <io.h>
#include <windows.h>

#include <algorithm>
#include <system_error>
#include <thread>

struct HandleCloser {
    void operator()(HANDLE handle) const { CloseHandle(handle); }
};
using OwnedHandle = std::unique_ptr<void, HandleCloser>;

struct Process::Internals {
    OwnedHandle child;
    OwnedHandle pipes[2];  // read ends of standard output and standard error; null: closed
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
    OwnedHandle write_ends[2];
    for (const int i : {0, 1}) {
        HANDLE read_end, write_end;
        if (!CreatePipe(&read_end, &write_end, nullptr, 4096)) fail_with("cannot create a pipe");
        internals->pipes[i].reset(read_end);
        write_ends[i].reset(inheritable(write_end));
    }
    const OwnedHandle nothing(CreateFileW(L"NUL", GENERIC_READ, 0, nullptr, OPEN_EXISTING, 0, nullptr));
    STARTUPINFOW start = {};
    start.cb = sizeof start;
    start.dwFlags = STARTF_USESTDHANDLES;
    start.hStdInput = inheritable(input ? HANDLE(_get_osfhandle(_fileno(input))) : nothing.get());
    start.hStdOutput = write_ends[0].get();
    start.hStdError = write_ends[1].get();
    PROCESS_INFORMATION started = {};
    std::wstring command(line.size(), 0);
    MultiByteToWideChar(CP_UTF8, 0, line.data(), int(line.size()), command.data(), int(command.size()));
    if (!CreateProcessW(nullptr, command.data(), nullptr, nullptr, TRUE, 0, nullptr, nullptr, &start,
                        &started))
        fail_with("cannot start " + argv[0]);
    CloseHandle(started.hThread);
    internals->child.reset(started.hProcess);
}

Process::~Process() {
    kill();
    wait();
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
            if (internals->pipes[i] && !drain(internals->pipes[i].get(), *texts[i]))
                internals->pipes[i].reset();
            open |= internals->pipes[i] != nullptr;
        }
        if (!open) return false;
        if (out.size() + err.size() > before || GetTickCount64() >= end) return true;
        Sleep(1);
    }
}

void Process::kill() {
    TerminateProcess(internals->child.get(), 128 + 9);  // the status of SIGKILL elsewhere
}

// Calls the program's handler of console events in a new thread, as a console does. This also works for what
// GenerateConsoleCtrlEvent() cannot send: Wine's loses Ctrl-Break, and none can close a window. Nobody waits
// for the call: Wine has another thread of the program create the new one, and never returns if the handler
// ends the program before that thread has replied.
static void call_event_handler(HANDLE program, DWORD event) {
    const auto start = reinterpret_cast<LPTHREAD_START_ROUTINE>(
        reinterpret_cast<void*>(GetProcAddress(GetModuleHandleW(L"kernelbase.dll"), "CtrlRoutine")));
    const HANDLE self = GetCurrentProcess();
    HANDLE copy = nullptr;
    if (!start || !DuplicateHandle(self, program, self, &copy, 0, FALSE, DUPLICATE_SAME_ACCESS)) return;
    std::thread([=] {
        const OwnedHandle owned(copy);  // CtrlRoutine is at the same address in all programs
        OwnedHandle(CreateRemoteThread(copy, nullptr, 0, start, reinterpret_cast<void*>(uintptr_t(event)), 0,
                                       nullptr));
    }).detach();
}

void Process::send(int signal) {
    if (signal == 9) return kill();
    call_event_handler(internals->child.get(), signal == 1 ? CTRL_CLOSE_EVENT : CTRL_BREAK_EVENT);
}

bool Process::has_ended() {
    DWORD code = 0;
    if (WaitForSingleObject(internals->child.get(), 0) != WAIT_OBJECT_0) return false;
    GetExitCodeProcess(internals->child.get(), &code);
    status = int(code);
    return true;
}

int Process::wait() {
    WaitForSingleObject(internals->child.get(), INFINITE);
    has_ended();
    return status;
}

int run_instead(const std::vector<std::string>&, const std::vector<std::pair<std::string, std::string>>&) {
    throw std::system_error(std::make_error_code(std::errc::function_not_supported));
}
