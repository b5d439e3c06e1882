// The matrix product that the linear layers run on, on the CPU.
#pragma once
#include <cstddef>

// A matrix (rows, K): element (r, k) is p[r * ld + k], or p[k * ld + r] where k_major.
template <class T>
struct Operand {
    const T* p;
    size_t ld;
    bool k_major;
};

// Where element (r, c) of a product goes: p[r * ld + c], or p[c * ld + r] where transposed. With `add`, to
// what is there. bias, or null, has a number for each row r.
template <class T>
struct Result {
    T* p;
    size_t ld;
    bool transposed, add;
    const T* bias;
};

// result (rows, columns) = a (rows, K) b (columns, K)^T, summed in fp32 in an order that depends on K, and on
// whether there are more than four columns: any number of threads gives the same bits. Quickest where b has
// fewer elements or is k_major.
template <class T>
void product_cpu(const Result<T>& result, const Operand<T>& a, const Operand<T>& b, size_t rows,
                 size_t columns, size_t K);
