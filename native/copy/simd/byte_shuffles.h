// Byte vectors, divided into lanes of 16 bytes, and the perfect shuffles of which interleaves and transposes consist.
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
struct IndexSequence : IndexSequence<N - 1, N - 1, I...> {};
template <int... I>
struct IndexSequence<0, I...> {
    using type = Indices<I...>;
};

// Returns the index, in the concatenation of vectors a and b, of the byte that becomes byte i when the elements of a and b,
// `width` bytes each, are interleaved within each lane. The interleave takes the lower halves of the lanes (high = 0) or the
// upper halves (high = 1).
constexpr int zip_index(int i, int width, int high, int vector, int lane) {
    const int offset = i % lane, element = offset / width;
    return (element % 2) * vector + i / lane * lane + high * (lane / 2) + element / 2 * width + offset % width;
}

// Inverse of zip_index over whole vectors: the elements of the pair (a, b) at even indices (odd = 0) or at odd indices (odd =
// 1).
constexpr int unzip_index(int i, int width, int odd) { return (i / width * 2 + odd) * width + i % width; }

template <std::size_t Bytes, int Width, int High, int Lane, int... I>
inline Vector<Bytes> zip(Vector<Bytes> a, Vector<Bytes> b, Indices<I...>) {
    return __builtin_shufflevector(a, b, zip_index(I, Width, High, static_cast<int>(Bytes), Lane)...);
}

template <std::size_t Bytes, int Width, int Odd, int... I>
inline Vector<Bytes> unzip(Vector<Bytes> a, Vector<Bytes> b, Indices<I...>) {
    return __builtin_shufflevector(a, b, unzip_index(I, Width, Odd)...);
}

// Applies one perfect shuffle to `Count` vectors, lane by lane: interleaves the first half of the vectors with the second half.
template <std::size_t Bytes, int Width, int Count, int Lane>
inline void perfect_shuffle(Vector<Bytes>* vectors) {
    using All = typename IndexSequence<static_cast<int>(Bytes)>::type;
    Vector<Bytes> result[Count];
#pragma GCC unroll 64
    for (int i = 0; i < Count / 2; ++i) {
        result[2 * i] = zip<Bytes, Width, 0, Lane>(vectors[i], vectors[i + Count / 2], All());
        result[2 * i + 1] = zip<Bytes, Width, 1, Lane>(vectors[i], vectors[i + Count / 2], All());
    }
#pragma GCC unroll 64
    for (int i = 0; i < Count; ++i) vectors[i] = result[i];
}

// Undoes `Times` perfect shuffles over whole vectors.
template <std::size_t Bytes, int Width, int Count, int Times>
inline void inverse_shuffles(Vector<Bytes>* vectors) {
    if constexpr (Times > 0) {
        using All = typename IndexSequence<static_cast<int>(Bytes)>::type;
        Vector<Bytes> result[Count];
#pragma GCC unroll 64
        for (int i = 0; i < Count / 2; ++i) {
            result[i] = unzip<Bytes, Width, 0>(vectors[2 * i], vectors[2 * i + 1], All());
            result[i + Count / 2] = unzip<Bytes, Width, 1>(vectors[2 * i], vectors[2 * i + 1], All());
        }
#pragma GCC unroll 64
        for (int i = 0; i < Count; ++i) vectors[i] = result[i];
        inverse_shuffles<Bytes, Width, Count, Times - 1>(vectors);
    }
}

constexpr int log2_of(int power) { return power <= 1 ? 0 : 1 + log2_of(power / 2); }

// Applies `Times` perfect shuffles. Each rotates the bits of an element's index by one, so that log2(Count) shuffles interleave
// the vectors' elements, and log2(16 / Width) shuffles undo the interleave.
template <std::size_t Bytes, int Width, int Count, int Times, int Lane = 16>
inline void perfect_shuffles(Vector<Bytes>* vectors) {
    if constexpr (Times > 0) {
        perfect_shuffle<Bytes, Width, Count, Lane>(vectors);
        perfect_shuffles<Bytes, Width, Count, Times - 1, Lane>(vectors);
    }
}

template <std::size_t Bytes, int... I>
inline Vector<Bytes> concatenate(Vector<Bytes / 2> low, Vector<Bytes / 2> high, Indices<I...>) {
    return __builtin_shufflevector(low, high, I...);
}

// Loads a vector whose lane l holds 16 bytes of row l * Rows, so that the loads replace a part of the shuffles.
template <std::size_t Bytes, int Rows>
inline Vector<Bytes> load_lanes(const std::byte* src, std::ptrdiff_t step) {
    if constexpr (Bytes == 16) {
        return load<16>(src);
    } else {
        // The vector is concatenated from halves, since a load of bytes that were just stored separately would stall (failed
        // store forwarding).
        constexpr std::ptrdiff_t half = static_cast<std::ptrdiff_t>(Bytes) / 32 * Rows;
        return concatenate<Bytes>(load_lanes<Bytes / 2, Rows>(src, step), load_lanes<Bytes / 2, Rows>(src + half * step, step),
                                  typename IndexSequence<static_cast<int>(Bytes)>::type());
    }
}

inline bool is_aligned(const void* address, std::size_t to) { return reinterpret_cast<std::uintptr_t>(address) % to == 0; }

// Stores one vector; if `NonTemporal`, with a non-temporal store to an aligned address. The vectors of one cache line are stored
// one right after another: a line that stays half written is flushed in pieces, at many times the cost.
template <bool NonTemporal>
inline void store_lane(std::byte* to, Vector<16> vector) {
#if defined(__SSE2__)
    if constexpr (NonTemporal) {
        _mm_stream_si128(reinterpret_cast<__m128i*>(to), reinterpret_cast<__m128i>(vector));
        return;
    }
#endif
    store<16>(to, vector);
}

template <std::size_t Bytes, bool NonTemporal>
inline void store_vector(std::byte* to, Vector<Bytes> vector) {
#if defined(__AVX512F__)
    if constexpr (NonTemporal && Bytes == 64)
        return _mm512_stream_si512(reinterpret_cast<__m512i*>(to), reinterpret_cast<__m512i>(vector));
#endif
#if defined(__AVX2__)
    if constexpr (NonTemporal && Bytes == 32)
        return _mm256_stream_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(vector));
#endif
    if constexpr (Bytes == 16)
        store_lane<NonTemporal>(to, vector);
    else
        store<Bytes>(to, vector);
}

}  // namespace dovetail::DOVETAIL_ISA
