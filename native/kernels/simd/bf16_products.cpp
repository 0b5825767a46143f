// Kernels of products of bf16, compiled for each instruction set and with AVX512-BF16.
#include "kernels/bf16_products.h"

#include "kernels/simd/bf16.h"
#include "kernels/simd/gemm_tile.h"
#include "kernels/simd/transpose.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

// Elements that are collected before they are rounded.
constexpr std::int64_t kBuffer = 256;

template <bool clamp>
DOVETAIL_INLINE Floats map(Floats x, Floats scale, Floats shift) {
    const Floats value = x * scale + shift;
    return clamp ? (value < 0.0f ? Floats{} : value) : value;
}

template <bool clamp>
void round_mapped_run(float* to, const float* from, std::int64_t count, const float* scale, const float* shift) {
    std::int64_t i = 0;
    for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
        const Floats low = map<clamp>(load(from + i), load(scale + i), load(shift + i));
        const Floats high = map<clamp>(load(from + i + kLanes), load(scale + i + kLanes), load(shift + i + kLanes));
        store(to + i / 2, (Floats)round_pairs(low, high));
    }
    float last[2 * kLanes];
    for (std::int64_t j = 0; i + j < count; j += kLanes) {
        const std::int64_t valid = count - i - j;
        store(last + j, map<clamp>(load_partial(from + i + j, valid), load_partial(scale + i + j, valid),
                                   load_partial(shift + i + j, valid)));
    }
    if (i < count) round_run(to + i / 2, last, count - i);
}

void round_mapped(float* to, const float* from, std::int64_t count, std::int64_t step, const Prologue& prologue,
                  std::int64_t channel) {
    const float *scale = prologue.scale == nullptr ? nullptr : prologue.scale + channel, *shift = prologue.shift + channel;
    const auto round = [&](std::int64_t i, const float* elements, std::int64_t part) __attribute__((always_inline)) {
        if (scale == nullptr) return round_run(to + i / 2, elements, part);
        (prologue.clamp ? round_mapped_run<true> : round_mapped_run<false>)(to + i / 2, elements, part, scale + i, shift + i);
    };
    if (step == 1) return round(0, from, count);
    float collected[kBuffer];
    for (std::int64_t i = 0; i < count; i += kBuffer) {
        const std::int64_t part = count - i < kBuffer ? count - i : kBuffer;
        for (std::int64_t j = 0; j < part; ++j) collected[j] = from[(i + j) * step];
        round(i, collected, part);
    }
}

void round_pixels(float* to, std::int64_t to_step, const float* from, std::int64_t from_step, std::int64_t count,
                  std::int64_t length, const Prologue& prologue, std::int64_t channel) {
    constexpr std::int64_t line = 16;
    for (std::int64_t r = 0; r < count; ++r) {
        const float* next = from + (r + count) * from_step;
        for (std::int64_t k = 0; k < length; k += line) __builtin_prefetch(next + k, 0, 2);
        round_mapped(to + r * to_step, from + r * from_step, length, 1, prologue, channel);
    }
}

void interleave_pairs(float* to, const float* from, std::int64_t count, std::int64_t channels, std::int64_t plane) {
    const std::int64_t words = (channels + 1) / 2;
    for (std::int64_t c = 0; c < channels; c += 2) {
        const float *first = from + c * plane, *second = c + 1 < channels ? first + plane : nullptr;
        for (std::int64_t i = 0; i < count; i += kLanes) {
            const std::int64_t valid = count - i < kLanes ? count - i : kLanes;
            const bool is_whole = valid == kLanes;
            Words pairs = round_bits(is_whole ? load(first + i) : load_first(first + i, valid));
            if (second != nullptr) pairs |= round_bits(is_whole ? load(second + i) : load_first(second + i, valid)) << 16;
            std::uint32_t stored[kLanes];
            __builtin_memcpy(stored, &pairs, sizeof stored);
            for (std::int64_t j = 0; j < valid; ++j) __builtin_memcpy(to + (i + j) * words + c / 2, stored + j, 4);
        }
    }
}

// The words of rows k and k + 1 of a matrix with adjacent columns.
DOVETAIL_INLINE void pack_rows(float* to, const float* first, const float* second, std::int64_t columns) {
    for (std::int64_t j = 0; j < columns; j += kLanes) {
        const std::int64_t valid = columns - j;
        Words pairs = round_bits(load_partial(first + j, valid));
        if (second != nullptr) pairs |= round_bits(load_partial(second + j, valid)) << 16;
        store_partial(to + j, (Floats)pairs, valid);
    }
}

void pack_pairs(float* to, const float* from, std::int64_t depth, std::int64_t columns, std::int64_t width,
                std::int64_t depth_step, std::int64_t column_step) {
    const std::int64_t words = (depth + 1) / 2;
    if (column_step == 1) {
        for (std::int64_t k = 0; k < depth; k += 2) {
            const float* first = from + k * depth_step;
            pack_rows(to + k / 2 * width, first, k + 1 < depth ? first + depth_step : nullptr, columns);
        }
    } else {
        std::int64_t j = 0;
        for (; depth_step == 1 && j + kLanes <= columns; j += kLanes) {
            std::int64_t k = 0;
            for (; k + 2 * kLanes <= depth; k += 2 * kLanes) {
                Floats rows[kLanes];
#pragma GCC unroll 16
                for (int i = 0; i < kLanes; ++i)
                    rows[i] = (Floats)round_pairs(load(from + (j + i) * column_step + k),
                                                  load(from + (j + i) * column_step + k + kLanes));
                transpose_square(rows);
#pragma GCC unroll 16
                for (int i = 0; i < kLanes; ++i) store(to + (k / 2 + i) * width + j, rows[i]);
            }
            for (; k < depth; k += 2)
                for (int i = 0; i < kLanes; ++i)
                    round_run(to + k / 2 * width + j + i, from + (j + i) * column_step + k, depth - k < 2 ? 1 : 2);
        }
        for (; j < columns; ++j)
            for (std::int64_t k = 0; k < depth; k += 2) {
                const float* at = from + k * depth_step + j * column_step;
                const float two[2] = {*at, k + 1 < depth ? at[depth_step] : 0};
                round_run(to + k / 2 * width + j, two, 2);
            }
    }
    for (std::int64_t k = 0; columns < width && k < words; ++k)
        for (std::int64_t j = columns; j < width; ++j) to[k * width + j] = 0;
}

void round_whole(float* to, const float* from, std::int64_t count) { round_run(to, from, count); }

constexpr Bf16Kernels kBf16Kernels = {
    tiles_of<Bf16Product>(), {round_mapped, round_pixels, interleave_pairs}, pack_pairs, round_whole};

}  // namespace

extern const Bf16Kernels bf16_kernel_table;
const Bf16Kernels bf16_kernel_table = kBf16Kernels;

}  // namespace dovetail::DOVETAIL_ISA
