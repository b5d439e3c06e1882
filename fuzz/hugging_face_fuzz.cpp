// Hugging Face's GPT-2: config.json up to the first NUL, then model.safetensors.
#include <filesystem>
#include <fstream>

#include "fuzz/fuzz.h"
#include "llmc/files/hugging_face.h"

// A folder, removed at exit.
struct Folder {
    std::string path = (std::filesystem::temp_directory_path() / "fuzz-XXXXXX").string();
    Folder() { require(mkdtemp(path.data())); }
    ~Folder() { std::filesystem::remove_all(path); }
    void write(const char* name, std::string_view bytes) const {
        std::ofstream(path + name, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
    }
};

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const Folder folder;
    const std::string_view all = text_of(data, size), config = all.substr(0, all.find('\0'));
    folder.write("/config.json", config);
    folder.write("/model.safetensors", all.substr(std::min(all.size(), config.size() + 1)));
    expect_no_crash([&] {
        const ModelConfig shape = read_hugging_face_header(folder.path + "/model.safetensors");
        size_t seen = 0;
        read_hugging_face(folder.path + "/model.safetensors",
                          [&](int tensor, size_t offset, const float*, size_t count) {
                              require(offset + count <= parameter_size(shape, tensor));
                              seen += count;
                          });
        require(seen == num_parameters(shape));
    });
    return 0;
}
