// Sort keys: unsigned integers in the order of the elements.
#pragma once

#include <cstdint>
#include <cstring>

namespace dovetail {

// The key of a float: NaN above all numbers, -0 equal to +0.
template <typename Bits, typename T>
Bits sort_key_of_float(T x) {
    constexpr Bits sign = Bits{1} << (8 * sizeof(T) - 1);
    if (x != x) return ~Bits{0};
    x += T{0};
    Bits bits;
    std::memcpy(&bits, &x, sizeof(T));
    return bits & sign ? ~bits : bits | sign;
}

inline std::uint32_t sort_key(float x) { return sort_key_of_float<std::uint32_t>(x); }
inline std::uint64_t sort_key(double x) { return sort_key_of_float<std::uint64_t>(x); }
inline std::uint32_t sort_key(std::int32_t x) { return static_cast<std::uint32_t>(x) ^ 0x80000000u; }
inline std::uint64_t sort_key(std::int64_t x) { return static_cast<std::uint64_t>(x) ^ 0x8000000000000000u; }

}  // namespace dovetail
