// Products of 8-bit integers, exact in 32 bits, and their requantization.
#include "kernels/quantized.h"

#include "kernels/simd/epilogue.h"
#include "kernels/simd/math.h"
#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

typedef std::uint8_t Bytes __attribute__((vector_size(kLanes)));
typedef std::int8_t SignedBytes __attribute__((vector_size(kLanes)));

// Adds to each lane the dot product of its four bytes of x and of w. `flip` is 0x80 in each byte if x is signed: its bytes are
// then 128 too large, which the caller corrects.
#if defined(__AVX512F__)
DOVETAIL_INLINE Ints add_products(Ints accumulators, std::uint32_t x, Ints w) {
    const __m512i bytes = _mm512_set1_epi32((int)x), weights = (__m512i)w;
    const __m512i even = _mm512_and_si512(bytes, _mm512_set1_epi16(0xff)), odd = _mm512_srli_epi16(bytes, 8);
    const __m512i even_weights = _mm512_srai_epi16(_mm512_slli_epi16(weights, 8), 8), odd_weights = _mm512_srai_epi16(weights, 8);
    return (Ints)_mm512_add_epi32((__m512i)accumulators,
                                  _mm512_add_epi32(_mm512_madd_epi16(even, even_weights), _mm512_madd_epi16(odd, odd_weights)));
}
#elif defined(__AVX2__)
DOVETAIL_INLINE Ints add_products(Ints accumulators, std::uint32_t x, Ints w) {
    const __m256i bytes = _mm256_set1_epi32((int)x), weights = (__m256i)w;
    const __m256i even = _mm256_and_si256(bytes, _mm256_set1_epi16(0xff)), odd = _mm256_srli_epi16(bytes, 8);
    const __m256i even_weights = _mm256_srai_epi16(_mm256_slli_epi16(weights, 8), 8), odd_weights = _mm256_srai_epi16(weights, 8);
    return (Ints)_mm256_add_epi32((__m256i)accumulators,
                                  _mm256_add_epi32(_mm256_madd_epi16(even, even_weights), _mm256_madd_epi16(odd, odd_weights)));
}
#else
DOVETAIL_INLINE Ints add_products(Ints accumulators, std::uint32_t x, Ints w) {
    for (int i = 0; i < 4; ++i) {
        const Ints weights = (Ints)((Words)w << (24 - 8 * i)) >> 24;
        accumulators += (Ints)((std::int32_t)(x >> 8 * i & 0xff) - Ints{}) * weights;
    }
    return accumulators;
}
#endif

DOVETAIL_INLINE std::uint32_t load_word(const std::byte* from) {
    std::uint32_t value;
    __builtin_memcpy(&value, from, 4);
    return value;
}

// Accumulates a register block of `count` pixels by one vector of output columns.
template <int count>
void accumulate_pixels(const Int8Tile& tile, const std::byte* x, const std::int8_t* weights, const std::int32_t* offset,
                       std::int32_t* accumulators) {
    const std::uint32_t flip = tile.is_signed ? 0x80808080u : 0;
    Ints total[count];
    for (int r = 0; r < count; ++r) __builtin_memcpy(&total[r], offset, sizeof total[r]);
    Ints columns = {};
    for (std::int64_t s = 0; s < tile.segments; ++s) {
        const std::byte* from = x + tile.offsets[s];
        for (std::int64_t block = 0; block < tile.blocks; ++block, weights += tile.panels * kInt8Block, from += kInt8Depth)
            for (std::int64_t k = 0; k < kInt8Depth; k += 4) {
                Ints w;
                __builtin_memcpy(&w, weights + k * kInt8Columns, sizeof w);
                for (int r = 0; r < count; ++r) total[r] = add_products(total[r], load_word(from + r * tile.step + k) ^ flip, w);
                if (tile.is_signed) columns = add_products(columns, 0x80808080u, w);
            }
    }
    for (int r = 0; r < count; ++r) {
        total[r] -= columns;
        __builtin_memcpy(accumulators + r * kAccumulatorPitch, &total[r], sizeof total[r]);
    }
}

void multiply(const Int8Tile& tile) {
    for (int panel = 0; panel < tile.panels; ++panel)
        for (int v = 0; v < kInt8Columns; v += kLanes) {
            const std::int8_t* weights = tile.weights + panel * kInt8Block + v * 4;
            const std::int32_t* offset = tile.offset + panel * kInt8Columns + v;
            std::int32_t* accumulators = tile.accumulators + panel * kInt8Columns + v;
            const auto from = [&](int r) { return tile.x + r * tile.step; };
            int r = 0;
            for (; r + 8 <= tile.pixels; r += 8)
                accumulate_pixels<8>(tile, from(r), weights, offset, accumulators + r * kAccumulatorPitch);
            for (; r + 2 <= tile.pixels; r += 2)
                accumulate_pixels<2>(tile, from(r), weights, offset, accumulators + r * kAccumulatorPitch);
            if (r < tile.pixels) accumulate_pixels<1>(tile, from(r), weights, offset, accumulators + r * kAccumulatorPitch);
        }
}

std::int32_t sum_bytes(const std::byte* from, std::int64_t count, std::uint32_t flip) {
    std::uint32_t total = 0;
    std::int64_t i = 0;
#if defined(__AVX2__)
    const __m256i mask = _mm256_set1_epi32((int)flip);
    __m256i sums = _mm256_setzero_si256();
    for (; i + 32 <= count; i += 32) {
        __m256i bytes;
        __builtin_memcpy(&bytes, from + i, sizeof bytes);
        sums = _mm256_add_epi64(sums, _mm256_sad_epu8(_mm256_xor_si256(bytes, mask), _mm256_setzero_si256()));
    }
    std::uint64_t parts[4];
    __builtin_memcpy(parts, &sums, sizeof parts);
    total = (std::uint32_t)(parts[0] + parts[1] + parts[2] + parts[3]);
#endif
    for (; i < count; ++i) total += ((std::uint32_t)from[i] ^ flip) & 0xff;
    // Corrects flipped bytes, which are 128 too large.
    return (std::int32_t)(total - (flip & 0xff) * (std::uint32_t)count);
}

void sum_pixels(const Int8Tile& tile, std::int64_t bytes, std::int32_t* totals) {
    const std::uint32_t flip = tile.is_signed ? 0x80808080u : 0;
    for (int p = 0; p < tile.pixels; ++p) {
        std::uint32_t total = 0;
        for (std::int64_t s = 0; s < tile.segments; ++s)
            total += (std::uint32_t)sum_bytes(tile.x + p * tile.step + tile.offsets[s], bytes, flip);
        totals[p] = (std::int32_t)total;
    }
}

void subtract_outer(std::int32_t* accumulators, const std::int32_t* totals, const std::int32_t* factors, std::int64_t pixels) {
    for (std::int64_t p = 0; p < pixels; ++p, accumulators += kAccumulatorPitch)
        for (std::int64_t j = 0; j < kAccumulatorPitch; j += kLanes) {
            Words accumulator, factor;
            __builtin_memcpy(&accumulator, accumulators + j, sizeof accumulator);
            __builtin_memcpy(&factor, factors + j, sizeof factor);
            accumulator -= factor * (std::uint32_t)totals[p];
            __builtin_memcpy(accumulators + j, &accumulator, sizeof accumulator);
        }
}

template <bool is_signed>
DOVETAIL_INLINE Floats floats_of(Bytes bytes) {
#if defined(__AVX512F__)
    const __m512i integers =
        is_signed ? _mm512_maskz_cvtepi8_epi32(kAllLanes, (__m128i)bytes) : _mm512_maskz_cvtepu8_epi32(kAllLanes, (__m128i)bytes);
    return (Floats)_mm512_maskz_cvtepi32_ps(kAllLanes, integers);
#else
    if (is_signed) return __builtin_convertvector((SignedBytes)bytes, Floats);
    return __builtin_convertvector(bytes, Floats);
#endif
}

template <bool is_partial>
DOVETAIL_INLINE Bytes load_bytes(const std::byte* from, std::int64_t valid) {
    Bytes bytes = {};
    __builtin_memcpy(&bytes, from, is_partial ? (std::size_t)valid : sizeof bytes);
    return bytes;
}

// Rounds, adds the zero point and clamps; `is_full` leaves the upper bound to the saturating conversion.
template <bool is_full>
DOVETAIL_INLINE Bytes bytes_of(Floats value, Floats low, Floats high, Ints zero) {
#if defined(__AVX512F__)
    value = is_full ? greater_of(low, value) : clamp(value, low, high);
    const Ints integers = (Ints)_mm512_maskz_cvtps_epi32(kAllLanes, (__m512)value) + zero;
    if (is_full) return (Bytes)_mm512_maskz_cvtusepi32_epi8(kAllLanes, (__m512i)integers);
    return (Bytes)_mm512_maskz_cvtepi32_epi8(kAllLanes, (__m512i)integers);
#else
    return __builtin_convertvector(__builtin_convertvector(round_even(clamp(value, low, high)), Ints) + zero, Bytes);
#endif
}

// Rescales one vector of accumulators. With a residual, returns the sum before it is rounded.
template <bool has_other, bool other_is_signed>
DOVETAIL_INLINE Floats rescaled(const Requantization& run, const std::int32_t* from, Floats factor, Bytes other) {
    Ints accumulators;
    __builtin_memcpy(&accumulators, from, sizeof accumulators);
    const Floats value = __builtin_convertvector(accumulators, Floats) * factor;
    if (!has_other) return value;
    // The bounds are integers, so that a value that is clamped and then rounded stays within them.
    const Floats added = floats_of<other_is_signed>(other) - splat(run.other_zero);
    return fma(added, splat(run.beside), round_even(clamp(value, splat(run.low), splat(run.high))) * splat(run.own));
}

#if defined(__AVX512F__) || defined(__AVX2__)
// The columns of two panels, packed by saturating conversions to 16 and to 8 bits. Each value fits an i32.
#if defined(__AVX512F__)
typedef __m512i Packed;
constexpr int kPackedPixels = 2;
#define DOVETAIL_PACKED(name) _mm512_##name
#else
typedef __m256i Packed;
constexpr int kPackedPixels = 1;
#define DOVETAIL_PACKED(name) _mm256_##name
#endif

template <bool y_is_signed>
DOVETAIL_INLINE Packed pack_bytes(const Packed (&integers)[4], Packed zero, Packed low, Packed high) {
    const Packed first = DOVETAIL_PACKED(adds_epi16)(DOVETAIL_PACKED(packs_epi32)(integers[0], integers[1]), zero);
    const Packed second = DOVETAIL_PACKED(adds_epi16)(DOVETAIL_PACKED(packs_epi32)(integers[2], integers[3]), zero);
    Packed bytes;
    if (y_is_signed) {
        bytes = DOVETAIL_PACKED(packs_epi16)(first, second);
        bytes = DOVETAIL_PACKED(min_epi8)(DOVETAIL_PACKED(max_epi8)(bytes, low), high);
    } else {
        bytes = DOVETAIL_PACKED(packus_epi16)(first, second);
        bytes = DOVETAIL_PACKED(min_epu8)(DOVETAIL_PACKED(max_epu8)(bytes, low), high);
    }
    // The conversions work within lanes of 128 bits; a permutation restores the order.
#if defined(__AVX512F__)
    return _mm512_maskz_permutexvar_epi32(kAllLanes, _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
                                          bytes);
#else
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
#endif
}

DOVETAIL_INLINE Packed integers_of(Floats value) {
#if defined(__AVX512F__)
    return _mm512_maskz_cvtps_epi32(kAllLanes, (__m512)value);
#else
    return _mm256_cvtps_epi32((__m256)value);
#endif
}

template <bool y_is_signed, bool has_other, bool other_is_signed>
void requantize_packed(const Requantization& run) {
    constexpr int kVectors = (int)kAccumulatorPitch / kLanes;
    const Packed zero = DOVETAIL_PACKED(set1_epi16)((short)run.zero);
    const float low_code = (has_other ? run.last_low : run.low) + run.zero,
                high_code = (has_other ? run.last_high : run.high) + run.zero;
    const Packed low = DOVETAIL_PACKED(set1_epi8)((char)(int)low_code), high = DOVETAIL_PACKED(set1_epi8)((char)(int)high_code);
    Floats factor[kVectors];
    for (int v = 0; v < kVectors; ++v) factor[v] = load(run.factor + v * kLanes);
    std::byte* y = run.y;
    const std::byte* other = run.other;
    const std::int32_t* from = run.accumulators;
    for (std::int64_t p = 0; p < run.pixels; p += kPackedPixels, y += kPackedPixels * run.y_step) {
        // For an odd last pixel two pixels are computed and one is stored.
        const bool is_last = p + 1 >= run.pixels;
        const std::int64_t next = kPackedPixels == 2 && !is_last ? 1 : 0;
        Packed integers[4];
        for (int i = 0; i < 4; ++i) {
            const std::int64_t pixel = i / kVectors * next, v = i % kVectors;
            const Bytes beside = has_other ? load_bytes<false>(other + pixel * run.other_step + v * kLanes, kLanes) : Bytes{};
            integers[i] = integers_of(
                rescaled<has_other, other_is_signed>(run, from + pixel * kAccumulatorPitch + v * kLanes, factor[v], beside));
        }
        const Packed bytes = pack_bytes<y_is_signed>(integers, zero, low, high);
        __builtin_memcpy(y, &bytes, 32);
        if (next) __builtin_memcpy(y + run.y_step, (const char*)&bytes + 32, 32);
        from += kPackedPixels * kAccumulatorPitch;
        other += has_other ? kPackedPixels * run.other_step : 0;
    }
}

template <bool y_is_signed>
void requantize_packed(const Requantization& run) {
    if (run.other == nullptr) return requantize_packed<y_is_signed, false, false>(run);
    run.other_is_signed ? requantize_packed<y_is_signed, true, true>(run) : requantize_packed<y_is_signed, true, false>(run);
}
#endif

template <bool is_full, bool has_other, bool other_is_signed, bool is_partial>
DOVETAIL_INLINE void requantize_columns(const Requantization& run, std::int64_t j) {
    const Floats low = splat(has_other ? run.last_low : run.low), high = splat(has_other ? run.last_high : run.high);
    const Floats factor = load(run.factor + j);
    const Ints zero = (std::int32_t)run.zero - Ints{};
    const std::int64_t valid = run.columns - j, y_step = run.y_step, other_step = run.other_step;
    std::byte* y = run.y + j;
    const std::byte* other = run.other + (has_other ? j : 0);
    const std::int32_t* from = run.accumulators + j;
    for (std::int64_t p = 0; p < run.pixels; ++p, y += y_step, from += kAccumulatorPitch) {
        const Bytes beside = has_other ? load_bytes<is_partial>(other, valid) : Bytes{};
        const Bytes bytes = bytes_of<is_full>(rescaled<has_other, other_is_signed>(run, from, factor, beside), low, high, zero);
        __builtin_memcpy(y, &bytes, is_partial ? (std::size_t)valid : sizeof bytes);
        if (has_other) other += other_step;
    }
}

template <bool is_full, bool has_other, bool other_is_signed>
void requantize_run(const Requantization& run) {
    std::int64_t j = 0;
    for (; j + kLanes <= run.columns; j += kLanes) requantize_columns<is_full, has_other, other_is_signed, false>(run, j);
    if (j < run.columns) requantize_columns<is_full, has_other, other_is_signed, true>(run, j);
}

template <bool is_full>
void requantize_run(const Requantization& run) {
    if (run.other == nullptr) return requantize_run<is_full, false, false>(run);
    run.other_is_signed ? requantize_run<is_full, true, true>(run) : requantize_run<is_full, true, false>(run);
}

void requantize(const Requantization& run) {
#if defined(__AVX512F__) || defined(__AVX2__)
    if (run.is_small && run.columns == kAccumulatorPitch)
        return run.y_is_signed ? requantize_packed<true>(run) : requantize_packed<false>(run);
#endif
    run.is_full ? requantize_run<true>(run) : requantize_run<false>(run);
}

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

template <typename Vector, bool is_partial>
DOVETAIL_INLINE void maximum_at(std::byte* to, const std::byte* const* rows, std::int64_t number, std::int64_t i,
                                std::int64_t count) {
    const std::size_t valid = is_partial ? (std::size_t)(count - i) : sizeof(Vector);
    Vector maximum_value = {};
    __builtin_memcpy(&maximum_value, rows[0] + i, valid);
    for (std::int64_t n = 1; n < number; ++n) {
        Vector candidate = {};
        __builtin_memcpy(&candidate, rows[n] + i, valid);
        maximum_value = candidate > maximum_value ? candidate : maximum_value;
    }
    __builtin_memcpy(to + i, &maximum_value, valid);
}

template <typename Vector>
void maximum_of(std::byte* to, const std::byte* const* rows, std::int64_t number, std::int64_t count) {
    std::int64_t i = 0;
    for (; i + kLanes * 4 <= count; i += kLanes * 4) maximum_at<Vector, false>(to, rows, number, i, count);
    if (i < count) maximum_at<Vector, true>(to, rows, number, i, count);
}

void row_maximum(std::byte* to, const std::byte* const* rows, std::int64_t number, std::int64_t count, bool is_signed) {
    typedef std::uint8_t Unsigned __attribute__((vector_size(kLanes * 4)));
    typedef std::int8_t Signed __attribute__((vector_size(kLanes * 4)));
    is_signed ? maximum_of<Signed>(to, rows, number, count) : maximum_of<Unsigned>(to, rows, number, count);
}

}  // namespace

Int8Kernels int8_kernels() { return {multiply, sum_pixels, subtract_outer, requantize, interleave, row_maximum}; }

}  // namespace dovetail::DOVETAIL_ISA
