// The part of a GEMM's result that one workgroup computes.
#pragma once
#include <string>

#include "llmc/base/error.h"

struct Tile {
    int m, n;  // rows, columns
    bool operator==(const Tile&) const = default;
};

// How tests and benchmarks print it: "tile:128x256".
inline std::string config_name(Tile tile) { return format_string("tile:%dx%d", tile.m, tile.n); }
