#include "llmc/text/text_file.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <regex>

#include "llmc/base/error.h"
#include "llmc/base/lines.h"
#include "llmc/base/output.h"
#include "llmc/base/paths.h"
#include "llmc/base/system_files.h"
#include "llmc/base/utf8.h"

static const size_t start_bytes = 4096;  // enough for every signature
// zstd allocates the window that a frame declares: up to 2 GiB if written with --long=31. A fuzz program
// would spend its time in such allocations.
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
static const int max_window_log = 26;
#else
static const int max_window_log = 31;
#endif

// --- decompression ---

// Feeds compressed bytes to a library.
struct Decompressor {
    std::string buffer;  // compressed bytes; those from `at` on are unused
    size_t at = 0;
    bool between_frames = true;  // of which a file may have several, one after the other

    explicit Decompressor(std::string first) : buffer(std::move(first)) {}
    virtual ~Decompressor() = default;
    // Decompresses from buffer[at] on, advances `at`, and returns the bytes written. None: damaged data.
    virtual std::optional<size_t> step(char* to, size_t size) = 0;
};

struct Gzip : Decompressor {
    z_stream stream = {};

    explicit Gzip(std::string first) : Decompressor(std::move(first)) {
        if (inflateInit2(&stream, MAX_WBITS + 16) != Z_OK) fail("out of memory: zlib cannot start");
    }
    ~Gzip() override { inflateEnd(&stream); }

    std::optional<size_t> step(char* to, size_t size) override {
        if (between_frames) {
            while (at < buffer.size() && buffer[at] == '\0') at++;  // padding, as on tapes
            if (at == buffer.size()) return 0;
            inflateReset(&stream);
        }
        stream.next_in = reinterpret_cast<Bytef*>(buffer.data() + at);
        stream.avail_in = uInt(buffer.size() - at);
        stream.next_out = reinterpret_cast<Bytef*>(to);
        stream.avail_out = uInt(std::min<size_t>(size, 1 << 30));
        const uInt room = stream.avail_out;
        const int status = inflate(&stream, Z_NO_FLUSH);
        if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) return std::nullopt;
        between_frames = status == Z_STREAM_END;
        at = buffer.size() - stream.avail_in;
        return room - stream.avail_out;
    }
};

struct Zstd : Decompressor {
    std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream{ZSTD_createDStream(), ZSTD_freeDStream};
    std::string path;

    Zstd(std::string first, const std::string& name) : Decompressor(std::move(first)), path(name) {
        if (!stream) fail("out of memory: zstd cannot start");
        ZSTD_DCtx_setParameter(stream.get(), ZSTD_d_windowLogMax, max_window_log);
    }
    std::optional<size_t> step(char* to, size_t size) override {
        ZSTD_inBuffer in = {buffer.data(), buffer.size(), at};
        ZSTD_outBuffer out = {to, size, 0};
        const size_t status = ZSTD_decompressStream(stream.get(), &out, &in);
        if (ZSTD_getErrorCode(status) == ZSTD_error_memory_allocation)
            fail("%s: out of memory for its zstd window of up to 2 GiB: compress it again without --long",
                 path.c_str());
        if (ZSTD_isError(status)) return std::nullopt;
        between_frames = status == 0;
        at = in.pos;
        return out.pos;
    }
};

// --- signatures ---

// What a file that is not text is, by its first bytes, as in "PDF (pdftotext extracts its text)".
// Null: it may be text.
static const char* not_text(std::string_view start) {
    using namespace std::string_view_literals;
    struct Signature {
        std::string_view bytes;
        const char* name;
        size_t offset = 0;
    };
    static const Signature signatures[] = {
        {"\xff\xfe\0\0"sv, "UTF-32 (an editor saves it as UTF-8)"},
        {"\0\0\xfe\xff"sv, "UTF-32 (an editor saves it as UTF-8)"},
        {"\xfd"
         "7zXZ\0"sv,
         "compressed by xz (unpack it first: xz -d)"},
        {"BZh"sv, "compressed by bzip2 (unpack it first: bzip2 -d)"},
        {"PK\3\4"sv, "a zip archive or an office document (unpack it first)"},
        {"7z\xbc\xaf\x27\x1c"sv, "a 7z archive (unpack it first)"},
        {"ustar"sv, "a tar archive (unpack it first: tar -x)", 257},
        {"%PDF-"sv, "PDF (pdftotext extracts its text)"},
        {"{\\rtf"sv, "RTF (a word processor saves it as plain text)"},
        {"\x7f"
         "ELF"sv,
         "a program"},
        {"\x89PNG"sv, "a picture"},
        {"\xff\xd8\xff"sv, "a picture"},
        {"GIF8"sv, "a picture"},
        // the file's own compression has been undone already
        {"\x1f\x8b"sv, "compressed twice (unpack it first: gzip -d)"},
        {"\x28\xb5\x2f\xfd"sv, "compressed twice (unpack it first: zstd -d)"},
        {"\x04\x22\x4d\x18"sv, "compressed by lz4 (unpack it first: lz4 -d)"},
        {"PAR1"sv, "Parquet (convert it to JSONL first)"},
        {"ARROW1"sv, "Arrow (convert it to JSONL first)"},
        {"SQLite format 3\0"sv, "a database"},
        {"\x88\xd8\x34\x01"sv, "token shards, which are made already"},  // 20240520
    };
    for (const Signature& s : signatures)
        if (start.size() >= s.offset + s.bytes.size() && start.substr(s.offset).starts_with(s.bytes))
            return s.name;
    const auto zeros = size_t(std::count(start.begin(), start.end(), '\0'));
    if (start.size() >= 16 && zeros > start.size() / 8)
        return "binary, or UTF-16 without a byte order mark: too many of its first bytes are 0";
    return nullptr;
}

// pzstd begins with a frame of zstd that readers skip.
static bool has_skippable_frame(std::string_view start) {
    return start.size() >= 4 && (start[0] & 0xf0) == 0x50 && start.substr(1, 3) == "\x2a\x4d\x18";
}

// --- UTF-16 ---

// Takes UTF-16 off `units` and returns it as UTF-8. At most three bytes stay, the start of a character. None:
// a surrogate without the other.
static std::optional<std::string> take_utf16(std::string& units, bool big_endian) {
    const auto unit = [&](size_t at) {
        const uint32_t a = uint8_t(units[at]), b = uint8_t(units[at + 1]);
        return big_endian ? a << 8 | b : b << 8 | a;
    };
    std::string text;
    size_t at = 0;
    for (; at + 2 <= units.size(); at += 2) {
        uint32_t c = unit(at);
        const bool is_first = c >> 10 == 0xd800 >> 10;
        if (is_first && at + 4 > units.size()) break;
        if (is_first) {
            const uint32_t second = unit(at + 2);
            if (second >> 10 != 0xdc00 >> 10) return std::nullopt;
            c = 0x10000 + ((c & 0x3ff) << 10 | (second & 0x3ff));
            at += 2;
        } else if (c >> 10 == 0xdc00 >> 10) {
            return std::nullopt;
        }
        append_character(text, c);
    }
    units.erase(0, at);
    return text;
}

// --- the file ---

TextFile::TextFile(const std::string& name) : path(name == "-" ? "standard input" : name) {
    file = name == "-" ? File(fdopen(duplicate(fileno(stdin)), "rb")) : open_stream(name);
    if (!file) fail("cannot read standard input: %s", strerror(errno));
    // a file that grows is read as it is now; one without a size, such as those of the kernel, to its end
    const FileStatus status = status_of(file, path);
    if (status.kind == FileStatus::regular && status.size > 0) bytes_left = status.size;
    start.resize(start_bytes);
    start.resize(read_raw(start.data(), start.size()));
    if (start.starts_with("\x1f\x8b"))
        decompressor = std::make_unique<Gzip>(std::move(start));
    else if (start.starts_with("\x28\xb5\x2f\xfd") || has_skippable_frame(start))
        decompressor = std::make_unique<Zstd>(std::move(start), path);
    if (decompressor) {
        start.assign(start_bytes, '\0');
        start.resize(read_text(start.data(), start.size()));
    }
    const bool is_utf32 = start.substr(0, 4) == std::string_view("\xff\xfe\0\0", 4);
    if (start.starts_with("\xfe\xff") || (start.starts_with("\xff\xfe") && !is_utf32)) {
        encoding = start[0] == '\xff' ? Encoding::utf16_little : Encoding::utf16_big;
        units = start.substr(2);
        start.clear();
        return;
    }
    if (const char* what = not_text(start))
        throw NotText(printable(format_string("%s is not text: it is %s", path.c_str(), what)));
    if (start.starts_with("\xef\xbb\xbf")) {
        start.erase(0, 3);
        position = 3;
    }
}

TextFile::~TextFile() = default;

size_t TextFile::read_raw(char* to, size_t size) {
    if (file_ended) return 0;  // a terminal could be read again
    const size_t wanted = size_t(std::min<uint64_t>(size, bytes_left));
    const size_t count = read_stream(file, path, to, wanted);
    file_ended = count < wanted || wanted < size;
    bytes_left -= count;
    bytes_read += count;
    const bool has_size = bytes_left + bytes_read != UINT64_MAX;
    // files of the kernel promise more than they have
    if (count < wanted && has_size && status_of(file, path).size < bytes_left + bytes_read)
        throw FileError(printable(path + " became shorter while it was read: try again when it is complete"));
    return count;
}

// The next bytes of the text, past `start`.
size_t TextFile::read_text(char* to, size_t size) {
    if (!decompressor) return read_raw(to, size);
    Decompressor& d = *decompressor;
    for (size_t filled = 0;;) {
        const bool idle = d.at == d.buffer.size() && d.between_frames;
        const std::optional<size_t> written = idle ? 0 : d.step(to + filled, size - filled);
        if (!written)
            fail("%s: its compressed data is damaged near byte %llu", path.c_str(),
                 (unsigned long long)(bytes_read - (d.buffer.size() - d.at)));
        filled += *written;
        if (filled == size) return filled;
        if (*written > 0 || d.at < d.buffer.size()) continue;  // a library may hold text back
        d.buffer.resize(1 << 18);
        d.buffer.resize(read_raw(d.buffer.data(), d.buffer.size()));
        d.at = 0;
        if (d.buffer.empty() && !d.between_frames)
            fail("%s: its compressed data ends too early", path.c_str());
        if (d.buffer.empty()) return filled;
    }
}

// The next part of a text in UTF-16, as UTF-8; empty at its end.
std::string TextFile::convert_some() {
    const size_t before = units.size();
    units.resize(before + (1 << 16));
    units.resize(before + read_text(&units[before], 1 << 16));
    const bool ended = units.size() < before + (1 << 16);
    const std::optional<std::string> text = take_utf16(units, encoding == Encoding::utf16_big);
    if (!text || (ended && !units.empty()))
        fail("%s: its UTF-16 is damaged near byte %llu", path.c_str(), (unsigned long long)bytes_read);
    return *text;
}

size_t TextFile::read(char* to, size_t size) {
    size_t count = 0;
    const auto take_start = [&] {
        const size_t some = std::min(size - count, start.size());
        memcpy(to + count, start.data(), some);
        start.erase(0, some);
        count += some;
        return some > 0;
    };
    take_start();
    if (encoding == Encoding::utf8) count += count < size ? read_text(to + count, size - count) : 0;
    while (encoding != Encoding::utf8 && count < size) {
        start = convert_some();
        if (!take_start()) break;
    }
    position += count;
    return count;
}

std::string read_text_file(const std::string& path, size_t limit) {
    TextFile file(path);
    std::string text;
    for (size_t filled = 0;;) {
        text.resize(std::min(limit + 1, 2 * filled + (1 << 16)));
        filled += file.read(&text[filled], text.size() - filled);
        if (filled > limit) fail("%s has more than %zu bytes of text", file.path.c_str(), limit);
        if (filled == text.size()) continue;
        text.resize(filled);
        return text;
    }
}

// --- lists of files ---

static bool is_file_with(const std::string& path, std::string_view text) {
    return is_regular(path) && begins_around(path, text);
}

static bool is_checkpoint_file(const std::string& name) {
    static const std::regex files(
        "(model_[0-9]{8}|state_[0-9]{8}_[0-9]{5})\\.bin|(DONE|unfinished)_[0-9]{8}");
    return std::regex_match(fold_case(name), files);
}

// The folder of a run, whose logs and copies of texts are no texts to train on: a lease says so while it
// trains or was killed; else two of log, options and a checkpoint do.
static bool is_run(const std::string& folder) {
    if (is_file_with(folder + "/lease.json", "\"processes_of\":")) return true;
    const int signs = file_exists(folder + "/main.log") +
                      is_file_with(folder + "/options.toml", "train-data=") +
                      std::ranges::any_of(names_in(folder), is_checkpoint_file);
    return signs > 1;
}

// Of Hugging Face, as --export writes it, too. The eighth byte of such a file ends the length of a header.
static bool is_model(const std::string& folder) {
    const std::string file = folder + "/model.safetensors";
    return file_exists(folder + "/config.json") &&
           ((is_regular(file) && first_bytes(file, 9).ends_with(std::string_view("\0{", 2))) ||
            is_file_with(file + ".index.json", "\"weight_map\""));
}

// The tokens of a text, with the file that says what they were made of.
static bool is_tokens(const std::string& folder) {
    return std::ranges::any_of(names_in(folder), [&](const std::string& name) {
        return fold_case(name).ends_with(".made_of") && is_file_with(folder + "/" + name, "{\"sources\"");
    });
}

// A run may lie in the folder of its texts. Its other files are empty, or no text.
static bool is_part_of_run(const std::string& name) {
    static const std::regex parts(
        "run_[0-9]{8}\\.json|main\\.log|metrics\\.csv|options\\.toml|moving_earlier_run");
    return std::regex_match(fold_case(name), parts);
}

// None: nothing is there. Error if the system cannot say.
static std::optional<FileStatus> look_at(const std::string& path) {
    const std::optional<FileStatus> status = get_status(path);
    if (status || errno == ENOENT || errno == ELOOP || errno == ENOTDIR) return status;
    throw FileError(printable("cannot read " + path + ": " + strerror(errno)));
}

// Why an entry of a folder is not read; null: it is. Files of the kernel have no size and may block for ever.
static const char* why_left_out(const std::string& path, const std::string& name) {
    if (name.starts_with('.')) return "is hidden";
    const std::optional<FileStatus> status = look_at(path);
    if (!status) return "is a link that leads nowhere";
    if (status->hidden) return "is hidden";
    const bool is_folder = status->kind == FileStatus::folder;
    if (is_temporary_name(fold_case(name))) return "is not complete";
    if (is_folder && is_link(path)) return "is a link to a folder";
    if (is_folder && is_run(path)) return "is the folder of a run";
    if (is_folder && is_model(path)) return "is the folder of a model";
    if (is_folder && is_tokens(path)) return "is the folder of a run's tokens";
    if (!is_folder && status->kind != FileStatus::regular) return "is neither a file nor a folder";
    if (!is_folder && is_written_in_place(path)) return "is what this program prints";
    return is_folder || status->size > 0 ? nullptr : "is empty";
}

static void list_texts(const std::string& folder, std::vector<std::string>& files,
                       std::vector<std::string>& left_out) {
    const bool has_run = is_run(folder);
    for (const std::string& name : names_in(folder)) {
        const std::string path = folder + (is_separator(folder.back()) ? "" : "/") + name;
        if (has_run && is_part_of_run(name))
            left_out.push_back(printable(path + " belongs to the run in this folder"));
        else if (const char* why = why_left_out(path, name))
            left_out.push_back(printable(path + " " + why));
        else if (is_folder(path))
            list_texts(path, files, left_out);
        else
            files.push_back(path);
    }
}

bool is_included(const std::string& path, const std::vector<std::string>& patterns) {
    const std::string name = std::filesystem::path(path).filename().generic_string();
    return patterns.empty() || std::any_of(patterns.begin(), patterns.end(),
                                           [&](const std::string& p) { return matches_pattern(p, name); });
}

bool is_read_once(const std::string& path) {
    return path == "-" || (file_exists(path) && !is_regular(path) && !is_folder(path));
}

void refuse_zeros(const std::string& path, std::string_view start) {
    if (start.substr(0, 8000).find('\0') != start.npos)
        throw NotText(printable(path + " is not text: it has a byte of value 0"));
}

size_t find_zeros(std::string_view text) {
    static const std::string zeros(4096, '\0');
    return text.find(zeros);
}

// Programs write NAME.json and tokenizer.json next to token shards, texts and models, and lease.json.
static bool is_about_data(std::string_view start) {
    const auto names = [&](std::string_view key) { return start.find(key) != start.npos; };
    const bool is_sidecar =
        (names("\"shards\": [") && names("\"xxh3\": \"")) || names("\"tokenizer_of_shards\": ");
    const bool is_of_corpus = names("\"stories\": ") && names("\"nats_per_byte\": ");
    const bool is_tokenizer = names("\"added_tokens\": [") && names("\"truncation\": ");
    const bool is_plot = start.starts_with("<svg") && names("<title>Loss of a run of vulkan-gpt2</title>");
    const bool is_lease = start.starts_with("{\"host\":") && names("\"processes_of\":");
    return is_plot || is_lease || (start.starts_with("{\n") && (is_sidecar || is_of_corpus || is_tokenizer));
}

static void check_text(const std::string& path) {
    TextFile file(path);
    std::string text(8000, '\0');
    text.resize(file.read(text.data(), text.size()));
    refuse_zeros(path, text);
    if (is_about_data(text))
        throw NotText(
            printable(path + " is not text, but about token shards, a corpus, a tokenizer or a run"));
}

std::string SeenFiles::add(const std::string& path) {
    const std::optional<FileStatus> status = look_at(path);
    if (!status || status->kind != FileStatus::regular) return "";
    const auto [named, is_new_name] = by_name.emplace(fold_case(whole_name(path)), path);
    const auto [numbered, is_new_number] = by_number.emplace(std::pair(status->device, status->number), path);
    // some file systems have one number for several files, or others at each look
    if (!is_new_number && status->has_identity() && look_at(numbered->second) == status)
        return numbered->second;
    return !is_new_name && is_same_file(named->second, path) ? named->second : "";
}

void SeenFiles::add_once(const std::string& path) {
    if (const std::string other = add(path); !other.empty())
        fail("%s is given twice%s: leave it out once", path.c_str(),
             other == path ? "" : (", also as " + other).c_str());
}

// The text files below a folder, sorted.
static std::vector<std::string> texts_below(const std::string& folder,
                                            const std::vector<std::string>& include,
                                            const std::function<void(const std::string& why)>& left_out) {
    std::vector<std::string> files, reasons, not_text;
    list_texts(folder, files, reasons);
    if (files.empty() && !reasons.empty())
        fail("the folder %s has no file that is read; %s", folder.c_str(), reasons[0].c_str());
    if (files.empty()) fail("the folder %s has no file", folder.c_str());
    std::sort(files.begin(), files.end());
    std::vector<std::string> texts;
    SeenFiles seen;
    for (const std::string& file : files) try {
            if (!is_included(file, include)) continue;
            check_text(file);
            if (const std::string other = seen.add(file); !other.empty())
                not_text.push_back(printable(file + " is " + other + " again"));
            else
                texts.push_back(file);
        } catch (const NotText& error) {
            not_text.push_back(error.what());
        }
    const auto has_other = [](const std::string& pattern) {
        return pattern.find_first_of("/{") != std::string::npos;
    };
    if (texts.empty() && !not_text.empty())
        fail("the folder %s has no text file; %s", folder.c_str(), not_text[0].c_str());
    if (texts.empty())
        fail("the folder %s has no text file%s%s", folder.c_str(),
             include.empty() ? "" : " whose name --include matches",
             std::any_of(include.begin(), include.end(), has_other)
                 ? ": a pattern is of a name without folders, and has * ? [...], but no {...}; give several"
                 : "");
    not_text.insert(not_text.end(), reasons.begin(), reasons.end());
    for (const std::string& why : not_text) left_out(why);
    return texts;
}

std::vector<std::string> files_below(const std::vector<std::string>& paths,
                                     const std::vector<std::string>& include,
                                     const std::function<void(const std::string& why)>& left_out) {
    std::vector<std::string> files;
    bool has_folder = false;
    for (const std::string& path : expand_patterns(paths)) {
        const bool below = path != "-" && is_folder(path);
        has_folder |= below;
        const auto found = below ? texts_below(path, include, left_out) : std::vector{path};
        files.insert(files.end(), found.begin(), found.end());
    }
    if (!include.empty() && !has_folder)
        fail("--include chooses among the files of a folder, and %s is none", paths[0].c_str());
    return files;
}

std::vector<std::string> read_file_list(const std::string& path) {
    std::vector<std::string> paths;
    for (std::string line : lines_of(read_text_file(path))) {
        if (line.ends_with('\r')) line.pop_back();
        if (line.find('\0') != line.npos)
            fail("the list %s has a zero byte: names are lines (find without -print0)", path.c_str());
        if (!line.empty()) paths.push_back(line);
    }
    if (paths.empty()) fail("the list %s names no file", path.c_str());
    return paths;
}
