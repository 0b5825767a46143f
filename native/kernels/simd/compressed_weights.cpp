// Kernels of weights in few bits, compiled for each instruction set.
#include "kernels/compressed_weights.h"

#include <cstring>

#include "kernels/simd/byte_rows.h"
#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

constexpr std::int64_t kPrefetchBytes = 2048;

DOVETAIL_INLINE Floats to_floats(Ints numbers) { return __builtin_convertvector(numbers, Floats); }

// The low 16 bits of each word are an f16.
DOVETAIL_INLINE Floats half_floats(Words words) {
#if defined(__AVX512F__)
    return (Floats)_mm512_maskz_cvtph_ps(kAllLanes, _mm512_maskz_cvtepi32_epi16(kAllLanes, (__m512i)words));
#elif defined(__F16C__)
    const __m256i low = (__m256i)(words & 0xffffu);
    return (Floats)_mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
#else
    // Numbers below the normal range of f16 are converted as integers, since f32 may flush subnormals.
    const Words size = words & 0x7fffu;
    const Floats normal = (Floats)((size << 13) + (112u << 23));
    const Floats small = to_floats((Ints)size) * 0x1p-24f;
    const Floats special = (Floats)((size << 13) | 0x7f800000u);
    const Floats found = size < 0x400u ? small : size < 0x7c00u ? normal : special;
    return (Floats)((Words)found | (words & 0x8000u) << 16);
#endif
}

// The number of the code at bit `index * bits` of each word. The shifts are constants after inlining.
template <WeightFormat format>
struct Codes;

struct TableCodes {
    Floats table[kTableSize / kLanes > 0 ? kTableSize / kLanes : 1];
    const float* numbers;
    explicit TableCodes(const CompressedWeights& weights) : numbers(weights.table) {
        for (int i = 0; i < kTableSize / kLanes; ++i) table[i] = load(weights.table + i * kLanes);
    }
    inline __attribute__((always_inline)) Floats look_up(Words codes) const {
#if defined(__AVX512F__)
        return (Floats)_mm512_maskz_permutexvar_ps(kAllLanes, (__m512i)codes, (__m512)table[0]);
#elif defined(__AVX2__)
        const __m256 low = _mm256_permutevar8x32_ps((__m256)table[0], (__m256i)codes);
        const __m256 high = _mm256_permutevar8x32_ps((__m256)table[1], (__m256i)codes);
        return (Floats)_mm256_blendv_ps(low, high, (__m256)(codes << 28));
#else
        Floats found;
        for (int j = 0; j < kLanes; ++j) found[j] = numbers[codes[j] & (kTableSize - 1)];
        return found;
#endif
    }
};

template <>
struct Codes<WeightFormat::table4> : TableCodes {
    using TableCodes::TableCodes;
    static constexpr int bits = 4;
    inline __attribute__((always_inline)) Floats at(Words words, int index) const { return look_up(words >> (4 * index)); }
};

template <>
struct Codes<WeightFormat::table2> : TableCodes {
    using TableCodes::TableCodes;
    static constexpr int bits = 2;
    inline __attribute__((always_inline)) Floats at(Words words, int index) const { return look_up(words >> (2 * index)); }
};

// Codes as their own numbers; the kernel adds the first number of the table to all of them.
template <int width>
struct PlainCodes {
    explicit PlainCodes(const CompressedWeights&) {}
    static constexpr int bits = width;
    inline __attribute__((always_inline)) Floats at(Words words, int index) const {
        return to_floats((Ints)(words >> (width * index) & ((1u << width) - 1)));
    }
};

template <>
struct Codes<WeightFormat::i8> {
    explicit Codes(const CompressedWeights&) {}
    static constexpr int bits = 8;
    inline __attribute__((always_inline)) Floats at(Words words, int index) const {
        return to_floats((Ints)(words << (24 - 8 * index)) >> 24);
    }
};

template <>
struct Codes<WeightFormat::f8e5m2> {
    explicit Codes(const CompressedWeights&) {}
    static constexpr int bits = 8;
    inline __attribute__((always_inline)) Floats at(Words words, int index) const {
        return half_floats((index == 0 ? words << 8 : words >> (8 * index - 8)) & 0xff00u);
    }
};

// The exponent of an f8e4m3 has a bias of 7, that of an f16 a bias of 15. The weights have no NaN.
template <>
struct Codes<WeightFormat::f8e4m3> {
    explicit Codes(const CompressedWeights&) {}
    static constexpr int bits = 8;
    inline __attribute__((always_inline)) Floats at(Words words, int index) const {
        const Words code = words >> (8 * index);
        return half_floats((code & 0x7fu) << 7 | (code & 0x80u) << 8) * 0x1p8f;
    }
};

template <>
struct Codes<WeightFormat::f16> {
    explicit Codes(const CompressedWeights&) {}
    static constexpr int bits = 16;
    inline __attribute__((always_inline)) Floats at(Words words, int index) const { return half_floats(words >> (16 * index)); }
};

template <>
struct Codes<WeightFormat::bf16> {
    explicit Codes(const CompressedWeights&) {}
    static constexpr int bits = 16;
    inline __attribute__((always_inline)) Floats at(Words words, int index) const {
        return (Floats)(index == 0 ? words << 16 : words & 0xffff0000u);
    }
};

// Few rows use several chains of accumulators, to hide the latency of a multiply-add.
constexpr int chains_of(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }

template <typename Format, bool is_plain, int rows>
void multiply_rows(const FewRows& run) {
    constexpr int count = 32 / Format::bits;
    constexpr int chains = chains_of(rows) < count ? chains_of(rows) : count;
    constexpr std::int64_t width = kLanes * 4;
    const CompressedWeights& weights = *run.weights;
    const Format codes(weights);
    const std::int64_t blocks = weights.blocks, words = weights.words, x_step = run.x_step;
    const bool has_points = weights.has_points;
    const std::byte* from = run.strip;
    const float* x = run.x;
    Floats total[rows];
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) total[r] = Floats{};
    for (std::int64_t b = 0; b < blocks; ++b) {
        const Floats scale = load(reinterpret_cast<const float*>(from));
        __builtin_prefetch(from + kPrefetchBytes);
        from += width;
        Floats sums[chains][rows];
#pragma GCC unroll 4
        for (int c = 0; c < chains; ++c)
#pragma GCC unroll 8
            for (int r = 0; r < rows; ++r) sums[c][r] = Floats{};
        if (is_plain || has_points) {
            Floats offset = is_plain ? splat(weights.table[0]) : Floats{};
            if (has_points) {
                offset -= load(reinterpret_cast<const float*>(from));
                __builtin_prefetch(from + kPrefetchBytes);
                from += width;
            }
#pragma GCC unroll 8
            for (int r = 0; r < rows; ++r) sums[0][r] = offset * splat(run.sums[r * blocks + b]);
        }
        for (std::int64_t w = 0; w < words; ++w, from += width, x += count) {
            const Words word = load_words(from);
            __builtin_prefetch(from + kPrefetchBytes);
#pragma GCC unroll 16
            for (int i = 0; i < count; ++i) {
                const Floats number = codes.at(word, i);
#pragma GCC unroll 8
                for (int r = 0; r < rows; ++r)
                    add_product(sums[i % chains][r], splat(x[r * x_step + position_of(i, Format::bits)]), number);
            }
        }
#pragma GCC unroll 4
        for (int c = 1; c < chains; ++c)
#pragma GCC unroll 8
            for (int r = 0; r < rows; ++r) sums[0][r] += sums[c][r];
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) add_product(total[r], sums[0][r], scale);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) store(run.y + r * run.y_step, total[r]);
}

template <WeightFormat format>
void decode_strip(float* to, std::int64_t width, const CompressedWeights& weights, const std::byte* strip, std::int64_t first,
                  std::int64_t last) {
    using Format = Codes<format>;
    constexpr int count = 32 / Format::bits;
    const Format codes(weights);
    const std::int64_t block = weights.block;
    for (std::int64_t b = first / block; b * block < last; ++b) {
        const std::byte* from = strip + b * weights.block_bytes;
        const Floats scale = load(reinterpret_cast<const float*>(from));
        from += kLanes * 4;
        Floats point = {};
        if (weights.has_points) {
            point = load(reinterpret_cast<const float*>(from));
            from += kLanes * 4;
        }
        // The positions of this block to decode.
        const std::int64_t begin = b * block;
        const std::int64_t low = first > begin ? first - begin : 0, high = last < begin + block ? last - begin : block;
        for (std::int64_t w = low / count; w * count < high; ++w) {
            const Words word = load_words(from + w * kLanes * 4);
            __builtin_prefetch(from + w * kLanes * 4 + kPrefetchBytes);
            float* line = to + (begin + w * count - first) * width;
            if (w * count >= low && (w + 1) * count <= high) {
#pragma GCC unroll 16
                for (int i = 0; i < count; ++i)
                    store(line + position_of(i, Format::bits) * width, (codes.at(word, i) - point) * scale);
                continue;
            }
#pragma GCC unroll 16
            for (int i = 0; i < count; ++i) {
                const std::int64_t k = w * count + position_of(i, Format::bits);
                if (k >= low && k < high) store(line + position_of(i, Format::bits) * width, (codes.at(word, i) - point) * scale);
            }
        }
    }
}

typedef std::int8_t Bytes __attribute__((vector_size(kLanes)));

bool round_row(std::int8_t* to, float* scales, float* sums, const float* x, const CompressedWeights& weights) {
    const std::int64_t block = weights.block, padded = weights.padded_block();
    for (std::int64_t b = 0; b < weights.blocks; ++b, to += padded, x += block) {
        const std::int64_t left = weights.depth - b * block, count = left < block ? left : block;
        Floats greatest = {};
        Ints is_nan = {};
        std::int64_t i = 0;
        for (; i + kLanes <= count; i += kLanes) {
            const Floats size = abs(load(x + i));
            greatest = greater_of(size, greatest);
            is_nan |= size != size;
        }
        if (i < count) {
            const Floats size = abs(load_first(x + i, count - i));
            greatest = greater_of(size, greatest);
            is_nan |= size != size;
        }
        for (int j = 0; j < kLanes; ++j)
            if (is_nan[j] != 0) return false;
        const float limit = max_of(greatest);
        if (!(limit <= 3.4028235e38f)) return false;
        const float inverse = limit >= 1e-36f ? 127 / limit : 0;
        scales[b] = limit / 127;
        Ints totals = {};
        for (i = 0; i < padded; i += kLanes) {
            const std::int64_t valid = count - i;
            const Floats part = valid >= kLanes ? load(x + i) : valid > 0 ? load_first(x + i, valid) : Floats{};
            const Ints rounded = __builtin_convertvector(round_even(part * inverse), Ints);
            totals += rounded;
            const Bytes bytes = __builtin_convertvector(rounded, Bytes);
            __builtin_memcpy(to + i, &bytes, (std::size_t)(padded - i < kLanes ? padded - i : kLanes));
        }
        std::int32_t sum = 0;
        for (int j = 0; j < kLanes; ++j) sum += totals[j];
        sums[b] = (float)sum;
    }
    return true;
}

#if defined(__AVX512F__)
constexpr int kRows = kMaxFewRows;
#else
constexpr int kRows = 4;
#endif

using RowsFunction = void (*)(const FewRows&);

template <typename Format, bool is_plain, int rows>
constexpr RowsFunction rows_kernel() {
#if defined(__AVX512F__)
    constexpr bool is_made = !is_plain;
#else
    constexpr bool is_made = rows <= kRows;
#endif
    if constexpr (is_made)
        return multiply_rows<Format, is_plain, rows>;
    else
        return nullptr;
}

#define DOVETAIL_ROWS(format, is_plain)                                                                          \
    {rows_kernel<format, is_plain, 1>(), rows_kernel<format, is_plain, 2>(), rows_kernel<format, is_plain, 3>(), \
     rows_kernel<format, is_plain, 4>(), rows_kernel<format, is_plain, 5>(), rows_kernel<format, is_plain, 6>(), \
     rows_kernel<format, is_plain, 7>(), rows_kernel<format, is_plain, 8>()}
#define DOVETAIL_FORMAT(format) DOVETAIL_ROWS(Codes<WeightFormat::format>, false)

}  // namespace

extern const CompressedKernels compressed_kernels;
const CompressedKernels compressed_kernels = {
    kRows,
    {DOVETAIL_FORMAT(table2), DOVETAIL_FORMAT(table4), DOVETAIL_FORMAT(i8), DOVETAIL_FORMAT(f8e4m3), DOVETAIL_FORMAT(f8e5m2),
     DOVETAIL_FORMAT(f16), DOVETAIL_FORMAT(bf16)},
    {DOVETAIL_ROWS(PlainCodes<2>, true), DOVETAIL_ROWS(PlainCodes<4>, true)},
    {decode_strip<WeightFormat::table2>, decode_strip<WeightFormat::table4>, decode_strip<WeightFormat::i8>,
     decode_strip<WeightFormat::f8e4m3>, decode_strip<WeightFormat::f8e5m2>, decode_strip<WeightFormat::f16>,
     decode_strip<WeightFormat::bf16>},
    {{DOVETAIL_BYTE_ROWS(2), DOVETAIL_BYTE_ROWS(4), DOVETAIL_BYTE_ROWS(8)}},
    round_row,
};

}  // namespace dovetail::DOVETAIL_ISA
