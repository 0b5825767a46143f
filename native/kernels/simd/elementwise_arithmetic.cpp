// Elementwise instructions: arithmetic. Floats are rounded once, integers wrap around.
#include "kernels/simd/elementwise_loops.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

template <typename T>
constexpr bool kIsFloat = static_cast<T>(0.5) != 0;
template <typename T>
constexpr bool kIsSigned = static_cast<T>(-1) < 0;

// The unsigned type in which T wraps around without undefined behaviour; never narrower than int, to which it would be promoted.
template <typename T>
constexpr auto in_wrapping_type(T x) {
    if constexpr (kIsFloat<T>)
        return x;
    else if constexpr (sizeof(T) == 8)
        return static_cast<std::uint64_t>(x);
    else
        return static_cast<std::uint32_t>(x);
}

#define DOVETAIL_WRAPPING(Name, operator_)                                            \
    struct Name {                                                                     \
        template <typename T>                                                         \
        DOVETAIL_INLINE T of(T x, T y) {                                              \
            return static_cast<T>(in_wrapping_type(x) operator_ in_wrapping_type(y)); \
        }                                                                             \
    };
DOVETAIL_WRAPPING(Add, +)
DOVETAIL_WRAPPING(Subtract, -)
DOVETAIL_WRAPPING(Multiply, *)

struct Divide {
    template <typename T>
    DOVETAIL_INLINE T of(T x, T y) {
        return x / y;
    }
};

// Division toward zero. The minimum divided by -1 wraps around. Division by 0 gives 0; the compiler of the bytecode excludes it.
struct TruncateDivide {
    template <typename T>
    DOVETAIL_INLINE T of(T x, T y) {
        if (y == 0) return 0;
        if (kIsSigned<T> && y == static_cast<T>(-1)) return Subtract::of(T(0), x);
        return static_cast<T>(x / y);
    }
};

struct FloorDivide {
    template <typename T>
    DOVETAIL_INLINE T of(T x, T y) {
        const T quotient = TruncateDivide::of(x, y);
        const T remainder = Subtract::of(x, Multiply::of(quotient, y));
        return remainder != 0 && y != 0 && ((x < 0) != (y < 0)) ? static_cast<T>(quotient - 1) : quotient;
    }
};

struct TruncateMod {
    template <typename T>
    DOVETAIL_INLINE T of(T x, T y) {
        return y == 0 ? T(0) : Subtract::of(x, Multiply::of(TruncateDivide::of(x, y), y));
    }
};

struct FloorMod {
    template <typename T>
    DOVETAIL_INLINE T of(T x, T y) {
        return y == 0 ? T(0) : Subtract::of(x, Multiply::of(FloorDivide::of(x, y), y));
    }
};

// Semantics of numpy.maximum and numpy.minimum: NaN if an operand is NaN; y if the operands are equal.
struct Maximum {
    template <typename T>
    DOVETAIL_INLINE T of(T x, T y) {
        return x > y || x != x ? x : y;
    }
};

struct Minimum {
    template <typename T>
    DOVETAIL_INLINE T of(T x, T y) {
        return x < y || x != x ? x : y;
    }
};

// A NaN fails the comparison and stays a NaN; -0 gives 0.
struct Relu {
    template <typename T>
    DOVETAIL_INLINE T of(T x) {
        return x <= 0 ? T(0) : x;
    }
};

struct Negative {
    template <typename T>
    DOVETAIL_INLINE T of(T x) {
        if constexpr (kIsFloat<T>) return -x;
        return Subtract::of(T(0), x);
    }
};

struct Abs {
    template <typename T>
    DOVETAIL_INLINE T of(T x) {
        if constexpr (sizeof(T) == 4 && kIsFloat<T>) return __builtin_fabsf(x);
        if constexpr (sizeof(T) == 8 && kIsFloat<T>) return __builtin_fabs(x);
        return x < 0 ? Subtract::of(T(0), x) : x;
    }
};

struct Sign {
    template <typename T>
    DOVETAIL_INLINE T of(T x) {
        return x > 0 ? T(1) : x < 0 ? static_cast<T>(-1) : x == 0 ? T(0) : x;
    }
};

struct Prelu {
    template <typename T>
    DOVETAIL_INLINE T of(T x, T slope) {
        return x < 0 ? Multiply::of(x, slope) : x;
    }
};

struct BitwiseAnd {
    template <typename T>
    DOVETAIL_INLINE T of(T x, T y) {
        return static_cast<T>(x & y);
    }
};

struct BitwiseOr {
    template <typename T>
    DOVETAIL_INLINE T of(T x, T y) {
        return static_cast<T>(x | y);
    }
};

struct BitwiseXor {
    template <typename T>
    DOVETAIL_INLINE T of(T x, T y) {
        return static_cast<T>(x ^ y);
    }
};

struct BitwiseNot {
    template <typename T>
    DOVETAIL_INLINE T of(T x) {
        return static_cast<T>(~x);
    }
};

// True for negative shift amounts and amounts of at least the number of bits; the result is then 0, or the sign of a shifted
// signed integer.
template <typename T>
DOVETAIL_INLINE bool is_shifted_out(T amount) {
    return amount < 0 || static_cast<std::uint64_t>(amount) >= 8 * sizeof(T);
}

struct ShiftLeft {
    template <typename T>
    DOVETAIL_INLINE T of(T x, T amount) {
        return is_shifted_out(amount)
                   ? T(0)
                   : static_cast<T>(static_cast<std::uint64_t>(x) << (static_cast<std::uint64_t>(amount) & 63));
    }
};

struct ShiftRight {
    template <typename T>
    DOVETAIL_INLINE T of(T x, T amount) {
        if (is_shifted_out(amount)) return x < 0 ? static_cast<T>(-1) : T(0);
        return static_cast<T>(x >> amount);
    }
};

#define DOVETAIL_NUMBERS(T, t)                                                                            \
    cheap(opcode2<Add, T, T, T>("add." t)), cheap(opcode2<Subtract, T, T, T>("subtract." t)),             \
        cheap(opcode2<Multiply, T, T, T>("multiply." t)), cheap(opcode2<Maximum, T, T, T>("maximum." t)), \
        cheap(opcode2<Minimum, T, T, T>("minimum." t)), cheap(opcode2<Prelu, T, T, T>("prelu." t)),       \
        cheap(opcode1<Relu, T, T>("relu." t)), cheap(opcode1<Negative, T, T>("negative." t)),             \
        cheap(opcode1<Abs, T, T>("abs." t)), opcode1<Sign, T, T>("sign." t)

#define DOVETAIL_INTEGERS(T, t)                                                                             \
    DOVETAIL_NUMBERS(T, t), opcode2<TruncateDivide, T, T, T>("truncate_divide." t),                         \
        opcode2<FloorDivide, T, T, T>("floor_divide." t), opcode2<TruncateMod, T, T, T>("truncate_mod." t), \
        opcode2<FloorMod, T, T, T>("floor_mod." t), opcode2<BitwiseAnd, T, T, T>("bitwise_and." t),         \
        opcode2<BitwiseOr, T, T, T>("bitwise_or." t), opcode2<BitwiseXor, T, T, T>("bitwise_xor." t),       \
        opcode1<BitwiseNot, T, T>("bitwise_not." t), opcode2<ShiftLeft, T, T, T>("shift_left." t),          \
        opcode2<ShiftRight, T, T, T>("shift_right." t)

constexpr Opcode kOpcodes[] = {
    DOVETAIL_NUMBERS(float, "f32"),
    DOVETAIL_NUMBERS(double, "f64"),
    opcode2<Divide, float, float, float>("divide.f32"),
    opcode2<Divide, double, double, double>("divide.f64"),
    DOVETAIL_INTEGERS(std::int32_t, "i32"),
    DOVETAIL_INTEGERS(std::int64_t, "i64"),
    DOVETAIL_INTEGERS(std::int8_t, "i8"),
    DOVETAIL_INTEGERS(std::uint8_t, "u8"),
};

}  // namespace

OpcodeTable arithmetic_opcodes() { return {kOpcodes, sizeof kOpcodes / sizeof kOpcodes[0]}; }

}  // namespace dovetail::DOVETAIL_ISA
