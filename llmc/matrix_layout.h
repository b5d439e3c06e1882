// Where a device keeps the components of fragments. Vulkan leaves that to the device; kernels that reduce
// rows or turn sums into factors without shared memory must know. A kernel looks once, when a launchpad opens
// its device.
#pragma once
#include "llmc/launchpad.h"

// Fills in the layouts of limits' fragments.
void find_matrix_layouts(LaunchPad& pad, Limits& limits);

// Fills in the layout of shape's fragments. sums, factors: (lanes, components), the elements' numbers row by
// row, as the invocations of a subgroup hold them; -1: no element.
void read_matrix_layout(MatrixShape& shape, uint32_t lanes, const std::vector<float>& sums,
                        const std::vector<float>& factors);
