// make_seeds FOLDER: writes the seed files of the fuzz programs to FOLDER/<fuzz program>/. Nearly all are
// small, valid files from the project's own writers.
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "dev/report/report_file.h"
#include "fuzz/seeds.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/data/hellaswag.h"
#include "llmc/data/token_file.h"
#include "llmc/files/hugging_face.h"
#include "llmc/options/option_files.h"
#include "llmc/text/chat_template.h"
#include "llmc/text/corpus.h"
#include "llmc/text/tokenizer.h"

static std::string folder;

// Returns the path for a new seed.
static std::string seed(const std::string& program, const std::string& name) {
    std::filesystem::create_directories(folder + "/" + program);
    return folder + "/" + program + "/" + name;
}

static void make_models() {
    write_model(seed("checkpoint_fuzz", "fp32"), seed_config, fill_seed);
    write_model(seed("checkpoint_fuzz", "bf16"), seed_config, fill_seed, true);
    for (const bool shuffled : {false, true}) {
        OptimizerState state;
        state.step = 7;
        state.use_master_weights = state.data.should_shuffle = shuffled;
        if (shuffled) {
            state.data.shard_indices = {0};
            state.data.intra_shard_indices = {2, 0, 3, 1};
            state.data.current_sample = 1;
        }
        for (const OptimizerInfo& optimizer : all_optimizers())
            for (const OptimizerShare& share : {OptimizerShare{0, 1}, OptimizerShare{1, 2}}) {
                state.share = {share.index, share.count, optimizer.kind};
                const std::string name = std::string(optimizer.name) + (shuffled ? "_shuffled" : "_ordered") +
                                         (share.count > 1 ? "_part" : "");
                write_optimizer_state(seed("optimizer_state_fuzz", name), seed_config, state,
                                      [](Moment, int tensor, size_t offset, float* values, size_t count) {
                                          fill_seed(tensor, offset, values, count);
                                      });
            }
    }
    for (const bool in_bf16 : {false, true}) {
        const std::string name = in_bf16 ? "bf16" : "fp32", dir = folder + "/hugging_face";
        write_hugging_face(dir, {4, 6, 128, 1, 2, 4}, fill_seed,
                           in_bf16 ? StoredType::bf16 : StoredType::fp32);
        const std::string config = read_whole_file(dir + "/config.json"),
                          model = read_whole_file(dir + "/model.safetensors");
        write_whole_file(seed("safetensors_fuzz", name), {model});
        write_whole_file(seed("hugging_face_fuzz", name), {config, std::string(1, '\0'), model});
        std::filesystem::remove_all(dir);
    }
}

static void make_debug_state() {
    const int32_t header[256] = {20240327, 2, 1, 2};
    const size_t numbers = 2 * 2 + 2 * seed_config.vocab_size + 1 + num_parameters(seed_config);
    write_whole_file(seed("checkpoint_fuzz", "debug_state"),
                     {std::string_view(reinterpret_cast<const char*>(header), sizeof header),
                      std::string(4 * numbers, '\0')});
    write_whole_file(seed("checkpoint_fuzz", "losses"), {"# step fp32 fp64\n0 5.25 5.2512\n1 5.0 5.01e0\n"});
}

static std::string gzip_of(const std::string& text) {
    std::string compressed(text.size() + 100, '\0');
    z_stream stream = {};
    if (deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) fail("zlib failed");
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = uInt(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(compressed.data());
    stream.avail_out = uInt(compressed.size());
    if (deflate(&stream, Z_FINISH) != Z_STREAM_END) fail("zlib failed");
    compressed.resize(stream.total_out);
    deflateEnd(&stream);
    return compressed;
}

static std::string zstd_of(const std::string& text) {
    std::string compressed(ZSTD_compressBound(text.size()), '\0');
    const size_t size = ZSTD_compress(compressed.data(), compressed.size(), text.data(), text.size(), 3);
    if (ZSTD_isError(size)) fail("zstd failed");
    compressed.resize(size);
    return compressed;
}

static void make_data() {
    std::mt19937_64 random(1);
    for (int i = 0; i < 12; i++)
        write_whole_file(seed("corpus_fuzz", "story" + std::to_string(i)), {write_story(random).text});

    std::vector<uint16_t> tokens;
    for (int i = 0; i < 40; i++) tokens.push_back(uint16_t(i * 7 % 257));
    for (const int count : {40, 5}) {
        TokenShardWriter shard(seed("token_shard_fuzz", std::to_string(count)));
        shard.add(tokens.data(), uint64_t(count));
        shard.finish();
    }
    write_tokenizer(open_tokenizer("bytes"), seed("tokenizer_fuzz", "bytes"));
    Tokenizer merged = open_tokenizer("bytes");
    for (const char* token : {"th", "the", " the", "in", "ing"}) merged.tokens.push_back(token);
    write_tokenizer(merged, seed("tokenizer_fuzz", "merged"));
    write_hellaswag(seed("hellaswag_fuzz", "two"),
                    {{3, {1, 2}, {{{3}, {4, 5}, {6}, {7, 8, 9}}}}, {0, {9}, {{{1}, {2}, {3}, {4}}}}});
    write_whole_file(seed("jsonl_fuzz", "documents"),
                     {R"({"text": "one\n\ntwo"})", "\n", R"({"id": 3, "text": "dr\u00e9i"})", "\n"});
    write_whole_file(seed("jsonl_fuzz", "hellaswag"),
                     {R"({"ctx": "A man", "label": 1, "endings": ["a", "b", "c", "d"]})"});
    const std::string plain = "one two\n\nthree \xe2\x82\xac";
    write_whole_file(
        seed("jsonl_fuzz", "chat"),
        {"{\"prompt\":\"q\",\"completion\":\"a\"}\n{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},"
         "{\"role\":\"assistant\",\"content\":\"a\"}]}\n{\"instruction\":\"q\",\"input\":\"i\",\"output\":"
         "\"a\"}"});
    write_whole_file(
        seed("jinja_fuzz", "template"),
        {"{%- if x is defined %}a{% else %}{% for m in messages[1:] %}{{ loop.index0 % 2 ~ m['role'] + "
         "m.content | trim if not loop.last else 'b' }}{% endfor %}{% endif %}{# c #}"});
    write_whole_file(seed("jinja_fuzz", "builtin"), {builtin_chat_template()});
    write_whole_file(seed("jsonl_fuzz", "text"), {plain});
    write_whole_file(seed("jsonl_fuzz", "text.gz"), {gzip_of(plain)});
    write_whole_file(seed("jsonl_fuzz", "text.zst"), {zstd_of(plain)});
    std::string wide = "\xff\xfe";
    for (const char16_t unit : std::u16string(u"one two\n\nthree \u20ac \U0001f600"))
        for (const int shift : {0, 8}) wide += char(unit >> shift);
    write_whole_file(seed("jsonl_fuzz", "utf16"), {wide});
    Tokenizer gpt2 = open_tokenizer("bytes");
    gpt2.tokens.insert(gpt2.tokens.end() - 1, {"th", "the", " the"});
    gpt2.end_of_text = gpt2.vocab_size() - 1;
    const std::string published = folder + "/tokenizer", encoder = published + "/vocab.json",
                      merges = published + "/merges.txt";
    std::filesystem::create_directories(published);
    write_hugging_face_tokenizer(published, gpt2, 64);
    const std::string copy = seed("tokenizer_fuzz", "copy");  // of files that are read together
    write_whole_file(
        copy,
        {json_text({{"vocab.json", read_json_object(encoder)}, {"merges.txt", read_whole_file(merges)}})});
    open_tokenizer(copy);  // throws unless the seed is valid
    for (const char* text :
         {"d12", "gpt3:c768", "custom:layers=4,heads=4,channels=128,max_seq_len=256,vocab=257"})
        write_whole_file(seed("descriptor_fuzz", std::string(text).substr(0, 4)), {text});
}

static void make_runs() {
    const std::string dir = folder + "/run";
    write_seed_checkpoint(dir);
    const nlohmann::json content =
        parse_json_object(read_whole_file(run_path(dir, seed_step)), dir)["content"];
    std::filesystem::remove_all(dir);
    write_whole_file(seed("run_folder_fuzz", "run"), {json_text(content)});
    write_whole_file(seed("run_state_fuzz", "five_steps"), {json_text(content["run"])});
    write_whole_file(
        seed("tokenizer_info_fuzz", "file"),
        {R"({"name": "gpt2_tokenizer.bin", "vocab_size": 50257, "xxh3": "0", "file": "my.tokenizer"})"});
    const std::string log = "s:0 tel:10.9877\ns:0 trl:10.9877 lr:0.000300 norm:1.23\ns:7 eval:0.2999\n";
    const std::string metrics =
        "step,train_loss,learning_rate,norm,tokens_per_second,skipped,val_loss,hellaswag,seconds,tokens\n"
        "0,,,,,,10.9876804,,0.1,0\n0,10.9876804,0.0003,1.25,1234,outlier,,,0.2,64\n";
    write_whole_file(seed("run_folder_fuzz", "log"), {log});
    write_whole_file(seed("run_folder_fuzz", "metrics"), {metrics});
    write_whole_file(seed("plot_fuzz", "log"), {"0", log});
    write_whole_file(seed("plot_fuzz", "metrics"), {"1", metrics});
    Options options;
    std::string arguments[] = {"train_gpt2", "-i", "a.bin", "-e", "d12", "-o", "run", "-n", "500"};
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    parse_options(int(argv.size()), argv.data(), options);
    for (const char* program : {"options_fuzz", "run_folder_fuzz"})
        write_whole_file(seed(program, "effective"), {options_text(options)});
    std::string deep = "[a";
    for (int i = 0; i < 20000; i++) deep += ".a";
    write_whole_file(seed("options_fuzz", "deep_section"), {deep, "]\nb=1\n"});
    write_whole_file(
        seed("options_fuzz", "lists"),
        {"train-data=\"a\"\ninclude=[gelu, 'matmul', \"attention\"] # some\ntokenizer=[]\na.++=1\n"});
}

// JSON nested deeper than any reader accepts, as a file and as a member of a valid object. It is shorter than
// the longest input (run.sh's -max_len).
static void make_deep_json() {
    const size_t depth = 20000;
    const std::string open(depth, '['), close(depth, ']'), nul(1, '\0');
    std::string objects;
    for (size_t i = 0; i < depth / 2; i++) objects += R"({"a":)";
    for (const char* program : {"jsonl_fuzz", "hugging_face_fuzz", "run_folder_fuzz", "run_state_fuzz",
                                "report_fuzz", "tokenizer_info_fuzz"}) {
        write_whole_file(seed(program, "deep_array"), {R"({"text": )", open, close, "}", nul});
        write_whole_file(seed(program, "deep_object"), {objects, "0", std::string(depth / 2, '}'), nul});
        write_whole_file(seed(program, "deep_unclosed"), {open});
    }
    write_whole_file(seed("hugging_face_fuzz", "deep_type"), {R"({"model_type": )", open, close, "}", nul});
    const std::string header = R"({"a": )" + open + close + "}";
    const uint64_t length = header.size();
    write_whole_file(seed("safetensors_fuzz", "deep"),
                     {std::string_view(reinterpret_cast<const char*>(&length), sizeof length), header});
}

static void make_device_caches() {
    VkPipelineCacheHeaderVersionOne header = {
        sizeof header, VK_PIPELINE_CACHE_HEADER_VERSION_ONE, seed_device.vendorID, seed_device.deviceID, {}};
    memcpy(header.pipelineCacheUUID, seed_device.pipelineCacheUUID, VK_UUID_SIZE);
    const std::string pipelines = std::string(reinterpret_cast<char*>(&header), sizeof header) + "kernels";
    const std::string measured =
        measured_file({{"matmul_forward5_bf16/64x768x768/epilogue0", 256}, {"b", 64}});
    write_whole_file(seed("device_cache_fuzz", "pipelines"), {seal(pipelines)});
    write_whole_file(seed("device_cache_fuzz", "pipelines_alone"), {pipelines});
    write_whole_file(seed("device_cache_fuzz", "measured"), {measured});
    write_whole_file(seed("device_cache_fuzz", "measured_alone"), {unseal(measured)});
}

static void make_reports() {
    Table table = {"peaks", "What it does at most", {{"what", "", true}, {"n", "", true}, {"rate", "GB/s"}}};
    table.columns[2].better = Better::more;
    table.rows = {{"copy", 64, 3840.5}, {"copy", 1024, nullptr}, {"host", 64, 4.25}};
    const ReportPart part = {"peak",       "measures",
                             "build/peak", "",
                             1.5,          Machine{{}, {{"cpu", "x"}}},
                             {table},      {{"peaks", "Rates", "n", "rate", "what"}}};
    const Report report = {"2026-01-02", "build/report", true, {part, {"matmul_sweep", "", "", "it failed"}}};
    write_whole_file(seed("report_fuzz", "report"), {report_to_json(report).dump()});
    write_whole_file(seed("report_fuzz", "part"), {report_to_json(report)["programs"][0].dump()});
}

int main(int argc, char** argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: make_seeds FOLDER\n");
        return 1;
    }
    folder = argv[1];
    try {
        make_models();
        make_debug_state();
        make_data();
        make_runs();
        make_deep_json();
        make_device_caches();
        make_reports();
    } catch (const Error& error) {
        fprintf(stderr, "make_seeds: %s\n", error.what());
        return 1;
    }
    return 0;
}
