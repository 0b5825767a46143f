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

// Dot products of kLanes columns, one vector of accumulators for each. The accumulators are transposed, so that their elements
// are added for all columns at once. Columns from `count` on are not stored; the last column stands for them.
inline void dots_of_lanes(float* to, const float* a, const float* b, std::int64_t depth, int count, std::int64_t column_step) {
    // Each column is read once: the same lines of the next columns are prefetched.
    const std::int64_t prefetch_floats = kLanes * column_step;
    const float* columns[kLanes];
    for (int j = 0; j < kLanes; ++j) columns[j] = b + (j < count ? j : count - 1) * column_step;
    Floats sums[kLanes] = {};
    std::int64_t k = 0;
    for (; k + kLanes <= depth; k += kLanes) {
        const Floats x = load(a + k);
#pragma GCC unroll 16
        for (int j = 0; j < kLanes; ++j) {
            __builtin_prefetch(columns[j] + k + prefetch_floats);
            sums[j] += x * load(columns[j] + k);
        }
    }
    transpose_square(sums);
#pragma GCC unroll 4
    for (int step = kLanes / 2; step > 0; step /= 2)
#pragma GCC unroll 8
        for (int j = 0; j < step; ++j) sums[j] += sums[j + step];
    float results[kLanes];
    store(results, sums[0]);
    for (int j = 0; j < count; ++j) {
        for (std::int64_t k_rest = k; k_rest < depth; ++k_rest) results[j] += a[k_rest] * columns[j][k_rest];
        to[j] = results[j];
    }
}

void dots(float* to, const float* a, const float* b, std::int64_t depth, std::int64_t columns, std::int64_t column_step) {
    for (std::int64_t j = 0; j < columns; j += kLanes)
        dots_of_lanes(to + j, a, b + j * column_step, depth, static_cast<int>(columns - j < kLanes ? columns - j : kLanes),
                      column_step);
}

}  // namespace

extern const PackingKernels packing_kernel_table;
const PackingKernels packing_kernel_table = {pack, dots};

}  // namespace dovetail::DOVETAIL_ISA
