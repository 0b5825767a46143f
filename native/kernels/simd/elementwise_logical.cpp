// Chain instructions: questions about numbers, truth values, and choosing by them.
#include "kernels/simd/elementwise_loops.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

#define DOVETAIL_QUESTION(Name, operator_)   \
    struct Name {                            \
        template <typename T>                \
        DOVETAIL_INLINE Truth of(T x, T y) { \
            return Truth(x operator_ y);     \
        }                                    \
    };
DOVETAIL_QUESTION(Equal, ==)
DOVETAIL_QUESTION(NotEqual, !=)
DOVETAIL_QUESTION(Less, <)
DOVETAIL_QUESTION(LessEqual, <=)
DOVETAIL_QUESTION(Greater, >)
DOVETAIL_QUESTION(GreaterEqual, >=)

DOVETAIL_INLINE bool holds(Truth x) { return static_cast<std::uint8_t>(x) != 0; }

#define DOVETAIL_CONNECTIVE(Name, operator_)                                                      \
    struct Name {                                                                                 \
        DOVETAIL_INLINE Truth of(Truth x, Truth y) { return Truth(holds(x) operator_ holds(y)); } \
    };
DOVETAIL_CONNECTIVE(And, &)
DOVETAIL_CONNECTIVE(Or, |)
DOVETAIL_CONNECTIVE(Xor, ^)

struct Not {
    DOVETAIL_INLINE Truth of(Truth x) { return Truth(!holds(x)); }
};

struct Where {
    template <typename T>
    DOVETAIL_INLINE T of(Truth condition, T x, T y) {
        return holds(condition) ? x : y;
    }
};

struct IsNan {
    template <typename T>
    DOVETAIL_INLINE Truth of(T x) {
        return Truth(x != x);
    }
};

template <int Sign>
struct IsInfinite {
    template <typename T>
    DOVETAIL_INLINE Truth of(T x) {
        const T infinity = static_cast<T>(__builtin_inff());
        return Truth((Sign >= 0 && x == infinity) || (Sign <= 0 && x == -infinity));
    }
};

struct IsFinite {
    template <typename T>
    DOVETAIL_INLINE Truth of(T x) {
        return Truth(x - x == 0);
    }
};

#define DOVETAIL_COMPARED(T, t)                                                                                            \
    row2<Equal, Truth, T, T>("equal." t), row2<NotEqual, Truth, T, T>("not_equal." t), row2<Less, Truth, T, T>("less." t), \
        row2<LessEqual, Truth, T, T>("less_equal." t), row2<Greater, Truth, T, T>("greater." t),                           \
        row2<GreaterEqual, Truth, T, T>("greater_equal." t), row3<Where, T, Truth, T, T>("where." t)

#define DOVETAIL_CLASSED(T, t)                                                                                        \
    row1<IsNan, Truth, T>("is_nan." t), row1<IsInfinite<0>, Truth, T>("is_infinite." t),                              \
        row1<IsInfinite<1>, Truth, T>("is_plus_infinite." t), row1<IsInfinite<-1>, Truth, T>("is_minus_infinite." t), \
        row1<IsFinite, Truth, T>("is_finite." t)

constexpr Opcode kOpcodes[] = {
    DOVETAIL_COMPARED(float, "f32"),
    DOVETAIL_COMPARED(double, "f64"),
    DOVETAIL_COMPARED(std::int32_t, "i32"),
    DOVETAIL_COMPARED(std::int64_t, "i64"),
    DOVETAIL_COMPARED(std::int8_t, "i8"),
    DOVETAIL_COMPARED(std::uint8_t, "u8"),
    row3<Where, Truth, Truth, Truth, Truth>("where.boolean"),
    row2<Equal, Truth, Truth, Truth>("equal.boolean"),
    row2<NotEqual, Truth, Truth, Truth>("not_equal.boolean"),
    row2<And, Truth, Truth, Truth>("and.boolean"),
    row2<Or, Truth, Truth, Truth>("or.boolean"),
    row2<Xor, Truth, Truth, Truth>("xor.boolean"),
    row1<Not, Truth, Truth>("not.boolean"),
    DOVETAIL_CLASSED(float, "f32"),
    DOVETAIL_CLASSED(double, "f64"),
};

}  // namespace

Opcodes logical_opcodes() { return {kOpcodes, sizeof kOpcodes / sizeof kOpcodes[0]}; }

}  // namespace dovetail::DOVETAIL_ISA
