// The epilogue of a tile: operations on the accumulators before the results are written.
#pragma once

#include "kernels/gemm_microkernel.h"
#include "kernels/simd/math.h"
#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {

DOVETAIL_INLINE Floats load_partial(const float* from, std::int64_t count) {
    return count >= kLanes ? load(from) : load_first(from, count);
}
DOVETAIL_INLINE void store_partial(float* to, Floats value, std::int64_t count) {
    if (count >= kLanes)
        store(to, value);
    else
        store_first(to, value, count);
}

// Masks of the first 1 .. kLanes elements; a masked load costs as much as a whole one.
#if defined(__AVX512F__)
typedef __mmask16 Lanes;
DOVETAIL_INLINE Lanes first_lanes(std::int64_t count) { return (Lanes)(0xffffu >> (kLanes - count)); }
DOVETAIL_INLINE Floats load_lanes(const float* from, Lanes lanes) { return (Floats)_mm512_maskz_loadu_ps(lanes, from); }
DOVETAIL_INLINE void store_lanes(float* to, Floats value, Lanes lanes) { _mm512_mask_storeu_ps(to, lanes, (__m512)value); }
#elif defined(__AVX2__)
typedef Ints Lanes;
DOVETAIL_INLINE Lanes first_lanes(std::int64_t count) { return Ints{0, 1, 2, 3, 4, 5, 6, 7} < (std::int32_t)count; }
DOVETAIL_INLINE Floats load_lanes(const float* from, Lanes lanes) { return (Floats)_mm256_maskload_ps(from, (__m256i)lanes); }
DOVETAIL_INLINE void store_lanes(float* to, Floats value, Lanes lanes) { _mm256_maskstore_ps(to, (__m256i)lanes, (__m256)value); }
#else
typedef std::int64_t Lanes;
DOVETAIL_INLINE Lanes first_lanes(std::int64_t count) { return count; }
DOVETAIL_INLINE Floats load_lanes(const float* from, Lanes lanes) { return load_partial(from, lanes); }
DOVETAIL_INLINE void store_lanes(float* to, Floats value, Lanes lanes) { store_partial(to, value, lanes); }
#endif

// A NaN stays a NaN: greater_of and lesser_of return the second operand if the comparison fails.
DOVETAIL_INLINE Floats clamp(Floats value, Floats low, Floats high) { return lesser_of(high, greater_of(low, value)); }

DOVETAIL_INLINE Floats apply_activation(Activation activation, float alpha, Floats x) {
    switch (activation) {
        case Activation::leaky_relu: return x < 0.0f ? x * alpha : x;
        case Activation::elu: return x < 0.0f ? expm1(x) * alpha : x;
        case Activation::sigmoid: return sigmoid(x);
        case Activation::silu: return silu(x);
        case Activation::tanh: return tanh(x);
        case Activation::hardswish: return x * clamp(x * (1.0f / 6) + 0.5f, Floats{}, splat(1.0f));
        case Activation::gelu_erf: return gelu_erf(x);
        case Activation::gelu_tanh: return gelu_tanh(x);
        default: return x;
    }
}

// True if the epilogue has only scale, bias, residual and bounds.
DOVETAIL_INLINE bool is_simple(const GemmTile& tile) {
    return tile.has_epilogue && !tile.residual_last && !tile.is_rescaled && tile.activation == Activation::bounds;
}

// The epilogue of `count` rows of `vectors` vectors, from column `first` on, with one activation. Choosing the activation per
// vector would prevent the overlap of the rows.
template <Activation activation>
DOVETAIL_INLINE void store_activated(const GemmTile& tile, const Floats* accumulators, int count, int vectors,
                                     std::int64_t first) {
    const Floats low = splat(tile.low), high = splat(tile.high), scale = splat(tile.scale);
    const float alpha = tile.alpha, *residual = tile.residual;
    const bool adds = residual != nullptr, is_last = tile.residual_last, is_rescaled = tile.is_rescaled;
    const Floats output_scale = splat(tile.output_scale), output_shift = splat(tile.output_shift);
    for (int v = 0; v < vectors && first + v * kLanes < tile.columns; ++v) {
        const std::int64_t column = first + v * kLanes, valid = tile.columns - column;
        const Floats bias = tile.bias != nullptr ? load_partial(tile.bias + column, valid) : Floats{};
        const auto store_row = [&](int r, bool is_whole) __attribute__((always_inline)) {
            Floats value = accumulators[r * vectors + v] * scale + bias, added{};
            if (adds) {
                const float* from = residual + r * tile.residual_stride + column;
                added = is_whole ? load(from) : load_partial(from, valid);
                if (!is_last) value += added;
            }
            value = apply_activation(activation, alpha, clamp(value, low, high));
            if (is_rescaled) value = fma(value, output_scale, output_shift);
            if (adds && is_last) value += added;
            float* to = tile.y + r * tile.y_stride + column;
            if (is_whole)
                store(to, value);
            else
                store_partial(to, value, valid);
        };
        if (valid >= kLanes)
            for (int r = 0; r < count; ++r) store_row(r, true);
        else
            for (int r = 0; r < count; ++r) store_row(r, false);
    }
}

// Writes accumulators through the epilogue of any tile.
static inline void store_any(const GemmTile& tile, const Floats* accumulators, int count, int vectors, std::int64_t first) {
    if (!tile.has_epilogue) {
        for (int r = 0; r < count; ++r)
            for (int v = 0; v < vectors && first + v * kLanes < tile.columns; ++v) {
                const std::int64_t column = first + v * kLanes;
                store_partial(tile.y + r * tile.y_stride + column, accumulators[r * vectors + v], tile.columns - column);
            }
        return;
    }
#define DOVETAIL_STORE(name) \
    case Activation::name: return store_activated<Activation::name>(tile, accumulators, count, vectors, first)
    switch (tile.activation) {
        DOVETAIL_STORE(bounds);
        DOVETAIL_STORE(leaky_relu);
        DOVETAIL_STORE(elu);
        DOVETAIL_STORE(sigmoid);
        DOVETAIL_STORE(silu);
        DOVETAIL_STORE(tanh);
        DOVETAIL_STORE(hardswish);
        DOVETAIL_STORE(gelu_erf);
        DOVETAIL_STORE(gelu_tanh);
    }
#undef DOVETAIL_STORE
}

}  // namespace dovetail::DOVETAIL_ISA
