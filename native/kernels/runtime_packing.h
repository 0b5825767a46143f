// Packing of matrices that are not constant, and dot products of few rows.
#pragma once

#include <cstdint>

namespace dovetail {

constexpr std::int64_t kMaxDotRows = 3;

struct PackingKernels {
    // to[k * width + j] = from[k * depth_step + j * column_step], zeros for columns <= j < width.
    void (*pack)(float* to, const float* from, std::int64_t depth, std::int64_t columns, std::int64_t width,
                 std::int64_t depth_step, std::int64_t column_step);
    // to[r * to_step + j] = sum over k of a[r * row_step + k] * b[j * column_step + k], for r < rows <= kMaxDotRows.
    void (*dots)(float* to, std::int64_t to_step, const float* a, std::int64_t row_step, std::int64_t rows, const float* b,
                 std::int64_t depth, std::int64_t columns, std::int64_t column_step);
};

const PackingKernels& packing_kernels();

}  // namespace dovetail
