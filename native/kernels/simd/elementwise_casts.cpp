// Chain instructions: casts between element types. Floats go to integers toward zero and saturate, NaN is 0; integers wrap, anything but
// zero is true.
#include "kernels/simd/elementwise_loops.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

template <typename To>
constexpr bool kIsSigned = static_cast<To>(-1) < static_cast<To>(1);
template <typename To>
constexpr int kDigits = static_cast<int>(sizeof(To)) * 8 - (kIsSigned<To> ? 1 : 0);

// The greatest value of an integer type, the least, and the power of two that is the first float above.
template <typename To>
constexpr To kGreatest = static_cast<To>((((std::uint64_t{1} << (kDigits<To> - 1)) - 1) << 1) + 1);
template <typename To, typename T>
constexpr T kLeast = kIsSigned<To> ? -static_cast<T>(std::uint64_t{1} << (kDigits<To> - 1)) * 2 : T{0};
template <typename To, typename T>
constexpr T kAbove = static_cast<T>(std::uint64_t{1} << (kDigits<To> - 1)) * 2;

// Vectors of one register of f64, with the masks of their comparisons, and of as many 32-bit integers.
constexpr int kWide = kLanes / 2;
typedef double Wide __attribute__((vector_size(kWide * 8)));
typedef std::int64_t Longs __attribute__((vector_size(kWide * 8)));
typedef std::int32_t Shorter __attribute__((vector_size(kWide * 4)));
typedef std::uint32_t ShorterWords __attribute__((vector_size(kWide * 4)));

// A float as an integer: toward zero, the nearest value of the type from beyond its range, 0 for NaN.
template <typename To>
struct Saturate {
    template <typename T>
    DOVETAIL_INLINE To of(T x) {
        if (x >= kLeast<To, T> && x < kAbove<To, T>) return static_cast<To>(x);
        // Between the least value and the next one below, and above -1, truncation gives the least one too.
        return x != x ? To{0} : x < T{0} ? static_cast<To>(~kGreatest<To>) : kGreatest<To>;
    }

    template <typename T>
    DOVETAIL_INLINE void vector(To* to, const T* from) {
        if constexpr (sizeof(To) == 8) {
            for (int i = 0; i < kLanes; ++i) to[i] = of(from[i]);
        } else if constexpr (sizeof(T) == 4) {
            Floats x = load(from);
            x = greater_of((Floats)((Ints)x & (x == x)), splat(kLeast<To, float>));
            if constexpr (sizeof(To) < 4)
                narrow(to, __builtin_convertvector(lesser_of(x, splat(kGreatest<To>)), Ints));
            else
                whole(to, x, x >= kAbove<To, float>);
        } else {
            wide(to, from);
            wide(to + kWide, from + kWide);
        }
    }

private:
    // 32-bit integers that the type holds.
    template <typename From>
    DOVETAIL_INLINE void narrow(To* to, From x) {
        typedef To Narrow __attribute__((vector_size(sizeof(From) / 4 * sizeof(To))));
        const Narrow y = __builtin_convertvector(x, Narrow);
        __builtin_memcpy(to, &y, sizeof y);
    }

    DOVETAIL_INLINE void wide(To* to, const double* from) {
        Wide x;
        __builtin_memcpy(&x, from, sizeof x);
        const Wide least = Wide{} + kLeast<To, double>, greatest = Wide{} + static_cast<double>(kGreatest<To>);
        x = (Wide)((Longs)x & (x == x));
        x = x > least ? x : least;
        x = x < greatest ? x : greatest;
        if constexpr (kIsSigned<To> || sizeof(To) < 4)
            narrow(to, __builtin_convertvector(x, Shorter));
        else
            upper(to, x);
    }

    // 32-bit integers of f32, whose greatest value is below that of the type.
    DOVETAIL_INLINE void whole(To* to, Floats x, Ints is_above) {
        x = lesser_of(x, splat(kAbove<To, float> - kAbove<To, float> * 0x1p-24f));
        Ints y;
        if constexpr (kIsSigned<To>)
            y = __builtin_convertvector(x, Ints);
        else
            y = words(x);
        y |= is_above;
        if constexpr (kIsSigned<To>) y ^= is_above & (Ints{} + static_cast<std::int32_t>(0x80000000));
        __builtin_memcpy(to, &y, sizeof y);
    }

    // Numbers in [0, 2^32): processors before AVX-512 convert to signed integers only.
    DOVETAIL_INLINE Ints words(Floats x) {
#if defined(__AVX512F__)
        return (Ints)__builtin_convertvector(x, Words);
#else
        const Ints is_upper = x >= 0x1p31f;
        const Floats low = x - (Floats)(is_upper & (Ints)splat(0x1p31f));
        return __builtin_convertvector(low, Ints) ^ (is_upper & static_cast<std::int32_t>(0x80000000));
#endif
    }

    DOVETAIL_INLINE void upper(To* to, Wide x) {
#if defined(__AVX512F__)
        const ShorterWords y = __builtin_convertvector(x, ShorterWords);
#else
        const Longs is_upper = x >= 0x1p31;
        const Wide low = x - (Wide)(is_upper & (Longs)(Wide{} + 0x1p31));
        const Shorter sign = __builtin_convertvector(is_upper, Shorter) & static_cast<std::int32_t>(0x80000000);
        const Shorter y = __builtin_convertvector(low, Shorter) ^ sign;
#endif
        __builtin_memcpy(to, &y, sizeof y);
    }
};

template <typename To>
struct Cast {
    template <typename T>
    DOVETAIL_INLINE To of(T x) {
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

#define DOVETAIL_CASTS_OF_INTEGERS(To, to)                                                                \
    row1<Cast<To>, To, std::int64_t>("cast.i64." to), row1<Cast<To>, To, std::int32_t>("cast.i32." to),   \
        row1<Cast<To>, To, std::int16_t>("cast.i16." to), row1<Cast<To>, To, std::int8_t>("cast.i8." to),     \
        row1<Cast<To>, To, std::uint64_t>("cast.u64." to), row1<Cast<To>, To, std::uint32_t>("cast.u32." to), \
        row1<Cast<To>, To, std::uint16_t>("cast.u16." to), row1<Cast<To>, To, std::uint8_t>("cast.u8." to)

#define DOVETAIL_CASTS_TO(To, to)                                                          \
    row1<Cast<To>, To, float>("cast.f32." to), row1<Cast<To>, To, double>("cast.f64." to), \
        DOVETAIL_CASTS_OF_INTEGERS(To, to)

#define DOVETAIL_CASTS_TO_INTEGERS(To, to)                                                                                 \
    cast_row1<Saturate<To>, To, float>("cast.f32." to), cast_row1<Saturate<To>, To, double>("cast.f64." to), \
        DOVETAIL_CASTS_OF_INTEGERS(To, to)

constexpr Opcode kOpcodes[] = {
    cast_row1<FromHalf, float, Half>("cast.f16.f32"),
    cast_row1<ToHalf, Half, float>("cast.f32.f16"),
    cast_row1<FromBrain, float, Brain>("cast.bf16.f32"),
    cast_row1<ToBrain, Brain, float>("cast.f32.bf16"),
    DOVETAIL_CASTS_TO(float, "f32"),
    DOVETAIL_CASTS_TO(double, "f64"),
    DOVETAIL_CASTS_TO_INTEGERS(std::int64_t, "i64"),
    DOVETAIL_CASTS_TO_INTEGERS(std::int32_t, "i32"),
    DOVETAIL_CASTS_TO_INTEGERS(std::int16_t, "i16"),
    DOVETAIL_CASTS_TO_INTEGERS(std::int8_t, "i8"),
    DOVETAIL_CASTS_TO_INTEGERS(std::uint32_t, "u32"),
    DOVETAIL_CASTS_TO_INTEGERS(std::uint16_t, "u16"),
    DOVETAIL_CASTS_TO_INTEGERS(std::uint8_t, "u8"),
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
