// Convolution of 8-bit integers into 32-bit accumulators, and their requantization.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isa.h"
#include "kernel.h"

namespace dovetail {

inline bool is_byte(const Operand& operand) { return operand.element == Element::u8 || operand.element == Element::i8; }

// True if the channels of an image, its axis 1, are contiguous.
inline bool has_dense_channels(const Operand& image) {
    return image.strides[1] == image.itemsize || image.sizes[1] == 1 || image.count() == 0;
}

constexpr std::int64_t kInt8Columns = 16;  // columns of a panel of weights
constexpr std::int64_t kInt8Depth = 64;    // bytes of depth in a block
constexpr std::int64_t kInt8Block = kInt8Columns * kInt8Depth;
constexpr std::int64_t kInt8Pixels = 32;  // maximum number of pixels of a tile
constexpr std::int64_t kAccumulatorPitch = 2 * kInt8Columns;

// accumulators[p, j] = offset[j] + sum over segments s, blocks k and bytes i < 64 of x[p * step + offsets[s] + 64 k + i] *
// weights[s, k, i, j], for the pixels p of a tile and the columns j of one or two panels. The memory after a segment is
// readable to the end of its last block, where the weights are 0. Weights are stored block by block, for each panel 16 rows of
// [16 columns][4 bytes of depth].
struct Int8Tile {
    const std::byte* x;
    std::int64_t step;
    const std::int64_t* offsets;
    std::int64_t segments;
    std::int64_t blocks;
    std::int64_t last_depth;  // bytes of a segment's last block that have weights, a multiple of 8
    const std::int8_t* weights;
    const std::int32_t* offset;  // offsets of both panels
    const std::int8_t* next;     // weights of a later tile; each block prefetches `next_step` bytes of them
    std::int64_t next_step;
    int pixels;
    int panels;
    bool is_signed;
    std::int32_t* accumulators;  // [pixels][kAccumulatorPitch]
};

// Requantization of the pixels of a tile: y = r + zero, with r = clamp(round(accumulator * factor)). With a residual `other`,
// y = s + zero, with s = clamp(round(r * own + (other - other_zero) * beside)).
struct Requantization {
    const std::int32_t* accumulators;  // [pixels][kAccumulatorPitch]
    const float* factor;               // by column; whole vectors may be read
    std::int64_t columns;
    std::int64_t pixels;
    std::byte* y;
    std::int64_t y_step;     // bytes from pixel to pixel
    const std::byte* other;  // the residual; null: none
    std::int64_t other_step;
    bool other_is_signed;
    float low, high;  // bounds of r
    float zero;
    float other_zero, own, beside;
    float last_low, last_high;  // bounds of s
    bool is_full;               // true if the only upper bound of y is 255
    bool is_small;              // true if an i32 holds every value that is rounded
    bool y_is_signed;
};

// Conversion of the accumulators of a tile to f32: y = accumulator * (scale * factor) + bias, each operation rounded.
struct Dequantization {
    const std::int32_t* accumulators;  // [pixels][kAccumulatorPitch]
    const float* factor;               // by column; whole vectors may be read
    const float* bias;                 // by column; null: none
    float scale;
    std::int64_t columns;
    std::int64_t pixels;
    std::byte* y;
    std::int64_t y_step;  // bytes from pixel to pixel
};

struct Int8Kernels {
    void (*multiply)(const Int8Tile& tile);
    // totals[p] = the sum of the first `bytes` bytes of each segment of pixel p of a tile.
    void (*sum_pixels)(const Int8Tile& tile, std::int64_t bytes, std::int32_t* totals);
    // accumulators[p, j] -= totals[p] * factors[j], for the columns of two panels.
    void (*subtract_outer)(std::int32_t* accumulators, const std::int32_t* totals, const std::int32_t* factors,
                           std::int64_t pixels);
    void (*requantize)(const Requantization& run);
    // to[i * channels + c] = from[i * step + c * plane].
    void (*interleave)(std::byte* to, const std::byte* from, std::int64_t count, std::int64_t channels, std::int64_t step,
                       std::int64_t plane);
    // to[i] = the maximum of rows[n][i] over n < `number`, for i < `count`. The bytes are i8 if `is_signed`, else u8.
    void (*maximum)(std::byte* to, const std::byte* const* rows, std::int64_t number, std::int64_t count, bool is_signed);
};

DOVETAIL_DECLARE_PER_ISA(Int8Kernels int8_kernels();)

// The minimum and the maximum of a tensor; both are NaN if the tensor contains a NaN.
struct ValueRange {
    float low, high;
};

// Kernels of dynamic quantization; each arithmetic operation is rounded separately.
struct DynamicQuantization {
    void (*dequantize)(const Dequantization& run);
    // Extends a range so that it contains `count` more elements.
    void (*extend_range)(ValueRange& range, const float* from, std::int64_t count);
    // to = saturate(round(from / scale) + zero); 0 for NaN.
    void (*quantize)(std::byte* to, const float* from, std::int64_t count, float scale, float zero);
};

DOVETAIL_DECLARE_PER_ISA(DynamicQuantization dynamic_quantization();)

// The scale and zero point that map a range, extended to include 0, to u8 (DynamicQuantizeLinear). Both are NaN for a range of
// NaN.
struct QuantizationGrid {
    float scale, zero;
};
QuantizationGrid grid_of(ValueRange range);

// A unit of the processor for products of 8-bit integers. The functions amx_unit() and vnni_unit() return null if the processor
// or the system does not provide the unit, or if DOVETAIL_ISA is set. `end` is called after the last product of a task.
struct Int8Unit {
    void (*multiply)(const Int8Tile& tile);
    void (*end)();
    const char* name;
};
const Int8Unit* amx_unit();   // AMX
const Int8Unit* vnni_unit();  // AVX512-VNNI

}  // namespace dovetail
