// Normalization of rows of f32: softmax, layer normalization, RMS normalization, local response normalization.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isa.h"

namespace dovetail {

// A block of `width` rows of `count` elements, with strides in bytes. Each row is contiguous (stride 4), or the rows are adjacent
// (width_stride 4).
struct NormBlock {
    const std::byte* x;
    std::byte* y;
    std::int64_t count;
    std::int64_t x_stride;
    std::int64_t y_stride;
    std::int64_t width;
    std::int64_t x_width_stride;
    std::int64_t y_width_stride;
    // Factors and addends of the normalized elements, `count` of each; a null pointer omits the operation.
    const float* scale;
    const float* bias;
    float epsilon;
};

// Local response normalization of `pixels` pixels. For each of the `channels` channels, squares are summed over a window of
// `size` channels.
struct LrnBlock {
    const std::byte* x;
    std::byte* y;
    std::int64_t pixels;  // the channels of a pixel are contiguous, or the pixels are adjacent
    std::int64_t x_pixel;
    std::int64_t y_pixel;
    std::int64_t channels;
    std::int64_t x_channel;
    std::int64_t y_channel;
    std::int64_t size;
    float alpha;  // the attribute alpha divided by `size`
    float beta;
    float bias;
    float* scratch;
};

struct NormFunctions {
    void (*softmax)(const NormBlock& block);
    void (*log_softmax)(const NormBlock& block);
    void (*layer_norm)(const NormBlock& block);
    void (*rms_norm)(const NormBlock& block);
    void (*lrn)(const LrnBlock& block);
};

DOVETAIL_DECLARE_PER_ISA(NormFunctions norm_functions();)

}  // namespace dovetail
