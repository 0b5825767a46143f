// Packing of matrices that are not constant, and dot products of single rows.
#pragma once

#include <cstdint>

namespace dovetail {

struct PackingKernels {
    // to[k * width + j] = from[k * depth_step + j * column_step], zeros for columns <= j < width.
    void (*pack)(float* to, const float* from, std::int64_t depth, std::int64_t columns, std::int64_t width,
                 std::int64_t depth_step, std::int64_t column_step);
    // to[j] = sum over k of a[k] * b[j * column_step + k].
    void (*dots)(float* to, const float* a, const float* b, std::int64_t depth, std::int64_t columns, std::int64_t column_step);
};

const PackingKernels& packing_kernels();

}  // namespace dovetail
