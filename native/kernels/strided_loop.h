// The loops of a step over operands of equal sizes, whatever their strides: axes in a good order, joined where they can be.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel.h"

namespace dovetail {

// One axis of all operands together: its size, and each operand's stride in bytes.
struct CommonAxis {
    std::int64_t size;
    std::vector<std::int64_t> strides;
};

// The axes of operands of equal sizes, outermost first. Axes of size 1 are gone; neighbours that every operand walks as one are
// one. The innermost is the one that most operands have dense, the outputs counting twice. At least one axis is there.
std::vector<CommonAxis> common_axes(const std::vector<const Operand*>& inputs, const std::vector<const Operand*>& outputs);

// Copies rows x columns elements of `itemsize` (1, 2, 4, 8) between places of any strides; a stride of 0 repeats.
struct Grid {
    std::byte* place;
    std::int64_t row_step;
    std::int64_t column_step;
};
void copy_grid(Grid to, Grid from, std::int64_t rows, std::int64_t columns, std::int64_t itemsize);

}  // namespace dovetail
