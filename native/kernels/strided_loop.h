// Loops over operands of equal sizes and any strides: axes sorted, and merged where possible.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel.h"

namespace dovetail {

// One axis of all operands: its size, and the stride of each operand in bytes.
struct CommonAxis {
    std::int64_t size;
    std::vector<std::int64_t> strides;
};

// Returns the axes of operands of equal sizes, outermost first. Axes of size 1 are dropped, and axes that are contiguous in every
// operand are merged. The innermost axis is the one along which most operands are contiguous; outputs count twice. There is at
// least one axis.
std::vector<CommonAxis> common_axes(const std::vector<const Operand*>& inputs, const std::vector<const Operand*>& outputs);

// Copies rows x columns elements of `itemsize` (1, 2, 4, 8) with any strides; a source stride of 0 repeats.
struct StridedRows {
    std::byte* base;
    std::int64_t row_step;
    std::int64_t column_step;
};
void copy_strided(StridedRows to, StridedRows from, std::int64_t rows, std::int64_t columns, std::int64_t itemsize);

}  // namespace dovetail
