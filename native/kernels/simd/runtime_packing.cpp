// Packing of matrices that are not constant, and dot products of few rows.
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

// Dot products of `rows` rows with kLanes columns, one vector of accumulators for each. Elements of accumulators are added for
// all columns at once. Columns from `count` on are not stored; the last column stands for them.
template <int rows>
DOVETAIL_INLINE void dots_of_lanes(float* to, std::int64_t to_step, const float* a, std::int64_t row_step, const float* b,
                                   std::int64_t depth, int count, std::int64_t column_step) {
    // Several rows halve the columns, so that the accumulators fit the registers.
    constexpr int together = rows == 1 ? kLanes : kLanes / 2;
    // Each column is read once: the same lines of the next columns are prefetched to L2, from which more lines can be in flight.
    const std::int64_t prefetch_floats = kLanes * column_step;
    const std::int64_t whole = depth / kLanes * kLanes;
    const float* columns[kLanes];
    for (int j = 0; j < kLanes; ++j) columns[j] = b + (j < count ? j : count - 1) * column_step;
    Floats sums[rows][kLanes];
#pragma GCC unroll 2
    for (int first = 0; first < kLanes; first += together) {
        Floats accumulators[rows][together] = {};
        for (std::int64_t k = 0; k < whole; k += kLanes) {
            Floats x[rows];
#pragma GCC unroll 4
            for (int r = 0; r < rows; ++r) x[r] = load(a + r * row_step + k);
#pragma GCC unroll 16
            for (int j = 0; j < together; ++j) {
                __builtin_prefetch(columns[first + j] + k + prefetch_floats, 0, 2);
                const Floats column = load(columns[first + j] + k);
#pragma GCC unroll 4
                for (int r = 0; r < rows; ++r) accumulators[r][j] += x[r] * column;
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r)
#pragma GCC unroll 16
            for (int j = 0; j < together; ++j) sums[r][first + j] = accumulators[r][j];
    }
    for (int r = 0; r < rows; ++r) {
        float results[kLanes];
        store(results, sum_each(sums[r]));
        for (int j = 0; j < count; ++j) {
            for (std::int64_t k = whole; k < depth; ++k) results[j] += a[r * row_step + k] * columns[j][k];
            to[r * to_step + j] = results[j];
        }
    }
}

template <int rows>
void dots_of_rows(float* to, std::int64_t to_step, const float* a, std::int64_t row_step, const float* b, std::int64_t depth,
                  std::int64_t columns, std::int64_t column_step) {
    for (std::int64_t j = 0; j < columns; j += kLanes)
        dots_of_lanes<rows>(to + j, to_step, a, row_step, b + j * column_step, depth,
                            static_cast<int>(columns - j < kLanes ? columns - j : kLanes), column_step);
}

void dots(float* to, std::int64_t to_step, const float* a, std::int64_t row_step, std::int64_t rows, const float* b,
          std::int64_t depth, std::int64_t columns, std::int64_t column_step) {
    const auto run = rows == 1 ? dots_of_rows<1> : rows == 2 ? dots_of_rows<2> : dots_of_rows<3>;
    run(to, to_step, a, row_step, b, depth, columns, column_step);
}

}  // namespace

extern const PackingKernels packing_kernel_table;
const PackingKernels packing_kernel_table = {pack, dots};

}  // namespace dovetail::DOVETAIL_ISA
