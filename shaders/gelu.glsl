// GELU and its derivative; llmc/layers/gelu.h has the formula. No finite x overflows, because x^2 is capped
// where it no longer matters and the exponential is replaced by 0 for |u| >= 40. NaN propagates through the
// multiplications by x.
const float GELU_SCALE = 0.7978845608, GELU_CUBE = 0.044715;  // sqrt(2/pi), and the coefficient of x^3

// exp(-2 |u|) and sigmoid(2 u) = 1 / (1 + exp(-2 u)), from which GELU and its derivative follow.
struct GeluParts {
    float exponential, sigmoid;
};
GeluParts gelu_parts(float x, float xx) {
    const float u = x * (GELU_SCALE + GELU_SCALE * GELU_CUBE * xx);
    const float exponential = abs(u) < 40 ? exp(-2 * abs(u)) : 0;
    return GeluParts(exponential, (u < 0 ? exponential : 1) / (1 + exponential));
}

float gelu(float x) { return x * gelu_parts(x, min(x * x, 100)).sigmoid; }

float gelu_slope(float x) {
    const float xx = min(x * x, 100);
    const GeluParts p = gelu_parts(x, xx);
    // sigmoid * (1 - sigmoid)
    const float sigmoid_slope = p.exponential / ((1 + p.exponential) * (1 + p.exponential));
    // sigmoid_slope is 0 there, but a compiler may multiply in an order that overflows first
    const float capped = abs(x) > 100 ? 100 : x;
    return p.sigmoid + 2 * capped * sigmoid_slope * (GELU_SCALE + 3 * GELU_SCALE * GELU_CUBE * xx);
}

// Faster versions for results that are rounded to 16 bits: one exponential and one reciprocal each. For large
// negative x the exponential is infinite, and its reciprocal 0.
float fast_sigmoid(float x, float xx) {
    const float LOG2E = 1.442695041;
    return 1 / (1 + exp2(x * (-2 * LOG2E * GELU_SCALE + xx * (-2 * LOG2E * GELU_SCALE * GELU_CUBE))));
}
float fast_gelu(float x) { return x * fast_sigmoid(x, min(x * x, 100)); }
float fast_gelu_slope(float x) {
    const float xx = min(x * x, 100), sigmoid = fast_sigmoid(x, xx);
    return sigmoid + x * (sigmoid - sigmoid * sigmoid) * (2 * GELU_SCALE + 6 * GELU_SCALE * GELU_CUBE * xx);
}
