// data/download.sh against a small web server in this process: complete and resumed downloads, servers that
// break the connection, cannot resume, report wrong sizes or lack the file, and files of the wrong format.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <thread>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/data/hellaswag.h"
#include "llmc/distributed/communicator.h"
#include "llmc/text/tokenizer.h"
#include "tests/run_program.h"

// Serves files from memory, one connection at a time.
struct WebServer {
    std::map<std::string, std::string> files;
    bool ranges = true;                          // honours Range requests
    std::map<std::string, std::string> headers;  // of a file's answers, each line with its end
    size_t break_off = SIZE_MAX;                 // closes each connection after this many bytes of a body
    std::atomic<size_t> sent = 0;                // total bytes of bodies
    std::atomic<int> if_ranges = 0;              // requests with If-Range
    int listener = -1, port = 0;
    std::thread thread;

    WebServer() {
        listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address = {};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof(address);
        if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener, 8) != 0 ||
            getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0)
            throw std::runtime_error("no local server");
        port = ntohs(address.sin_port);
        thread = std::thread([this] {
            for (int peer; (peer = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)) >= 0; close(peer))
                answer(peer);
        });
    }
    ~WebServer() {
        shutdown(listener, SHUT_RDWR);
        thread.join();
        close(listener);
    }

    static void send_all(int peer, const std::string& bytes) {
        for (size_t done = 0; done < bytes.size();) {
            ssize_t count = send(peer, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
            if (count <= 0) return;
            done += size_t(count);
        }
    }

    void answer(int peer) {
        std::string request;
        char chunk[4096];
        while (request.find("\r\n\r\n") == std::string::npos) {
            ssize_t count = recv(peer, chunk, sizeof(chunk), 0);
            if (count <= 0) return;
            request.append(chunk, size_t(count));
        }
        bool head = request.rfind("HEAD ", 0) == 0;
        size_t slash = request.find('/'), end = request.find(' ', slash);
        auto found = files.find(request.substr(slash + 1, end - slash - 1));
        if (found == files.end())
            return send_all(peer, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        std::string body = found->second, status = "200 OK", extra;
        size_t range = request.find("\nRange: bytes="), total = body.size(),
               only = request.find("If-Range: ");
        const std::string version = only == std::string::npos
                                        ? ""
                                        : request.substr(only + 10, request.find("\r\n", only) - only - 10);
        if_ranges += only != std::string::npos;
        const bool same = headers[found->first].find(": " + version + "\r\n") != std::string::npos;
        if (ranges && range != std::string::npos && (version.empty() || same)) {
            size_t first = strtoull(request.c_str() + range + 14, nullptr, 10);
            status = "206 Partial Content";
            extra = format_string("Content-Range: bytes %zu-%zu/%zu\r\n", first, total - 1, total);
            body.erase(0, first);
        }
        send_all(peer, "HTTP/1.1 " + status + "\r\nConnection: close\r\n" + headers[found->first] + extra +
                           format_string("Content-Length: %zu\r\n\r\n", body.size()));
        if (head) return;
        body.resize(std::min(body.size(), break_off));
        send_all(peer, body);
        sent += body.size();
    }
};

static std::string shard(int tokens, int magic = 20240520) {
    std::string bytes(1024 + 2 * size_t(tokens), 't');
    int header[3] = {magic, 1, tokens};
    memset(bytes.data(), 0, 1024);
    memcpy(bytes.data(), header, sizeof(header));
    return bytes;
}

struct download : testing::Test {
    TemporaryFolder folder;
    WebServer server;
    const std::string val = "fineweb_val_000000.bin", train = "fineweb_train_000001.bin";

    void SetUp() override {
        if (!program_succeeds({"curl", "--version"})) GTEST_SKIP() << "curl is not installed";
        server.files[val] = shard(1000);
        server.files[train] = shard(50000);
    }
    ProgramResult run(Words arguments) {
        return run_program(with({"env", "no_proxy=*", "RETRY_SECONDS=0",
                                 "BASE_URL=http://127.0.0.1:" + std::to_string(server.port) + "/",
                                 SOURCE_DIR "/data/download.sh"},
                                arguments));
    }
    ProgramResult fineweb() { return run({"fineweb", "1", folder.path}); }
    void expect_complete(const ProgramResult& result) {
        EXPECT_EQ(result.status, 0) << result.err;
        EXPECT_EQ(result.err, "");
        for (const std::string& name : {val, train}) {
            EXPECT_TRUE(read_whole_file(folder / name) == server.files[name]) << name;
            EXPECT_FALSE(std::filesystem::exists(folder / (name + ".part"))) << name;
        }
    }
    void expect_failure(const ProgramResult& result, const std::string& expected) {
        expect_refusal(result, "download.sh: ", expected);
    }
};

TEST_F(download, downloads_once) {
    expect_complete(fineweb());
    size_t all = server.files[val].size() + server.files[train].size();
    EXPECT_EQ(server.sent, all);
    expect_complete(fineweb());
    EXPECT_EQ(server.sent, all);
}

TEST_F(download, completes_a_truncated_file) {
    write_whole_file(folder / train, {server.files[train].substr(0, 100)});
    expect_complete(fineweb());
    EXPECT_EQ(server.sent, server.files[val].size() + server.files[train].size() - 100);
}

TEST_F(download, retries_when_the_connection_breaks) {
    server.break_off = 40000;
    expect_complete(fineweb());
}

TEST_F(download, gives_up_after_three_attempts_and_resumes_later) {
    server.break_off = 10000;
    expect_failure(fineweb(), "received only 30000 of 101024 bytes");
    EXPECT_FALSE(std::filesystem::exists(folder / train));
    server.break_off = SIZE_MAX;
    expect_complete(fineweb());
}

TEST_F(download, starts_over_if_the_server_cannot_resume) {
    server.ranges = false;
    write_whole_file(folder / (train + ".part"), {server.files[train].substr(0, 5000)});
    expect_complete(fineweb());
}

// A part of an older version is not continued with the rest of a newer one.
TEST_F(download, starts_over_if_the_file_has_changed) {
    const std::string now = "Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n",
                      later = "Last-Modified: Thu, 22 Oct 2015 07:28:00 GMT\r\n";
    struct Case {
        std::string before, after;
    };
    for (const Case& c : {Case{"ETag: \"one\"\r\n", "ETag: \"two\"\r\n"},
                          {now, later},
                          {"ETag: W/\"weak\"\r\n" + now, "ETag: W/\"weak\"\r\n" + later}}) {
        server.headers[train] = c.before;
        server.files[train] = shard(50000);
        server.break_off = 30000;
        expect_failure(fineweb(), "received only 90000 of 101024 bytes");
        EXPECT_GE(server.if_ranges, 2);
        server.headers[train] = c.after;
        server.files[train].replace(1024, 50000, std::string(50000, 'n'));  // of the same size
        server.break_off = SIZE_MAX;
        expect_complete(fineweb());
        EXPECT_FALSE(std::filesystem::exists(folder / (train + ".part.version")));
        std::filesystem::remove(folder / train);
    }
    write_whole_file(folder / (train + ".part"), {std::string(5000, 'x')});  // of an unknown version
    expect_complete(fineweb());
}

// So that the server ignores the range if the file changes between two requests.
TEST_F(download, sends_the_version_with_the_range) {
    server.headers[train] = "ETag: \"one\"\r\n";
    write_whole_file(folder / (train + ".part"), {server.files[train].substr(0, 60000)});
    write_whole_file(folder / (train + ".part.version"), {"\"one\"\n"});
    expect_complete(fineweb());
    EXPECT_EQ(server.sent, server.files[val].size() + server.files[train].size() - 60000);
    EXPECT_EQ(server.if_ranges, 1);
}

TEST_F(download, a_damaged_file_is_downloaded_again) {
    expect_complete(fineweb());
    std::string bytes = server.files[train];
    bytes[50000] ^= 1;
    write_whole_file(folder / train, {bytes});
    const ProgramResult again = fineweb();  // SHA256SUMS tells
    expect_complete(again);
    EXPECT_TRUE(contains(again.out, train + ": damaged, or not the server's"));
    expect_ok(run_program({"sh", "-c", "cd " + folder.path + " && sha256sum -c SHA256SUMS"}));
    // Hugging Face names the checksum
    std::filesystem::remove(folder / "SHA256SUMS");
    const std::string sum =
        run_program({"sh", "-c", "sha256sum " + folder / train + " | cut -d ' ' -f 1 | tr -d '\\n'"}).out;
    server.headers[train] = "X-Linked-ETag: \"" + sum + "\"\r\n";
    write_whole_file(folder / train, {bytes});
    expect_complete(fineweb());
    server.files[train][50000] ^= 1;  // damaged on its way
    std::filesystem::remove(folder / train);
    expect_failure(fineweb(), "has not the server's checksum");
    EXPECT_FALSE(std::filesystem::exists(folder / train));
}

TEST_F(download, an_overlong_part_is_downloaded_again) {
    write_whole_file(folder / (train + ".part"), {server.files[train], "surplus"});
    expect_complete(fineweb());
}

TEST_F(download, refuses_files_of_the_wrong_format) {
    server.files[train] = shard(50000, 20240801);
    expect_failure(fineweb(), "starts with 20240801 instead of 20240520");
    server.files[train] = shard(50000) + "xx";
    expect_failure(fineweb(), "does not fit the 50000 tokens");
    server.files[train] = "";
    expect_failure(fineweb(), "gives no size");
    EXPECT_FALSE(std::filesystem::exists(folder / train));
    EXPECT_FALSE(std::filesystem::exists(folder / (train + ".part")));
}

TEST_F(download, explains_errors) {
    write_whole_file(folder / val, {server.files[val], "mine"});
    expect_failure(fineweb(), "is longer than the server's");
    EXPECT_EQ(read_whole_file(folder / val).size(), server.files[val].size() + 4);
    std::filesystem::remove(folder / val);
    server.files.erase(train);
    expect_failure(fineweb(), train + ": http");
    write_whole_file(folder / "file", {""});
    expect_failure(run({"fineweb", "1", folder / "file"}), "cannot create the folder");
    for (const char* count : {"0", "1029", "-1", "x", "", "0x10", " 5", "9223372036854775808",
                              "18446744073709551617", "99999999999999999999999"})
        expect_failure(run({"fineweb", count, folder.path}), "1 to 1028");
    expect_failure(run({"fineweb-edu", "1002", folder.path}), "1 to 1001");
    expect_failure(run({}), "usage");
    expect_failure(run({"everything"}), "usage");
    expect_failure(run({"starter", folder.path, "surplus"}), "usage");
    int port = server.port;
    server.port = 1;  // nothing listens there
    expect_failure(fineweb(), "gives no size");
    server.port = port;
}

TEST_F(download, the_starter_pack_has_all_kinds_of_files) {
    server.files = {
        {"gpt2_tokenizer.bin", shard(1, 20240328)},       {"tiny_shakespeare_val.bin", shard(2)},
        {"tiny_shakespeare_train.bin", shard(3)},         {"hellaswag_val.bin", shard(4, 20240522)},
        {"gpt2_124M_bf16.bin", shard(5, 20240326)},       {"gpt2_124M.bin", shard(6, 20240326)},
        {"gpt2_124M_debug_state.bin", shard(7, 20240327)}};
    expect_ok(run({"starter", folder.path}));
    for (const auto& [name, bytes] : server.files)
        EXPECT_TRUE(read_whole_file(folder / name) == bytes) << name;
}

TEST_F(download, hugging_faces_gpt2) {
    const std::string length = {10, 0, 0, 0, 0, 0, 0, 0};
    server.files = {{"config.json", "{\"n_head\": 2}"},
                    {"vocab.json", "{\"a\": 0}"},
                    {"merges.txt", "#version: 0.2\na b\n"},
                    {"model.safetensors", length + "{\"a\": {}} data"}};
    expect_ok(run({"gpt2", "gpt2-medium", folder.path}));
    for (const auto& [name, bytes] : server.files)
        EXPECT_TRUE(read_whole_file(folder / name) == bytes) << name;
    server.files["model.safetensors"] = "<html>not found</html>           ";
    std::filesystem::remove(folder / "model.safetensors");
    expect_failure(run({"gpt2", "gpt2-medium", folder.path}), "model.safetensors is not a safetensors file");
    EXPECT_FALSE(std::filesystem::exists(folder / "model.safetensors"));
    server.files["merges.txt"] = "<html>no</html>";
    std::filesystem::remove(folder / "merges.txt");
    expect_failure(run({"gpt2", "gpt2-medium", folder.path}), "merges.txt is not a list of merges");
    expect_failure(run({"gpt2", "gpt3", folder.path}), "gpt2-xl, not 'gpt3'");
    expect_failure(run({"gpt2"}), "SIZE must be");
}

// Runs dev/reproduce_124M.sh with a smaller model and fewer tokens; the second time without a server.
TEST_F(download, reproduce_124M_downloads_trains_and_resumes) {
    Tokenizer words;
    for (int i = 0; i < 50257; i++) words.tokens.push_back(format_string("w%d", i));
    words.end_of_text = 50256;
    write_tokenizer(words, folder / "words");
    write_hellaswag(folder / "examples", {{1, {1, 2, 5}, {{{3}, {4, 5}, {6}, {7, 8, 9}}}}});
    for (const char* name : {"tiny_shakespeare_val.bin", "tiny_shakespeare_train.bin"})
        server.files[name] = shard(2);
    for (const char* name : {"gpt2_124M_bf16.bin", "gpt2_124M.bin"}) server.files[name] = shard(5, 20240326);
    server.files["gpt2_124M_debug_state.bin"] = shard(7, 20240327);
    server.files["gpt2_tokenizer.bin"] = read_whole_file(folder / "words");
    server.files["hellaswag_val.bin"] = read_whole_file(folder / "examples");
    auto reproduce = [&](const char* steps, int processes = 1) {
        return run_program(
            args("env", "NP=" + std::to_string(processes),
                 std::string(processes > 1 ? WITHOUT_LEAK_CHECK : "LC_ALL=C"),  // Open MPI leaks
                 std::string("MPIRUN=mpirun --oversubscribe --bind-to none"),
                 "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 no_proxy=* SHARDS=1",
                 "DATA=" + folder.path, std::string("BUILD=" BINARY_DIR),
                 "BASE_URL=http://127.0.0.1:" + std::to_string(server.port),
                 std::string(SOURCE_DIR "/dev/reproduce_124M.sh"),
                 "-e custom:layers=1,heads=1,channels=8,max_seq_len=32 -b 2 -t 16 -d 64 -g 4 -m 1 -x",
                 std::string(steps), "--device cpu -o", folder / "run"));
    };
    expect_ok(reproduce("2"), "step    2/2", "HellaSwag: ");
    server.files.clear();
    const std::string second = output_of(reproduce("3"));
    EXPECT_FALSE(contains(second, "step    2/3"));
    EXPECT_TRUE(contains(second, "step    3/3"));
    if (!built_with_mpi() || run_program({"env", "mpirun", "--version"}).status != 0) return;
    expect_ok(reproduce("4", 2), "processes: 2", "4/4");
}

TEST(reproduce_124M, wrong_use_gives_one_line) {
    TemporaryFolder folder;
    for (const auto& [setting, says] : {std::pair{"SHARDS=x", "not 'x'"},
                                        {"SHARDS=010", "not '010'"},
                                        {"SHARDS=1029", "from 1 to 1028, not '1029'"},
                                        {"NP=two", "not 'two'"},
                                        {"BUILD=/nowhere", "run 'make build' first"}}) {
        expect_refusal(run_program({"env", "BUILD=" BINARY_DIR, "DATA=" + folder.path, setting,
                                    SOURCE_DIR "/dev/reproduce_124M.sh"}),
                       says);
    }
}
