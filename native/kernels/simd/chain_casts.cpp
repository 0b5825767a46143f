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

#define DOVETAIL_CASTS_TO(To, to)                                                                             \
    row1<Cast<To>, To, float>("cast.f32." to), row1<Cast<To>, To, double>("cast.f64." to),                    \
        row1<Cast<To>, To, std::int64_t>("cast.i64." to), row1<Cast<To>, To, std::int32_t>("cast.i32." to),   \
        row1<Cast<To>, To, std::int16_t>("cast.i16." to), row1<Cast<To>, To, std::int8_t>("cast.i8." to),     \
        row1<Cast<To>, To, std::uint64_t>("cast.u64." to), row1<Cast<To>, To, std::uint32_t>("cast.u32." to), \
        row1<Cast<To>, To, std::uint16_t>("cast.u16." to), row1<Cast<To>, To, std::uint8_t>("cast.u8." to)

constexpr Opcode kOpcodes[] = {
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
