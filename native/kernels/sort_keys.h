// Elements in order, as whole numbers that are compared at once.
#pragma once

#include <cstdint>
#include <cstring>

namespace dovetail {

// The order of a type's elements as that of whole numbers: a NaN above all others, both zeros alike.
template <typename Bits, typename T>
Bits rank_of_real(T x) {
    constexpr Bits sign = Bits{1} << (8 * sizeof(T) - 1);
    if (x != x) return ~Bits{0};
    x += T{0};
    Bits bits;
    std::memcpy(&bits, &x, sizeof(T));
    return bits & sign ? ~bits : bits | sign;
}

inline std::uint32_t rank_of(float x) { return rank_of_real<std::uint32_t>(x); }
inline std::uint64_t rank_of(double x) { return rank_of_real<std::uint64_t>(x); }
inline std::uint32_t rank_of(std::int32_t x) { return static_cast<std::uint32_t>(x) ^ 0x80000000u; }
inline std::uint64_t rank_of(std::int64_t x) { return static_cast<std::uint64_t>(x) ^ 0x8000000000000000u; }

}  // namespace dovetail
