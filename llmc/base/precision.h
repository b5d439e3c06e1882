// Choosing the storage type by its name, such as --precision gives it.
#pragma once
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/real.h"

inline std::vector<std::string> precision_names() {
    return {real_name<float>(), real_name<bf16>(), real_name<fp16>()};
}

// Calls f with a value of the storage type of that name and returns what f returns:
//     with_precision("bf16", [&]<class Real>(Real) { return train<Real>(options); })
// Throws Error if there is no such type.
template <class F>
auto with_precision(const std::string& name, F&& f) {
    if (name == real_name<float>()) return f(float());
    if (name == real_name<bf16>()) return f(bf16());
    if (name == real_name<fp16>()) return f(fp16());
    fail("precision '%s' is unknown; accepted are fp32, bf16 and fp16", name.c_str());
}
