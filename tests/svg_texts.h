// The texts of an SVG picture, where they are, and about how wide they are in a common font.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <regex>
#include <string>
#include <vector>

struct SvgText {
    double x = 0, y = 0, width = 0;
    std::string anchor, text;
    double left() const { return anchor == "end" ? x - width : anchor == "middle" ? x - width / 2 : x; }
    double right() const { return left() + width; }
    bool overlaps(const SvgText& other) const {
        return std::abs(y - other.y) < 10 && left() < other.right() && other.left() < right();
    }
};

// Bytes of UTF-8 characters that are wide: four pixels for each of three bytes.
inline double usual_width(const std::string& text) {
    double width = 0;
    for (char c : text) width += uint8_t(c) >= 128 ? 4.2 : c >= '0' && c <= 'Z' ? 7.8 : 6.8;
    return width;
}

inline std::vector<SvgText> texts_of(const std::string& svg) {
    const std::regex element("<text x=\"([-0-9.]+)\" y=\"([-0-9.]+)\" ([^>]*)>([^<]*)<");
    const std::regex anchor("text-anchor=\"([a-z]+)\""), length("textLength=\"([0-9]+)\"");
    std::vector<SvgText> texts;
    for (std::sregex_iterator at(svg.begin(), svg.end(), element), end; at != end; ++at) {
        SvgText text = {.x = std::stod((*at)[1]), .y = std::stod((*at)[2]), .text = (*at)[4]};
        const std::string attributes = (*at)[3];
        std::smatch found;
        if (std::regex_search(attributes, found, anchor)) text.anchor = found[1];
        text.width =
            std::regex_search(attributes, found, length) ? std::stod(found[1]) : usual_width(text.text);
        texts.push_back(text);
    }
    return texts;
}

// The first of these texts; at NaN if there is none.
inline SvgText text_named(const std::vector<SvgText>& texts, const std::string& name) {
    const auto found = std::find_if(texts.begin(), texts.end(), [&](auto& t) { return t.text == name; });
    return found == texts.end() ? SvgText{.x = NAN, .y = NAN, .text = "missing"} : *found;
}
