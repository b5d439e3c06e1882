// Crossover sizes: see crossover.h.
#include "dev/report/crossover.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/error.h"

// The size at which the ratio of the times is 1; between two sizes it is a straight line on logarithmic axes.
static double equal_size(const TimePair& lost, const TimePair& won) {
    const double behind = std::log(lost.new_seconds / lost.old_seconds);
    const double ahead = std::log(won.old_seconds / won.new_seconds);
    return lost.size * std::pow(won.size / lost.size, behind / (behind + ahead));
}

Crossover find_crossover(std::vector<TimePair> times) {
    std::erase_if(times, [](const TimePair& t) { return !(t.new_seconds > 0 && t.old_seconds > 0); });
    std::sort(times.begin(), times.end(),
              [](const TimePair& a, const TimePair& b) { return a.size < b.size; });
    Crossover found;
    if (times.empty()) return found;
    const auto lost = std::find_if(times.rbegin(), times.rend(),
                                   [](const TimePair& t) { return !(t.new_seconds < t.old_seconds); });
    if (lost != times.rend()) found.lost_at = lost->size;
    if (lost == times.rbegin()) {
        found.kind = Crossover::never;
        return found;
    }
    const TimePair& won = *(lost.base());
    found.won_from = won.size;
    found.kind = lost == times.rend() ? Crossover::always : Crossover::at;
    found.size = found.kind == Crossover::always ? won.size : equal_size(*lost, won);
    return found;
}

static std::string size_text(double size) { return format_string("%.*g", size < 1e6 ? 6 : 3, size); }
static std::string two_digits(double size) { return size_text(std::stod(format_string("%.1e", size))); }

std::string crossover_text(const Crossover& c, const std::string& new_method, const std::string& old_method) {
    const std::string lost = size_text(c.lost_at), won = size_text(c.won_from);
    const char *new_name = new_method.c_str(), *old_name = old_method.c_str();
    switch (c.kind) {
        case Crossover::never:
            return format_string("none (%s slower up to %s, the largest size)", new_name, lost.c_str());
        case Crossover::always:
            return format_string("below %s (%s faster at every size)", won.c_str(), new_name);
        case Crossover::at:
            return format_string("%s (%s slower at %s, faster at %s)", two_digits(c.size).c_str(), new_name,
                                 lost.c_str(), won.c_str());
        default:
            return format_string("unknown (no size was measured on both %s and %s)", new_name, old_name);
    }
}
