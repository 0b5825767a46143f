// One vector of f32 of the instruction set that the file is compiled for, and operations that the compiler's vector types lack.
//
// Included only by files of simd folders. All functions are always inlined, since the linker must not share a function between
// instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

#define DOVETAIL_INLINE static inline __attribute__((always_inline, unused))

// Marks a loop without dependences between iterations: pointers are equal (in place) or do not overlap.
#if defined(__clang__)
#define DOVETAIL_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define DOVETAIL_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace dovetail::DOVETAIL_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

#if defined(__AVX512F__)
// gcc 12 warns of an uninitialized register inside the unmasked forms of some intrinsics.
constexpr __mmask16 kAllLanes = 0xffff;
#endif

typedef float Floats __attribute__((vector_size(kLanes * 4)));
typedef std::int32_t Ints __attribute__((vector_size(kLanes * 4)));
typedef std::uint32_t Words __attribute__((vector_size(kLanes * 4)));
// kLanes f64 in two registers.
typedef double Doubles __attribute__((vector_size(kLanes * 8)));

DOVETAIL_INLINE Floats load(const float* from) {
    Floats x;
    __builtin_memcpy(&x, from, sizeof x);
    return x;
}

DOVETAIL_INLINE void store(float* to, Floats x) { __builtin_memcpy(to, &x, sizeof x); }

// Loads the first `count` < kLanes elements; the other lanes are 0, and their memory is not read.
DOVETAIL_INLINE Floats load_first(const float* from, std::int64_t count) {
#if defined(__AVX512F__)
    return (Floats)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from);
#elif defined(__AVX2__)
    const Ints lanes = {0, 1, 2, 3, 4, 5, 6, 7};
    return (Floats)_mm256_maskload_ps(from, (__m256i)(lanes < (std::int32_t)count));
#else
    Floats x = {};
    for (std::int64_t i = 0; i < count; ++i) x[i] = from[i];
    return x;
#endif
}

DOVETAIL_INLINE void store_first(float* to, Floats x, std::int64_t count) {
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), (__m512)x);
#elif defined(__AVX2__)
    const Ints lanes = {0, 1, 2, 3, 4, 5, 6, 7};
    _mm256_maskstore_ps(to, (__m256i)(lanes < (std::int32_t)count), (__m256)x);
#else
    for (std::int64_t i = 0; i < count; ++i) to[i] = x[i];
#endif
}

DOVETAIL_INLINE Words load_words(const std::byte* from) {
    Words words;
    __builtin_memcpy(&words, from, sizeof words);
    return words;
}

// Subtracts 0, which keeps every x; adding it would lose the sign of -0.
DOVETAIL_INLINE Floats splat(float x) { return x - Floats{}; }

// a * b + c, rounded once if the processor has FMA.
DOVETAIL_INLINE Floats fma(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
    return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}
DOVETAIL_INLINE Floats fma(Floats a, Floats b, float c) { return fma(a, b, splat(c)); }

// sum += x * w. Inline assembly: with few registers the compiler would copy accumulators between them.
DOVETAIL_INLINE void add_product(Floats& sum, Floats x, Floats w) {
#if defined(__FMA__) && !defined(__AVX512F__)
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(x), "x"(w));
#else
    sum += x * w;
#endif
}

DOVETAIL_INLINE Floats abs(Floats x) { return (Floats)((Words)x & 0x7fffffffu); }

DOVETAIL_INLINE Floats with_sign_of(Floats size, Floats sign) {
    return (Floats)(((Words)size & 0x7fffffffu) | ((Words)sign & 0x80000000u));
}

// The greater operand; `b` if the operands are equal or one is NaN. This is one instruction, which the compiler does not
// generate by itself.
DOVETAIL_INLINE Floats greater_of(Floats a, Floats b) {
#if defined(__AVX512F__)
    return (Floats)_mm512_maskz_max_ps(kAllLanes, (__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (Floats)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (Floats)_mm_max_ps((__m128)a, (__m128)b);
#else
    return a > b ? a : b;
#endif
}

DOVETAIL_INLINE Floats lesser_of(Floats a, Floats b) {
#if defined(__AVX512F__)
    return (Floats)_mm512_maskz_min_ps(kAllLanes, (__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (Floats)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (Floats)_mm_min_ps((__m128)a, (__m128)b);
#else
    return a < b ? a : b;
#endif
}

// Semantics of numpy.maximum and numpy.minimum: NaN if an operand is NaN; `b` if the operands are equal.
DOVETAIL_INLINE Floats maximum(Floats a, Floats b) { return a != a ? a : greater_of(a, b); }
DOVETAIL_INLINE Floats minimum(Floats a, Floats b) { return a != a ? a : lesser_of(a, b); }

// Rounds to nearest even.
DOVETAIL_INLINE Floats round_even(Floats x) {
#if defined(__AVX512F__)
    return (Floats)_mm512_maskz_roundscale_ps(kAllLanes, (__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__AVX2__)
    return (Floats)_mm256_round_ps((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    const Floats size = abs(x);
    const Floats whole = size + 0x1p23f - 0x1p23f;
    return size < 0x1p23f ? with_sign_of(whole, x) : x;
#endif
}

DOVETAIL_INLINE Floats floor(Floats x) {
#if defined(__AVX512F__)
    return (Floats)_mm512_maskz_roundscale_ps(kAllLanes, (__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#elif defined(__AVX2__)
    return (Floats)_mm256_round_ps((__m256)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#else
    const Floats near = round_even(x);
    return with_sign_of(near > x ? near - 1.0f : near, x);
#endif
}

DOVETAIL_INLINE Floats ceil(Floats x) { return -floor(-x); }

DOVETAIL_INLINE Floats trunc(Floats x) { return with_sign_of(floor(abs(x)), x); }

DOVETAIL_INLINE Floats sqrt(Floats x) {
#if defined(__AVX512F__)
    return (Floats)_mm512_maskz_sqrt_ps(kAllLanes, (__m512)x);
#elif defined(__AVX2__)
    return (Floats)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
    return (Floats)_mm_sqrt_ps((__m128)x);
#else
    for (int i = 0; i < kLanes; ++i) x[i] = __builtin_sqrtf(x[i]);
    return x;
#endif
}

// Combines all lanes into one number, by halves.
template <typename Combine>
DOVETAIL_INLINE float reduce_lanes(Floats x, const Combine& combine) {
#if defined(__GNUC__) && !defined(__clang__)
    Ints lanes;
    for (int i = 0; i < kLanes; ++i) lanes[i] = i;
    for (int width = kLanes / 2; width > 0; width /= 2) x = combine(x, __builtin_shuffle(x, lanes ^ width));
#else
    for (int width = kLanes / 2; width > 0; width /= 2) {
        Floats other = x;
        for (int i = 0; i < kLanes; ++i) other[i] = x[i ^ width];
        x = combine(x, other);
    }
#endif
    return x[0];
}

DOVETAIL_INLINE float sum_of(Floats x) {
    return reduce_lanes(x, [](Floats a, Floats b) __attribute__((always_inline)) { return a + b; });
}

// Returns the maximum, in which a NaN may be ignored.
DOVETAIL_INLINE float max_of(Floats x) {
    return reduce_lanes(x, [](Floats a, Floats b) __attribute__((always_inline)) { return greater_of(a, b); });
}

}  // namespace dovetail::DOVETAIL_ISA
