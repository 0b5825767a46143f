// GEMM micro-kernels, compiled for each instruction set.
#include "kernels/gemm_microkernel.h"

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

// Prefetch distance of weights in floats. Each tile reads its weights once, mostly from L2. The distance reaches across the end
// of a panel into the next panel.
constexpr int kPrefetchFloats = 1024;

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
constexpr int chains_of(int count) { return count >= kMinSingleChainRows ? 1 : count >= 2 ? 2 : 4; }

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

template <int count, int vectors>
void multiply_tile(const GemmTile& tile) {
    prefetch_results<count, vectors>(tile);
    constexpr int chains = chains_of(count);
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
                            __builtin_prefetch(w + kPrefetchFloats);
#pragma GCC unroll 32
                            for (int r = 0; r < count; ++r) add_product(accumulators[c][r][v], splat(at[r][k + c]), load(w));
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
                            const Floats x = splat(at[r][k + i]);
#pragma GCC unroll 32
                            for (int v = 0; v < vectors; ++v) add_product(accumulators[0][r][v], x, w[v]);
                        }
                    }
                }
            for (; k < last; ++k, weights += stride, next_weights += next_weights_step) {
                __builtin_prefetch(next_weights, 0, 2);
                Floats w[vectors];
#pragma GCC unroll 32
                for (int v = 0; v < vectors; ++v) {
                    w[v] = load(weights + v * kLanes);
                    __builtin_prefetch(weights + v * kLanes + kPrefetchFloats);
                }
#pragma GCC unroll 32
                for (int r = 0; r < count; ++r) {
                    const Floats x = splat(at[r][k]);
#pragma GCC unroll 32
                    for (int v = 0; v < vectors; ++v) add_product(accumulators[0][r][v], x, w[v]);
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

template <int count, int vectors>
constexpr GemmFunction kernel_of() {
    if constexpr (count > kRows[vectors - 1])
        return nullptr;
    else
        return multiply_tile<count, vectors>;
}

#define DOVETAIL_UP_TO_14(of) \
    {of(1), of(2), of(3), of(4), of(5), of(6), of(7), of(8), of(9), of(10), of(11), of(12), of(13), of(14)}
#define DOVETAIL_1(count) kernel_of<count, 1>()
#define DOVETAIL_2(count) kernel_of<count, 2>()
#define DOVETAIL_3(count) kernel_of<count, 3>()
#define DOVETAIL_4(count) kernel_of<count, 4>()

}  // namespace

extern const GemmKernels gemm_kernel_table;
const GemmKernels gemm_kernel_table = {
    kLanes,
    {kRows[0], kRows[1], kRows[2], kRows[3]},
    {DOVETAIL_UP_TO_14(DOVETAIL_1), DOVETAIL_UP_TO_14(DOVETAIL_2), DOVETAIL_UP_TO_14(DOVETAIL_3), DOVETAIL_UP_TO_14(DOVETAIL_4)},
    {depthwise_tile<1>, depthwise_tile<2>, depthwise_tile<3>, depthwise_tile<4>, depthwise_tile<5>, depthwise_tile<6>,
     depthwise_tile<7>, depthwise_tile<8>},
    {depthwise_triples<1>, depthwise_triples<2>, depthwise_triples<3>, depthwise_triples<4>, depthwise_triples<5>,
     depthwise_triples<6>, depthwise_triples<7>, depthwise_triples<8>},
};

}  // namespace dovetail::DOVETAIL_ISA
