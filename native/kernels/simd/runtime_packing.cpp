// Packing of matrices that are not constant, and dot products of single rows.
#include "kernels/runtime_packing.h"

#include "kernels/simd/transpose.h"
#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

// Packs columns that are contiguous along their depth.
void pack_transposed(float* to, const float* from, std::int64_t depth, std::int64_t columns, std::int64_t width,
                     std::int64_t column_step) {
    std::int64_t j = 0;
    for (; j + kLanes <= columns; j += kLanes) {
        std::int64_t k = 0;
        for (; k + kLanes <= depth; k += kLanes) {
            Floats rows[kLanes];
#pragma GCC unroll 16
            for (int i = 0; i < kLanes; ++i) rows[i] = load(from + (j + i) * column_step + k);
            transpose_square(rows);
#pragma GCC unroll 16
            for (int i = 0; i < kLanes; ++i) store(to + (k + i) * width + j, rows[i]);
        }
        for (; k < depth; ++k)
            for (int i = 0; i < kLanes; ++i) to[k * width + j + i] = from[(j + i) * column_step + k];
    }
    for (; j < columns; ++j)
        for (std::int64_t k = 0; k < depth; ++k) to[k * width + j] = from[j * column_step + k];
}

void pack(float* to, const float* from, std::int64_t depth, std::int64_t columns, std::int64_t width, std::int64_t depth_step,
          std::int64_t column_step) {
    if (depth_step == 1 && column_step != 1)
        pack_transposed(to, from, depth, columns, width, column_step);
    else
        for (std::int64_t k = 0; k < depth; ++k)
            if (column_step == 1)
                for (std::int64_t j = 0; j < columns; ++j) to[k * width + j] = from[k * depth_step + j];
            else
                for (std::int64_t j = 0; j < columns; ++j) to[k * width + j] = from[k * depth_step + j * column_step];
    for (std::int64_t k = 0; columns < width && k < depth; ++k)
        for (std::int64_t j = columns; j < width; ++j) to[k * width + j] = 0;
}

// Prefetch distance, columns: each column is read once.
constexpr std::int64_t kPrefetchColumns = 8;

// Dot products of `count` columns, two chains of accumulators each.
template <int count>
inline void dots_of(float* to, const float* a, const float* b, std::int64_t depth, std::int64_t column_step) {
    const std::int64_t prefetch_floats = kPrefetchColumns * column_step;
    Floats sums[2][count] = {};
    std::int64_t k = 0;
    for (; k + 2 * kLanes <= depth; k += 2 * kLanes)
#pragma GCC unroll 8
        for (int j = 0; j < count; ++j)
#pragma GCC unroll 2
            for (int c = 0; c < 2; ++c) {
                const float* from = b + j * column_step + k + c * kLanes;
                __builtin_prefetch(from + prefetch_floats);
                sums[c][j] += load(a + k + c * kLanes) * load(from);
            }
    for (int j = 0; j < count; ++j) {
        float sum = sum_of(sums[0][j] + sums[1][j]);
        for (std::int64_t k_rest = k; k_rest < depth; ++k_rest) sum += a[k_rest] * b[j * column_step + k_rest];
        to[j] = sum;
    }
}

void dots(float* to, const float* a, const float* b, std::int64_t depth, std::int64_t columns, std::int64_t column_step) {
    std::int64_t j = 0;
    for (; j + 4 <= columns; j += 4) dots_of<4>(to + j, a, b + j * column_step, depth, column_step);
    for (; j < columns; ++j) dots_of<1>(to + j, a, b + j * column_step, depth, column_step);
}

}  // namespace

extern const PackingKernels packing_kernel_table;
const PackingKernels packing_kernel_table = {pack, dots};

}  // namespace dovetail::DOVETAIL_ISA
