// Elementwise instructions: casts. Floats are truncated to integers and saturate, NaN gives 0. Integers wrap around. Any value
// but zero is true.
#include "kernels/simd/elementwise_loops.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

template <typename To>
constexpr bool kIsSigned = static_cast<To>(-1) < static_cast<To>(1);
template <typename To>
constexpr int kDigits = static_cast<int>(sizeof(To)) * 8 - (kIsSigned<To> ? 1 : 0);

// The maximum of an integer type, its minimum, and the smallest float above the maximum, a power of two.
template <typename To>
constexpr To kMaxValue = static_cast<To>((((std::uint64_t{1} << (kDigits<To> - 1)) - 1) << 1) + 1);
template <typename To, typename T>
constexpr T kMinValue = kIsSigned<To> ? -static_cast<T>(std::uint64_t{1} << (kDigits<To> - 1)) * 2 : T{0};
template <typename To, typename T>
constexpr T kFirstAbove = static_cast<T>(std::uint64_t{1} << (kDigits<To> - 1)) * 2;

// Vector types: one register of f64, the masks of their comparisons, and the same number of 32-bit integers.
constexpr int kFloat64Lanes = kLanes / 2;
typedef double Float64s __attribute__((vector_size(kFloat64Lanes * 8)));
typedef std::int64_t Int64s __attribute__((vector_size(kFloat64Lanes * 8)));
typedef std::int32_t Int32s __attribute__((vector_size(kFloat64Lanes * 4)));
typedef std::uint32_t UInt32s __attribute__((vector_size(kFloat64Lanes * 4)));

// Truncates a float to an integer: saturates beyond the type's range, 0 for NaN.
template <typename To>
struct Saturate {
    template <typename T>
    DOVETAIL_INLINE To of(T x) {
        if (x >= kMinValue<To, T> && x < kFirstAbove<To, T>) return static_cast<To>(x);
        // Values between the minimum of the type and the next smaller float, and values above -1 for unsigned types, are
        // truncated into the range.
        return x != x ? To{0} : x < T{0} ? static_cast<To>(~kMaxValue<To>) : kMaxValue<To>;
    }

    template <typename T>
    DOVETAIL_INLINE void vector(To* to, const T* from) {
        if constexpr (sizeof(To) == 8) {
            for (int i = 0; i < kLanes; ++i) to[i] = of(from[i]);
        } else if constexpr (sizeof(T) == 4) {
            Floats x = load(from);
            x = greater_of((Floats)((Ints)x & (x == x)), splat(kMinValue<To, float>));
            if constexpr (sizeof(To) < 4)
                narrow(to, __builtin_convertvector(lesser_of(x, splat(kMaxValue<To>)), Ints));
            else
                store_integers(to, x, x >= kFirstAbove<To, float>);
        } else {
            wide(to, from);
            wide(to + kFloat64Lanes, from + kFloat64Lanes);
        }
    }

private:
    // Stores 32-bit integers that are in the type's range.
    template <typename From>
    DOVETAIL_INLINE void narrow(To* to, From x) {
        typedef To Narrow __attribute__((vector_size(sizeof(From) / 4 * sizeof(To))));
        const Narrow y = __builtin_convertvector(x, Narrow);
        __builtin_memcpy(to, &y, sizeof y);
    }

    DOVETAIL_INLINE void wide(To* to, const double* from) {
        Float64s x;
        __builtin_memcpy(&x, from, sizeof x);
        const Float64s minimum = Float64s{} + kMinValue<To, double>, maximum = Float64s{} + static_cast<double>(kMaxValue<To>);
        x = (Float64s)((Int64s)x & (x == x));
        x = x > minimum ? x : minimum;
        x = x < maximum ? x : maximum;
        if constexpr (kIsSigned<To> || sizeof(To) < 4)
            narrow(to, __builtin_convertvector(x, Int32s));
        else
            upper(to, x);
    }

    // Stores f32 as 32-bit integers; the greatest f32 in range is below the type's maximum.
    DOVETAIL_INLINE void store_integers(To* to, Floats x, Ints is_above) {
        x = lesser_of(x, splat(kFirstAbove<To, float> - kFirstAbove<To, float> * 0x1p-24f));
        Ints y;
        if constexpr (kIsSigned<To>)
            y = __builtin_convertvector(x, Ints);
        else
            y = words(x);
        y |= is_above;
        if constexpr (kIsSigned<To>) y ^= is_above & (Ints{} + static_cast<std::int32_t>(0x80000000));
        __builtin_memcpy(to, &y, sizeof y);
    }

    // Converts numbers in [0, 2^32): processors without AVX-512 convert to signed integers only.
    DOVETAIL_INLINE Ints words(Floats x) {
#if defined(__AVX512F__)
        return (Ints) __builtin_convertvector(x, Words);
#else
        const Ints is_upper = x >= 0x1p31f;
        const Floats low = x - (Floats)(is_upper & (Ints)splat(0x1p31f));
        return __builtin_convertvector(low, Ints) ^ (is_upper & static_cast<std::int32_t>(0x80000000));
#endif
    }

    DOVETAIL_INLINE void upper(To* to, Float64s x) {
#if defined(__AVX512F__)
        const UInt32s y = __builtin_convertvector(x, UInt32s);
#else
        const Int64s is_upper = x >= 0x1p31;
        const Float64s low = x - (Float64s)(is_upper & (Int64s)(Float64s{} + 0x1p31));
        const Int32s sign = __builtin_convertvector(is_upper, Int32s) & static_cast<std::int32_t>(0x80000000);
        const Int32s y = __builtin_convertvector(low, Int32s) ^ sign;
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
    DOVETAIL_INLINE To of(Bool x) { return static_cast<To>(static_cast<std::uint8_t>(x) != 0); }
};

template <>
struct Cast<Bool> {
    template <typename T>
    DOVETAIL_INLINE Bool of(T x) {
        return Bool(x != 0);
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

// f16 to f32, exact.
struct FromFloat16 {
    DOVETAIL_INLINE float of(Float16 x) {
        const std::uint32_t bits = static_cast<std::uint16_t>(x), size = bits & 0x7fff, sign = (bits & 0x8000) << 16;
        if (size >= 0x7c00) return float_of(sign | 0x7f800000 | (size > 0x7c00 ? 0x400000 : 0) | (size & 0x3ff) << 13);
        // The product corrects the exponent bias; it is exact, also for subnormals.
        return float_of(sign | bits_of(float_of(size << 13) * 0x1p112f));
    }
    DOVETAIL_INLINE void vector(float* to, const Float16* from) {
#if defined(__AVX512F__)
        _mm512_storeu_ps(to, _mm512_maskz_cvtph_ps(kAllLanes, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
#elif defined(__F16C__)
        _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#else
        for (int i = 0; i < kLanes; ++i) to[i] = of(from[i]);
#endif
    }
};

// f32 to f16, rounded to nearest even.
struct ToFloat16 {
    DOVETAIL_INLINE Float16 of(float x) {
        const std::uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000;
        std::uint32_t size = bits & 0x7fffffff;
        if (size > 0x7f800000) return Float16(sign | 0x7e00 | (size >> 13 & 0x3ff));
        if (size >= 0x47800000) return Float16(sign | 0x7c00);
        // Subnormal f16: after 0.5 is added, the last bit of the f32 has the weight of the smallest f16.
        if (size < 0x38800000) return Float16(sign | (bits_of(float_of(size) + 0.5f) - bits_of(0.5f)));
        size += 0xfff + (size >> 13 & 1);
        return Float16(sign | (size - (112u << 23)) >> 13);
    }
    DOVETAIL_INLINE void vector(Float16* to, const float* from) {
#if defined(__AVX512F__)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_maskz_cvtps_ph(kAllLanes, _mm512_loadu_ps(from),
                                                                                  _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
        for (int i = 0; i < kLanes; ++i) to[i] = of(from[i]);
#endif
    }
};

struct FromBFloat16 {
    DOVETAIL_INLINE float of(BFloat16 x) { return float_of(static_cast<std::uint32_t>(x) << 16); }
    DOVETAIL_INLINE void vector(float* to, const BFloat16* from) {
        for (int i = 0; i < kLanes; ++i) to[i] = of(from[i]);
    }
};

// f32 to bf16, rounded to nearest even.
struct ToBFloat16 {
    DOVETAIL_INLINE BFloat16 of(float x) {
        const std::uint32_t bits = bits_of(x), near = bits + 0x7fff + (bits >> 16 & 1);
        return BFloat16((x != x ? (bits & 0x80000000) | 0x7fc00000 : near) >> 16);
    }
    DOVETAIL_INLINE void vector(BFloat16* to, const float* from) {
        for (int i = 0; i < kLanes; ++i) to[i] = of(from[i]);
    }
};

#define DOVETAIL_CASTS_OF_INTEGERS(To, to)                                                                          \
    opcode1<Cast<To>, To, std::int64_t>("cast.i64." to), opcode1<Cast<To>, To, std::int32_t>("cast.i32." to),       \
        opcode1<Cast<To>, To, std::int16_t>("cast.i16." to), opcode1<Cast<To>, To, std::int8_t>("cast.i8." to),     \
        opcode1<Cast<To>, To, std::uint64_t>("cast.u64." to), opcode1<Cast<To>, To, std::uint32_t>("cast.u32." to), \
        opcode1<Cast<To>, To, std::uint16_t>("cast.u16." to), opcode1<Cast<To>, To, std::uint8_t>("cast.u8." to)

#define DOVETAIL_CASTS_TO(To, to)                                                                \
    opcode1<Cast<To>, To, float>("cast.f32." to), opcode1<Cast<To>, To, double>("cast.f64." to), \
        DOVETAIL_CASTS_OF_INTEGERS(To, to)

#define DOVETAIL_CASTS_TO_INTEGERS(To, to)                                                                         \
    cast_opcode1<Saturate<To>, To, float>("cast.f32." to), cast_opcode1<Saturate<To>, To, double>("cast.f64." to), \
        DOVETAIL_CASTS_OF_INTEGERS(To, to)

constexpr Opcode kOpcodes[] = {
    cast_opcode1<FromFloat16, float, Float16>("cast.f16.f32"),
    cast_opcode1<ToFloat16, Float16, float>("cast.f32.f16"),
    cast_opcode1<FromBFloat16, float, BFloat16>("cast.bf16.f32"),
    cast_opcode1<ToBFloat16, BFloat16, float>("cast.f32.bf16"),
    DOVETAIL_CASTS_TO(float, "f32"),
    DOVETAIL_CASTS_TO(double, "f64"),
    DOVETAIL_CASTS_TO_INTEGERS(std::int64_t, "i64"),
    DOVETAIL_CASTS_TO_INTEGERS(std::int32_t, "i32"),
    DOVETAIL_CASTS_TO_INTEGERS(std::int16_t, "i16"),
    DOVETAIL_CASTS_TO_INTEGERS(std::int8_t, "i8"),
    DOVETAIL_CASTS_TO_INTEGERS(std::uint64_t, "u64"),
    DOVETAIL_CASTS_TO_INTEGERS(std::uint32_t, "u32"),
    DOVETAIL_CASTS_TO_INTEGERS(std::uint16_t, "u16"),
    DOVETAIL_CASTS_TO_INTEGERS(std::uint8_t, "u8"),
    DOVETAIL_CASTS_TO(Bool, "boolean"),
    opcode1<Cast<float>, float, Bool>("cast.boolean.f32"),
    opcode1<Cast<double>, double, Bool>("cast.boolean.f64"),
    opcode1<Cast<std::int64_t>, std::int64_t, Bool>("cast.boolean.i64"),
    opcode1<Cast<std::int32_t>, std::int32_t, Bool>("cast.boolean.i32"),
    opcode1<Cast<std::int16_t>, std::int16_t, Bool>("cast.boolean.i16"),
    opcode1<Cast<std::int8_t>, std::int8_t, Bool>("cast.boolean.i8"),
    opcode1<Cast<std::uint64_t>, std::uint64_t, Bool>("cast.boolean.u64"),
    opcode1<Cast<std::uint32_t>, std::uint32_t, Bool>("cast.boolean.u32"),
    opcode1<Cast<std::uint16_t>, std::uint16_t, Bool>("cast.boolean.u16"),
    opcode1<Cast<std::uint8_t>, std::uint8_t, Bool>("cast.boolean.u8"),
};

}  // namespace

OpcodeTable cast_opcodes() { return {kOpcodes, sizeof kOpcodes / sizeof kOpcodes[0]}; }

}  // namespace dovetail::DOVETAIL_ISA
