// Weights of a matrix product that stay in few bits: their packing, and the kernels that decode them in registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "isa.h"
#include "kernel.h"

namespace dovetail {

// Codes of 2 or 4 bits are indices of a table of floats; other codes are numbers of the format.
enum class WeightFormat : std::uint8_t { table2, table4, i8, f8e4m3, f8e5m2, f16, bf16 };

constexpr int kTableSize = 16;
constexpr int kMaxFewRows = 8;

// Element (k, j) of the weights is (number(k, j) - point(b, j)) * scale(b, j), for the block b of `block` positions that contains
// k. A strip holds one vector of columns. It is a sequence of blocks: the scales, the points if there are any, and the codes of
// the block, in words of 32 bits for each column. A word holds the codes of consecutive positions in the order of position_of().
struct CompressedWeights {
    WeightFormat format;
    std::int64_t depth, columns, block, blocks;
    std::int64_t words;  // words of a block for each column
    bool has_points;
    float table[kTableSize];  // a table of 4 numbers is repeated, so that bits above a code do not matter
    int lanes;
    std::int64_t block_bytes;             // bytes of a block of a strip
    std::shared_ptr<const float> strips;  // in bytes: strip, block, contents

    const std::byte* strip(std::int64_t index) const {
        return reinterpret_cast<const std::byte*>(strips.get()) + index * blocks * block_bytes;
    }
    // Positions of a block with the padding to whole words.
    std::int64_t padded_block() const;
};

int bits_of(WeightFormat format);

// The position, within the codes of a word, of the code at bit `index * bits`: the codes of adjacent positions are in adjacent
// bytes, as dot products of bytes need them.
static constexpr inline __attribute__((always_inline, unused)) int position_of(int index, int bits) {
    return bits >= 8 ? index : index * bits / 8 + 4 * (index * bits % 8 / bits);
}

// Reads the attributes "format", "block", "table", "packed_axis" and "has_points", and packs the operands that follow the first
// one: the codes [depth, columns], scales [columns, blocks] and points [columns, blocks]. Codes that are packed in bytes, the
// first in the lowest bits, are [bytes, columns] for the "packed_axis" 0, and [depth, bytes] for 1.
CompressedWeights compress_weights(const Spec& spec, WeightCache& cache, std::int64_t depth, std::int64_t columns, int lanes);

// Products of few rows with one strip: y[r * y_step + j] = sum over the positions of x[r * x_step + k] * weight(k, j).
struct FewRows {
    const CompressedWeights* weights;
    const std::byte* strip;
    const float* x;  // the positions of each block, padded to whole words
    std::int64_t x_step;
    const float* sums;  // sums of x by row and block, for weights with points and for kernels of consecutive numbers
    float* y;
    std::int64_t y_step;
};

// As FewRows, of rows that are rounded to 8 bits: x is the product of its bytes and the scale of its row and block.
struct ByteRows {
    const CompressedWeights* weights;
    const std::byte* strip;
    const std::int8_t* x;
    std::int64_t x_step;
    const float* scales;  // by row and block
    const float* sums;    // sums of the bytes, by row and block
    float* y;
    std::int64_t y_step;
};

using ByteRowsFunction = void (*)(const ByteRows& run);

// The kernels for codes of 2, 4 and 8 bits, by the number of rows, less 1.
struct ByteRowsKernels {
    ByteRowsFunction multiply[3][kMaxFewRows];
};

struct CompressedKernels {
    int max_rows;
    // By format and number of rows, less 1.
    void (*few_rows[7][kMaxFewRows])(const FewRows& run);
    // For codes of 2 and of 4 bits whose numbers are consecutive, if that is faster than a table; else null.
    void (*few_rows_of_consecutive[2][kMaxFewRows])(const FewRows& run);
    // to[(k - first) * width + j] = weight(k, j) of a strip, for first <= k < last.
    void (*decode[7])(float* to, std::int64_t width, const CompressedWeights& weights, const std::byte* strip, std::int64_t first,
                      std::int64_t last);
    ByteRowsKernels byte_rows;
    // Rounds x to bytes in blocks: to[i] = round(x[i] * 127 / greatest magnitude); the rest of a padded block is 0. False if x
    // has an infinity or a NaN.
    bool (*round_row)(std::int8_t* to, float* scales, float* sums, const float* x, const CompressedWeights& weights);
};

DOVETAIL_DECLARE_PER_ISA(extern const CompressedKernels compressed_kernels;)

// The kernels with VNNI instructions; null if the processor lacks them or DOVETAIL_ISA is set.
const ByteRowsKernels* vnni_byte_rows();

// True if the numbers are integers that follow each other as the codes do, so that rows may be rounded to bytes.
bool has_consecutive_numbers(const CompressedWeights& weights);

}  // namespace dovetail
