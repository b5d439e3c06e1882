// The crossover of two ways of doing something: see crossover.h.
#include "dev/report/crossover.h"

#include <algorithm>
#include <cmath>

#include "llmc/error.h"

// Where the ratio of the times, a straight line on logarithmic axes between two sizes, is 1.
static double equal_size(const Race& lost, const Race& won) {
    const double behind = std::log(lost.new_seconds / lost.old_seconds);
    const double ahead = std::log(won.old_seconds / won.new_seconds);
    return lost.size * std::pow(won.size / lost.size, behind / (behind + ahead));
}

Crossover find_crossover(std::vector<Race> races) {
    std::erase_if(races, [](const Race& r) { return !(r.new_seconds > 0 && r.old_seconds > 0); });
    std::sort(races.begin(), races.end(), [](const Race& a, const Race& b) { return a.size < b.size; });
    Crossover found;
    if (races.empty()) return found;
    const auto lost = std::find_if(races.rbegin(), races.rend(),
                                   [](const Race& r) { return !(r.new_seconds < r.old_seconds); });
    if (lost != races.rend()) found.lost_at = lost->size;
    if (lost == races.rbegin()) {
        found.kind = Crossover::never;
        return found;
    }
    const Race& won = *(lost.base());
    found.won_from = won.size;
    found.kind = lost == races.rend() ? Crossover::always : Crossover::at;
    found.size = found.kind == Crossover::always ? won.size : equal_size(*lost, won);
    return found;
}

static std::string size_text(double size) { return format_string("%.*g", size < 1e6 ? 6 : 3, size); }
static std::string two_digits(double size) { return size_text(std::stod(format_string("%.1e", size))); }

std::string crossover_text(const Crossover& c, const std::string& new_way, const std::string& old_way) {
    switch (c.kind) {
        case Crossover::never:
            return format_string("%s is still the quicker one at the largest size measured with both, %s",
                                 old_way.c_str(), size_text(c.lost_at).c_str());
        case Crossover::always:
            return format_string("%s wins at every size measured, from %s on", new_way.c_str(),
                                 size_text(c.won_from).c_str());
        case Crossover::at:
            return format_string("%s wins from about %s on (it lost at %s and won at %s)", new_way.c_str(),
                                 two_digits(c.size).c_str(), size_text(c.lost_at).c_str(),
                                 size_text(c.won_from).c_str());
        default:
            return format_string("no size was measured with both %s and %s", new_way.c_str(),
                                 old_way.c_str());
    }
}
