// Functions of f32 vectors, each accurate to about two units in the last place; tests/unit/test_kernels_elementwise.py checks
// their errors.
//
// Every multiply-add is explicit (fma), so that the compiler's contraction makes no difference between files. Arguments out of
// range, infinities and NaN give the results of the C library, unless a function says otherwise.
#pragma once

#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {

namespace constants {
constexpr float kLog2E = 1.44269504088896341f;
// ln 2 in two parts: the high part has so few digits that its product with any exponent is exact.
constexpr float kLn2High = 0.693359375f;
constexpr float kLn2Low = -2.12194440e-4f;
}  // namespace constants

// x * 2^n for integers n in [-300, 300].
DOVETAIL_INLINE Floats scale(Floats x, Floats n) {
#if defined(__AVX512F__)
    return (Floats)_mm512_maskz_scalef_ps(kAllLanes, (__m512)x, (__m512)n);
#else
    // The exponent is applied in two steps, so that neither power leaves the range of normal numbers.
    const Ints integer = __builtin_convertvector(n, Ints);
    const Ints half = integer >> 1;
    return x * (Floats)((half + 127) << 23) * (Floats)((integer - half + 127) << 23);
#endif
}

// (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2.
DOVETAIL_INLINE Floats exp_rest(Floats r) {
    Floats p = splat(1.9875691500e-4f);
    p = fma(p, r, 1.3981999507e-3f);
    p = fma(p, r, 8.3334519073e-3f);
    p = fma(p, r, 4.1665795894e-2f);
    p = fma(p, r, 1.6666665459e-1f);
    return fma(p, r, 5.0000001201e-1f);
}

// exp(x) for x in [-104, 89], or NaN.
DOVETAIL_INLINE Floats exp_within(Floats x) {
    const Floats n = round_even(x * constants::kLog2E);
    const Floats r = fma(n, splat(-constants::kLn2Low), fma(n, splat(-constants::kLn2High), x));
    return scale(fma(exp_rest(r), r * r, r) + 1.0f, n);
}

// exp(x) for x <= 89, or NaN. Results that underflow are replaced by 0: a subnormal result costs about a hundred cycles, and the
// masked elements of a softmax are -inf or very negative.
DOVETAIL_INLINE Floats exp_up_to_89(Floats x) {
    const Ints is_zero = x < -104.0f;
    const Floats y = exp_within(is_zero ? Floats{} : x);
    return is_zero ? Floats{} : y;
}

// A NaN stays a NaN: lesser_of returns the second operand if the comparison fails.
DOVETAIL_INLINE Floats exp(Floats x) { return exp_up_to_89(lesser_of(splat(89.0f), x)); }

// exp(x) for x <= 0.
DOVETAIL_INLINE Floats exp_below(Floats x) { return exp_up_to_89(x); }

// 1 + exp(x). x is at least -18, where exp(x) is below half an ulp of 1, so that nothing underflows.
DOVETAIL_INLINE Floats one_and_exp(Floats x) { return 1.0f + exp_within(greater_of(splat(-18.0f), lesser_of(splat(89.0f), x))); }

// exp(x) - 1 for x in [-18, 89], or NaN, with full relative accuracy near 0; +0 for -0.
DOVETAIL_INLINE Floats expm1_within(Floats x) {
    const Floats n = round_even(x * constants::kLog2E);
    const Floats r = fma(n, splat(-constants::kLn2Low), fma(n, splat(-constants::kLn2High), x));
    const Floats p = fma(exp_rest(r), r * r, r);
    // Half of the result is computed: it overflows only if the result overflows.
    const Floats half = scale(splat(0.5f), n);
    return 2.0f * fma(half, p, half - 0.5f);
}

DOVETAIL_INLINE Floats expm1(Floats x) {
    const Floats y = expm1_within(greater_of(splat(-18.0f), lesser_of(splat(89.0f), x)));
    return x == 0.0f ? x : y;
}

// log(x * 2^-shift) for normal positive x.
DOVETAIL_INLINE Floats log_of_normal(Floats x, Floats shift) {
    // x = 2^e * m with m in [sqrt(1/2), sqrt(2)). Unsigned arithmetic, since zeros, infinities and NaN come here too; their
    // results are not used.
    const Ints shifted = (Ints)((Words)x - 0x3f3504f3u);
    const Floats e = __builtin_convertvector(shifted >> 23, Floats) - shift;
    const Floats f = (Floats)((shifted & 0x7fffff) + 0x3f3504f3) - 1.0f;
    const Floats s = f * f;
    Floats p = splat(7.0376836292e-2f);
    p = fma(p, f, -1.1514610310e-1f);
    p = fma(p, f, 1.1676998740e-1f);
    p = fma(p, f, -1.2420140846e-1f);
    p = fma(p, f, 1.4249322787e-1f);
    p = fma(p, f, -1.6668057665e-1f);
    p = fma(p, f, 2.0000714765e-1f);
    p = fma(p, f, -2.4999993993e-1f);
    p = fma(p, f, 3.3333331174e-1f);
    Floats y = p * f * s;
    y = fma(e, splat(constants::kLn2Low), y);
    y = fma(splat(-0.5f), s, y);
    return fma(e, splat(constants::kLn2High), f + y);
}

DOVETAIL_INLINE Floats log(Floats x) {
    const Ints is_tiny = x < 0x1p-126f;
    Floats y = log_of_normal(is_tiny ? x * 0x1p23f : x, is_tiny ? splat(23.0f) : Floats{});
    const Floats infinity = splat(__builtin_inff());
    y = x == 0.0f ? -infinity : y;
    y = x < 0.0f ? splat(__builtin_nanf("")) : y;
    return ((x == infinity) | (x != x)) ? x : y;
}

// log(1 + x) for x in [0, 1], or NaN.
DOVETAIL_INLINE Floats log1p_of_fraction(Floats x) {
    const Floats u = 1.0f + x;
    return log_of_normal(u, Floats{}) + (x - (u - 1.0f)) / u;
}

DOVETAIL_INLINE Floats tanh(Floats x) {
    // tanh(x) is 1 for x > 10; a NaN stays a NaN.
    const Floats e = expm1_within(2.0f * lesser_of(splat(10.0f), abs(x)));
    return with_sign_of(e / (e + 2.0f), x);
}

DOVETAIL_INLINE Floats sigmoid(Floats x) { return 1.0f / one_and_exp(-x); }

// x * sigmoid(x)
DOVETAIL_INLINE Floats silu(Floats x) { return x / one_and_exp(-x); }

// log(exp(x) + 1)
DOVETAIL_INLINE Floats softplus(Floats x) { return greater_of(x, Floats{}) + log1p_of_fraction(exp_below(-abs(x))); }

// Polynomials of N. Juffa (2018): x + x P(x^2) near 0, else 1 - exp(P(x)).
DOVETAIL_INLINE Floats erf(Floats x) {
    // erf(x) is 1 for x > 4; a NaN stays a NaN.
    const Floats size = lesser_of(splat(4.0f), abs(x));
    const Floats square = size * size;
    Floats far = fma(splat(-1.72853470e-5f), size, 3.83197126e-4f);
    const Floats next = fma(splat(-3.88396438e-3f), size, 2.42546219e-2f);
    far = fma(far, square, next);
    far = fma(far, size, -1.06777877e-1f);
    far = fma(far, size, -6.34846687e-1f);
    far = fma(far, size, -1.28717512e-1f);
    far = fma(far, size, -size);
    far = with_sign_of(1.0f - exp_within(far), x);
    Floats near = splat(-5.96761703e-4f);
    near = fma(near, square, 4.99119423e-3f);
    near = fma(near, square, -2.67681349e-2f);
    near = fma(near, square, 1.12819925e-1f);
    near = fma(near, square, -3.76125336e-1f);
    near = fma(near, square, 1.28379166e-1f);
    near = fma(near, x, x);
    return size > 0.927734375f ? far : near;
}

DOVETAIL_INLINE Floats gelu_erf(Floats x) { return x * 0.5f * (1.0f + erf(x * 0.707106781186547524f)); }

DOVETAIL_INLINE Floats gelu_tanh(Floats x) {
    const Floats inner = fma(x * x * x, splat(0.044715f), x) * 0.797884560802865356f;
    return x * 0.5f * (1.0f + tanh(inner));
}

}  // namespace dovetail::DOVETAIL_ISA
