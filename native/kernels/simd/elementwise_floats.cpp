// Elementwise instructions: functions of floats.
#include "kernels/simd/elementwise_loops.h"
#include "kernels/simd/math.h"

// The C library's functions under their C names: C++ overloads are inline, and the linker might merge them across instruction
// sets.
#include <math.h>

namespace dovetail::DOVETAIL_ISA {
namespace {

// A vector function of math.h.
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

// True if all elements are below 0.5; false if one is NaN.
DOVETAIL_INLINE bool are_below_half(Floats x) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)x, (__m512)splat(0.5f), _CMP_LT_OQ) == kAllLanes;
#elif defined(__AVX2__)
    return _mm256_movemask_ps((__m256)(x < 0.5f)) == 0xff;
#elif defined(__SSE2__)
    return _mm_movemask_ps((__m128)(x < 0.5f)) == 0xf;
#else
    for (int i = 0; i < kLanes; ++i)
        if (!(x[i] < 0.5f)) return false;
    return true;
#endif
}

// x / y rounded to an f32 and then to an integer. Divisions take several times as long as products. If no half-integer is
// between x / y and the product of x and the reciprocal of y, both round to the same integer. The two differ by less than 2^-22
// of the product: three roundings of at most 2^-24 each.
struct RoundQuotient {
    DOVETAIL_INLINE Floats exact(Floats x, Floats y) { return round_even(x / y); }
    DOVETAIL_INLINE float of(float x, float y) { return round_even(splat(x / y))[0]; }

    // `distance` is an upper bound of the distance between x / y and the result. If it is below 0.5, the result is exact.
    DOVETAIL_INLINE Floats of(Floats x, Floats reciprocal, Floats& distance) {
        const Floats product = x * reciprocal;
        const Floats whole = round_even(product);
        distance = abs(product - whole) + abs(product) * 0x1p-22f;
        return whole;
    }
};

void round_quotients_by(float* to, const float* x, float divisor, std::int64_t count) {
    const float size = divisor < 0 ? -divisor : divisor;
    const Floats y = splat(divisor);
    std::int64_t i = 0;
    // The reciprocal of any other divisor may be subnormal or infinite.
    if (size >= 0x1p-100f && size <= 0x1p100f) {
        const Floats reciprocal = splat(1.0f / divisor);
        for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
            const Floats x0 = load(x + i), x1 = load(x + i + kLanes);
            Floats distance0, distance1;
            Floats y0 = RoundQuotient::of(x0, reciprocal, distance0), y1 = RoundQuotient::of(x1, reciprocal, distance1);
            if (!are_below_half(distance0)) y0 = RoundQuotient::exact(x0, y);
            if (!are_below_half(distance1)) y1 = RoundQuotient::exact(x1, y);
            store(to + i, y0);
            store(to + i + kLanes, y1);
        }
    }
    for (; i + kLanes <= count; i += kLanes) store(to + i, RoundQuotient::exact(load(x + i), y));
    if (const std::int64_t remainder = count - i; remainder > 0)
        store_first(to + i, RoundQuotient::exact(load_first(x + i, remainder), y), remainder);
}

void round_quotients(const InstructionTile& tile) {
    if (!tile.is_scalar[1]) return loop2<RoundQuotient, float, float, float>(tile);
    for (std::int64_t row = 0; row < tile.rows; ++row)
        round_quotients_by(target<float>(tile, row), source<float>(tile, 0, row), *source<float>(tile, 1, row), tile.columns);
}

// A function of the C library, computed in f64. For f32 the result is rounded once and nearly correctly rounded.
#define DOVETAIL_LIBRARY(Name, expression)                                        \
    struct Name {                                                                 \
        DOVETAIL_INLINE double wide(double x) { return expression; }              \
        DOVETAIL_INLINE double of(double x) { return wide(x); }                   \
        DOVETAIL_INLINE float of(float x) { return static_cast<float>(wide(x)); } \
    };
DOVETAIL_LIBRARY(ExpF64, ::exp(x))
DOVETAIL_LIBRARY(Expm1F64, ::expm1(x))
DOVETAIL_LIBRARY(LogF64, ::log(x))
DOVETAIL_LIBRARY(TanhF64, ::tanh(x))
DOVETAIL_LIBRARY(SigmoidF64, 1.0 / (1.0 + ::exp(-x)))
DOVETAIL_LIBRARY(SiluF64, x / (1.0 + ::exp(-x)))
DOVETAIL_LIBRARY(SoftplusF64, x != x ? x : (x > 0 ? x : 0) + ::log1p(::exp(-::fabs(x))))
DOVETAIL_LIBRARY(ErfF64, ::erf(x))
DOVETAIL_LIBRARY(GeluErfF64, x * 0.5 * (1.0 + ::erf(x * 0.70710678118654752440)))
DOVETAIL_LIBRARY(GeluTanhF64, x * 0.5 * (1.0 + ::tanh((x + x * x * x * 0.044715) * 0.79788456080286535588)))
DOVETAIL_LIBRARY(MishF64, x* ::tanh(x > 0 ? x + ::log1p(::exp(-x)) : ::log1p(::exp(x))))
DOVETAIL_LIBRARY(SqrtF64, ::sqrt(x))
DOVETAIL_LIBRARY(FloorF64, ::floor(x))
DOVETAIL_LIBRARY(CeilF64, ::ceil(x))
DOVETAIL_LIBRARY(RoundEvenF64, ::rint(x))
DOVETAIL_LIBRARY(RoundAwayF64, ::round(x))
DOVETAIL_LIBRARY(ReciprocalF64, 1.0 / x)
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

// fmod as in dovetail.ops.elementwise.binary: exact; x for an infinite y.
struct TruncateMod {
    DOVETAIL_INLINE double of(double x, double y) { return ::fmod(x, y); }
    DOVETAIL_INLINE float of(float x, float y) { return ::fmodf(x, y); }
};

// The remainder with the sign of y.
struct FloorMod {
    template <typename T>
    DOVETAIL_INLINE T of(T x, T y) {
        const T remainder = TruncateMod::of(x, y);
        if (remainder == 0) return static_cast<T>(::copysign(remainder, y));
        return (remainder < 0) != (y < 0) ? remainder + y : remainder;
    }
};

constexpr Opcode kOpcodes[] = {
    vector_opcode1<Exp>("exp.f32"),
    vector_opcode1<Expm1>("expm1.f32"),
    vector_opcode1<Log>("log.f32"),
    vector_opcode1<Tanh>("tanh.f32"),
    vector_opcode1<Sigmoid>("sigmoid.f32"),
    vector_opcode1<Silu>("silu.f32"),
    vector_opcode1<Softplus>("softplus.f32"),
    vector_opcode1<Mish>("mish.f32"),
    {"round_quotient.f32", round_quotients, Element::f32, 2, {Element::f32, Element::f32, Element::other}},
    vector_opcode1<Erf>("erf.f32"),
    vector_opcode1<GeluErf>("gelu_erf.f32"),
    vector_opcode1<GeluTanh>("gelu_tanh.f32"),
    vector_opcode1<Sqrt>("sqrt.f32"),
    vector_opcode1<Floor>("floor.f32"),
    vector_opcode1<Ceil>("ceil.f32"),
    vector_opcode1<RoundEven>("round_even.f32"),
    vector_opcode1<RoundAway>("round_away.f32"),
    vector_opcode1<Reciprocal>("reciprocal.f32"),
    opcode1<ExpF64, double, double>("exp.f64"),
    opcode1<Expm1F64, double, double>("expm1.f64"),
    opcode1<LogF64, double, double>("log.f64"),
    opcode1<TanhF64, double, double>("tanh.f64"),
    opcode1<SigmoidF64, double, double>("sigmoid.f64"),
    opcode1<SiluF64, double, double>("silu.f64"),
    opcode1<SoftplusF64, double, double>("softplus.f64"),
    opcode1<MishF64, double, double>("mish.f64"),
    opcode1<ErfF64, double, double>("erf.f64"),
    opcode1<GeluErfF64, double, double>("gelu_erf.f64"),
    opcode1<GeluTanhF64, double, double>("gelu_tanh.f64"),
    opcode1<SqrtF64, double, double>("sqrt.f64"),
    opcode1<FloorF64, double, double>("floor.f64"),
    opcode1<CeilF64, double, double>("ceil.f64"),
    opcode1<RoundEvenF64, double, double>("round_even.f64"),
    opcode1<RoundAwayF64, double, double>("round_away.f64"),
    opcode1<ReciprocalF64, double, double>("reciprocal.f64"),
#define DOVETAIL_BOTH(Name, name) opcode1<Name, float, float>(name ".f32"), opcode1<Name, double, double>(name ".f64")
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
#define DOVETAIL_PAIR(Name, name) \
    opcode2<Name, float, float, float>(name ".f32"), opcode2<Name, double, double, double>(name ".f64")
    DOVETAIL_PAIR(Power, "power"),
    DOVETAIL_PAIR(TruncateMod, "truncate_mod"),
    DOVETAIL_PAIR(FloorMod, "floor_mod"),
};

}  // namespace

OpcodeTable float_opcodes() { return {kOpcodes, sizeof kOpcodes / sizeof kOpcodes[0]}; }

}  // namespace dovetail::DOVETAIL_ISA
