// Elements put in turn and taken apart again, in registers.
#include "kernels/simd/lanes.h"
#include "kernels/simd/move.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

// The rows that fill whole vectors; how many these are. Source and destination of a block are `Count` vectors each.
template <int Width, int Count>
std::int64_t interleave_blocks(std::byte* dst, const std::byte* const* src, std::int64_t rows) {
    constexpr int block = 16 / Width;
    const std::byte* from[Count];
    for (int k = 0; k < Count; ++k) from[k] = src[k];
    std::int64_t i = 0;
    for (; i + block <= rows; i += block, dst += 16 * Count) {
        Vector<16> vectors[Count];
        for (int k = 0; k < Count; ++k) vectors[k] = load<16>(from[k] + i * Width);
        shuffles<16, Width, Count, bits(Count)>(vectors);
        for (int k = 0; k < Count; ++k) store<16>(dst + 16 * k, vectors[k]);
    }
    return i;
}

template <int Width, int Count>
std::int64_t deinterleave_blocks(std::byte* const* dst, const std::byte* src, std::int64_t rows) {
    constexpr int block = 16 / Width;
    std::byte* to[Count];
    for (int k = 0; k < Count; ++k) to[k] = dst[k];
    std::int64_t i = 0;
    for (; i + block <= rows; i += block, src += 16 * Count) {
        Vector<16> vectors[Count];
        for (int k = 0; k < Count; ++k) vectors[k] = load<16>(src + 16 * k);
        shuffles<16, Width, Count, bits(block)>(vectors);
        for (int k = 0; k < Count; ++k) store<16>(to[k] + i * Width, vectors[k]);
    }
    return i;
}

template <int Width>
std::int64_t interleave_whole(std::byte* dst, const std::byte* const* src, int count, std::int64_t rows) {
    switch (count) {
        case 2: return interleave_blocks<Width, 2>(dst, src, rows);
        case 4: return interleave_blocks<Width, 4>(dst, src, rows);
        case 8: return interleave_blocks<Width, 8>(dst, src, rows);
        default: return 0;
    }
}

template <int Width>
std::int64_t deinterleave_whole(std::byte* const* dst, const std::byte* src, int count, std::int64_t rows) {
    switch (count) {
        case 2: return deinterleave_blocks<Width, 2>(dst, src, rows);
        case 4: return deinterleave_blocks<Width, 4>(dst, src, rows);
        case 8: return deinterleave_blocks<Width, 8>(dst, src, rows);
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

void interleave(std::byte* dst, const std::byte* const* src, int count, std::size_t width, std::int64_t rows) {
    std::int64_t done = 0;
    switch (width) {
        case 1: done = interleave_whole<1>(dst, src, count, rows); break;
        case 2: done = interleave_whole<2>(dst, src, count, rows); break;
        case 4: done = interleave_whole<4>(dst, src, count, rows); break;
        case 8: done = interleave_whole<8>(dst, src, count, rows); break;
        default: break;
    }
    const auto step = static_cast<std::ptrdiff_t>(width);
    by_blocks(done, rows, [&](std::int64_t first, std::int64_t size) {
        for (int k = 0; k < count; ++k)
            copy_rows(dst + (first * count + k) * step, count * step, src[k] + first * step, step, size, width);
    });
}

void deinterleave(std::byte* const* dst, const std::byte* src, int count, std::size_t width, std::int64_t rows) {
    std::int64_t done = 0;
    switch (width) {
        case 1: done = deinterleave_whole<1>(dst, src, count, rows); break;
        case 2: done = deinterleave_whole<2>(dst, src, count, rows); break;
        case 4: done = deinterleave_whole<4>(dst, src, count, rows); break;
        case 8: done = deinterleave_whole<8>(dst, src, count, rows); break;
        default: break;
    }
    const auto step = static_cast<std::ptrdiff_t>(width);
    by_blocks(done, rows, [&](std::int64_t first, std::int64_t size) {
        for (int k = 0; k < count; ++k)
            copy_rows(dst[k] + first * step, step, src + (first * count + k) * step, count * step, size, width);
    });
}

}  // namespace dovetail::DOVETAIL_ISA
