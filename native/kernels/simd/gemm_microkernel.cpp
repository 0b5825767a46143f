// Tiles of a matrix product in registers: written once, compiled for each instruction set.
#include "kernels/gemm_microkernel.h"

#include "kernels/simd/epilogue.h"
#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

// As many rows as leave registers for the weights and for one element.
#if defined(__AVX512F__)
constexpr int kRows[kMostVectors] = {14, 14, 9, 6};
#else
constexpr int kRows[kMostVectors] = {12, 6, 4, 0};
#endif

// Weights are read once by each tile, mostly from the second level of cache: asked for so many floats ahead, across the end of a
// panel into the next, they arrive in time.
constexpr int kAhead = 1024;

// Floats of a cache line.
constexpr int kLine = 16;

// Positions that are multiplied without asking for anything in between: where a vector is short, questions and prefetches are a good
// part of the instructions, and a processor that runs a second thread on the same adders has no room for them. Weights that lie one
// behind the other it fetches by itself.
#if defined(__AVX512F__)
constexpr int kTogether = 1;
#else
constexpr int kTogether = 4;
#endif

// Sums of a tile that is too small to keep the processor's adders busy are made in several independent chains. How many must not
// depend on the columns: the last, narrower panel adds up in the same order as the others, so that equal columns give equal sums.
#if defined(__AVX512F__)
constexpr int kOneChain = 4;
#else
constexpr int kOneChain = 3;
#endif
constexpr int chains_of(int count) { return count >= kOneChain ? 1 : count >= 2 ? 2 : 4; }

// The end of a tile of any kind, from sums that were put into memory.
void finish_any(const ProductTile& tile, const Floats* sums, int count, int vectors) {
    for (int r = 0; r < count; ++r)
        for (int v = 0; v < vectors && v * kLanes < tile.columns; ++v) {
            const std::int64_t column = v * kLanes, some = tile.columns - column;
            Floats value = sums[r * vectors + v];
            if (tile.finishes) value = finished(tile, value, r, column, some);
            store_some(tile.y + r * tile.y_stride + column, value, some);
        }
}

// What sums go on from.
void begin_any(const ProductTile& tile, Floats* sums, int count, int vectors) {
    for (int r = 0; r < count; ++r)
        for (int v = 0; v < vectors && v * kLanes < tile.columns; ++v)
            sums[r * vectors + v] = load_some(tile.from + r * tile.from_stride + v * kLanes, tile.columns - v * kLanes);
}

// A tile's results lie far from each other: their places are asked for before its sums are made.
template <int count, int vectors>
DOVETAIL_INLINE void expect(const ProductTile& tile) {
#pragma GCC unroll 32
    for (int r = 0; r < count; ++r)
        for (int j = 0; j < vectors * kLanes; j += kLine) {
            __builtin_prefetch(tile.y + r * tile.y_stride + j, 1);
            if (tile.residual != nullptr) __builtin_prefetch(tile.residual + r * tile.residual_stride + j);
        }
}

// Whether bounds are all there is to a tile's end beside its scale, bias and residual.
DOVETAIL_INLINE bool is_simple(const ProductTile& tile) {
    return tile.finishes && !tile.residual_last && tile.activation == Activation::bounds;
}

// The end of a simple tile from column `c` on, of whose last vector only a part may be there: a whole one is written without a
// mask, which costs less.
template <int count, int vectors, bool partly>
DOVETAIL_INLINE void finish_tile(const ProductTile& tile, const Floats (&sums)[count][vectors], std::int64_t c) {
    const Floats low = splat(tile.low), high = splat(tile.high), scale = splat(tile.scale);
    const Lanes lanes = first_lanes(partly ? tile.columns - c - (vectors - 1) * kLanes : kLanes);
    Floats bias[vectors];
#pragma GCC unroll 32
    for (int v = 0; v < vectors; ++v) bias[v] = tile.bias != nullptr ? load(tile.bias + c + v * kLanes) : Floats{};
    // Copies, since for all the compiler knows a store might change the tile.
    const bool adds = tile.residual != nullptr;
    const std::int64_t y_stride = tile.y_stride, residual_stride = adds ? tile.residual_stride : 0;
    const float* residual = adds ? tile.residual + c : nullptr;
    float* y = tile.y + c;
#pragma GCC unroll 32
    for (int r = 0; r < count; ++r, y += y_stride, residual += residual_stride)
#pragma GCC unroll 32
        for (int v = 0; v < vectors; ++v) {
            const bool masked = partly && v + 1 == vectors;
            Floats value = sums[r][v] * scale + bias[v];
            if (adds) value += masked ? load_lanes(residual + v * kLanes, lanes) : load(residual + v * kLanes);
            if (masked)
                store_lanes(y + v * kLanes, bounded(value, low, high), lanes);
            else
                store(y + v * kLanes, bounded(value, low, high));
        }
}

template <int count, int vectors>
void tile_of(const ProductTile& tile) {
    expect<count, vectors>(tile);
    constexpr int chains = chains_of(count);
    Floats sums[chains][count][vectors];
#pragma GCC unroll 32
    for (int c = 0; c < chains; ++c)
#pragma GCC unroll 32
        for (int r = 0; r < count; ++r)
#pragma GCC unroll 32
            for (int v = 0; v < vectors; ++v) sums[c][r][v] = Floats{};
    if (tile.from != nullptr) {
        Floats before[count * vectors] = {};
        begin_any(tile, before, count, vectors);
#pragma GCC unroll 32
        for (int r = 0; r < count; ++r)
#pragma GCC unroll 32
            for (int v = 0; v < vectors; ++v) sums[0][r][v] = before[r * vectors + v];
    }

    const std::int64_t* rows = tile.rows;
    const float* weights = tile.weights;
    constexpr int width = vectors * kLanes;
    const bool is_dense = tile.weights_stride == width;
    const std::int64_t length = tile.length, stride = tile.weights_stride, next_step = tile.next_step;
    const float* next = tile.next;
    for (std::int64_t s = 0; s < tile.segments; ++s, rows += count) {
        const float* at[count];
#pragma GCC unroll 32
        for (int r = 0; r < count; ++r) at[r] = tile.base + rows[r];
        const std::int64_t ahead = s + 1 < tile.segments ? 0 : tile.ahead;
        // What the next tile reads is asked for line by line: all at once it would hold up the loads of this one.
        std::int64_t k = 0;
        do {
            const std::int64_t last = ahead != 0 && k + kLine < length ? k + kLine : length;
            if (ahead != 0)
#pragma GCC unroll 32
                for (int r = 0; r < count; ++r) __builtin_prefetch(at[r] + k + ahead, 0, 2);
            if constexpr (chains > 1)
                for (; k + chains <= last; k += chains, weights += chains * stride)
#pragma GCC unroll 32
                    for (int c = 0; c < chains; ++c)
#pragma GCC unroll 32
                        for (int v = 0; v < vectors; ++v) {
                            const float* w = weights + c * stride + v * kLanes;
                            __builtin_prefetch(w + kAhead);
#pragma GCC unroll 32
                            for (int r = 0; r < count; ++r) add_product(sums[c][r][v], splat(at[r][k + c]), load(w));
                        }
            if constexpr (kTogether > 1)
                for (; is_dense && k + kTogether <= last; k += kTogether, weights += kTogether * width, next += kTogether * next_step) {
                    if (next_step != 0) __builtin_prefetch(next, 0, 2);
#pragma GCC unroll 4
                    for (int i = 0; i < kTogether; ++i) {
                        Floats w[vectors];
#pragma GCC unroll 32
                        for (int v = 0; v < vectors; ++v) w[v] = load(weights + i * width + v * kLanes);
#pragma GCC unroll 32
                        for (int r = 0; r < count; ++r) {
                            const Floats x = splat(at[r][k + i]);
#pragma GCC unroll 32
                            for (int v = 0; v < vectors; ++v) add_product(sums[0][r][v], x, w[v]);
                        }
                    }
                }
            for (; k < last; ++k, weights += stride, next += next_step) {
                __builtin_prefetch(next, 0, 2);
                Floats w[vectors];
#pragma GCC unroll 32
                for (int v = 0; v < vectors; ++v) {
                    w[v] = load(weights + v * kLanes);
                    __builtin_prefetch(weights + v * kLanes + kAhead);
                }
#pragma GCC unroll 32
                for (int r = 0; r < count; ++r) {
                    const Floats x = splat(at[r][k]);
#pragma GCC unroll 32
                    for (int v = 0; v < vectors; ++v) add_product(sums[0][r][v], x, w[v]);
                }
            }
        } while (k < length);
    }
#pragma GCC unroll 32
    for (int c = 1; c < chains; ++c)
#pragma GCC unroll 32
        for (int r = 0; r < count; ++r)
#pragma GCC unroll 32
            for (int v = 0; v < vectors; ++v) sums[0][r][v] += sums[c][r][v];

    if (is_simple(tile) && tile.columns == vectors * kLanes) return finish_tile<count, vectors, false>(tile, sums[0], 0);
    if (is_simple(tile) && tile.columns > (vectors - 1) * kLanes) return finish_tile<count, vectors, true>(tile, sums[0], 0);
    Floats kept[count * vectors];
#pragma GCC unroll 32
    for (int r = 0; r < count; ++r)
#pragma GCC unroll 32
        for (int v = 0; v < vectors; ++v) kept[r * vectors + v] = sums[0][r][v];
    finish_any(tile, kept, count, vectors);
}

// The end of a tile by channels: `count` rows of one vector, of which `some` elements are there.
template <int count>
DOVETAIL_INLINE void finish_channels(const ProductTile& tile, const Floats (&sums)[count][1], std::int64_t c, std::int64_t some) {
    if (is_simple(tile) && some >= kLanes) return finish_tile<count, 1, false>(tile, sums, c);
    if (is_simple(tile)) return finish_tile<count, 1, true>(tile, sums, c);
    Floats kept[count];
#pragma GCC unroll 32
    for (int r = 0; r < count; ++r) kept[r] = sums[r][0];
    for (int r = 0; r < count; ++r) store_some(tile.y + r * tile.y_stride + c, finished(tile, kept[r], r, c, some), some);
}

// One vector of channels at a time, each tap times a weight of its own.
template <int count>
void channels_of(const ProductTile& tile) {
    for (std::int64_t c = 0; c < tile.columns; c += kLanes) {
        const std::int64_t some = tile.columns - c;
        const Lanes lanes = first_lanes(some < kLanes ? some : kLanes);
        Floats sums[count][1];
#pragma GCC unroll 32
        for (int r = 0; r < count; ++r) sums[r][0] = Floats{};
        const std::int64_t* rows = tile.rows;
        const float *base = tile.base + c, *weights = tile.weights + c;
        for (std::int64_t s = 0; s < tile.segments; ++s, rows += count, weights += tile.weights_stride) {
            const Floats w = load(weights);
            if (some >= kLanes)
#pragma GCC unroll 32
                for (int r = 0; r < count; ++r) sums[r][0] += load(base + rows[r]) * w;
            else
#pragma GCC unroll 32
                for (int r = 0; r < count; ++r) sums[r][0] += load_lanes(base + rows[r], lanes) * w;
        }
        finish_channels<count>(tile, sums, c, some);
    }
}

// The pixels that two taps side by side read are the same but for one: each is loaded once for all three taps of a row. Of every
// three segments the rows say where the first and the last tap of each output read.
template <int count>
void channels_in_threes(const ProductTile& tile) {
    for (std::int64_t c = 0; c < tile.columns; c += kLanes) {
        const std::int64_t some = tile.columns - c;
        const Lanes lanes = first_lanes(some < kLanes ? some : kLanes);
        Floats sums[count][1];
#pragma GCC unroll 32
        for (int r = 0; r < count; ++r) sums[r][0] = Floats{};
        const std::int64_t* rows = tile.rows;
        const float *base = tile.base + c, *weights = tile.weights + c;
        for (std::int64_t s = 0; s + 3 <= tile.segments; s += 3, rows += 3 * count, weights += 3 * tile.weights_stride) {
            const Floats w[3] = {load(weights), load(weights + tile.weights_stride), load(weights + 2 * tile.weights_stride)};
#pragma GCC unroll 32
            for (int p = 0; p < count + 2; ++p) {
                const float* from = base + rows[p < count ? p : 2 * count + p - 2];
                const Floats x = some >= kLanes ? load(from) : load_lanes(from, lanes);
                __builtin_prefetch(from + kLanes);
#pragma GCC unroll 3
                for (int t = 0; t < 3; ++t)
                    if (p >= t && p - t < count) sums[p - t][0] += x * w[t];
            }
        }
        finish_channels<count>(tile, sums, c, some);
    }
}

template <int count, int vectors>
constexpr ProductFunction function_of() {
    if constexpr (count > kRows[vectors - 1])
        return nullptr;
    else
        return tile_of<count, vectors>;
}

#define DOVETAIL_UP_TO_14(of) \
    {of(1), of(2), of(3), of(4), of(5), of(6), of(7), of(8), of(9), of(10), of(11), of(12), of(13), of(14)}
#define DOVETAIL_1(count) function_of<count, 1>()
#define DOVETAIL_2(count) function_of<count, 2>()
#define DOVETAIL_3(count) function_of<count, 3>()
#define DOVETAIL_4(count) function_of<count, 4>()

}  // namespace

extern const ProductTable products;
const ProductTable products = {
    kLanes,
    {kRows[0], kRows[1], kRows[2], kRows[3]},
    {DOVETAIL_UP_TO_14(DOVETAIL_1), DOVETAIL_UP_TO_14(DOVETAIL_2), DOVETAIL_UP_TO_14(DOVETAIL_3), DOVETAIL_UP_TO_14(DOVETAIL_4)},
    {channels_of<1>, channels_of<2>, channels_of<3>, channels_of<4>, channels_of<5>, channels_of<6>, channels_of<7>,
     channels_of<8>},
    {channels_in_threes<1>, channels_in_threes<2>, channels_in_threes<3>, channels_in_threes<4>, channels_in_threes<5>,
     channels_in_threes<6>, channels_in_threes<7>, channels_in_threes<8>},
};

}  // namespace dovetail::DOVETAIL_ISA
