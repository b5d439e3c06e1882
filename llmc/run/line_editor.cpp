#include "llmc/run/line_editor.h"

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <iterator>

#include "llmc/base/error.h"
#include "llmc/base/os.h"

#if WITH_LIBEDIT
#include <editline/readline.h>
#include <termios.h>
#include <unistd.h>

static termios terminal;  // as it is without a prompt

static void restore_and_end(int signal) {
    tcsetattr(0, TCSANOW, &terminal);
    std::signal(signal, SIG_DFL);
    raise(signal);
}

// While a line is typed, a signal that ends the program gives the terminal back.
class RestoreAtSignals {
   public:
    RestoreAtSignals() {
        for (size_t i = 0; i < std::size(signals); i++) {
            before[i] = std::signal(signals[i], restore_and_end);
            if (before[i] == SIG_IGN) std::signal(signals[i], SIG_IGN);
        }
    }
    ~RestoreAtSignals() {
        for (size_t i = 0; i < std::size(signals); i++) std::signal(signals[i], before[i]);
    }

   private:
    static constexpr int signals[] = {SIGTERM, SIGHUP, SIGQUIT};
    void (*before[std::size(signals)])(int);
};

// Control-C deletes the line.
static std::optional<std::string> edit_line(const char* prompt) {
    setlocale(LC_CTYPE, "");  // characters of several bytes
    tcgetattr(0, &terminal);
    const RestoreAtSignals restores;
    termios without_interrupt = terminal;
    without_interrupt.c_cc[VINTR] = _POSIX_VDISABLE;  // Control-C is a key
    tcsetattr(0, TCSADRAIN, &without_interrupt);
    static const int first = (rl_initialize(), rl_parse_and_bind("bind ^C em-kill-line"));
    (void)first;
    char* typed = readline(prompt);
    tcsetattr(0, TCSADRAIN, &terminal);
    if (!typed) return std::nullopt;
    if (*typed) add_history(typed);
    const std::string line = typed;
    free(typed);
    return line;
}
#else
static volatile std::sig_atomic_t is_deleted = 0;

// Control-C deletes the line, which the terminal does by itself; a console of Windows ends the input, too.
static std::optional<std::string> edit_line(const char* prompt) {
    std::string line;
    do {
        is_deleted = 0;
        const auto before = std::signal(SIGINT, [](int) { is_deleted = 1; });
        fputs(prompt, stdout);
        fflush(stdout);
        std::cin.clear();
        clearerr(stdin);  // a line may end with Control-D, too, where the terminal shows no line end
        if (std::getline(std::cin, line) && std::cin.eof()) putchar('\n');
        std::signal(SIGINT, before);
    } while (!std::cin && is_deleted && interrupt_ends_input);
    return std::cin ? std::optional(line) : std::nullopt;
}
#endif

static std::optional<std::string> read_piped_line() {
    std::string line;
    const bool is_read = bool(std::getline(std::cin, line));
    const int error = errno;
    // a terminal that is gone ends the input
    if (ferror(stdin) && !is_terminal(stdin)) fail("cannot read standard input: %s", strerror(error));
    return is_read ? std::optional(line) : std::nullopt;
}

std::optional<std::string> read_typed_line(const char* prompt) {
    const bool types = is_terminal(stdin) && is_terminal(stdout);
    std::optional<std::string> line = types ? edit_line(prompt) : read_piped_line();
    if (line && line->ends_with('\r')) line->pop_back();  // Windows' console gives it, too
    // Control-D and Control-Z, where the console makes characters of them
    const bool is_typed = is_terminal(stdin) || terminals_are_pipes;
    if (is_typed && line && (line->starts_with('\x04') || line->starts_with('\x1a'))) line.reset();
    if (types && !line) putchar('\n');  // the shell's prompt begins on a new line
    return line;
}
