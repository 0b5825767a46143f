// Register tiles: written once, compiled for each instruction set.
#include "kernels/product.h"

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace dovetail::DOVETAIL_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
constexpr int kRows[kMostVectors] = {14, 14, 9, 6};
#elif defined(__AVX2__)
constexpr int kLanes = 8;
constexpr int kRows[kMostVectors] = {12, 6, 4, 0};
#else
constexpr int kLanes = 4;
constexpr int kRows[kMostVectors] = {12, 6, 4, 0};
#endif

typedef float Vector __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));

inline Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
inline void store(float* to, Vector value) { *reinterpret_cast<Vector*>(to) = value; }

#if defined(__AVX512F__)
inline Vector load_part(const float* from, std::int64_t count) {
    return static_cast<Vector>(_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), from));
}
inline void store_part(float* to, Vector value, std::int64_t count) {
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << count) - 1), static_cast<__m512>(value));
}
#else
inline Vector load_part(const float* from, std::int64_t count) {
    Vector value{};
    for (std::int64_t i = 0; i < count; ++i) value[i] = from[i];
    return value;
}
inline void store_part(float* to, Vector value, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = value[i];
}
#endif

// `count` floats of a vector; `whole` is known when this is compiled wherever it matters.
inline Vector load_some(const float* from, std::int64_t count) { return count >= kLanes ? load(from) : load_part(from, count); }
inline void store_some(float* to, Vector value, std::int64_t count) {
    if (count >= kLanes)
        store(to, value);
    else
        store_part(to, value, count);
}

// Written so that a NaN passes, as the processor's own minimum and maximum let it with the operands in this order.
inline Vector bounded(Vector value, Vector low, Vector high) {
#if defined(__AVX512F__)
    constexpr __mmask16 all = 0xffff;
    return static_cast<Vector>(_mm512_maskz_min_ps(all, high, _mm512_maskz_max_ps(all, low, value)));
#elif defined(__AVX2__)
    return static_cast<Vector>(_mm256_min_ps(high, _mm256_max_ps(low, value)));
#else
    value = low > value ? low : value;
    return high < value ? high : value;
#endif
}

// The end of a tile of any kind, from sums that were put into memory.
void finish_any(const ProductTile& tile, const Vector* sums, int count, int vectors) {
    const Vector low = Vector{} + tile.low, high = Vector{} + tile.high;
    for (int r = 0; r < count; ++r)
        for (int v = 0; v < vectors && v * kLanes < tile.columns; ++v) {
            const std::int64_t column = v * kLanes, some = tile.columns - column;
            Vector value = sums[r * vectors + v];
            if (tile.finishes) {
                value *= tile.scale;
                if (tile.bias != nullptr) value += load(tile.bias + column);
                Vector residual{};
                if (tile.residual != nullptr) residual = load_some(tile.residual + r * tile.residual_stride + column, some);
                if (!tile.residual_last) value += residual;
                value = bounded(value, low, high);
                if (tile.residual_last) value += residual;
            }
            store_some(tile.y + r * tile.y_stride + column, value, some);
        }
}

// What a sum goes on from.
void begin_any(const ProductTile& tile, Vector* sums, int count, int vectors) {
    for (int r = 0; r < count; ++r)
        for (int v = 0; v < vectors && v * kLanes < tile.columns; ++v)
            sums[r * vectors + v] = load_some(tile.y + r * tile.y_stride + v * kLanes, tile.columns - v * kLanes);
}

// Sums of a tile that is too small to keep the processor's adders busy are made in several independent chains.
constexpr int chains_of(int count, int vectors) { return count * vectors >= 8 ? 1 : count * vectors >= 4 ? 2 : 4; }

// Weights are read once for each tile, mostly from the second level of cache; asked for so many floats ahead, across the end of a panel
// into the next, they arrive in time.
constexpr int kAhead = 1024;

template <int count, int vectors>
void tile_of(const ProductTile& tile) {
    constexpr int chains = chains_of(count, vectors);
    Vector sums[chains][count][vectors];
#pragma GCC unroll 32
    for (int c = 0; c < chains; ++c)
#pragma GCC unroll 32
        for (int r = 0; r < count; ++r)
#pragma GCC unroll 32
            for (int v = 0; v < vectors; ++v) sums[c][r][v] = Vector{};
    if (tile.continues) {
        Vector before[count * vectors] = {};
        begin_any(tile, before, count, vectors);
#pragma GCC unroll 32
        for (int r = 0; r < count; ++r)
#pragma GCC unroll 32
            for (int v = 0; v < vectors; ++v) sums[0][r][v] = before[r * vectors + v];
    }

    const std::int64_t* rows = tile.rows;
    const float* weights = tile.weights;
    const std::int64_t length = tile.length, stride = tile.weights_stride;
    for (std::int64_t s = 0; s < tile.segments; ++s, rows += count) {
        const float* at[count];
#pragma GCC unroll 32
        for (int r = 0; r < count; ++r) at[r] = tile.base + rows[r];
        std::int64_t k = 0;
        if constexpr (chains > 1)
            for (; k + chains <= length; k += chains, weights += chains * stride)
#pragma GCC unroll 32
                for (int c = 0; c < chains; ++c)
#pragma GCC unroll 32
                    for (int r = 0; r < count; ++r)
#pragma GCC unroll 32
                        for (int v = 0; v < vectors; ++v) {
                            const float* w = weights + c * stride + v * kLanes;
                            if (r == 0) __builtin_prefetch(w + kAhead);
                            sums[c][r][v] += at[r][k + c] * load(w);
                        }
        for (; k < length; ++k, weights += stride) {
            Vector w[vectors];
#pragma GCC unroll 32
            for (int v = 0; v < vectors; ++v) {
                w[v] = load(weights + v * kLanes);
                __builtin_prefetch(weights + v * kLanes + kAhead);
            }
#pragma GCC unroll 32
            for (int r = 0; r < count; ++r) {
                const float x = at[r][k];
#pragma GCC unroll 32
                for (int v = 0; v < vectors; ++v) sums[0][r][v] += x * w[v];
            }
        }
    }
#pragma GCC unroll 32
    for (int c = 1; c < chains; ++c)
#pragma GCC unroll 32
        for (int r = 0; r < count; ++r)
#pragma GCC unroll 32
            for (int v = 0; v < vectors; ++v) sums[0][r][v] += sums[c][r][v];

    if (tile.finishes && tile.columns == vectors * kLanes && !tile.residual_last) {
        const Vector low = Vector{} + tile.low, high = Vector{} + tile.high, scale = Vector{} + tile.scale;
        Vector bias[vectors];
#pragma GCC unroll 32
        for (int v = 0; v < vectors; ++v) bias[v] = tile.bias != nullptr ? load(tile.bias + v * kLanes) : Vector{};
#pragma GCC unroll 32
        for (int r = 0; r < count; ++r)
#pragma GCC unroll 32
            for (int v = 0; v < vectors; ++v) {
                Vector value = sums[0][r][v] * scale + bias[v];
                if (tile.residual != nullptr) value += load(tile.residual + r * tile.residual_stride + v * kLanes);
                store(tile.y + r * tile.y_stride + v * kLanes, bounded(value, low, high));
            }
        return;
    }
    Vector kept[count * vectors];
#pragma GCC unroll 32
    for (int r = 0; r < count; ++r)
#pragma GCC unroll 32
        for (int v = 0; v < vectors; ++v) kept[r * vectors + v] = sums[0][r][v];
    finish_any(tile, kept, count, vectors);
}

template <int count, int vectors>
constexpr ProductFunction function_of() {
    if constexpr (count <= kRows[vectors - 1])
        return tile_of<count, vectors>;
    else
        return nullptr;
}

#define DOVETAIL_ROW(v)                                                                                                          \
    {function_of<1, v>(), function_of<2, v>(), function_of<3, v>(), function_of<4, v>(), function_of<5, v>(), function_of<6, v>(), \
     function_of<7, v>(), function_of<8, v>(), function_of<9, v>(), function_of<10, v>(), function_of<11, v>(),                   \
     function_of<12, v>(), function_of<13, v>(), function_of<14, v>()}

}  // namespace

extern const ProductTable products;
const ProductTable products = {kLanes,
                         {kRows[0], kRows[1], kRows[2], kRows[3]},
                         {DOVETAIL_ROW(1), DOVETAIL_ROW(2), DOVETAIL_ROW(3), DOVETAIL_ROW(4)}};

}  // namespace dovetail::DOVETAIL_ISA
