// Loops over the elements of a tile, and the rows of the opcode table made of them.
//
// Only headers without code of their own may be included beside this: what the linker merges could be the form for another
// processor.
#pragma once

#include "kernels/elementwise.h"
#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {

// A truth value in memory: a byte of 0 or 1.
enum class Truth : std::uint8_t {};

// Floats of 16 bits in memory: of IEEE 754, and the upper half of an f32.
enum class Half : std::uint16_t {};
enum class Brain : std::uint16_t {};

template <typename T>
constexpr Element kElement = Element::other;
template <>
inline constexpr Element kElement<double> = Element::f64;
template <>
inline constexpr Element kElement<float> = Element::f32;
template <>
inline constexpr Element kElement<Half> = Element::f16;
template <>
inline constexpr Element kElement<Brain> = Element::bf16;
template <>
inline constexpr Element kElement<std::int64_t> = Element::i64;
template <>
inline constexpr Element kElement<std::int32_t> = Element::i32;
template <>
inline constexpr Element kElement<std::int16_t> = Element::i16;
template <>
inline constexpr Element kElement<std::int8_t> = Element::i8;
template <>
inline constexpr Element kElement<std::uint64_t> = Element::u64;
template <>
inline constexpr Element kElement<std::uint32_t> = Element::u32;
template <>
inline constexpr Element kElement<std::uint16_t> = Element::u16;
template <>
inline constexpr Element kElement<std::uint8_t> = Element::u8;
template <>
inline constexpr Element kElement<Truth> = Element::boolean;

template <typename T>
DOVETAIL_INLINE const T* source(const Tile& tile, int operand, std::int64_t row) {
    return reinterpret_cast<const T*>(tile.from[operand] + row * tile.from_step[operand]);
}

template <typename T>
DOVETAIL_INLINE T* target(const Tile& tile, std::int64_t row) {
    return reinterpret_cast<T*>(tile.to + row * tile.to_step);
}

template <typename F, typename R, typename A>
void each1(const Tile& tile) {
    for (std::int64_t row = 0; row < tile.rows; ++row) {
        R* to = target<R>(tile, row);
        const A* a = source<A>(tile, 0, row);
        DOVETAIL_INDEPENDENT
        for (std::int64_t i = 0; i < tile.columns; ++i) to[i] = F::of(a[i]);
    }
}

template <typename F, typename R, typename A, typename B>
void each2(const Tile& tile) {
    for (std::int64_t row = 0; row < tile.rows; ++row) {
        R* to = target<R>(tile, row);
        const A* a = source<A>(tile, 0, row);
        const B* b = source<B>(tile, 1, row);
        if (tile.is_one[1]) {
            const B one = *b;
            DOVETAIL_INDEPENDENT
            for (std::int64_t i = 0; i < tile.columns; ++i) to[i] = F::of(a[i], one);
        } else if (tile.is_one[0]) {
            const A one = *a;
            DOVETAIL_INDEPENDENT
            for (std::int64_t i = 0; i < tile.columns; ++i) to[i] = F::of(one, b[i]);
        } else {
            DOVETAIL_INDEPENDENT
            for (std::int64_t i = 0; i < tile.columns; ++i) to[i] = F::of(a[i], b[i]);
        }
    }
}

template <typename F, typename R, typename A, typename B, typename C>
void each3(const Tile& tile) {
    for (std::int64_t row = 0; row < tile.rows; ++row) {
        R* to = target<R>(tile, row);
        const A* a = source<A>(tile, 0, row);
        const B* b = source<B>(tile, 1, row);
        const C* c = source<C>(tile, 2, row);
        DOVETAIL_INDEPENDENT
        for (std::int64_t i = 0; i < tile.columns; ++i) to[i] = F::of(a[i], b[i], c[i]);
    }
}

// Functions of whole vectors of f32.
template <typename F>
void vectors1(const Tile& tile) {
    for (std::int64_t row = 0; row < tile.rows; ++row) {
        float* to = target<float>(tile, row);
        const float* a = source<float>(tile, 0, row);
        std::int64_t i = 0;
        for (; i + 2 * kLanes <= tile.columns; i += 2 * kLanes) {
            const Floats first = F::of(load(a + i));
            const Floats second = F::of(load(a + i + kLanes));
            store(to + i, first);
            store(to + i + kLanes, second);
        }
        for (; i + kLanes <= tile.columns; i += kLanes) store(to + i, F::of(load(a + i)));
        if (const std::int64_t rest = tile.columns - i; rest > 0) store_first(to + i, F::of(load_first(a + i, rest)), rest);
    }
}

// A cast that has a form for whole vectors; the rest goes one by one.
template <typename F, typename R, typename A>
void casts1(const Tile& tile) {
    for (std::int64_t row = 0; row < tile.rows; ++row) {
        R* to = target<R>(tile, row);
        const A* a = source<A>(tile, 0, row);
        std::int64_t i = 0;
        for (; i + kLanes <= tile.columns; i += kLanes) F::vector(to + i, a + i);
        for (; i < tile.columns; ++i) to[i] = F::of(a[i]);
    }
}

template <typename F, typename R, typename A>
constexpr Opcode cast_row1(const char* name) {
    return {name, casts1<F, R, A>, kElement<R>, 1, {kElement<A>, Element::other, Element::other}};
}

template <typename F, typename R, typename A>
constexpr Opcode row1(const char* name) {
    return {name, each1<F, R, A>, kElement<R>, 1, {kElement<A>, Element::other, Element::other}};
}

template <typename F, typename R, typename A, typename B>
constexpr Opcode row2(const char* name) {
    return {name, each2<F, R, A, B>, kElement<R>, 2, {kElement<A>, kElement<B>, Element::other}};
}

template <typename F, typename R, typename A, typename B, typename C>
constexpr Opcode row3(const char* name) {
    return {name, each3<F, R, A, B, C>, kElement<R>, 3, {kElement<A>, kElement<B>, kElement<C>}};
}

template <typename F>
constexpr Opcode vector_row1(const char* name) {
    return {name, vectors1<F>, Element::f32, 1, {Element::f32, Element::other, Element::other}};
}

}  // namespace dovetail::DOVETAIL_ISA
