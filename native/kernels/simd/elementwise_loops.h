// Loops over the elements of an instruction's tile, and the macros for entries of the opcode table. A source that includes this
// header may include no header with functions of external linkage: the linker could merge them with code for another
// instruction set.
#pragma once

#include "kernels/elementwise.h"
#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {

// A boolean in memory: a byte of 0 or 1.
enum class Bool : std::uint8_t {};

// Half-precision floats in memory: IEEE 754 binary16, and bfloat16, the upper half of an f32.
enum class Float16 : std::uint16_t {};
enum class BFloat16 : std::uint16_t {};

template <typename T>
constexpr Element kElement = Element::other;
template <>
inline constexpr Element kElement<double> = Element::f64;
template <>
inline constexpr Element kElement<float> = Element::f32;
template <>
inline constexpr Element kElement<Float16> = Element::f16;
template <>
inline constexpr Element kElement<BFloat16> = Element::bf16;
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
inline constexpr Element kElement<Bool> = Element::boolean;

template <typename T>
DOVETAIL_INLINE const T* source(const InstructionTile& tile, int operand, std::int64_t row) {
    return reinterpret_cast<const T*>(tile.from[operand] + row * tile.from_step[operand]);
}

template <typename T>
DOVETAIL_INLINE T* target(const InstructionTile& tile, std::int64_t row) {
    return reinterpret_cast<T*>(tile.to + row * tile.to_step);
}

template <typename F, typename R, typename A>
void loop1(const InstructionTile& tile) {
    for (std::int64_t row = 0; row < tile.rows; ++row) {
        R* to = target<R>(tile, row);
        const A* a = source<A>(tile, 0, row);
        DOVETAIL_INDEPENDENT
        for (std::int64_t i = 0; i < tile.columns; ++i) to[i] = F::of(a[i]);
    }
}

template <typename F, typename R, typename A, typename B>
void loop2(const InstructionTile& tile) {
    for (std::int64_t row = 0; row < tile.rows; ++row) {
        R* to = target<R>(tile, row);
        const A* a = source<A>(tile, 0, row);
        const B* b = source<B>(tile, 1, row);
        if (tile.is_scalar[1]) {
            const B scalar = *b;
            DOVETAIL_INDEPENDENT
            for (std::int64_t i = 0; i < tile.columns; ++i) to[i] = F::of(a[i], scalar);
        } else if (tile.is_scalar[0]) {
            const A scalar = *a;
            DOVETAIL_INDEPENDENT
            for (std::int64_t i = 0; i < tile.columns; ++i) to[i] = F::of(scalar, b[i]);
        } else {
            DOVETAIL_INDEPENDENT
            for (std::int64_t i = 0; i < tile.columns; ++i) to[i] = F::of(a[i], b[i]);
        }
    }
}

template <typename F, typename R, typename A, typename B, typename C>
void loop3(const InstructionTile& tile) {
    for (std::int64_t row = 0; row < tile.rows; ++row) {
        R* to = target<R>(tile, row);
        const A* a = source<A>(tile, 0, row);
        const B* b = source<B>(tile, 1, row);
        const C* c = source<C>(tile, 2, row);
        DOVETAIL_INDEPENDENT
        for (std::int64_t i = 0; i < tile.columns; ++i) to[i] = F::of(a[i], b[i], c[i]);
    }
}

// Applies a function of whole f32 vectors.
template <typename F>
void vector_loop1(const InstructionTile& tile) {
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
        if (const std::int64_t remainder = tile.columns - i; remainder > 0)
            store_first(to + i, F::of(load_first(a + i, remainder)), remainder);
    }
}

// Applies a cast that has a vector form; remaining elements are cast one by one.
template <typename F, typename R, typename A>
void cast_loop1(const InstructionTile& tile) {
    for (std::int64_t row = 0; row < tile.rows; ++row) {
        R* to = target<R>(tile, row);
        const A* a = source<A>(tile, 0, row);
        std::int64_t i = 0;
        for (; i + kLanes <= tile.columns; i += kLanes) F::vector(to + i, a + i);
        for (; i < tile.columns; ++i) to[i] = F::of(a[i]);
    }
}

// Marks an instruction as cheap if a vector of its result type takes one or two operations.
constexpr Opcode cheap(Opcode opcode) {
    opcode.is_cheap = opcode.result == Element::f32 || opcode.result == Element::f64 || opcode.result == Element::i32;
    return opcode;
}

template <typename F, typename R, typename A>
constexpr Opcode cast_opcode1(const char* name) {
    return {name, cast_loop1<F, R, A>, kElement<R>, 1, {kElement<A>, Element::other, Element::other}};
}

template <typename F, typename R, typename A>
constexpr Opcode opcode1(const char* name) {
    return {name, loop1<F, R, A>, kElement<R>, 1, {kElement<A>, Element::other, Element::other}};
}

template <typename F, typename R, typename A, typename B>
constexpr Opcode opcode2(const char* name) {
    return {name, loop2<F, R, A, B>, kElement<R>, 2, {kElement<A>, kElement<B>, Element::other}};
}

template <typename F, typename R, typename A, typename B, typename C>
constexpr Opcode opcode3(const char* name) {
    return {name, loop3<F, R, A, B, C>, kElement<R>, 3, {kElement<A>, kElement<B>, kElement<C>}};
}

template <typename F>
constexpr Opcode vector_opcode1(const char* name) {
    return {name, vector_loop1<F>, Element::f32, 1, {Element::f32, Element::other, Element::other}};
}

}  // namespace dovetail::DOVETAIL_ISA
