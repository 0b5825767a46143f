// Elementwise instructions: comparisons, logical operators and Where.
#include "kernels/simd/elementwise_loops.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

#define DOVETAIL_COMPARISON(Name, operator_) \
    struct Name {                            \
        template <typename T>                \
        DOVETAIL_INLINE Bool of(T x, T y) {  \
            return Bool(x operator_ y);      \
        }                                    \
    };
DOVETAIL_COMPARISON(Equal, ==)
DOVETAIL_COMPARISON(NotEqual, !=)
DOVETAIL_COMPARISON(Less, <)
DOVETAIL_COMPARISON(LessEqual, <=)
DOVETAIL_COMPARISON(Greater, >)
DOVETAIL_COMPARISON(GreaterEqual, >=)

DOVETAIL_INLINE bool is_true(Bool x) { return static_cast<std::uint8_t>(x) != 0; }
// A boolean: 0 or 1.
DOVETAIL_INLINE std::uint8_t bit(Bool x) { return is_true(x); }

#define DOVETAIL_LOGICAL(Name, operator_)                                                 \
    struct Name {                                                                         \
        DOVETAIL_INLINE Bool of(Bool x, Bool y) { return Bool(bit(x) operator_ bit(y)); } \
    };
DOVETAIL_LOGICAL(And, &)
DOVETAIL_LOGICAL(Or, |)
DOVETAIL_LOGICAL(Xor, ^)

struct Not {
    DOVETAIL_INLINE Bool of(Bool x) { return Bool(!is_true(x)); }
};

struct Where {
    template <typename T>
    DOVETAIL_INLINE T of(Bool condition, T x, T y) {
        return is_true(condition) ? x : y;
    }
};

struct IsNan {
    template <typename T>
    DOVETAIL_INLINE Bool of(T x) {
        return Bool(x != x);
    }
};

template <int Sign>
struct IsInfinite {
    template <typename T>
    DOVETAIL_INLINE Bool of(T x) {
        const T infinity = static_cast<T>(__builtin_inff());
        return Bool((Sign >= 0 && x == infinity) || (Sign <= 0 && x == -infinity));
    }
};

struct IsFinite {
    template <typename T>
    DOVETAIL_INLINE Bool of(T x) {
        return Bool(x - x == 0);
    }
};

#define DOVETAIL_COMPARISONS(T, t)                                                                                               \
    opcode2<Equal, Bool, T, T>("equal." t), opcode2<NotEqual, Bool, T, T>("not_equal." t), opcode2<Less, Bool, T, T>("less." t), \
        opcode2<LessEqual, Bool, T, T>("less_equal." t), opcode2<Greater, Bool, T, T>("greater." t),                             \
        opcode2<GreaterEqual, Bool, T, T>("greater_equal." t), opcode3<Where, T, Bool, T, T>("where." t)

#define DOVETAIL_CLASSIFICATIONS(T, t)                                                                                    \
    opcode1<IsNan, Bool, T>("is_nan." t), opcode1<IsInfinite<0>, Bool, T>("is_infinite." t),                              \
        opcode1<IsInfinite<1>, Bool, T>("is_plus_infinite." t), opcode1<IsInfinite<-1>, Bool, T>("is_minus_infinite." t), \
        opcode1<IsFinite, Bool, T>("is_finite." t)

constexpr Opcode kOpcodes[] = {
    DOVETAIL_COMPARISONS(float, "f32"),
    DOVETAIL_COMPARISONS(double, "f64"),
    DOVETAIL_COMPARISONS(std::int32_t, "i32"),
    DOVETAIL_COMPARISONS(std::int64_t, "i64"),
    DOVETAIL_COMPARISONS(std::int8_t, "i8"),
    DOVETAIL_COMPARISONS(std::uint8_t, "u8"),
    opcode3<Where, Bool, Bool, Bool, Bool>("where.boolean"),
    opcode2<Equal, Bool, Bool, Bool>("equal.boolean"),
    opcode2<NotEqual, Bool, Bool, Bool>("not_equal.boolean"),
    opcode2<And, Bool, Bool, Bool>("and.boolean"),
    opcode2<Or, Bool, Bool, Bool>("or.boolean"),
    opcode2<Xor, Bool, Bool, Bool>("xor.boolean"),
    opcode1<Not, Bool, Bool>("not.boolean"),
    DOVETAIL_CLASSIFICATIONS(float, "f32"),
    DOVETAIL_CLASSIFICATIONS(double, "f64"),
};

}  // namespace

OpcodeTable logical_opcodes() { return {kOpcodes, sizeof kOpcodes / sizeof kOpcodes[0]}; }

}  // namespace dovetail::DOVETAIL_ISA
