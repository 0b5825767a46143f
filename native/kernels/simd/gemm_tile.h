// Tiles of the GEMM micro-kernels for products of f32 and for dot products of two bf16.
#pragma once

#include "kernels/gemm_microkernel.h"
#include "kernels/simd/bf16.h"
#include "kernels/simd/epilogue.h"
#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

// Maximum rows for each number of vectors; the remaining registers hold the weights and one broadcast element.
#if defined(__AVX512F__)
constexpr int kRows[kMaxVectors] = {14, 14, 9, 6};
#else
constexpr int kRows[kMaxVectors] = {12, 6, 4, 0};
#endif

// Prefetch distances of weights: of dense ones in floats, of strided ones in positions. Each tile reads dense weights once,
// mostly from L2; the distance reaches across the end of a panel into the next panel. Strided ones are an operand in memory, of
// which many lines must be in flight: they are prefetched to L2.
constexpr int kPrefetchFloats = 1024;
constexpr int kPrefetchPositions = 32;

DOVETAIL_INLINE void prefetch_weights(const float* from, bool is_dense, std::int64_t stride) {
    if (is_dense)
        __builtin_prefetch(from + kPrefetchFloats);
    else
        __builtin_prefetch(from + kPrefetchPositions * stride, 0, 2);
}

// Floats of a cache line.
constexpr int kLine = 16;

// Positions that are multiplied without prefetches or branches in between. With short vectors, prefetches and branches are a
// large part of the instructions, and delay a second hyperthread. The hardware prefetcher follows contiguous weights.
#if defined(__AVX512F__)
constexpr int kUnroll = 1;
#else
constexpr int kUnroll = 4;
#endif

// Tiles of few rows use several independent chains of accumulators, to hide the latency of a multiply-add. The number of chains
// must not depend on the number of columns: the narrower last panel then adds in the same order, so that equal columns give
// equal sums.
#if defined(__AVX512F__)
constexpr int kMinSingleChainRows = 4;
#else
constexpr int kMinSingleChainRows = 3;
#endif
template <bool is_ordered>
constexpr int chains_of(int count) {
    return is_ordered || count >= kMinSingleChainRows ? 1 : count >= 2 ? 2 : 4;
}

// Loads the initial accumulators.
void load_initial(const GemmTile& tile, Floats* accumulators, int count, int vectors) {
    for (int r = 0; r < count; ++r)
        for (int v = 0; v < vectors && v * kLanes < tile.columns; ++v)
            accumulators[r * vectors + v] =
                load_partial(tile.initial + r * tile.initial_stride + v * kLanes, tile.columns - v * kLanes);
}

// Prefetches the output and the residual, whose rows are far apart.
template <int count, int vectors>
DOVETAIL_INLINE void prefetch_results(const GemmTile& tile) {
#pragma GCC unroll 32
    for (int r = 0; r < count; ++r)
        for (int j = 0; j < vectors * kLanes; j += kLine) {
            __builtin_prefetch(tile.y + r * tile.y_stride + j, 1);
            if (tile.residual != nullptr) __builtin_prefetch(tile.residual + r * tile.residual_stride + j);
        }
}

// The epilogue of a simple tile from column `c` on, whose last vector may be partial. A whole vector is stored without a mask,
// which costs less.
template <int count, int vectors, bool is_partial>
DOVETAIL_INLINE void store_tile(const GemmTile& tile, const Floats (&accumulators)[count][vectors], std::int64_t c) {
    const Floats low = splat(tile.low), high = splat(tile.high), scale = splat(tile.scale);
    const Lanes lanes = first_lanes(is_partial ? tile.columns - c - (vectors - 1) * kLanes : kLanes);
    Floats bias[vectors];
#pragma GCC unroll 32
    for (int v = 0; v < vectors; ++v) bias[v] = tile.bias != nullptr ? load(tile.bias + c + v * kLanes) : Floats{};
    // Local copies, since a store might alias the tile.
    const bool adds = tile.residual != nullptr;
    const std::int64_t y_stride = tile.y_stride, residual_stride = adds ? tile.residual_stride : 0;
    const float* residual = adds ? tile.residual + c : nullptr;
    float* y = tile.y + c;
#pragma GCC unroll 32
    for (int r = 0; r < count; ++r, y += y_stride, residual += residual_stride)
#pragma GCC unroll 32
        for (int v = 0; v < vectors; ++v) {
            const bool masked = is_partial && v + 1 == vectors;
            Floats value = accumulators[r][v] * scale + bias[v];
            if (adds) value += masked ? load_lanes(residual + v * kLanes, lanes) : load(residual + v * kLanes);
            if (masked)
                store_lanes(y + v * kLanes, clamp(value, low, high), lanes);
            else
                store(y + v * kLanes, clamp(value, low, high));
        }
}

// Products of f32.
struct FloatProduct {
    using Broadcast = Floats;
    DOVETAIL_INLINE Broadcast broadcast(const float* from) { return splat(*from); }
    DOVETAIL_INLINE void add(Floats& sum, Broadcast x, Floats w) { add_product(sum, x, w); }
};

// Dot products of two bf16, which take the place of one float in memory.
struct Bf16Product {
    using Broadcast = Words;
    DOVETAIL_INLINE Broadcast broadcast(const float* from) {
        std::uint32_t pair;
        __builtin_memcpy(&pair, from, sizeof pair);
        return Words{} + pair;
    }
    DOVETAIL_INLINE void add(Floats& sum, Broadcast x, Floats w) { sum = add_pairs(sum, (Words)w, x); }
};

// `is_ordered`: one chain for any number of rows, so that equal rows give equal sums.
template <int count, int vectors, typename Product, bool is_ordered>
void multiply_tile(const GemmTile& tile) {
    prefetch_results<count, vectors>(tile);
    constexpr int chains = chains_of<is_ordered>(count);
    Floats accumulators[chains][count][vectors];
#pragma GCC unroll 32
    for (int c = 0; c < chains; ++c)
#pragma GCC unroll 32
        for (int r = 0; r < count; ++r)
#pragma GCC unroll 32
            for (int v = 0; v < vectors; ++v) accumulators[c][r][v] = Floats{};
    if (tile.initial != nullptr) {
        Floats initial[count * vectors] = {};
        load_initial(tile, initial, count, vectors);
#pragma GCC unroll 32
        for (int r = 0; r < count; ++r)
#pragma GCC unroll 32
            for (int v = 0; v < vectors; ++v) accumulators[0][r][v] = initial[r * vectors + v];
    }

    const std::int64_t* rows = tile.rows;
    const float* weights = tile.weights;
    constexpr int width = vectors * kLanes;
    const bool is_dense = tile.weights_stride == width;
    const std::int64_t length = tile.length, stride = tile.weights_stride, next_weights_step = tile.next_weights_step;
    const float* next_weights = tile.next_weights;
    for (std::int64_t s = 0; s < tile.segments; ++s, rows += count) {
        const float* at[count];
#pragma GCC unroll 32
        for (int r = 0; r < count; ++r) at[r] = tile.base + rows[r];
        const std::int64_t next_input = s + 1 < tile.segments ? 0 : tile.next_input;
        // The input of the next tile is prefetched line by line; prefetching all lines at once would delay the loads of this
        // tile.
        std::int64_t k = 0;
        do {
            const std::int64_t last = next_input != 0 && k + kLine < length ? k + kLine : length;
            if (next_input != 0)
#pragma GCC unroll 32
                for (int r = 0; r < count; ++r) __builtin_prefetch(at[r] + k + next_input, 0, 2);
            if constexpr (chains > 1)
                for (; k + chains <= last; k += chains, weights += chains * stride)
#pragma GCC unroll 32
                    for (int c = 0; c < chains; ++c)
#pragma GCC unroll 32
                        for (int v = 0; v < vectors; ++v) {
                            const float* w = weights + c * stride + v * kLanes;
                            prefetch_weights(w, is_dense, stride);
#pragma GCC unroll 32
                            for (int r = 0; r < count; ++r)
                                Product::add(accumulators[c][r][v], Product::broadcast(at[r] + k + c), load(w));
                        }
            if constexpr (kUnroll > 1)
                for (; is_dense && k + kUnroll <= last;
                     k += kUnroll, weights += kUnroll * width, next_weights += kUnroll * next_weights_step) {
                    if (next_weights_step != 0) __builtin_prefetch(next_weights, 0, 2);
#pragma GCC unroll 4
                    for (int i = 0; i < kUnroll; ++i) {
                        Floats w[vectors];
#pragma GCC unroll 32
                        for (int v = 0; v < vectors; ++v) w[v] = load(weights + i * width + v * kLanes);
#pragma GCC unroll 32
                        for (int r = 0; r < count; ++r) {
                            const auto x = Product::broadcast(at[r] + k + i);
#pragma GCC unroll 32
                            for (int v = 0; v < vectors; ++v) Product::add(accumulators[0][r][v], x, w[v]);
                        }
                    }
                }
            for (; k < last; ++k, weights += stride, next_weights += next_weights_step) {
                __builtin_prefetch(next_weights, 0, 2);
                Floats w[vectors];
#pragma GCC unroll 32
                for (int v = 0; v < vectors; ++v) {
                    w[v] = load(weights + v * kLanes);
                    prefetch_weights(weights + v * kLanes, is_dense, stride);
                }
#pragma GCC unroll 32
                for (int r = 0; r < count; ++r) {
                    const auto x = Product::broadcast(at[r] + k);
#pragma GCC unroll 32
                    for (int v = 0; v < vectors; ++v) Product::add(accumulators[0][r][v], x, w[v]);
                }
            }
        } while (k < length);
    }
#pragma GCC unroll 32
    for (int c = 1; c < chains; ++c)
#pragma GCC unroll 32
        for (int r = 0; r < count; ++r)
#pragma GCC unroll 32
            for (int v = 0; v < vectors; ++v) accumulators[0][r][v] += accumulators[c][r][v];

    if (!tile.has_epilogue && tile.columns == vectors * kLanes) {
        float* y = tile.y;
#pragma GCC unroll 32
        for (int r = 0; r < count; ++r, y += tile.y_stride)
#pragma GCC unroll 32
            for (int v = 0; v < vectors; ++v) store(y + v * kLanes, accumulators[0][r][v]);
        return;
    }
    if (is_simple(tile) && tile.columns == vectors * kLanes) return store_tile<count, vectors, false>(tile, accumulators[0], 0);
    if (is_simple(tile) && tile.columns > (vectors - 1) * kLanes)
        return store_tile<count, vectors, true>(tile, accumulators[0], 0);
    Floats stored[count * vectors];
#pragma GCC unroll 32
    for (int r = 0; r < count; ++r)
#pragma GCC unroll 32
        for (int v = 0; v < vectors; ++v) stored[r * vectors + v] = accumulators[0][r][v];
    store_any(tile, stored, count, vectors, 0);
}

template <int count, int vectors, typename Product, bool is_ordered>
constexpr GemmFunction kernel_of() {
    if constexpr (count > kRows[vectors - 1])
        return nullptr;
    else {
        constexpr bool is_single_chain = is_ordered ? count < kMinSingleChainRows : false;
        return multiply_tile<count, vectors, Product, is_single_chain>;
    }
}

template <int... rows>
struct Rows {};

template <int vectors, typename Product, bool is_ordered, int... rows>
constexpr void set_row(GemmKernels& kernels, Rows<rows...>) {
    ((kernels.tile[vectors - 1][rows] = kernel_of<rows + 1, vectors, Product, is_ordered>()), ...);
}

template <typename Product, bool is_ordered = false>
constexpr GemmKernels tiles_of() {
    GemmKernels kernels{kLanes, {kRows[0], kRows[1], kRows[2], kRows[3]}, {}, {}, {}};
    constexpr Rows<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13> rows;
    set_row<1, Product, is_ordered>(kernels, rows);
    set_row<2, Product, is_ordered>(kernels, rows);
    set_row<3, Product, is_ordered>(kernels, rows);
    set_row<4, Product, is_ordered>(kernels, rows);
    return kernels;
}

}  // namespace
}  // namespace dovetail::DOVETAIL_ISA
