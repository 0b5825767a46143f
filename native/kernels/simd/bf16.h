// Rounding to bf16, and dot products of two bf16. Compiled for each instruction set, and with AVX512-BF16.
#pragma once

#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {

// sum + the dot products of the two bf16 of each lane of `a` and `b`.
DOVETAIL_INLINE Floats add_pairs(Floats sum, Words a, Words b) {
#if defined(__AVX512BF16__)
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)b, (__m512bh)a);
#else
    sum = fma((Floats)(a & 0xffff0000u), (Floats)(b & 0xffff0000u), sum);
    return fma((Floats)(a << 16), (Floats)(b << 16), sum);
#endif
}

// The bits of the bf16 nearest to each lane, ties to even.
DOVETAIL_INLINE Words bf16_bits(Words x) {
    const Words rounded = (x + 0x7fffu + (x >> 16 & 1u)) >> 16;
    return (x & 0x7fffffffu) > 0x7f800000u ? x >> 16 | 0x40u : rounded;
}

// The rounded bits of each lane.
DOVETAIL_INLINE Words round_bits(Floats x) {
#if defined(__AVX512BF16__)
    return (Words)_mm512_maskz_cvtepu16_epi32(kAllLanes, (__m256i)_mm512_cvtneps_pbh((__m512)x));
#else
    return bf16_bits((Words)x);
#endif
}

// Two vectors of adjacent elements, rounded: the even ones in the low halves.
DOVETAIL_INLINE Words round_pairs(Floats low, Floats high) {
#if defined(__AVX512BF16__)
    return (Words)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
#else
    std::uint32_t words[2 * kLanes];
    store(reinterpret_cast<float*>(words), (Floats)bf16_bits((Words)low));
    store(reinterpret_cast<float*>(words + kLanes), (Floats)bf16_bits((Words)high));
    Words pairs{};
    for (int i = 0; i < kLanes; ++i) pairs[i] = words[2 * i] | words[2 * i + 1] << 16;
    return pairs;
#endif
}

// to[i / 2] holds from[i] and from[i + 1], rounded; an odd element is followed by 0.
DOVETAIL_INLINE void round_run(float* to, const float* from, std::int64_t count) {
    std::int64_t i = 0;
    for (; i + 2 * kLanes <= count; i += 2 * kLanes)
        store(to + i / 2, (Floats)round_pairs(load(from + i), load(from + i + kLanes)));
    if (i == count) return;
    float last[2 * kLanes] = {};
    for (std::int64_t j = i; j < count; ++j) last[j - i] = from[j];
    const Words pairs = round_pairs(load(last), load(last + kLanes));
    __builtin_memcpy(to + i / 2, &pairs, (std::size_t)((count - i + 1) / 2) * 4);
}

}  // namespace dovetail::DOVETAIL_ISA
