// Chain instructions: casts between element types. Floats go to integers toward zero, integers wrap, anything but zero is true.
#include "kernels/simd/each.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

template <typename T>
constexpr bool kIsFloat = static_cast<T>(0.5) != 0;

template <typename To>
struct Cast {
    template <typename T>
    DOVETAIL_INLINE To of(T x) {
        // By way of the widest integer that the processor converts to, as numpy does: out of range anything may come.
        if constexpr (kIsFloat<T> && !kIsFloat<To> && sizeof(To) < 4) return static_cast<To>(static_cast<std::int32_t>(x));
        if constexpr (kIsFloat<T> && !kIsFloat<To> && sizeof(To) == 4 && static_cast<To>(-1) > 0)
            return static_cast<To>(static_cast<std::int64_t>(x));
        return static_cast<To>(x);
    }
    DOVETAIL_INLINE To of(Truth x) { return static_cast<To>(static_cast<std::uint8_t>(x) != 0); }
};

template <>
struct Cast<Truth> {
    template <typename T>
    DOVETAIL_INLINE Truth of(T x) {
        return Truth(x != 0);
    }
};

DOVETAIL_INLINE std::uint32_t bits_of(float x) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}

DOVETAIL_INLINE float float_of(std::uint32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

// Every f16 is an f32.
struct FromHalf {
    DOVETAIL_INLINE float of(Half x) {
        const std::uint32_t bits = static_cast<std::uint16_t>(x), size = bits & 0x7fff, sign = (bits & 0x8000) << 16;
        if (size >= 0x7c00) return float_of(sign | 0x7f800000 | (size > 0x7c00 ? 0x400000 : 0) | (size & 0x3ff) << 13);
        // The exponent is counted from elsewhere; the product is exact, and right for the smallest ones too.
        return float_of(sign | bits_of(float_of(size << 13) * 0x1p112f));
    }
    DOVETAIL_INLINE void vector(float* to, const Half* from) {
#if defined(__AVX512F__)
        _mm512_storeu_ps(to, _mm512_maskz_cvtph_ps(kAllLanes, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
#elif defined(__F16C__)
        _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#else
        for (int i = 0; i < kLanes; ++i) to[i] = of(from[i]);
#endif
    }
};

// The nearest f16, of two the even one.
struct ToHalf {
    DOVETAIL_INLINE Half of(float x) {
        const std::uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000;
        std::uint32_t size = bits & 0x7fffffff;
        if (size > 0x7f800000) return Half(sign | 0x7e00 | (size >> 13 & 0x3ff));
        if (size >= 0x47800000) return Half(sign | 0x7c00);
        // Below the least normal one: beside 0.5 the last digit of an f32 is that of the smallest f16.
        if (size < 0x38800000) return Half(sign | (bits_of(float_of(size) + 0.5f) - bits_of(0.5f)));
        size += 0xfff + (size >> 13 & 1);
        return Half(sign | (size - (112u << 23)) >> 13);
    }
    DOVETAIL_INLINE void vector(Half* to, const float* from) {
#if defined(__AVX512F__)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                            _mm512_maskz_cvtps_ph(kAllLanes, _mm512_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
        for (int i = 0; i < kLanes; ++i) to[i] = of(from[i]);
#endif
    }
};

struct FromBrain {
    DOVETAIL_INLINE float of(Brain x) { return float_of(static_cast<std::uint32_t>(x) << 16); }
    DOVETAIL_INLINE void vector(float* to, const Brain* from) {
        for (int i = 0; i < kLanes; ++i) to[i] = of(from[i]);
    }
};

// The nearest bf16, of two the even one.
struct ToBrain {
    DOVETAIL_INLINE Brain of(float x) {
        const std::uint32_t bits = bits_of(x), near = bits + 0x7fff + (bits >> 16 & 1);
        return Brain((x != x ? (bits & 0x80000000) | 0x7fc00000 : near) >> 16);
    }
    DOVETAIL_INLINE void vector(Brain* to, const float* from) {
        for (int i = 0; i < kLanes; ++i) to[i] = of(from[i]);
    }
};

#define DOVETAIL_CASTS_TO(To, to)                                                                             \
    row1<Cast<To>, To, float>("cast.f32." to), row1<Cast<To>, To, double>("cast.f64." to),                    \
        row1<Cast<To>, To, std::int64_t>("cast.i64." to), row1<Cast<To>, To, std::int32_t>("cast.i32." to),   \
        row1<Cast<To>, To, std::int16_t>("cast.i16." to), row1<Cast<To>, To, std::int8_t>("cast.i8." to),     \
        row1<Cast<To>, To, std::uint64_t>("cast.u64." to), row1<Cast<To>, To, std::uint32_t>("cast.u32." to), \
        row1<Cast<To>, To, std::uint16_t>("cast.u16." to), row1<Cast<To>, To, std::uint8_t>("cast.u8." to)

constexpr Opcode kOpcodes[] = {
    halves_row1<FromHalf, float, Half>("cast.f16.f32"),
    halves_row1<ToHalf, Half, float>("cast.f32.f16"),
    halves_row1<FromBrain, float, Brain>("cast.bf16.f32"),
    halves_row1<ToBrain, Brain, float>("cast.f32.bf16"),
    DOVETAIL_CASTS_TO(float, "f32"),
    DOVETAIL_CASTS_TO(double, "f64"),
    DOVETAIL_CASTS_TO(std::int64_t, "i64"),
    DOVETAIL_CASTS_TO(std::int32_t, "i32"),
    DOVETAIL_CASTS_TO(std::int16_t, "i16"),
    DOVETAIL_CASTS_TO(std::int8_t, "i8"),
    DOVETAIL_CASTS_TO(std::uint32_t, "u32"),
    DOVETAIL_CASTS_TO(std::uint16_t, "u16"),
    DOVETAIL_CASTS_TO(std::uint8_t, "u8"),
    DOVETAIL_CASTS_TO(Truth, "boolean"),
    row1<Cast<float>, float, Truth>("cast.boolean.f32"),
    row1<Cast<double>, double, Truth>("cast.boolean.f64"),
    row1<Cast<std::int64_t>, std::int64_t, Truth>("cast.boolean.i64"),
    row1<Cast<std::int32_t>, std::int32_t, Truth>("cast.boolean.i32"),
    row1<Cast<std::int8_t>, std::int8_t, Truth>("cast.boolean.i8"),
    row1<Cast<std::uint8_t>, std::uint8_t, Truth>("cast.boolean.u8"),
};

}  // namespace

Opcodes cast_opcodes() { return {kOpcodes, sizeof kOpcodes / sizeof kOpcodes[0]}; }

}  // namespace dovetail::DOVETAIL_ISA
