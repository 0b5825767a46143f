// Chain instructions: functions of floats.
#include "kernels/simd/elementwise_loops.h"
#include "kernels/simd/math.h"

// The C library's functions under their C names: C++'s overloads are inline, and might be shared between instruction sets.
#include <math.h>

namespace dovetail::DOVETAIL_ISA {
namespace {

// A function of whole vectors in math.h.
#define DOVETAIL_VECTOR(Name, expression)                          \
    struct Name {                                                  \
        DOVETAIL_INLINE Floats of(Floats x) { return expression; } \
    };
DOVETAIL_VECTOR(Exp, exp(x))
DOVETAIL_VECTOR(Expm1, expm1(x))
DOVETAIL_VECTOR(Log, log(x))
DOVETAIL_VECTOR(Tanh, tanh(x))
DOVETAIL_VECTOR(Sigmoid, sigmoid(x))
DOVETAIL_VECTOR(Silu, silu(x))
DOVETAIL_VECTOR(Softplus, softplus(x))
DOVETAIL_VECTOR(Mish, x* tanh(softplus(x)))
DOVETAIL_VECTOR(Erf, erf(x))
DOVETAIL_VECTOR(GeluErf, gelu_erf(x))
DOVETAIL_VECTOR(GeluTanh, gelu_tanh(x))
DOVETAIL_VECTOR(Sqrt, sqrt(x))
DOVETAIL_VECTOR(Floor, floor(x))
DOVETAIL_VECTOR(Ceil, ceil(x))
DOVETAIL_VECTOR(RoundEven, round_even(x))
DOVETAIL_VECTOR(RoundAway, with_sign_of(trunc(x) + (abs(x - trunc(x)) >= 0.5f ? with_sign_of(splat(1.0f), x) : Floats{}), x))
DOVETAIL_VECTOR(Reciprocal, 1.0f / x)

// A function of the C library, in f64; for f32 too, whose results are then as good as exact.
#define DOVETAIL_LIBRARY(Name, expression)                                        \
    struct Name {                                                                 \
        DOVETAIL_INLINE double wide(double x) { return expression; }              \
        DOVETAIL_INLINE double of(double x) { return wide(x); }                   \
        DOVETAIL_INLINE float of(float x) { return static_cast<float>(wide(x)); } \
    };
DOVETAIL_LIBRARY(WideExp, ::exp(x))
DOVETAIL_LIBRARY(WideExpm1, ::expm1(x))
DOVETAIL_LIBRARY(WideLog, ::log(x))
DOVETAIL_LIBRARY(WideTanh, ::tanh(x))
DOVETAIL_LIBRARY(WideSigmoid, 1.0 / (1.0 + ::exp(-x)))
DOVETAIL_LIBRARY(WideSilu, x / (1.0 + ::exp(-x)))
DOVETAIL_LIBRARY(WideSoftplus, x != x ? x : (x > 0 ? x : 0) + ::log1p(::exp(-::fabs(x))))
DOVETAIL_LIBRARY(WideErf, ::erf(x))
DOVETAIL_LIBRARY(WideGeluErf, x * 0.5 * (1.0 + ::erf(x * 0.70710678118654752440)))
DOVETAIL_LIBRARY(WideGeluTanh, x * 0.5 * (1.0 + ::tanh((x + x * x * x * 0.044715) * 0.79788456080286535588)))
DOVETAIL_LIBRARY(WideMish, x* ::tanh(x > 0 ? x + ::log1p(::exp(-x)) : ::log1p(::exp(x))))
DOVETAIL_LIBRARY(WideSqrt, ::sqrt(x))
DOVETAIL_LIBRARY(WideFloor, ::floor(x))
DOVETAIL_LIBRARY(WideCeil, ::ceil(x))
DOVETAIL_LIBRARY(WideRoundEven, ::rint(x))
DOVETAIL_LIBRARY(WideRoundAway, ::round(x))
DOVETAIL_LIBRARY(WideReciprocal, 1.0 / x)
DOVETAIL_LIBRARY(Sin, ::sin(x))
DOVETAIL_LIBRARY(Cos, ::cos(x))
DOVETAIL_LIBRARY(Tan, ::tan(x))
DOVETAIL_LIBRARY(Asin, ::asin(x))
DOVETAIL_LIBRARY(Acos, ::acos(x))
DOVETAIL_LIBRARY(Atan, ::atan(x))
DOVETAIL_LIBRARY(Sinh, ::sinh(x))
DOVETAIL_LIBRARY(Cosh, ::cosh(x))
DOVETAIL_LIBRARY(Asinh, ::asinh(x))
DOVETAIL_LIBRARY(Acosh, ::acosh(x))
DOVETAIL_LIBRARY(Atanh, ::atanh(x))

struct Power {
    DOVETAIL_INLINE double of(double x, double y) { return ::pow(x, y); }
    DOVETAIL_INLINE float of(float x, float y) { return ::powf(x, y); }
};

// fmod as dovetail.ops.elementwise.binary has it: exact, x for an infinite y.
struct TruncateMod {
    DOVETAIL_INLINE double of(double x, double y) { return ::fmod(x, y); }
    DOVETAIL_INLINE float of(float x, float y) { return ::fmodf(x, y); }
};

// The same with the sign of y.
struct FloorMod {
    template <typename T>
    DOVETAIL_INLINE T of(T x, T y) {
        const T rest = TruncateMod::of(x, y);
        if (rest == 0) return static_cast<T>(::copysign(rest, y));
        return (rest < 0) != (y < 0) ? rest + y : rest;
    }
};

constexpr Opcode kOpcodes[] = {
    vector_row1<Exp>("exp.f32"),
    vector_row1<Expm1>("expm1.f32"),
    vector_row1<Log>("log.f32"),
    vector_row1<Tanh>("tanh.f32"),
    vector_row1<Sigmoid>("sigmoid.f32"),
    vector_row1<Silu>("silu.f32"),
    vector_row1<Softplus>("softplus.f32"),
    vector_row1<Mish>("mish.f32"),
    vector_row1<Erf>("erf.f32"),
    vector_row1<GeluErf>("gelu_erf.f32"),
    vector_row1<GeluTanh>("gelu_tanh.f32"),
    vector_row1<Sqrt>("sqrt.f32"),
    vector_row1<Floor>("floor.f32"),
    vector_row1<Ceil>("ceil.f32"),
    vector_row1<RoundEven>("round_even.f32"),
    vector_row1<RoundAway>("round_away.f32"),
    vector_row1<Reciprocal>("reciprocal.f32"),
    row1<WideExp, double, double>("exp.f64"),
    row1<WideExpm1, double, double>("expm1.f64"),
    row1<WideLog, double, double>("log.f64"),
    row1<WideTanh, double, double>("tanh.f64"),
    row1<WideSigmoid, double, double>("sigmoid.f64"),
    row1<WideSilu, double, double>("silu.f64"),
    row1<WideSoftplus, double, double>("softplus.f64"),
    row1<WideMish, double, double>("mish.f64"),
    row1<WideErf, double, double>("erf.f64"),
    row1<WideGeluErf, double, double>("gelu_erf.f64"),
    row1<WideGeluTanh, double, double>("gelu_tanh.f64"),
    row1<WideSqrt, double, double>("sqrt.f64"),
    row1<WideFloor, double, double>("floor.f64"),
    row1<WideCeil, double, double>("ceil.f64"),
    row1<WideRoundEven, double, double>("round_even.f64"),
    row1<WideRoundAway, double, double>("round_away.f64"),
    row1<WideReciprocal, double, double>("reciprocal.f64"),
#define DOVETAIL_BOTH(Name, name) row1<Name, float, float>(name ".f32"), row1<Name, double, double>(name ".f64")
    DOVETAIL_BOTH(Sin, "sin"),
    DOVETAIL_BOTH(Cos, "cos"),
    DOVETAIL_BOTH(Tan, "tan"),
    DOVETAIL_BOTH(Asin, "asin"),
    DOVETAIL_BOTH(Acos, "acos"),
    DOVETAIL_BOTH(Atan, "atan"),
    DOVETAIL_BOTH(Sinh, "sinh"),
    DOVETAIL_BOTH(Cosh, "cosh"),
    DOVETAIL_BOTH(Asinh, "asinh"),
    DOVETAIL_BOTH(Acosh, "acosh"),
    DOVETAIL_BOTH(Atanh, "atanh"),
#define DOVETAIL_PAIR(Name, name) row2<Name, float, float, float>(name ".f32"), row2<Name, double, double, double>(name ".f64")
    DOVETAIL_PAIR(Power, "power"),
    DOVETAIL_PAIR(TruncateMod, "truncate_mod"),
    DOVETAIL_PAIR(FloorMod, "floor_mod"),
};

}  // namespace

Opcodes float_opcodes() { return {kOpcodes, sizeof kOpcodes / sizeof kOpcodes[0]}; }

}  // namespace dovetail::DOVETAIL_ISA
