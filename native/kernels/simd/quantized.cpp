// Sums of products of bytes, exact in 32 bits, and their way back to bytes.
#include "kernels/quantized.h"

#include "kernels/simd/epilogue.h"
#include "kernels/simd/math.h"
#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

typedef std::uint8_t Bytes __attribute__((vector_size(kLanes)));
typedef std::int8_t SignedBytes __attribute__((vector_size(kLanes)));

// Of each lane's four bytes of x and of w the sum of products, added to `sums`. `flip` is 0x80 in each byte where x is signed: its
// bytes are then 128 more than they say, which the caller takes back.
#if defined(__AVX512F__)
DOVETAIL_INLINE Ints add_products(Ints sums, std::uint32_t x, Ints w) {
    const __m512i bytes = _mm512_set1_epi32((int)x), weights = (__m512i)w;
    const __m512i even = _mm512_and_si512(bytes, _mm512_set1_epi16(0xff)), odd = _mm512_srli_epi16(bytes, 8);
    const __m512i even_weights = _mm512_srai_epi16(_mm512_slli_epi16(weights, 8), 8), odd_weights = _mm512_srai_epi16(weights, 8);
    return (Ints)_mm512_add_epi32((__m512i)sums, _mm512_add_epi32(_mm512_madd_epi16(even, even_weights),
                                                                  _mm512_madd_epi16(odd, odd_weights)));
}
#elif defined(__AVX2__)
DOVETAIL_INLINE Ints add_products(Ints sums, std::uint32_t x, Ints w) {
    const __m256i bytes = _mm256_set1_epi32((int)x), weights = (__m256i)w;
    const __m256i even = _mm256_and_si256(bytes, _mm256_set1_epi16(0xff)), odd = _mm256_srli_epi16(bytes, 8);
    const __m256i even_weights = _mm256_srai_epi16(_mm256_slli_epi16(weights, 8), 8), odd_weights = _mm256_srai_epi16(weights, 8);
    return (Ints)_mm256_add_epi32((__m256i)sums, _mm256_add_epi32(_mm256_madd_epi16(even, even_weights),
                                                                  _mm256_madd_epi16(odd, odd_weights)));
}
#else
DOVETAIL_INLINE Ints add_products(Ints sums, std::uint32_t x, Ints w) {
    for (int i = 0; i < 4; ++i) {
        const Ints weights = (Ints)((Words)w << (24 - 8 * i)) >> 24;
        sums += (Ints)((std::int32_t)(x >> 8 * i & 0xff) - Ints{}) * weights;
    }
    return sums;
}
#endif

DOVETAIL_INLINE std::uint32_t word(const std::byte* from) {
    std::uint32_t found;
    __builtin_memcpy(&found, from, 4);
    return found;
}

// `count` pixels and one vector of columns.
template <int count>
void some_pixels(const ByteTile& tile, const std::byte* x, const std::int8_t* weights, const std::int32_t* offset,
                 std::int32_t* sums) {
    const std::uint32_t flip = tile.is_signed ? 0x80808080u : 0;
    Ints total[count];
    for (int r = 0; r < count; ++r) __builtin_memcpy(&total[r], offset, sizeof total[r]);
    Ints columns = {};
    for (std::int64_t s = 0; s < tile.segments; ++s) {
        const std::byte* from = x + tile.offsets[s];
        for (std::int64_t block = 0; block < tile.blocks; ++block, weights += tile.panels * kByteBlock, from += kByteDepth)
            for (std::int64_t k = 0; k < kByteDepth; k += 4) {
                Ints w;
                __builtin_memcpy(&w, weights + k * kByteColumns, sizeof w);
                for (int r = 0; r < count; ++r) total[r] = add_products(total[r], word(from + r * tile.step + k) ^ flip, w);
                if (tile.is_signed) columns = add_products(columns, 0x80808080u, w);
            }
    }
    for (int r = 0; r < count; ++r) {
        total[r] -= columns;
        __builtin_memcpy(sums + r * kSumsPitch, &total[r], sizeof total[r]);
    }
}

void multiply(const ByteTile& tile) {
    for (int panel = 0; panel < tile.panels; ++panel)
        for (int v = 0; v < kByteColumns; v += kLanes) {
            const std::int8_t* weights = tile.weights + panel * kByteBlock + v * 4;
            const std::int32_t* offset = tile.offset + panel * kByteColumns + v;
            std::int32_t* sums = tile.sums + panel * kByteColumns + v;
            const auto from = [&](int r) { return tile.x + r * tile.step; };
            int r = 0;
            for (; r + 8 <= tile.pixels; r += 8) some_pixels<8>(tile, from(r), weights, offset, sums + r * kSumsPitch);
            for (; r + 2 <= tile.pixels; r += 2) some_pixels<2>(tile, from(r), weights, offset, sums + r * kSumsPitch);
            if (r < tile.pixels) some_pixels<1>(tile, from(r), weights, offset, sums + r * kSumsPitch);
        }
}

template <bool is_signed>
DOVETAIL_INLINE Floats floats_of(Bytes bytes) {
#if defined(__AVX512F__)
    const __m512i whole = is_signed ? _mm512_maskz_cvtepi8_epi32(kAllLanes, (__m128i)bytes)
                                    : _mm512_maskz_cvtepu8_epi32(kAllLanes, (__m128i)bytes);
    return (Floats)_mm512_maskz_cvtepi32_ps(kAllLanes, whole);
#else
    if (is_signed) return __builtin_convertvector((SignedBytes)bytes, Floats);
    return __builtin_convertvector(bytes, Floats);
#endif
}

template <bool partly>
DOVETAIL_INLINE Bytes load_bytes(const std::byte* from, std::int64_t some) {
    Bytes bytes = {};
    __builtin_memcpy(&bytes, from, partly ? (std::size_t)some : sizeof bytes);
    return bytes;
}

// Numbers rounded, moved to where they are bytes, and held between two; what is full is at most as great as a byte anyway.
template <bool is_full>
DOVETAIL_INLINE Bytes bytes_of(Floats value, Floats low, Floats high, Ints zero) {
#if defined(__AVX512F__)
    value = is_full ? greater_of(low, value) : bounded(value, low, high);
    const Ints whole = (Ints)_mm512_maskz_cvtps_epi32(kAllLanes, (__m512)value) + zero;
    if (is_full) return (Bytes)_mm512_maskz_cvtusepi32_epi8(kAllLanes, (__m512i)whole);
    return (Bytes)_mm512_maskz_cvtepi32_epi8(kAllLanes, (__m512i)whole);
#else
    return __builtin_convertvector(__builtin_convertvector(round_even(bounded(value, low, high)), Ints) + zero, Bytes);
#endif
}

template <bool is_full, bool has_other, bool other_is_signed, bool partly>
DOVETAIL_INLINE void finish_columns(const ByteFinish& run, std::int64_t j) {
    const Floats low = splat(run.low), high = splat(run.high), last_low = splat(run.last_low), last_high = splat(run.last_high);
    const Floats factor = load(run.factor + j), own = splat(run.own), beside = splat(run.beside);
    const Floats other_zero = splat(run.other_zero);
    const Ints zero = (std::int32_t)run.zero - Ints{};
    const std::int64_t some = run.columns - j, y_step = run.y_step, other_step = run.other_step;
    std::byte* y = run.y + j;
    const std::byte* other = run.other + (has_other ? j : 0);
    const std::int32_t* from = run.sums + j;
    for (std::int64_t p = 0; p < run.pixels; ++p, y += y_step, from += kSumsPitch) {
        Ints sums;
        __builtin_memcpy(&sums, from, sizeof sums);
        Floats value = __builtin_convertvector(sums, Floats) * factor;
        if (has_other) {
            // The bounds are whole: what is rounded after them does not pass them.
            const Floats added = floats_of<other_is_signed>(load_bytes<partly>(other, some)) - other_zero;
            value = fma(added, beside, round_even(bounded(value, low, high)) * own);
            other += other_step;
        }
        const Bytes bytes = bytes_of<is_full>(value, has_other ? last_low : low, has_other ? last_high : high, zero);
        __builtin_memcpy(y, &bytes, partly ? (std::size_t)some : sizeof bytes);
    }
}

template <bool is_full, bool has_other, bool other_is_signed>
void finish_run(const ByteFinish& run) {
    std::int64_t j = 0;
    for (; j + kLanes <= run.columns; j += kLanes) finish_columns<is_full, has_other, other_is_signed, false>(run, j);
    if (j < run.columns) finish_columns<is_full, has_other, other_is_signed, true>(run, j);
}

template <bool is_full>
void finish_run(const ByteFinish& run) {
    if (run.other == nullptr) return finish_run<is_full, false, false>(run);
    run.other_is_signed ? finish_run<is_full, true, true>(run) : finish_run<is_full, true, false>(run);
}

void finish(const ByteFinish& run) { run.is_full ? finish_run<true>(run) : finish_run<false>(run); }

template <int channels>
void interleave_of(std::byte* to, const std::byte* from, std::int64_t count, std::int64_t plane) {
    DOVETAIL_INDEPENDENT
    for (std::int64_t i = 0; i < count; ++i)
        for (int c = 0; c < channels; ++c) to[i * channels + c] = from[i + c * plane];
}

void interleave(std::byte* to, const std::byte* from, std::int64_t count, std::int64_t channels, std::int64_t step,
                std::int64_t plane) {
    if (step == 1 && channels == 3) return interleave_of<3>(to, from, count, plane);
    if (step == 1 && channels == 4) return interleave_of<4>(to, from, count, plane);
    for (std::int64_t c = 0; c < channels; ++c)
        for (std::int64_t i = 0; i < count; ++i) to[i * channels + c] = from[i * step + c * plane];
}

template <typename Vector, bool partly>
DOVETAIL_INLINE void greatest_at(std::byte* to, const std::byte* const* places, std::int64_t number, std::int64_t i,
                                 std::int64_t count) {
    const std::size_t some = partly ? (std::size_t)(count - i) : sizeof(Vector);
    Vector most = {};
    __builtin_memcpy(&most, places[0] + i, some);
    for (std::int64_t n = 1; n < number; ++n) {
        Vector each = {};
        __builtin_memcpy(&each, places[n] + i, some);
        most = each > most ? each : most;
    }
    __builtin_memcpy(to + i, &most, some);
}

template <typename Vector>
void greatest_of(std::byte* to, const std::byte* const* places, std::int64_t number, std::int64_t count) {
    std::int64_t i = 0;
    for (; i + kLanes * 4 <= count; i += kLanes * 4) greatest_at<Vector, false>(to, places, number, i, count);
    if (i < count) greatest_at<Vector, true>(to, places, number, i, count);
}

void greatest(std::byte* to, const std::byte* const* places, std::int64_t number, std::int64_t count, bool is_signed) {
    typedef std::uint8_t Unsigned __attribute__((vector_size(kLanes * 4)));
    typedef std::int8_t Signed __attribute__((vector_size(kLanes * 4)));
    is_signed ? greatest_of<Signed>(to, places, number, count) : greatest_of<Unsigned>(to, places, number, count);
}

}  // namespace

ByteFunctions byte_functions() { return {multiply, finish, interleave, greatest}; }

}  // namespace dovetail::DOVETAIL_ISA
