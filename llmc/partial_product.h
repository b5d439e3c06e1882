// A product that is left unfinished, so that the layer which reads it can finish it on the way: on matrix
// cores K is cut into slices where rows are few, and a kernel of its own that adds the slices up takes longer
// to start than to run. matmul_forward_partial() and matmul_backward_input_partial() of llmc/matmul.h make
// them.
#pragma once
#include "llmc/launchpad.h"

// A product (N,C). Where `slices` is 1, value holds it. Otherwise it is the sum of partials (slices,N,C),
// added in order, plus bias (C), rounded to T; value (N,C) is where finish_product() puts that. partials lie
// in scratch of the caller's, which must not be used again before the product was read.
template <class T>
struct PartialProduct {
    T* value;
    const float* partials = nullptr;
    int slices = 1;
    const T* bias = nullptr;  // null: nothing is to be added, or it has been
};

// Puts the product into its value by a kernel of its own; whoever reads it must wait for that. C is a
// multiple of 8, as in all products that have slices.
template <class T>
void finish_product(LaunchPad& pad, const PartialProduct<T>& product, int N, int C);
