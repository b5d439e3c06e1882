// ctrl_c LOG TEXT PROGRAM ARGS...: runs PROGRAM in a console of its own, with its output in LOG, and presses
// Ctrl-C there once it has printed TEXT. Ends with its status. Ctrl-C goes to all programs of a console that
// did not begin a group, so Process::send() cannot send it. Status 77: the console has another code page
// then.
// ctrl_c --screen LOG TYPED PROGRAM ARGS...: types TYPED, Enter, Ctrl-Z and Enter in that console, which has
// PROGRAM's output, and writes to LOG what its screen shows at the end.
#include <windows.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

static BOOL WINAPI ignore(DWORD) { return TRUE; }

static DWORD wait_for(const PROCESS_INFORMATION& program) {
    DWORD status = 1;
    WaitForSingleObject(program.hProcess, INFINITE);
    GetExitCodeProcess(program.hProcess, &status);
    return status;
}

static bool has_printed(const std::string& log, const std::string& text) {
    std::ifstream file(log, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {}).find(text) != std::string::npos;
}

// The arguments, none of which has a space, after the first ones.
static std::string words_from(char** argv) {
    std::string line;
    for (; *argv; argv++) line += std::string(line.empty() ? "" : " ") + *argv;
    return line;
}

static PROCESS_INFORMATION start(std::string line, DWORD flags, HANDLE output) {
    STARTUPINFOA with = {};
    with.cb = sizeof with;
    if (output) {
        with.dwFlags = STARTF_USESTDHANDLES;
        with.hStdInput = GetStdHandle(STD_INPUT_HANDLE);
        with.hStdOutput = with.hStdError = output;
    }
    PROCESS_INFORMATION started = {};
    if (!CreateProcessA(nullptr, line.data(), nullptr, nullptr, output != nullptr, flags, nullptr, nullptr,
                        &with, &started))
        fprintf(stderr, "ctrl_c: cannot start %s\n", line.c_str());
    return started;
}

static HANDLE open_console(const char* name) {
    return CreateFileA(name, GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, nullptr,
                       OPEN_EXISTING, 0, nullptr);
}

static void type(const std::string& text) {
    for (const char c : text)
        for (const bool down : {true, false}) {
            INPUT_RECORD key = {};
            DWORD written = 0;
            key.EventType = KEY_EVENT;
            key.Event.KeyEvent.bKeyDown = down;
            key.Event.KeyEvent.wRepeatCount = 1;
            key.Event.KeyEvent.wVirtualKeyCode = c == '\r' ? VK_RETURN : WORD(c == '\x1a' ? 'Z' : 0);
            key.Event.KeyEvent.uChar.UnicodeChar = WCHAR(c);
            key.Event.KeyEvent.dwControlKeyState = c == '\x1a' ? LEFT_CTRL_PRESSED : 0;
            WriteConsoleInputW(open_console("CONIN$"), &key, 1, &written);
        }
}

// The rows of the screen, in UTF-8.
static std::string screen() {
    CONSOLE_SCREEN_BUFFER_INFO info = {};
    const HANDLE console = open_console("CONOUT$");
    GetConsoleScreenBufferInfo(console, &info);
    std::string text;
    for (SHORT row = 0; row <= info.dwCursorPosition.Y; row++) {
        std::wstring cells(size_t(info.dwSize.X), 0);
        DWORD count = 0;
        ReadConsoleOutputCharacterW(console, cells.data(), DWORD(cells.size()), {0, row}, &count);
        std::string line(3 * count, 0);
        line.resize(size_t(WideCharToMultiByte(CP_UTF8, 0, cells.data(), int(count), line.data(),
                                               int(line.size()), nullptr, nullptr)));
        text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
}

static int run_on_screen(char** argv) {
    type(std::string(argv[2]) + "\r\x1a\r");
    const DWORD status = wait_for(start(words_from(argv + 3), 0, nullptr));
    std::ofstream(argv[1], std::ios::binary) << screen();
    return int(status);
}

int main(int argc, char** argv) {
    if (argc < 4) return 1;
    SetConsoleCtrlHandler(nullptr, FALSE);  // groups of programs ignore Ctrl-C, and what they start does, too
    if (strcmp(argv[1], "--in-console") != 0)
        return int(wait_for(start(std::string(argv[0]) + " --in-console " + words_from(argv + 1),
                                  CREATE_NEW_CONSOLE, nullptr)));
    if (!strcmp(argv[2], "--screen")) return run_on_screen(argv + 2);
    SECURITY_ATTRIBUTES inherited = {sizeof inherited, nullptr, TRUE};
    const HANDLE log = CreateFileA(argv[2], GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, &inherited,
                                   CREATE_ALWAYS, 0, nullptr);
    const UINT code_page = 850;  // of Western Europe
    SetConsoleOutputCP(code_page);
    const PROCESS_INFORMATION program = start(words_from(argv + 4), 0, log);
    while (WaitForSingleObject(program.hProcess, 10) == WAIT_TIMEOUT)
        if (has_printed(argv[2], argv[3])) break;
    SetConsoleCtrlHandler(ignore, TRUE);
    GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0);
    const DWORD status = wait_for(program);
    return GetConsoleOutputCP() == code_page ? int(status) : 77;
}
