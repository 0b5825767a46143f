// Products of rows that are rounded to 8 bits with weights of few bits. Included once per instruction set, and once with VNNI.
#pragma once

#include "kernels/compressed_weights.h"
#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

// sum + the dot products of the four unsigned bytes of each lane of `codes`, which are below 128, with the signed bytes of x.
DOVETAIL_INLINE Ints add_dots(Ints sum, Words codes, std::int32_t x) {
#if defined(__AVX512VNNI__)
    return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)codes, _mm512_set1_epi32(x));
#elif defined(__AVX512BW__)
    const __m512i pairs = _mm512_maddubs_epi16((__m512i)codes, _mm512_set1_epi32(x));
    return sum + (Ints)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#elif defined(__AVX2__)
    const __m256i pairs = _mm256_maddubs_epi16((__m256i)codes, _mm256_set1_epi32(x));
    return sum + (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#else
    for (int i = 0; i < 4; ++i)
        sum += (Ints)(codes >> (8 * i) & 0xffu) * ((std::int32_t)((std::uint32_t)x << (24 - 8 * i)) >> 24);
    return sum;
#endif
}

template <int bits>
DOVETAIL_INLINE Words codes_of(Words word, int part) {
    constexpr std::uint32_t mask = bits == 2 ? 0x03030303u : bits == 4 ? 0x0f0f0f0fu : 0xffffffffu;
    return word >> (bits * part) & mask;
}

// As add_dots(), with signed bytes of codes. Where the instruction takes unsigned bytes, each code counts kExcessOfSigned more.
DOVETAIL_INLINE Ints add_signed_dots(Ints sum, Words codes, std::int32_t x) {
#if defined(__AVX512VNNI__)
    return add_dots(sum, codes ^ 0x80808080u, x);
#elif defined(__AVX512BW__)
    // Two halves of the code, which are signed and unsigned: no pair of products exceeds 16 bits.
    const Ints low = add_dots(Ints{}, codes & 0x0f0f0f0fu, x);
    const Ints high = add_dots(Ints{}, (codes ^ 0x80808080u) >> 4 & 0x0f0f0f0fu, x);
    return sum + low + (high << 4);
#elif defined(__AVX2__)
    const __m256i signs = _mm256_sign_epi8(_mm256_set1_epi32(x), (__m256i)codes);
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8((__m256i)codes), signs);
    return sum + (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#else
    for (int i = 0; i < 4; ++i)
        sum += ((Ints)(codes << (24 - 8 * i)) >> 24) * ((std::int32_t)((std::uint32_t)x << (24 - 8 * i)) >> 24);
    return sum;
#endif
}

#if defined(__AVX512BW__)
constexpr float kExcessOfSigned = 128;
#else
constexpr float kExcessOfSigned = 0;
#endif

template <int bits, int rows>
void multiply_byte_rows(const ByteRows& run) {
    constexpr int parts = 8 / bits;
    constexpr int chains = rows == 1 ? 4 : rows == 2 ? 2 : 1;
    constexpr std::int64_t width = kLanes * 4, step = 4 * parts;
    constexpr std::int64_t prefetch = 2048;
    const CompressedWeights& weights = *run.weights;
    const std::int64_t blocks = weights.blocks, words = weights.words;
    const bool has_points = weights.has_points;
    const Floats first = splat(bits < 8 ? weights.table[0] : -kExcessOfSigned);
    const std::byte* from = run.strip;
    const std::int8_t* x = run.x;
    Floats total[rows];
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) total[r] = Floats{};
    for (std::int64_t b = 0; b < blocks; ++b) {
        const Floats scale = load(reinterpret_cast<const float*>(from));
        __builtin_prefetch(from + prefetch);
        from += width;
        Floats offset = first;
        if (has_points) {
            offset -= load(reinterpret_cast<const float*>(from));
            __builtin_prefetch(from + prefetch);
            from += width;
        }
        Ints sums[chains][rows];
#pragma GCC unroll 4
        for (int c = 0; c < chains; ++c)
#pragma GCC unroll 8
            for (int r = 0; r < rows; ++r) sums[c][r] = Ints{};
        const auto add_word = [&](std::int64_t w, int chain) __attribute__((always_inline)) {
            const Words word = load_words(from + w * width);
            __builtin_prefetch(from + w * width + prefetch);
#pragma GCC unroll 4
            for (int part = 0; part < parts; ++part) {
                const Words codes = codes_of<bits>(word, part);
#pragma GCC unroll 8
                for (int r = 0; r < rows; ++r) {
                    std::int32_t four;
                    __builtin_memcpy(&four, x + r * run.x_step + w * step + part * 4, sizeof four);
                    Ints& sum = sums[(chain + part) % chains][r];
                    sum = bits < 8 ? add_dots(sum, codes, four) : add_signed_dots(sum, codes, four);
                }
            }
        };
        std::int64_t w = 0;
        for (; w + 4 <= words; w += 4)
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) add_word(w + i, i * parts);
        for (; w < words; ++w) add_word(w, 0);
        from += words * width;
        x += words * step;
#pragma GCC unroll 4
        for (int c = 1; c < chains; ++c)
#pragma GCC unroll 8
            for (int r = 0; r < rows; ++r) sums[0][r] += sums[c][r];
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) {
            const Floats number = fma(offset, splat(run.sums[r * blocks + b]), __builtin_convertvector(sums[0][r], Floats));
            total[r] = fma(number, scale * splat(run.scales[r * blocks + b]), total[r]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) store(run.y + r * run.y_step, total[r]);
}

#define DOVETAIL_BYTE_ROWS(bits)                                                                                         \
    {multiply_byte_rows<bits, 1>, multiply_byte_rows<bits, 2>, multiply_byte_rows<bits, 3>, multiply_byte_rows<bits, 4>, \
     multiply_byte_rows<bits, 5>, multiply_byte_rows<bits, 6>, multiply_byte_rows<bits, 7>, multiply_byte_rows<bits, 8>}

}  // namespace
}  // namespace dovetail::DOVETAIL_ISA
