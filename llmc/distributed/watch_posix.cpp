#include "llmc/distributed/watch.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <random>
#include <sstream>
#include <thread>
#include <tuple>
#include <utility>

#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/heartbeat.h"

static constexpr double ACCEPT_SECONDS = 20, CONNECT_SECONDS = 3, FAILING_SECONDS = 3;
static constexpr double TICK_SECONDS = 0.5, NOTE_SECONDS = 1;
static constexpr double SILENT_SECONDS = 6;     // a rank that sends nothing for so long is stopped
static constexpr double SILENT_INTERVAL = 30;   // between notes to such a rank, which does not read them
static constexpr double LINE_SECONDS = 60;      // after which a wait is worth a line
static constexpr int UNREACHABLE_SECONDS = 45;  // without an acknowledgement

// What ranks tell rank 0, and rank 0 tells them.
struct Note {
    enum Kind : int32_t { STATUS, WAITS_FOR, LEAVE, END } kind;
    int32_t rank;             // STATUS: 1 if the sender waits; WAITS_FOR: for this rank, or -1
    uint64_t calls, seconds;  // STATUS: collective functions, and heartbeats; WAITS_FOR: for so long
};

// The first message of a connection, from rank 0 and to it.
struct Greeting {
    uint64_t token[2];
    int64_t rank;
};

struct Peer {
    int rank = 0, socket = -1;
    std::string in, out;  // parts of notes
    uint64_t calls = 0, beats = 0;
    bool waits = false, left = false;
    double silent = 0, last_sent = 0;
};

struct Watch::Thread {
    WatchedRanks ranks;
    Greeting greeting = {};
    int door = -1;
    std::vector<Peer> peers;  // of rank 0: all others; of another rank: rank 0
    std::thread thread;
    std::mutex mutex;  // of peers' `out`, and of `advice`
    std::string advice;
    std::atomic<double> timeout{20 * 60};
    std::atomic<uint64_t> calls{0};
    std::atomic<bool> waits{false}, has_left{false}, stops{false};

    // of the thread
    uint64_t last_total = 0;
    double stuck = 0;  // seconds without progress of any rank, while one of them waits
    int laggard = -1;  // the rank that they wait for; -1: for none in particular
    double next_line = 0;

    void run();
    void poll_peers();
    void receive(Peer& peer);
    void take(Peer& peer, const Note& note);
    void send(Peer& peer, const Note& note);
    void send_status();
    void count_silence(double seconds);
    void find_laggard(double seconds);
    void judge_wait();
    [[noreturn]] void lose(const Peer& peer, int error);
    [[noreturn]] void end_after_the_line();
    [[noreturn]] void end(const std::string& line);
    bool is_first_of_machine(int except) const;
    std::string name(int rank) const;
    double line_seconds() const { return std::min(LINE_SECONDS, timeout / 2); }
};

// --- connections ---

static void set_option(int socket, int level, int option, int value) {
    setsockopt(socket, level, option, &value, sizeof value);
}

// The system notices a machine that is gone, but not a process that is stopped: its system acknowledges.
static void prepare_socket(int socket) {
    fcntl(socket, F_SETFD, FD_CLOEXEC);
    set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
#ifdef TCP_KEEPIDLE
    set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 15);
    set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 6);
#endif
#ifdef TCP_USER_TIMEOUT
    set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, UNREACHABLE_SECONDS * 1000);
#endif
#ifdef SO_NOSIGPIPE
    set_option(socket, SOL_SOCKET, SO_NOSIGPIPE, 1);
#endif
}

#ifdef MSG_NOSIGNAL
static constexpr int SEND_FLAGS = MSG_DONTWAIT | MSG_NOSIGNAL;
#else
static constexpr int SEND_FLAGS = MSG_DONTWAIT;
#endif

static bool wait_for(int socket, short events, double seconds) {
    pollfd one = {socket, events, 0};
    int ready;
    do ready = poll(&one, 1, int(seconds * 1000));
    while (ready < 0 && errno == EINTR);
    return ready > 0;
}

static bool send_greeting(int socket, const Greeting& greeting) {
    return ::send(socket, &greeting, sizeof greeting, SEND_FLAGS) == ssize_t(sizeof greeting);
}

static bool receive_greeting(int socket, Greeting& greeting) {
    return wait_for(socket, POLLIN, CONNECT_SECONDS) &&
           recv(socket, &greeting, sizeof greeting, MSG_DONTWAIT) == ssize_t(sizeof greeting);
}

// The addresses at which other machines may reach this one; last the one of this machine alone.
static std::vector<std::string> own_addresses() {
    std::vector<std::string> all;
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) return {"127.0.0.1"};
    for (const ifaddrs* i = list; i; i = i->ifa_next) {
        const int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
        const bool up = i->ifa_flags & IFF_UP, loopback = i->ifa_flags & IFF_LOOPBACK;
        if (!up || loopback || (family != AF_INET && family != AF_INET6)) continue;
        const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        char text[NI_MAXHOST] = "";
        if (getnameinfo(i->ifa_addr, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 &&
            !std::string(text).starts_with("fe80"))  // valid on its own link only
            all.push_back(text);
    }
    freeifaddrs(list);
    all.push_back("127.0.0.1");
    return all;
}

// A listening socket for both versions of IP if the system has them; -1: none.
static int open_door(int count) {
    for (const int family : {AF_INET6, AF_INET}) {
        const int door = socket(family, SOCK_STREAM, 0);
        if (door < 0) continue;
        sockaddr_storage any = {};
        any.ss_family = sa_family_t(family);
        const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        if (family == AF_INET6) set_option(door, IPPROTO_IPV6, IPV6_V6ONLY, 0);
        fcntl(door, F_SETFD, FD_CLOEXEC);
        if (bind(door, reinterpret_cast<sockaddr*>(&any), length) == 0 && ::listen(door, count) == 0)
            return door;
        close(door);
    }
    return -1;
}

static int port_of(int socket) {
    sockaddr_storage address = {};
    socklen_t length = sizeof address;
    getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
    return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                               : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

// A connection to one address; -1: none.
static int connect_to(const std::string& address, const std::string& port) {
    addrinfo hints = {}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    if (getaddrinfo(address.c_str(), port.c_str(), &hints, &found) != 0) return -1;
    const int socket = ::socket(found->ai_family, SOCK_STREAM, 0);
    fcntl(socket, F_SETFL, O_NONBLOCK);
    int error = 0;
    if (connect(socket, found->ai_addr, found->ai_addrlen) != 0) error = errno;
    freeaddrinfo(found);
    socklen_t length = sizeof error;
    if (error == EINPROGRESS && wait_for(socket, POLLOUT, CONNECT_SECONDS))
        getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
    if (!error) return socket;
    close(socket);
    return -1;
}

std::string Watch::listen() {
    std::random_device random;
    for (uint64_t& word : thread->greeting.token) word = uint64_t(random()) << 32 | random();
    const auto& token = thread->greeting.token;
    thread->door = open_door(int(thread->ranks.hosts.size()));
    if (thread->door < 0) return "";
    std::string text = format_string("%d %llu %llu", port_of(thread->door), (unsigned long long)token[0],
                                     (unsigned long long)token[1]);
    for (const std::string& address : own_addresses()) text += " " + address;
    return text;
}

bool Watch::connect(const std::string& address) {
    std::istringstream words(address);
    std::string port, to;
    Greeting& own = thread->greeting;
    words >> port >> own.token[0] >> own.token[1];
    own.rank = thread->ranks.rank;
    while (words >> to) {
        const int socket = connect_to(to, port);
        Greeting answer = {};
        if (socket >= 0 && send_greeting(socket, own) && receive_greeting(socket, answer) &&
            memcmp(answer.token, own.token, sizeof own.token) == 0 && answer.rank == 0) {
            prepare_socket(socket);
            thread->peers.push_back({.rank = 0, .socket = socket, .in = {}, .out = {}});
            return true;
        }
        if (socket >= 0) close(socket);
    }
    return false;
}

// The next connection, or -1 when nobody has come until `end`. What accept() says may pass: that a rank has
// hung up, or that a descriptor or memory is missing. Error if it lasts.
static int accept_one(int door, double end) {
    for (double failing = 0; now() < end && wait_for(door, POLLIN, end - now());) {
        const int socket = accept(door, nullptr, nullptr);
        if (socket >= 0) return socket;
        if (failing == 0) failing = now();
        if (now() - failing > FAILING_SECONDS)
            fail("cannot accept connections of other ranks: %s", strerror(errno));
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return -1;
}

void Watch::accept_all() {
    const size_t others = thread->ranks.hosts.size() - 1;
    const Greeting& own = thread->greeting;
    const double end = now() + ACCEPT_SECONDS;
    while (thread->peers.size() < others) {
        const int socket = accept_one(thread->door, end);
        Greeting greeting = {};
        if (socket < 0) break;
        const bool ours = receive_greeting(socket, greeting) &&
                          memcmp(greeting.token, own.token, sizeof own.token) == 0 && greeting.rank > 0 &&
                          greeting.rank <= int64_t(others) && send_greeting(socket, own);
        if (!ours) {
            close(socket);
            continue;
        }
        fcntl(socket, F_SETFL, O_NONBLOCK);
        prepare_socket(socket);
        thread->peers.push_back({.rank = int(greeting.rank), .socket = socket, .in = {}, .out = {}});
    }
    close(thread->door);
    thread->door = -1;
}

// --- the main thread ---

Watch::Watch(WatchedRanks ranks) : thread(std::make_unique<Thread>()) { thread->ranks = std::move(ranks); }

Watch::~Watch() {
    thread->stops = true;
    if (thread->thread.joinable()) thread->thread.join();
    for (const Peer& peer : thread->peers)
        if (peer.socket >= 0) close(peer.socket);
    if (thread->door >= 0) close(thread->door);
}

// Signals are the main thread's.
void Watch::start() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    thread->thread = std::thread([this] { thread->run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Watch::Waiting::Waiting(const std::unique_ptr<Watch>& of) : watch(of.get()) {
    if (!watch) return;
    watch->thread->calls++;
    watch->thread->waits = true;
}
Watch::Waiting::~Waiting() {
    if (watch) watch->thread->waits = false;
}

void Watch::set_timeout(double seconds) { thread->timeout = seconds; }

void Watch::set_advice(const std::string& text) {
    const std::lock_guard lock(thread->mutex);
    thread->advice = text;
}

void Watch::leave() {
    thread->has_left = true;
    for (Peer& peer : thread->peers) thread->send(peer, {Note::LEAVE, 0, 0, 0});
}

void Watch::end_others() {
    for (Peer& peer : thread->peers) thread->send(peer, {Note::END, 0, 0, 0});
}

// --- the thread ---

void Watch::Thread::run() {
    for (double before = now(); !stops;) {
        poll_peers();
        const double time = now(), passed = time - before;
        before = time;
        const double counted = std::min(passed, 2 * TICK_SECONDS);  // not what a stopped job sleeps
        count_silence(counted);
        find_laggard(counted);
        judge_wait();
        send_status();
    }
}

void Watch::Thread::poll_peers() {
    std::vector<pollfd> sockets;
    for (const Peer& peer : peers) sockets.push_back({peer.socket, POLLIN, 0});  // -1 is ignored
    poll(sockets.data(), nfds_t(sockets.size()), int(TICK_SECONDS * 1000));
    for (size_t i = 0; i < peers.size(); i++)
        if (sockets[i].revents) receive(peers[i]);
}

void Watch::Thread::receive(Peer& peer) {
    char bytes[4096];
    const ssize_t count = recv(peer.socket, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (count <= 0) {
        if (!peer.left) lose(peer, count < 0 ? errno : 0);
        close(peer.socket);
        peer.socket = -1;
        return;
    }
    peer.silent = 0;
    peer.in.append(bytes, size_t(count));
    Note note;
    for (; peer.in.size() >= sizeof note; peer.in.erase(0, sizeof note)) {
        memcpy(&note, peer.in.data(), sizeof note);
        take(peer, note);
    }
}

void Watch::Thread::take(Peer& peer, const Note& note) {
    switch (note.kind) {
        case Note::STATUS:
            peer.calls = note.calls;
            peer.beats = note.seconds;
            peer.waits = note.rank;
            break;
        case Note::WAITS_FOR:
            laggard = note.rank;
            stuck = double(note.seconds);
            break;
        case Note::LEAVE:
            peer.left = true;
            break;
        case Note::END:
            end("");
    }
}

// What a slow reader does not take now follows later, or never: the next note says more.
void Watch::Thread::send(Peer& peer, const Note& note) {
    const std::lock_guard lock(mutex);
    if (peer.socket < 0) return;
    if (peer.out.empty() || note.kind != Note::STATUS)
        peer.out.append(reinterpret_cast<const char*>(&note), sizeof note);
    const ssize_t sent = ::send(peer.socket, peer.out.data(), peer.out.size(), SEND_FLAGS);
    if (sent > 0) peer.out.erase(0, size_t(sent));
}

void Watch::Thread::send_status() {
    for (Peer& peer : peers) {
        const double interval = peer.silent > SILENT_SECONDS ? SILENT_INTERVAL : NOTE_SECONDS;
        if (now() < peer.last_sent + interval) continue;
        peer.last_sent = now();
        if (ranks.rank == 0)
            send(peer, {Note::WAITS_FOR, laggard, 0, uint64_t(stuck)});
        else
            send(peer, {Note::STATUS, waits, calls, heartbeats});
    }
}

void Watch::Thread::count_silence(double seconds) {
    for (Peer& peer : peers) peer.silent += seconds;
}

// Rank 0 finds the rank that others wait for: one that is silent, else one that does not wait, else the one
// that has called the fewest functions. Another rank finds that rank 0 is silent.
void Watch::Thread::find_laggard(double seconds) {
    if (ranks.rank > 0) {
        if (peers.empty() || peers[0].silent <= SILENT_SECONDS) return;
        laggard = 0;
        stuck = peers[0].silent;
        return;
    }
    uint64_t total = calls + heartbeats;
    bool any_waits = waits, all_equal = waits;
    laggard = 0;
    auto worst = std::tuple(0.0, waits || has_left, has_left ? UINT64_MAX : calls.load());
    for (const Peer& peer : peers) {
        if (peer.left || peer.socket < 0) continue;
        total += peer.calls + peer.beats;
        any_waits |= peer.waits;
        all_equal &= peer.waits && peer.calls == calls && peer.silent <= SILENT_SECONDS;
        const double silent = peer.silent > SILENT_SECONDS ? -peer.silent : 0.0;
        if (const auto state = std::tuple(silent, peer.waits, peer.calls); state < worst) {
            worst = state;
            laggard = peer.rank;
        }
    }
    if (all_equal) laggard = -1;
    stuck = any_waits && total == last_total ? stuck + seconds : 0;
    last_total = total;
}

static std::string duration(double seconds) {
    return seconds < 120 ? format_string("%.0f s", seconds) : format_string("%.0f minutes", seconds / 60);
}

// Prints after a minute, after two, after four and so on.
void Watch::Thread::judge_wait() {
    if (stuck < line_seconds()) next_line = line_seconds();
    const bool rank0_silent = ranks.rank > 0 && !peers.empty() && peers[0].silent > SILENT_SECONDS;
    const std::string whom = laggard < 0 ? "messages of other ranks" : name(laggard);
    if (stuck >= timeout && (ranks.rank == 0 || (rank0_silent && waits))) {
        if (ranks.rank > 1) end_after_the_line();
        end(format_string("the job waited for %s for %s (--timeout)", whom.c_str(),
                          duration(timeout).c_str()));
    }
    if (stuck < next_line || !waits || !is_first_of_machine(laggard)) return;
    print_line(stderr, "waiting for %s for %s", whom.c_str(), duration(next_line).c_str());
    next_line *= 2;
}

// Rank 0's line comes from rank 0, or from the first rank that survives it; a machine that cannot reach rank
// 0 has one of its own.
void Watch::Thread::lose(const Peer& peer, int error) {
    const bool died = error == 0 || error == ECONNRESET || error == EPIPE;
    const bool prints = ranks.rank == 0 || (died ? ranks.rank == 1 : is_first_of_machine(0));
    if (!prints) end_after_the_line();
    end(name(peer.rank) + (died ? " has died"
                                : format_string(" has not answered for %d s: its machine or the network "
                                                "is down",
                                                UNREACHABLE_SECONDS)));
}

// Where another rank finds the same, and prints it: the launcher kills that one as soon as one has ended.
void Watch::Thread::end_after_the_line() {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    end("");
}

// Works while the main thread is anywhere, also where it holds the lock of standard output. Its line comes
// before the others end: the launcher kills this process as soon as one of them has.
void Watch::Thread::end(const std::string& line) {
    if (ftrylockfile(stdout) == 0) fflush(stdout);
    if (!line.empty()) {
        const std::lock_guard lock(mutex);
        const std::string text = printable(line + (advice.empty() ? "" : "; " + advice)) + "\n";
        [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    }
    for (Peer& peer : peers) send(peer, {Note::END, 0, 0, 0});
    _exit(1);
}

// The first one that is not `except`.
bool Watch::Thread::is_first_of_machine(int except) const {
    const int before = ranks.rank - 1 - (ranks.rank - 1 == except);
    return before < 0 || ranks.machines[before] != ranks.machines[ranks.rank];
}

std::string Watch::Thread::name(int rank) const {
    return format_string("rank %d on %s", rank, ranks.hosts[rank].c_str());
}
