// Products of operands that are rounded to bf16, with sums in f32.
#pragma once

#include <cstdint>

#include "kernels/conv_prologue.h"
#include "kernels/gemm_microkernel.h"

namespace dovetail {

// The depth of a product below which rounding its operands costs more than half of the product.
constexpr std::int64_t kMinBf16Depth = 16;

// Two adjacent elements of the depth take the place of one float: the first in the low half of its bits. An odd depth is followed
// by a zero.
struct Bf16Kernels {
    GemmKernels gemm;  // without depthwise kernels
    // The copies of the convolution prologue, rounded. `to` and `to_step` are in pairs, counts of channels and of elements are
    // not; interleave() rounds up the channels of a pixel to pairs.
    PrologueKernels prologue;
    // to[k / 2 * width + j] holds from[k * depth_step + j * column_step] and its successor along the depth, rounded; zeros for
    // columns <= j < width.
    void (*pack)(float* to, const float* from, std::int64_t depth, std::int64_t columns, std::int64_t width,
                 std::int64_t depth_step, std::int64_t column_step);
    // to[i / 2] holds from[i] and from[i + 1], rounded.
    void (*round)(float* to, const float* from, std::int64_t count);
};

// The kernels with AVX512-BF16; null if the processor lacks it or DOVETAIL_ISA is set.
const Bf16Kernels* avx512_bf16_kernels();

// The same kernels; where they are missing, the dot products are emulated with products of f32.
const Bf16Kernels& bf16_kernels();

}  // namespace dovetail
