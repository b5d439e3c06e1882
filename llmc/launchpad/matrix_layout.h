// The register layout of cooperative-matrix fragments. Vulkan leaves it to the implementation, but kernels
// need it to reduce rows, or to turn accumulators into operands, without shared memory. It also leaves open
// how conversions to 16 bits round. The launchpad probes both once, when it opens a device.
#pragma once
#include "llmc/launchpad/launchpad.h"

// Probes the layouts of the fragments of `limits` and stores them there.
void find_matrix_layouts(LaunchPad& pad, Limits& limits);

// Determines the layout of a fragment from the components that the invocations of a subgroup hold of an
// accumulator and of operand A. Both arrays are (lanes, components), of row-major element indices; -1: the
// component does not exist.
void read_matrix_layout(FragmentShape& shape, uint32_t lanes, const std::vector<float>& accumulators,
                        const std::vector<float>& operands);
// The layout that AMD's and Intel's drivers are known to have, for drivers that cannot run a kernel: an
// invocation holds components of one column.
void assume_matrix_layouts(Limits& limits);
