// The transpose of a square of vectors in registers, and the sums of their elements.
#pragma once

#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

template <int... I>
struct LaneIndices {};

#if defined(__AVX512F__)
constexpr LaneIndices<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15> kLaneIndices;
#elif defined(__AVX2__)
constexpr LaneIndices<0, 1, 2, 3, 4, 5, 6, 7> kLaneIndices;
#else
constexpr LaneIndices<0, 1, 2, 3> kLaneIndices;
#endif

// Exchanges the off-diagonal blocks of `Block` x `Block` elements, then recursively the larger off-diagonal blocks.
template <int Block, int... I>
DOVETAIL_INLINE void exchange_blocks(Floats (&rows)[kLanes], LaneIndices<I...> lanes) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i)
        if ((i & Block) == 0) {
            const Floats first = rows[i], second = rows[i + Block];
            rows[i] = __builtin_shufflevector(first, second, ((I & Block) == 0 ? I : kLanes + I - Block)...);
            rows[i + Block] = __builtin_shufflevector(first, second, ((I & Block) == 0 ? I + Block : kLanes + I)...);
        }
    if constexpr (Block * 2 < kLanes) exchange_blocks<Block * 2>(rows, lanes);
}

// Transposes kLanes x kLanes floats: exchanges off-diagonal blocks of 1, 2, 4 ... elements.
DOVETAIL_INLINE void transpose_square(Floats (&rows)[kLanes]) { exchange_blocks<1>(rows, kLaneIndices); }

// Adds blocks of `Block` elements of each vector pairwise, and joins the results of two vectors in one.
template <int Block, int... I>
DOVETAIL_INLINE void add_blocks(Floats (&rows)[kLanes], LaneIndices<I...> lanes) {
#pragma GCC unroll 8
    for (int i = 0; i < Block; ++i) {
        const Floats first = rows[i], second = rows[i + Block];
        rows[i] = __builtin_shufflevector(first, second, ((I & Block) == 0 ? I : kLanes + I)...) +
                  __builtin_shufflevector(first, second, ((I & Block) == 0 ? I + Block : kLanes + I - Block)...);
    }
    if constexpr (Block > 1) add_blocks<Block / 2>(rows, lanes);
}

// Returns the sums of the elements of each vector; overwrites the vectors.
DOVETAIL_INLINE Floats sum_each(Floats (&rows)[kLanes]) {
    add_blocks<kLanes / 2>(rows, kLaneIndices);
    return rows[0];
}

}  // namespace
}  // namespace dovetail::DOVETAIL_ISA
