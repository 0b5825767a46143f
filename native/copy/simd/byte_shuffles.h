// Vectors as movement uses them: bytes in lanes of 16, and the one shuffle that all rearrangement is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace dovetail::DOVETAIL_ISA {

#if defined(__AVX512F__)
constexpr std::size_t kVector = 64;
#elif defined(__AVX2__)
constexpr std::size_t kVector = 32;
#else
constexpr std::size_t kVector = 16;
#endif

template <std::size_t Bytes>
struct VectorOf {
    typedef unsigned char type __attribute__((vector_size(Bytes)));
};
template <std::size_t Bytes>
using Vector = typename VectorOf<Bytes>::type;

template <std::size_t Bytes>
inline Vector<Bytes> load(const std::byte* from) {
    Vector<Bytes> vector;
    std::memcpy(&vector, from, Bytes);
    return vector;
}

template <std::size_t Bytes>
inline void store(std::byte* to, Vector<Bytes> vector) {
    std::memcpy(to, &vector, Bytes);
}

template <int... I>
struct Indices {};
template <int N, int... I>
struct Counted : Counted<N - 1, N - 1, I...> {};
template <int... I>
struct Counted<0, I...> {
    using type = Indices<I...>;
};

// Which byte of the pair (a, b) comes to byte i when elements of `width` bytes of a and b are put in turn, within each lane: the lower
// halves of the lanes (high = 0) or the upper ones (high = 1).
constexpr int zipped(int i, int width, int high, int vector, int lane) {
    const int place = i % lane, element = place / width;
    return (element % 2) * vector + i / lane * lane + high * (lane / 2) + element / 2 * width + place % width;
}

// Back again, over whole vectors: the elements of the pair at even places (odd = 0) or odd ones (odd = 1).
constexpr int unzipped(int i, int width, int odd) { return (i / width * 2 + odd) * width + i % width; }

template <std::size_t Bytes, int Width, int High, int Lane, int... I>
inline Vector<Bytes> zip(Vector<Bytes> a, Vector<Bytes> b, Indices<I...>) {
    return __builtin_shufflevector(a, b, zipped(I, Width, High, static_cast<int>(Bytes), Lane)...);
}

template <std::size_t Bytes, int Width, int Odd, int... I>
inline Vector<Bytes> unzip(Vector<Bytes> a, Vector<Bytes> b, Indices<I...>) {
    return __builtin_shufflevector(a, b, unzipped(I, Width, Odd)...);
}

// One perfect shuffle of `Count` vectors, lane by lane: their first half is put in turn with their second half.
template <std::size_t Bytes, int Width, int Count, int Lane>
inline void shuffle(Vector<Bytes>* vectors) {
    using All = typename Counted<static_cast<int>(Bytes)>::type;
    Vector<Bytes> shuffled[Count];
#pragma GCC unroll 64
    for (int i = 0; i < Count / 2; ++i) {
        shuffled[2 * i] = zip<Bytes, Width, 0, Lane>(vectors[i], vectors[i + Count / 2], All());
        shuffled[2 * i + 1] = zip<Bytes, Width, 1, Lane>(vectors[i], vectors[i + Count / 2], All());
    }
#pragma GCC unroll 64
    for (int i = 0; i < Count; ++i) vectors[i] = shuffled[i];
}

// `Times` such shuffles over whole vectors undone.
template <std::size_t Bytes, int Width, int Count, int Times>
inline void unshuffles(Vector<Bytes>* vectors) {
    if constexpr (Times > 0) {
        using All = typename Counted<static_cast<int>(Bytes)>::type;
        Vector<Bytes> apart[Count];
#pragma GCC unroll 64
        for (int i = 0; i < Count / 2; ++i) {
            apart[i] = unzip<Bytes, Width, 0>(vectors[2 * i], vectors[2 * i + 1], All());
            apart[i + Count / 2] = unzip<Bytes, Width, 1>(vectors[2 * i], vectors[2 * i + 1], All());
        }
#pragma GCC unroll 64
        for (int i = 0; i < Count; ++i) vectors[i] = apart[i];
        unshuffles<Bytes, Width, Count, Times - 1>(vectors);
    }
}

constexpr int bits(int power) { return power <= 1 ? 0 : 1 + bits(power / 2); }

// `Times` perfect shuffles. Each turns the number of an element by one bit, so that log2(Count) of them put the vectors' elements in turn
// (an interleave), and log2(16 / Width) undo it.
template <std::size_t Bytes, int Width, int Count, int Times, int Lane = 16>
inline void shuffles(Vector<Bytes>* vectors) {
    if constexpr (Times > 0) {
        shuffle<Bytes, Width, Count, Lane>(vectors);
        shuffles<Bytes, Width, Count, Times - 1, Lane>(vectors);
    }
}

template <std::size_t Bytes, int... I>
inline Vector<Bytes> joined(Vector<Bytes / 2> low, Vector<Bytes / 2> high, Indices<I...>) {
    return __builtin_shufflevector(low, high, I...);
}

// A vector whose lane l holds 16 bytes of row l * Rows: the loads do a part of the shuffling.
template <std::size_t Bytes, int Rows>
inline Vector<Bytes> load_lanes(const std::byte* src, std::ptrdiff_t step) {
    if constexpr (Bytes == 16) {
        return load<16>(src);
    } else {
        // Half by half: an array in memory would hold up the load that follows.
        constexpr std::ptrdiff_t half = static_cast<std::ptrdiff_t>(Bytes) / 32 * Rows;
        return joined<Bytes>(load_lanes<Bytes / 2, Rows>(src, step), load_lanes<Bytes / 2, Rows>(src + half * step, step),
                             typename Counted<static_cast<int>(Bytes)>::type());
    }
}

inline bool is_aligned(const void* address, std::size_t to) { return reinterpret_cast<std::uintptr_t>(address) % to == 0; }

// One vector to the cache or past it; `to` is aligned then. Vectors that fill a line are to be put one right after the other: a line
// that is left half written for long goes out in pieces, at many times the cost.
template <bool PastCache>
inline void put(std::byte* to, Vector<16> vector) {
#if defined(__SSE2__)
    typedef long long Pair __attribute__((vector_size(16)));
    if constexpr (PastCache) {
        __builtin_ia32_movntdq(reinterpret_cast<Pair*>(to), reinterpret_cast<Pair>(vector));
        return;
    }
#endif
    store<16>(to, vector);
}

template <std::size_t Bytes, bool PastCache>
inline void put_vector(std::byte* to, Vector<Bytes> vector) {
#if defined(__AVX512F__)
    if constexpr (PastCache && Bytes == 64) return _mm512_stream_si512(reinterpret_cast<__m512i*>(to), reinterpret_cast<__m512i>(vector));
#endif
#if defined(__AVX2__)
    if constexpr (PastCache && Bytes == 32) return _mm256_stream_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(vector));
#endif
    if constexpr (Bytes == 16)
        put<PastCache>(to, vector);
    else
        store<Bytes>(to, vector);
}

}  // namespace dovetail::DOVETAIL_ISA
