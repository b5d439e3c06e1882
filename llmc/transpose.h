// The transpose of a matrix, for products that read it quicker in that order.
#pragma once
#include "llmc/launchpad.h"

// out (columns,rows) = inp (rows,columns), transposed. Both sizes are multiples of 8, and both addresses of
// 16 bytes. pad: where to run; null means the CPU.
template <class T>
void transpose(LaunchPad* pad, T* out, const T* inp, int rows, int columns);

template <class T>
void transpose_cpu(T* out, const T* inp, int rows, int columns);

template <class T>
using Transpose = void(LaunchPad& pad, T* out, const T* inp, int rows, int columns, int block_size);
template <class T>
std::vector<KernelVersion<Transpose<T>>> transpose_versions();
