// The GEMM micro-kernel: a tile of a matrix product in registers, the inner loop of convolution and matrix multiplication.
#pragma once

#include <cstdint>

namespace dovetail {

// Activations that are applied after the bounds.
enum class Activation : std::uint8_t { bounds, leaky_relu, elu, sigmoid, silu, tanh, hardswish, gelu_erf, gelu_tanh };

// y[r, j] = epilogue(sum over segments s and positions k of base[rows[s, r] + k] * weights[s, k, j]), for `count` rows r and
// `vectors` vectors of columns j. A row reads `segments` runs of `length` floats at independent offsets: the taps of a
// convolution, a row of a matrix (one segment), or zeros for padding.
struct GemmTile {
    const float* base;
    const std::int64_t* rows;  // segments x count, in floats
    std::int64_t segments;
    std::int64_t length;
    const float* weights;
    std::int64_t weights_stride;  // stride between positions, in floats
    const float* next_weights;    // weights of a later tile to prefetch, and the number of floats to prefetch per position
    std::int64_t next_weights_step;
    float* y;
    std::int64_t y_stride;    // row stride of y, in floats
    std::int64_t columns;     // valid columns: at most vectors * lanes
    std::int64_t next_input;  // floats from the last segment's input to the next tile's input, which is prefetched; 0: none
    const float* initial;     // initial values of the accumulators; null: zero
    std::int64_t initial_stride;
    bool has_epilogue;  // false: the accumulators are stored to y without the epilogue

    // The steps of the epilogue in their order; a null pointer omits a step.
    float scale;
    const float* bias;  // readable up to the end of the last vector
    const float* residual;
    std::int64_t residual_stride;
    bool residual_last;  // the residual is added after all other steps instead of before the bounds
    float low;           // bounds; a NaN stays a NaN
    float high;
    Activation activation;
    float alpha;       // parameter of the activation
    bool is_rescaled;  // the activation's result is multiplied by output_scale, and output_shift is added
    float output_scale;
    float output_shift;
};

using GemmFunction = void (*)(const GemmTile&);

constexpr int kMaxVectors = 4;
constexpr int kMaxRows = 14;
constexpr int kMaxPixels = 8;

// The micro-kernels of one instruction set: tile[vectors - 1][count - 1], null beyond the rows that fit the registers.
struct GemmKernels {
    int lanes;
    int rows[kMaxVectors];  // maximum rows of a tile, at index vectors - 1; 0: no kernel
    GemmFunction tile[kMaxVectors][kMaxRows];
    // Depthwise kernels, by the number of rows: y[r, c] = epilogue(sum over segments s of base[rows[s, r] + c] * weights[s, c]).
    GemmFunction depthwise[kMaxPixels];
    // Depthwise kernels for triples of segments: the second segment reads at row r the input of the first segment at r + 1, and
    // the third the input of the second at r + 1.
    GemmFunction depthwise_triples[kMaxPixels];
};

// The micro-kernels of the instruction set in use; in a ReproducibleScope, those whose order of additions does not depend on the
// number of rows.
const GemmKernels& gemm_kernels();

}  // namespace dovetail
