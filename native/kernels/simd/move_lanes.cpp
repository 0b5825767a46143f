// Elements put in turn and taken apart again, in registers.
#include "kernels/simd/lanes.h"
#include "kernels/simd/move.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

// The rows that fill whole vectors; how many these are. Source and destination of a block are `Count` vectors each.
template <int Width, int Count, bool PastCache>
std::int64_t interleave_blocks(std::byte* dst, const std::byte* const* src, std::int64_t rows) {
    constexpr int block = 16 / Width;
    const std::byte* from[Count];
    for (int k = 0; k < Count; ++k) from[k] = src[k];
    std::int64_t i = 0;
    for (; i + block <= rows; i += block, dst += 16 * Count) {
        Vector<16> vectors[Count];
        for (int k = 0; k < Count; ++k) vectors[k] = load<16>(from[k] + i * Width);
        if constexpr (block > 1) shuffles<16, Width, Count, bits(Count)>(vectors);
        for (int k = 0; k < Count; ++k) put<PastCache>(dst + 16 * k, vectors[k]);
    }
    return i;
}

// Four blocks at a time: a line for each destination.
template <int Width, int Count, bool PastCache>
std::int64_t deinterleave_blocks(std::byte* const* dst, const std::byte* src, std::int64_t rows) {
    constexpr int block = 16 / Width;
    std::byte* to[Count];
    for (int k = 0; k < Count; ++k) to[k] = dst[k];
    std::int64_t i = 0;
    for (; i + 4 * block <= rows; i += 4 * block, src += 64 * Count) {
        Vector<16> vectors[4][Count];
        for (int j = 0; j < 4; ++j) {
            for (int k = 0; k < Count; ++k) vectors[j][k] = load<16>(src + 16 * (j * Count + k));
            if constexpr (block > 1) shuffles<16, Width, Count, bits(block)>(vectors[j]);
        }
        for (int k = 0; k < Count; ++k)
            for (int j = 0; j < 4; ++j) put<PastCache>(to[k] + i * Width + 16 * j, vectors[j][k]);
    }
    return i;
}

template <int Width, int Count>
std::int64_t interleave_blocks(std::byte* dst, const std::byte* const* src, std::int64_t rows, bool past_cache) {
    if (past_cache && is_aligned(dst, 16)) return interleave_blocks<Width, Count, true>(dst, src, rows);
    return interleave_blocks<Width, Count, false>(dst, src, rows);
}

template <int Width, int Count>
std::int64_t deinterleave_blocks(std::byte* const* dst, const std::byte* src, std::int64_t rows, bool past_cache) {
    if (past_cache) return deinterleave_blocks<Width, Count, true>(dst, src, rows);
    return deinterleave_blocks<Width, Count, false>(dst, src, rows);
}

template <int Width>
std::int64_t interleave_whole(std::byte* dst, const std::byte* const* src, int count, std::int64_t rows, bool past_cache) {
    switch (count) {
        case 2: return interleave_blocks<Width, 2>(dst, src, rows, past_cache);
        case 4: return interleave_blocks<Width, 4>(dst, src, rows, past_cache);
        case 8: return interleave_blocks<Width, 8>(dst, src, rows, past_cache);
        default: return 0;
    }
}

template <int Width>
std::int64_t deinterleave_whole(std::byte* const* dst, const std::byte* src, int count, std::int64_t rows, bool past_cache) {
    switch (count) {
        case 2: return deinterleave_blocks<Width, 2>(dst, src, rows, past_cache);
        case 4: return deinterleave_blocks<Width, 4>(dst, src, rows, past_cache);
        case 8: return deinterleave_blocks<Width, 8>(dst, src, rows, past_cache);
        default: return 0;
    }
}

// Any count, all sources of a few rows together: one pass over the destination.
constexpr std::int64_t kRowsTogether = 256;

template <typename F>
void by_blocks(std::int64_t first, std::int64_t rows, const F& block) {
    for (; first < rows; first += kRowsTogether) block(first, rows - first < kRowsTogether ? rows - first : kRowsTogether);
}

}  // namespace

void interleave(std::byte* dst, const std::byte* const* src, int count, std::size_t width, std::int64_t rows, bool past_cache) {
    std::int64_t done = 0;
    switch (width) {
        case 1: done = interleave_whole<1>(dst, src, count, rows, past_cache); break;
        case 2: done = interleave_whole<2>(dst, src, count, rows, past_cache); break;
        case 4: done = interleave_whole<4>(dst, src, count, rows, past_cache); break;
        case 8: done = interleave_whole<8>(dst, src, count, rows, past_cache); break;
        case 16: done = interleave_whole<16>(dst, src, count, rows, past_cache); break;
        default: break;
    }
    const auto step = static_cast<std::ptrdiff_t>(width);
    by_blocks(done, rows, [&](std::int64_t first, std::int64_t size) {
        for (int k = 0; k < count; ++k)
            copy_rows(dst + (first * count + k) * step, count * step, src[k] + first * step, step, size, width);
    });
}

namespace {

void part_rows(std::byte* const* dst, const std::byte* src, int count, std::ptrdiff_t step, std::int64_t first, std::int64_t end) {
    by_blocks(first, end, [&](std::int64_t row, std::int64_t size) {
        for (int k = 0; k < count; ++k)
            copy_rows(dst[k] + row * step, step, src + (row * count + k) * step, count * step, size, static_cast<std::size_t>(step));
    });
}

std::int64_t part_blocks(std::byte* const* dst, const std::byte* src, int count, std::size_t width, std::int64_t rows, bool past_cache) {
    switch (width) {
        case 1: return deinterleave_whole<1>(dst, src, count, rows, past_cache);
        case 2: return deinterleave_whole<2>(dst, src, count, rows, past_cache);
        case 4: return deinterleave_whole<4>(dst, src, count, rows, past_cache);
        case 8: return deinterleave_whole<8>(dst, src, count, rows, past_cache);
        case 16: return deinterleave_whole<16>(dst, src, count, rows, past_cache);
        default: return 0;
    }
}

// How many rows until every destination begins a line, or -1 where they never do so together.
std::int64_t rows_to_line(std::byte* const* dst, int count, std::size_t width) {
    const std::size_t bytes = (0 - reinterpret_cast<std::uintptr_t>(dst[0])) % 64;
    for (int k = 1; k < count; ++k)
        if (!is_aligned(dst[k] + bytes, 64)) return -1;
    return bytes % width == 0 ? static_cast<std::int64_t>(bytes / width) : -1;
}

}  // namespace

void deinterleave(std::byte* const* dst, const std::byte* src, int count, std::size_t width, std::int64_t rows, bool past_cache) {
    const auto step = static_cast<std::ptrdiff_t>(width);
    std::int64_t first = past_cache ? rows_to_line(dst, count, width) : 0;
    if (first < 0 || first > rows) {
        first = 0;
        past_cache = false;
    }
    part_rows(dst, src, count, step, 0, first);
    std::byte* to[kMostLanes];
    for (int k = 0; k < count; ++k) to[k] = dst[k] + first * step;
    const std::int64_t done = part_blocks(to, src + first * count * step, count, width, rows - first, past_cache);
    part_rows(dst, src, count, step, first + done, rows);
}

}  // namespace dovetail::DOVETAIL_ISA
