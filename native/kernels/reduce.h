// Reductions: of everything along some axes one number.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isa.h"

namespace dovetail {

// What becomes of each element, and how elements become one. What becomes of that one is the step's business.
enum class Reduction : int { sum, sum_abs, sum_square, sum_exp, max, min, product };
constexpr int kReductions = 7;

// `count` rows of `width` columns of f32, strides in bytes; each column is reduced. Totals are f64, one for each column and room
// for a vector more; this block is added to what they hold.
struct ReduceBlock {
    const std::byte* x;
    std::int64_t count;
    std::int64_t stride;
    std::int64_t width;
    std::int64_t column_stride;
    double* totals;
    const float* offsets;  // sum_exp: what is taken off first, for each column
};

using ReduceFunction = void (*)(const ReduceBlock& block);

struct ReduceFunctions {
    ReduceFunction by[kReductions];
};

DOVETAIL_IN_EVERY_ISA(ReduceFunctions reduce_functions();)

}  // namespace dovetail
