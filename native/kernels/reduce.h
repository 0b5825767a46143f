// Reductions over any axes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "isa.h"

namespace dovetail {

// Map and combine functions; the kernel applies the final map.
enum class Reduction : int { sum, sum_abs, sum_square, sum_exp, max, min, product };
constexpr int kReductions = 7;

// The type in which elements are combined: f64 for floats, 64 bits for integers, which wrap around.
template <typename T>
struct ReduceTotal {
    using Type = std::conditional_t<std::is_floating_point_v<T>, double,
                                    std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;
};
template <typename T>
using Total = typename ReduceTotal<T>::Type;

// A block of `count` rows and `width` columns, with strides in bytes; each column is reduced. `totals` has one total per column
// plus one vector of padding; the elements of the block are combined with the values that `totals` already holds.
template <typename T>
struct ReduceBlock {
    const std::byte* x;
    std::int64_t count;
    std::int64_t stride;
    std::int64_t width;
    std::int64_t column_stride;
    Total<T>* totals;
    const T* offsets;  // sum_exp: for each column, the value that is subtracted before the exponential
};

// The reduce functions, indexed by Reduction; integers have no sum_exp.
template <typename T>
struct ReduceFunctions {
    using Function = void (*)(const ReduceBlock<T>& block);
    Function by[kReductions];
};

// Instantiated for f32 (simd/reduce.cpp), f64 and the integers (simd/reduce_types.cpp).
DOVETAIL_DECLARE_PER_ISA(template <typename T> ReduceFunctions<T> reduce_functions();
                         template <> ReduceFunctions<float> reduce_functions<float>();)

}  // namespace dovetail
