// Reading reference data: see debug_state.h.
#include "llmc/model/debug_state.h"

#include <sstream>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/lines.h"
#include "llmc/base/utf8.h"

template <class Number>
static void read_numbers(const File& file, const std::string& path, Number* to, size_t count) {
    read_exactly(file, path, to, count * sizeof(Number));
}

// 256 int32 (magic, version, B, T), then the arrays in DebugState's order.
DebugState read_debug_state(const std::string& path, const ModelConfig& config) {
    const File file = open_to_read(path);
    const uint64_t size = size_of(file, path);
    int header[256];
    if (size < sizeof header) fail("%s is too short for a debug state", path.c_str());
    read_numbers(file, path, header, 256);
    if (header[0] != 20240327 || header[1] != 2)
        fail("%s is not a debug state of version 2: it has magic %d and version %d", path.c_str(), header[0],
             header[1]);
    DebugState s;
    s.B = header[2];
    s.T = header[3];
    if (s.B < 1 || s.B > 1 << 16 || s.T < 1 || s.T > config.max_seq_len)
        fail("%s: B = %d, T = %d do not fit the model (max_seq_len %d)", path.c_str(), s.B, s.T,
             config.max_seq_len);
    const size_t rows = size_t(s.B) * s.T, logits = rows * config.vocab_size;
    const size_t expected = sizeof header + 4 * (2 * rows + logits + 1 + num_parameters(config));
    if (size != expected)
        fail("%s has %zu bytes, but a debug state of this model has %zu: use the one made with it",
             path.c_str(), size_t(size), expected);
    s.inputs.resize(rows);
    s.targets.resize(rows);
    s.logits.resize(logits);
    s.grads.resize(num_parameters(config));
    read_numbers(file, path, s.inputs.data(), rows);
    read_numbers(file, path, s.targets.data(), rows);
    read_numbers(file, path, s.logits.data(), logits);
    read_numbers(file, path, &s.loss, 1);
    read_numbers(file, path, s.grads.data(), s.grads.size());
    for (const std::vector<int>* tokens : {&s.inputs, &s.targets})
        for (int token : *tokens)
            if (token < 0 || token >= config.vocab_size)
                fail("%s: token %d is outside the vocabulary of %d", path.c_str(), token, config.vocab_size);
    return s;
}

std::vector<double> read_losses(const std::string& path) {
    std::vector<double> losses;
    for (const std::string& line : lines_of(read_whole_file(path, 1 << 20))) {
        if (line.empty() || line[0] == '#') continue;
        std::istringstream words(line);
        size_t step;
        double single, exact;
        if (!(words >> step >> single >> exact) || step != losses.size())
            fail("%s: line '%s' is not 'step loss32 loss64'", path.c_str(),
                 first_characters(line, 40).c_str());
        losses.push_back(exact);
    }
    if (losses.empty()) fail("%s has no losses", path.c_str());
    return losses;
}
