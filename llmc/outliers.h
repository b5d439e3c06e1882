// Finds values that stand out above the last 128 of a series, such as spikes of the loss or of the gradient's
// norm, so that their steps can be skipped.
#pragma once
#include <cmath>
#include <limits>
#include <vector>

struct OutlierDetector {
    static constexpr size_t window = 128;
    std::vector<double> values;  // the last ones, at most `window`, oldest first

    // By how many standard deviations of the window x lies above its mean. NaN until the window is full,
    // where all its values are equal, and where x itself is no number.
    double z_score(double x) const {
        const Moments m = moments();
        return m.deviation > 0 ? (x - m.mean) / m.deviation : std::numeric_limits<double>::quiet_NaN();
    }

    // Takes x into the window and says whether it is an outlier: more than limit (0: never) above. An outlier
    // is taken in as the largest value that is none, so that a spike does not widen the window, but a series
    // that has moved to a new level is followed. A value that is not finite is left out.
    bool add(double x, double limit) {
        if (!std::isfinite(x)) return false;
        const bool outlier = limit > 0 && z_score(x) > limit;
        const Moments m = moments();
        if (values.size() == window) values.erase(values.begin());
        values.push_back(outlier ? m.mean + limit * m.deviation : x);
        return outlier;
    }

   private:
    struct Moments {
        double mean = 0, deviation = 0;  // zeros until the window is full
    };
    Moments moments() const {
        Moments m;
        if (values.size() < window) return m;
        for (double value : values) m.mean += value / double(window);
        for (double value : values) m.deviation += (value - m.mean) * (value - m.mean) / double(window);
        m.deviation = std::sqrt(m.deviation);
        return m;
    }
};
