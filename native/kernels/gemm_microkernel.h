// A tile of a matrix product, held in registers: the inner loop of convolution and of matrix multiplication.
#pragma once

#include <cstdint>

namespace dovetail {

// What follows the bounds.
enum class Activation : std::uint8_t { bounds, leaky_relu, elu, sigmoid, silu, tanh, hardswish, gelu_erf, gelu_tanh };

// y[r, j] = finish(sum over segments s and positions k of base[rows[s, r] + k] * weights[s, k, j]) for `count` rows r and
// `vectors` vectors of columns j. What a row reads lies in `segments` runs of `length` floats, each wherever its offset says: the taps of a
// convolution, a plain row of a matrix (one segment), or zeros for padding.
struct ProductTile {
    const float* base;
    const std::int64_t* rows;  // segments x count, in floats
    std::int64_t segments;
    std::int64_t length;
    const float* weights;
    std::int64_t weights_stride;  // floats from one position to the next
    const float* next;            // weights that are wanted later, and how many of them to fetch for each position meanwhile
    std::int64_t next_step;
    float* y;
    std::int64_t y_stride;  // floats from row to row
    std::int64_t columns;   // those that are there: at most vectors * lanes
    std::int64_t ahead;     // so many floats behind what the last segment reads lies what the next tile reads; 0: nowhere in particular
    const float* from;      // what the sums go on from; null: zero
    std::int64_t from_stride;
    bool finishes;  // else y gets the bare sums

    // What is done to a finished sum, in this order; a null pointer leaves a step out.
    float scale;
    const float* bias;  // may be read up to the end of the last vector
    const float* residual;
    std::int64_t residual_stride;
    bool residual_last;  // added after the bounds, not before
    float low;           // bounds; NaN passes
    float high;
    Activation activation;
    float alpha;  // of the activation
};

using ProductFunction = void (*)(const ProductTile&);

constexpr int kMostVectors = 4;
constexpr int kMostRows = 14;
constexpr int kMostPixels = 8;

// The kernels of one instruction set: of[vectors - 1][count - 1], null beyond the rows that registers hold.
struct ProductTable {
    int lanes;
    int rows[kMostVectors];  // 0: no kernel of so many vectors
    ProductFunction of[kMostVectors][kMostRows];
    // The product by channels, by the number of rows: y[r, c] = finish(sum over segments s of base[rows[s, r] + c] * weights[s, c]).
    ProductFunction by_channel[kMostPixels];
    // The same where the segments come in threes, of which the second reads at r what the first reads at r + 1, and the third what
    // the second does.
    ProductFunction by_channel_in_threes[kMostPixels];
};

// The table of isa().
const ProductTable& product_table();

}  // namespace dovetail
