// Reductions of f32 over any axes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isa.h"

namespace dovetail {

// Map and combine functions; the kernel applies the final map.
enum class Reduction : int { sum, sum_abs, sum_square, sum_exp, max, min, product };
constexpr int kReductions = 7;

// `count` rows of `width` columns of f32, strides in bytes; each column is reduced. Totals are f64, one for each column plus one
// vector; the block is combined with their present values.
struct ReduceBlock {
    const std::byte* x;
    std::int64_t count;
    std::int64_t stride;
    std::int64_t width;
    std::int64_t column_stride;
    double* totals;
    const float* offsets;  // sum_exp: subtracted first, by column
};

using ReduceFunction = void (*)(const ReduceBlock& block);

struct ReduceFunctions {
    ReduceFunction by[kReductions];
};

DOVETAIL_DECLARE_PER_ISA(ReduceFunctions reduce_functions();)

}  // namespace dovetail
