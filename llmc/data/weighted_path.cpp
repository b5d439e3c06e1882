#include "llmc/data/weighted_path.h"

#include <cstdlib>
#include <numeric>

#include "llmc/base/error.h"
#include "llmc/base/file.h"

static bool is_there(const std::string& path) { return !matching_paths(path).empty(); }

WeightedPath weighted_path(const std::string& text) {
    const size_t colon = text.rfind(':');
    if (colon == text.npos || colon == 0 || is_there(text)) return {text};
    const std::string path = text.substr(0, colon), weight = text.substr(colon + 1);
    char* end = nullptr;
    const double value = strtod(weight.c_str(), &end);  // also reads nan, inf and hexadecimal numbers
    const bool is_number = !weight.empty() && *end == 0;
    if (has_separator(weight) || (!is_number && !is_there(path))) return {text};  // C:\novels.txt
    const double least = 1e-6, most = 1e6;
    const bool is_decimal = weight.find_first_not_of("0123456789.eE+-") == weight.npos;
    if (!is_number || !is_decimal || !(value >= least && value <= most))
        fail("%s: the weight '%s' is not a number from %g to %g, such as 0.7", text.c_str(), weight.c_str(),
             least, most);
    return {path, value};
}

void refuse_weight(const std::string& text) {
    const size_t colon = std::min(text.rfind(':'), text.size());
    const std::string path = text.substr(0, colon), weight = text.substr(colon);
    if (!weight.empty() && weight.find_first_not_of(":0123456789.eE+-") == weight.npos && !is_there(text) &&
        is_there(path))
        fail("%s: weights are for the -i and --text of %s: leave out %s", text.c_str(),
             command_of("train_gpt2").c_str(), weight.c_str());
}

std::vector<std::string> without_weights(const std::vector<std::string>& texts) {
    std::vector<std::string> paths;
    for (const std::string& text : texts) paths.push_back(weighted_path(text).path);
    return paths;
}

std::vector<double> shares_of(const std::vector<std::string>& texts) {
    std::vector<double> shares;
    for (const std::string& text : texts) shares.push_back(weighted_path(text).weight);
    for (size_t i = 1; i < texts.size(); i++)
        if ((shares[i] > 0) != (shares[0] > 0))
            fail("%s has a weight, and %s has none: give each a weight, as in %s:0.5, or none",
                 texts[shares[i] > 0 ? i : 0].c_str(), texts[shares[i] > 0 ? 0 : i].c_str(),
                 texts[shares[i] > 0 ? 0 : i].c_str());
    if (shares.size() < 2 || shares[0] == 0) return {};
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    for (double& share : shares) share /= sum;
    return shares;
}
