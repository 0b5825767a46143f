// The micro-kernel of matrix products of f64 and integers.
#pragma once

#include <cstdint>

#include "isa.h"

namespace dovetail {

constexpr std::int64_t kProductRows = 4;
// Columns of one block: two vectors of 64 bytes.
template <typename T>
constexpr std::int64_t kProductColumns = 128 / static_cast<std::int64_t>(sizeof(T));

// Adds a product of kProductRows rows and kProductColumns columns to `sums` [rows][columns]. Steps are in elements; the columns
// of `b` are contiguous.
template <typename T>
struct ProductBlock {
    const T* a;
    std::int64_t a_row, a_column;
    const T* b;
    std::int64_t b_row;
    std::int64_t depth;
    T* sums;
};

template <typename T>
using ProductFunction = void (*)(const ProductBlock<T>& block);

// Instantiated for f64 and unsigned integers; products of unsigned integers wrap around like products of signed integers.
DOVETAIL_DECLARE_PER_ISA(template <typename T> ProductFunction<T> product_function();)

}  // namespace dovetail
