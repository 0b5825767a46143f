// The epilogue of a tile: what is applied to accumulators before they are written.
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

// NaN passes: greater_of and lesser_of return the second operand if the comparison fails.
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

// Applies the epilogue to one vector of accumulators with `count` valid columns.
DOVETAIL_INLINE Floats apply_epilogue(const GemmTile& tile, Floats value, std::int64_t row, std::int64_t column,
                                      std::int64_t count) {
    value *= tile.scale;
    if (tile.bias != nullptr) value += load_partial(tile.bias + column, count);
    Floats residual{};
    if (tile.residual != nullptr) residual = load_partial(tile.residual + row * tile.residual_stride + column, count);
    if (!tile.residual_last && tile.residual != nullptr) value += residual;
    value = clamp(value, splat(tile.low), splat(tile.high));
    if (tile.activation != Activation::bounds) value = apply_activation(tile.activation, tile.alpha, value);
    return tile.residual_last ? value + residual : value;
}

}  // namespace dovetail::DOVETAIL_ISA
