// Products of rows and weights that are rounded to bf16, with sums in f32. Included once per instruction set, where products of
// f32 compute the dot products of two elements, and once with AVX512-BF16.
#pragma once

#include "kernels/compressed_weights.h"
#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

// sum + the dot products of the two bf16 of each lane of `weights` with the two bf16 of x.
DOVETAIL_INLINE Floats add_pairs(Floats sum, Words weights, std::uint32_t x) {
#if defined(__AVX512BF16__)
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32((int)x), (__m512bh)weights);
#else
    const Words pair = Words{} + x;
    sum = fma((Floats)(weights & 0xffff0000u), (Floats)(pair & 0xffff0000u), sum);
    return fma((Floats)(weights << 16), (Floats)(pair << 16), sum);
#endif
}

// Few accumulators are divided into chains, to hide the latency of the dot products.
constexpr int bf16_chains_of(int accumulators) {
    return accumulators == 1 ? 8 : accumulators <= 3 ? 4 : accumulators <= 7 ? 2 : 1;
}

template <int rows, int vectors>
void multiply_bf16_tile(const Bf16Rows& run) {
    constexpr int chains = bf16_chains_of(rows * vectors);
    constexpr std::int64_t width = kLanes * 4, prefetch = rows < 4 ? 4096 : 1024;
    const std::int64_t words = run.weights->words, x_step = run.x_step;
    // The block of a strip is the whole depth, with one scale.
    const std::byte* strips[vectors];
    for (int v = 0; v < vectors; ++v) strips[v] = run.strip + v * run.weights->block_bytes + width;
    const std::uint16_t* x = run.x;
    Floats sums[chains][rows][vectors];
#pragma GCC unroll 8
    for (int c = 0; c < chains; ++c)
#pragma GCC unroll 16
        for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
            for (int v = 0; v < vectors; ++v) sums[c][r][v] = Floats{};
    const auto add_word = [&](std::int64_t w, int chain) __attribute__((always_inline)) {
        Words pairs[vectors];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) {
            pairs[v] = load_words(strips[v] + w * width);
            __builtin_prefetch(strips[v] + w * width + prefetch);
        }
#pragma GCC unroll 16
        for (int r = 0; r < rows; ++r) {
            std::uint32_t two;
            __builtin_memcpy(&two, x + r * x_step + 2 * w, sizeof two);
#pragma GCC unroll 2
            for (int v = 0; v < vectors; ++v) sums[chain][r][v] = add_pairs(sums[chain][r][v], pairs[v], two);
        }
    };
    std::int64_t w = 0;
    for (; w + chains <= words; w += chains)
#pragma GCC unroll 8
        for (int c = 0; c < chains; ++c) add_word(w + c, c);
    for (; w < words; ++w) add_word(w, 0);
#pragma GCC unroll 8
    for (int c = 1; c < chains; ++c)
#pragma GCC unroll 16
        for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
            for (int v = 0; v < vectors; ++v) sums[0][r][v] += sums[c][r][v];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
        const Floats scale = load(reinterpret_cast<const float*>(strips[v] - width));
#pragma GCC unroll 16
        for (int r = 0; r < rows; ++r) store(run.y + r * run.y_step + v * kLanes, sums[0][r][v] * scale);
    }
}

template <int rows>
void multiply_bf16_rows(const Bf16Rows& run) {
    run.vectors == 2 ? multiply_bf16_tile<rows, 2>(run) : multiply_bf16_tile<rows, 1>(run);
}

typedef std::uint16_t Shorts __attribute__((vector_size(kLanes * 2), unused));

void round_to_bf16(std::uint16_t* to, const float* from, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += kLanes) {
        const std::int64_t valid = count - i < kLanes ? count - i : kLanes;
#if defined(__AVX512BF16__)
        const Floats x = valid == kLanes ? load(from + i) : load_first(from + i, valid);
        const __m256bh shorts = _mm512_cvtneps_pbh((__m512)x);
#else
        const Words x = (Words)(valid == kLanes ? load(from + i) : load_first(from + i, valid));
        const Words rounded = (x + 0x7fffu + (x >> 16 & 1u)) >> 16;
        const Words found = (x & 0x7fffffffu) > 0x7f800000u ? x >> 16 | 0x40u : rounded;
        const Shorts shorts = __builtin_convertvector(found, Shorts);
#endif
        __builtin_memcpy(to + i, &shorts, (std::size_t)valid * 2);
    }
}

#define DOVETAIL_BF16_ROWS                                                                                                  \
    {multiply_bf16_rows<1>,  multiply_bf16_rows<2>,  multiply_bf16_rows<3>,  multiply_bf16_rows<4>, multiply_bf16_rows<5>,  \
     multiply_bf16_rows<6>,  multiply_bf16_rows<7>,  multiply_bf16_rows<8>,  multiply_bf16_rows<9>, multiply_bf16_rows<10>, \
     multiply_bf16_rows<11>, multiply_bf16_rows<12>, multiply_bf16_rows<13>, multiply_bf16_rows<14>}

}  // namespace
}  // namespace dovetail::DOVETAIL_ISA
