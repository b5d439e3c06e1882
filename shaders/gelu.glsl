// GELU and its derivative: llmc/gelu.h has the formula. With u beyond 40 in magnitude the exponential is left out, and
// x^2 is capped where it no longer matters, so that no finite x meets an infinity; a NaN passes through the products
// with x.
const float GELU_SCALE = 0.7978845608, GELU_CUBE = 0.044715;  // sqrt(2/pi), and the factor of x^3

// exp(-2 |u|) and 1 / (1 + exp(-2 u)), from which both follow.
struct GeluParts {
    float decay, share;
};
GeluParts gelu_parts(float x, float xx) {
    const float u = x * (GELU_SCALE + GELU_SCALE * GELU_CUBE * xx);
    const float decay = abs(u) < 40 ? exp(-2 * abs(u)) : 0;
    return GeluParts(decay, (u < 0 ? decay : 1) / (1 + decay));
}

float gelu(float x) { return x * gelu_parts(x, min(x * x, 100)).share; }

float gelu_slope(float x) {
    const float xx = min(x * x, 100);
    const GeluParts p = gelu_parts(x, xx);
    const float bell = p.decay / ((1 + p.decay) * (1 + p.decay));  // share * (1 - share)
    const float capped = abs(x) > 100 ? 100 : x;  // bell is 0 there, but not in whichever order a compiler multiplies
    return p.share + 2 * capped * bell * (GELU_SCALE + 3 * GELU_SCALE * GELU_CUBE * xx);
}

// The same for results that are rounded to 16 bits: one exponential and one reciprocal each. For large negative x the
// exponential is infinite, and its reciprocal 0.
float quick_share(float x, float xx) {
    const float LOG2E = 1.442695041;
    return 1 / (1 + exp2(x * (-2 * LOG2E * GELU_SCALE + xx * (-2 * LOG2E * GELU_SCALE * GELU_CUBE))));
}
float quick_gelu(float x) { return x * quick_share(x, min(x * x, 100)); }
float quick_gelu_slope(float x) {
    const float xx = min(x * x, 100), share = quick_share(x, xx);
    return share + x * (share - share * share) * (2 * GELU_SCALE + 6 * GELU_SCALE * GELU_CUBE * xx);
}
