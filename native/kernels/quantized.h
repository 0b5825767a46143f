// Convolution of bytes into whole sums, and what brings the sums back to bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isa.h"

namespace dovetail {

constexpr std::int64_t kByteColumns = 16;  // of a panel of weights
constexpr std::int64_t kByteDepth = 64;    // bytes of a block of the depth
constexpr std::int64_t kByteBlock = kByteColumns * kByteDepth;
constexpr std::int64_t kBytePixels = 32;   // that a tile holds at most
constexpr std::int64_t kSumsPitch = 2 * kByteColumns;

// sums[p, j] = offset[j] + sum over segments s, blocks k and bytes i < 64 of x[p * step + offsets[s] + 64 k + i] * weights[s, k, i, j] for some
// pixels p and one or two panels of columns j. Behind what a segment reads lies as much as fills its last block, whose weights there
// are 0. Weights: block by block, of each panel 16 rows of [16 columns][4 bytes of depth].
struct ByteTile {
    const std::byte* x;
    std::int64_t step;
    const std::int64_t* offsets;
    std::int64_t segments;
    std::int64_t blocks;
    std::int64_t last_depth;  // bytes of a segment's last block that have weights, in whole eights
    const std::int8_t* weights;
    const std::int32_t* offset;   // of both panels
    const std::int8_t* next;  // weights that are wanted later, of which each block fetches `next_step` bytes
    std::int64_t next_step;
    int pixels;
    int panels;
    bool is_signed;
    std::int32_t* sums;  // [pixels][kSumsPitch]
};

// For some pixels, y = r + zero with r = clamp(round(sum * factor)); or, with another tensor, with the clamped and rounded
// r * own + (other - other_zero) * beside in place of r.
struct ByteFinish {
    const std::int32_t* sums;  // [pixels][kSumsPitch]
    const float* factor;  // by column; whole vectors may be read
    std::int64_t columns;
    std::int64_t pixels;
    std::byte* y;
    std::int64_t y_step;  // bytes from pixel to pixel
    const std::byte* other;  // null: none
    std::int64_t other_step;
    bool other_is_signed;
    float low, high;  // of the first r, of the second
    float zero;
    float other_zero, own, beside;
    float last_low, last_high;
    bool is_full;  // no number but the greatest of u8 bounds what is put out
};

struct ByteFunctions {
    void (*multiply)(const ByteTile& tile);
    void (*finish)(const ByteFinish& run);
    // to[i * channels + c] = from[i * step + c * plane].
    void (*interleave)(std::byte* to, const std::byte* from, std::int64_t count, std::int64_t channels, std::int64_t step,
                       std::int64_t plane);
    // The greatest of `count` bytes of each of `places`, as they are or as signed ones.
    void (*greatest)(std::byte* to, const std::byte* const* places, std::int64_t number, std::int64_t count, bool is_signed);
};

DOVETAIL_IN_EVERY_ISA(ByteFunctions byte_functions();)

// What a processor may have beside its vectors for products of bytes: null where it has not, the system does not lend it, or
// DOVETAIL_ISA asks for less. After the last product of a task comes its end.
struct ByteUnit {
    void (*multiply)(const ByteTile& tile);
    void (*end)();
    const char* name;
};
const ByteUnit* matrix_unit();   // AMX
const ByteUnit* product_unit();  // AVX512-VNNI

}  // namespace dovetail
