// Integer minimum, maximum and rounding division.
//
// The functions have internal linkage and are always inlined: code for one instruction set must not call a copy compiled for
// another.
#pragma once

#include <cstdint>

namespace dovetail {

#define DOVETAIL_INT_MATH static inline __attribute__((always_inline, unused)) constexpr

DOVETAIL_INT_MATH std::int64_t min(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
DOVETAIL_INT_MATH std::int64_t max(std::int64_t a, std::int64_t b) { return a < b ? b : a; }

// The quotient rounded up, for a >= 0 and b > 0.
DOVETAIL_INT_MATH std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The least multiple of b that is at least a.
DOVETAIL_INT_MATH std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

#undef DOVETAIL_INT_MATH

}  // namespace dovetail
