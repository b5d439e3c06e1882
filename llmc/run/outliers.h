// Detects values far above the last 128 of a series, such as spikes of the loss or of the gradient norm, so
// that their updates can be skipped.
#pragma once
#include <cmath>
#include <limits>
#include <vector>

struct OutlierDetector {
    static constexpr size_t window = 128;
    std::vector<double> values;  // the last `window` values at most, oldest first

    // How many standard deviations x lies above the mean of the window. NaN until the window is full, if all
    // its values are equal, or if x is NaN.
    double z_score(double x) const {
        const Moments m = moments();
        return m.deviation > 0 ? (x - m.mean) / m.deviation : std::numeric_limits<double>::quiet_NaN();
    }

    // Adds x to the window and returns whether it is an outlier, that is, whether its z-score exceeds limit
    // (0: never). An outlier is added as the largest value that is not one: a spike then does not widen the
    // window, yet the window follows a series that moves to a new level. A value that is not finite is not
    // added.
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
