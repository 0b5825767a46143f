// Normalisation of rows of f32: softmax, layer normalisation, local response.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isa.h"

namespace dovetail {

// `count` elements of each of `width` rows, strides in bytes. Rows lie dense (stride 4) or beside each other (width_stride 4).
struct NormBlock {
    const std::byte* x;
    std::byte* y;
    std::int64_t count;
    std::int64_t x_stride;
    std::int64_t y_stride;
    std::int64_t width;
    std::int64_t x_width_stride;
    std::int64_t y_width_stride;
    // Rows of `count` numbers, or null: added to x first; by what the result is multiplied; what is added to it.
    const float* scale;
    const float* bias;
    float epsilon;
};

// The sum of `size` squares of neighbours around each of `count` channels of a pixel, `before` of them before it.
struct ResponseBlock {
    const std::byte* x;
    std::byte* y;
    std::int64_t pixels;  // beside each other
    std::int64_t x_pixel;
    std::int64_t y_pixel;
    std::int64_t channels;
    std::int64_t x_channel;
    std::int64_t y_channel;
    std::int64_t size;
    float alpha;  // already divided by the size
    float beta;
    float bias;
    float* scratch;
};

struct NormFunctions {
    void (*softmax)(const NormBlock& block);
    void (*log_softmax)(const NormBlock& block);
    void (*layer)(const NormBlock& block);
    void (*root_mean_square)(const NormBlock& block);
    void (*response)(const ResponseBlock& block);
};

DOVETAIL_IN_EVERY_ISA(NormFunctions norm_functions();)

}  // namespace dovetail
