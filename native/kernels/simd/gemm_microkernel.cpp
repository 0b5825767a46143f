// GEMM micro-kernels of f32, compiled for each instruction set.
#include "kernels/simd/gemm_tile.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

// The epilogue of a depthwise tile: `count` rows of one vector, with `valid` valid elements.
template <int count>
DOVETAIL_INLINE void store_channels(const GemmTile& tile, const Floats (&accumulators)[count][1], std::int64_t c,
                                    std::int64_t valid) {
    if (is_simple(tile) && valid >= kLanes) return store_tile<count, 1, false>(tile, accumulators, c);
    if (is_simple(tile)) return store_tile<count, 1, true>(tile, accumulators, c);
    Floats stored[count];
#pragma GCC unroll 32
    for (int r = 0; r < count; ++r) stored[r] = accumulators[r][0];
    store_any(tile, stored, count, 1, c);
}

// Depthwise convolution, one vector of channels at a time.
template <int count>
void depthwise_tile(const GemmTile& tile) {
    for (std::int64_t c = 0; c < tile.columns; c += kLanes) {
        const std::int64_t valid = tile.columns - c;
        const Lanes lanes = first_lanes(valid < kLanes ? valid : kLanes);
        Floats accumulators[count][1];
#pragma GCC unroll 32
        for (int r = 0; r < count; ++r) accumulators[r][0] = Floats{};
        const std::int64_t* rows = tile.rows;
        const float *base = tile.base + c, *weights = tile.weights + c;
        for (std::int64_t s = 0; s < tile.segments; ++s, rows += count, weights += tile.weights_stride) {
            const Floats w = load(weights);
            if (valid >= kLanes)
#pragma GCC unroll 32
                for (int r = 0; r < count; ++r) accumulators[r][0] += load(base + rows[r]) * w;
            else
#pragma GCC unroll 32
                for (int r = 0; r < count; ++r) accumulators[r][0] += load_lanes(base + rows[r], lanes) * w;
        }
        store_channels<count>(tile, accumulators, c, valid);
    }
}

// Depthwise convolution of three adjacent taps: each pixel is loaded once for all three taps. Of every three segments, the
// offsets of the first and the last segment are used.
template <int count>
void depthwise_triples(const GemmTile& tile) {
    for (std::int64_t c = 0; c < tile.columns; c += kLanes) {
        const std::int64_t valid = tile.columns - c;
        const Lanes lanes = first_lanes(valid < kLanes ? valid : kLanes);
        Floats accumulators[count][1];
#pragma GCC unroll 32
        for (int r = 0; r < count; ++r) accumulators[r][0] = Floats{};
        const std::int64_t* rows = tile.rows;
        const float *base = tile.base + c, *weights = tile.weights + c;
        for (std::int64_t s = 0; s + 3 <= tile.segments; s += 3, rows += 3 * count, weights += 3 * tile.weights_stride) {
            const Floats w[3] = {load(weights), load(weights + tile.weights_stride), load(weights + 2 * tile.weights_stride)};
#pragma GCC unroll 32
            for (int p = 0; p < count + 2; ++p) {
                const float* from = base + rows[p < count ? p : 2 * count + p - 2];
                const Floats x = valid >= kLanes ? load(from) : load_lanes(from, lanes);
                __builtin_prefetch(from + kLanes);
#pragma GCC unroll 3
                for (int t = 0; t < 3; ++t)
                    if (p >= t && p - t < count) accumulators[p - t][0] += x * w[t];
            }
        }
        store_channels<count>(tile, accumulators, c, valid);
    }
}

template <int... rows>
constexpr void set_depthwise(GemmKernels& kernels, Rows<rows...>) {
    ((kernels.depthwise[rows] = depthwise_tile<rows + 1>), ...);
    ((kernels.depthwise_triples[rows] = depthwise_triples<rows + 1>), ...);
}

constexpr GemmKernels with_depthwise(GemmKernels kernels) {
    set_depthwise(kernels, Rows<0, 1, 2, 3, 4, 5, 6, 7>{});
    return kernels;
}

// A constant expression: initialization at run time would run code of an instruction set that the processor may lack.
constexpr GemmKernels kKernels[] = {with_depthwise(tiles_of<FloatProduct>()), with_depthwise(tiles_of<FloatProduct, true>())};

}  // namespace

extern const GemmKernels gemm_kernel_table[2];
const GemmKernels gemm_kernel_table[2] = {kKernels[0], kKernels[1]};

}  // namespace dovetail::DOVETAIL_ISA
