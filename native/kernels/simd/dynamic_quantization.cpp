// Dynamic quantization: the range of floats, their codes, and accumulators as floats. Compiled without contraction of products
// and sums, since each operation is rounded separately.
#include "kernels/quantized.h"

#include "kernels/simd/epilogue.h"
#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

typedef std::uint8_t Bytes __attribute__((vector_size(kLanes)));

template <bool has_bias>
void dequantize_pixels(const Dequantization& run) {
    for (std::int64_t j = 0; j < run.columns; j += kLanes) {
        const std::int64_t valid = run.columns - j;
        const Floats factor = load(run.factor + j) * run.scale;
        const Floats bias = has_bias ? load_partial(run.bias + j, valid) : Floats{};
        const std::int32_t* from = run.accumulators + j;
        std::byte* y = run.y + j * 4;
        for (std::int64_t p = 0; p < run.pixels; ++p, from += kAccumulatorPitch, y += run.y_step) {
            Ints accumulators;
            __builtin_memcpy(&accumulators, from, sizeof accumulators);
            Floats value = __builtin_convertvector(accumulators, Floats) * factor;
            if (has_bias) value += bias;
            store_partial((float*)y, value, valid);
        }
    }
}

void dequantize(const Dequantization& run) { run.bias ? dequantize_pixels<true>(run) : dequantize_pixels<false>(run); }

void extend_range(ValueRange& range, const float* from, std::int64_t count) {
    constexpr int kChains = 4;
    Floats low[kChains], high[kChains];
    Ints is_nan = {};
    for (int c = 0; c < kChains; ++c) low[c] = splat(range.low), high[c] = splat(range.high);
    std::int64_t i = 0;
    for (; i + kChains * kLanes <= count; i += kChains * kLanes)
        for (int c = 0; c < kChains; ++c) {
            const Floats x = load(from + i + c * kLanes);
            low[c] = lesser_of(x, low[c]);
            high[c] = greater_of(x, high[c]);
            is_nan |= x != x;
        }
    for (; i < count; i += kLanes) {
        const std::int64_t valid = count - i;
        // Lanes beyond the last element repeat it.
        Floats x = splat(from[count - 1]);
        if (valid >= kLanes)
            x = load(from + i);
        else
            for (std::int64_t k = 0; k < valid; ++k) x[k] = from[i + k];
        low[0] = lesser_of(x, low[0]);
        high[0] = greater_of(x, high[0]);
        is_nan |= x != x;
    }
    for (int c = 1; c < kChains; ++c) {
        low[0] = lesser_of(low[c], low[0]);
        high[0] = greater_of(high[c], high[0]);
    }
    for (int k = 0; k < kLanes; ++k) {
        range.low = low[0][k] < range.low ? low[0][k] : range.low;
        range.high = high[0][k] > range.high ? high[0][k] : range.high;
    }
    for (int k = 0; k < kLanes; ++k)
        if (is_nan[k]) range.low = range.high = __builtin_nanf("");
}

DOVETAIL_INLINE Bytes codes_of(Floats x, float scale, float zero) {
    Floats value = round_even(x / scale) + zero;
    value = clamp(value, Floats{}, splat(255.0f));
    value = value == value ? value : Floats{};
#if defined(__AVX512F__)
    return (Bytes)_mm512_maskz_cvtepi32_epi8(kAllLanes, _mm512_maskz_cvtps_epi32(kAllLanes, (__m512)value));
#else
    return __builtin_convertvector(__builtin_convertvector(value, Ints), Bytes);
#endif
}

void quantize(std::byte* to, const float* from, std::int64_t count, float scale, float zero) {
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        const Bytes codes = codes_of(load(from + i), scale, zero);
        __builtin_memcpy(to + i, &codes, sizeof codes);
    }
    if (i == count) return;
    const Bytes codes = codes_of(load_first(from + i, count - i), scale, zero);
    for (std::int64_t k = 0; i + k < count; ++k) to[i + k] = (std::byte)codes[k];
}

}  // namespace

DynamicQuantization dynamic_quantization() { return {dequantize, extend_range, quantize}; }

}  // namespace dovetail::DOVETAIL_ISA
