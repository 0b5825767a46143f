// Tiles that are turned in registers.
#pragma once

#include "copy/simd/byte_shuffles.h"

namespace dovetail::DOVETAIL_ISA {

// Bytes / Width rows by 16 / Width columns: each column becomes one vector.
template <std::size_t Bytes, int Width>
inline void tile(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step) {
    constexpr int columns = 16 / Width;
    Vector<Bytes> vectors[columns];
#pragma GCC unroll 64
    for (int i = 0; i < columns; ++i) vectors[i] = load_lanes<Bytes, columns>(src + i * src_step, src_step);
    shuffles<Bytes, Width, columns, bits(columns)>(vectors);
#pragma GCC unroll 64
    for (int i = 0; i < columns; ++i) store<Bytes>(dst + i * dst_step, vectors[i]);
}

#if defined(__AVX512F__)
template <int Lanes, int... I>
inline Vector<64> lanes_of(Vector<64> a, Vector<64> b, Indices<I...>) {
    // Lanes: four digits to the base 8, the first lane's last; from 4 on they are b's.
    return __builtin_shufflevector(a, b, (((Lanes >> (4 * (I / 16))) & 7) * 16 + I % 16)...);
}

// The lanes of four lines exchanged: line l of them becomes lane l of all.
inline void exchange_lanes(Vector<64>* lines) {
    using All = typename Counted<64>::type;
    const Vector<64> a = lanes_of<0x5140>(lines[0], lines[1], All()), b = lanes_of<0x7362>(lines[0], lines[1], All());
    const Vector<64> c = lanes_of<0x5140>(lines[2], lines[3], All()), d = lanes_of<0x7362>(lines[2], lines[3], All());
    lines[0] = lanes_of<0x5410>(a, c, All());
    lines[1] = lanes_of<0x7632>(a, c, All());
    lines[2] = lanes_of<0x5410>(b, d, All());
    lines[3] = lanes_of<0x7632>(b, d, All());
}

// 64 / Width rows by as many columns: whole lines on both sides, each touched once.
template <int Width>
inline void square(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step) {
    constexpr int columns = 16 / Width;
    Vector<64> quarters[4][columns];
#pragma GCC unroll 64
    for (int i = 0; i < columns; ++i) {
        Vector<64> lines[4];
        for (int l = 0; l < 4; ++l) lines[l] = load<64>(src + (l * columns + i) * src_step);
        exchange_lanes(lines);
        for (int q = 0; q < 4; ++q) quarters[q][i] = lines[q];
    }
#pragma GCC unroll 64
    for (int q = 0; q < 4; ++q) {
        shuffles<64, Width, columns, bits(columns)>(quarters[q]);
#pragma GCC unroll 64
        for (int i = 0; i < columns; ++i) store<64>(dst + (q * columns + i) * dst_step, quarters[q][i]);
    }
}
#endif

inline std::int64_t less(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

struct Nothing {
    void operator()(std::int64_t) const {}
};

// The last tile of a row or column may overlap the one before it. `after` is told how many bytes each tile made.
template <std::size_t Bytes, int Width, bool Squares, typename After>
void tiles(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows, std::int64_t columns,
           const After& after) {
    constexpr std::int64_t high = Bytes / Width, wide = 16 / Width;
    for (std::int64_t r = 0; r < rows; r += high) {
        const std::int64_t row = less(r, rows - high);
        std::int64_t c = 0;
#if defined(__AVX512F__)
        if constexpr (Squares && Bytes == 64)
            for (; c + high <= columns; c += high) {
                square<Width>(dst + c * dst_step + row * Width, dst_step, src + row * src_step + c * Width, src_step);
                after(64 * high);
            }
#endif
        for (; c < columns; c += wide) {
            const std::int64_t column = less(c, columns - wide);
            tile<Bytes, Width>(dst + column * dst_step + row * Width, dst_step, src + row * src_step + column * Width, src_step);
            after(static_cast<std::int64_t>(Bytes) * wide);
        }
    }
}

// The largest tiles that fit, squares of whole lines or narrow ones, which leave registers for what `after` does; false where none do, and nothing is done.
template <int Width, bool Squares, typename After = Nothing>
bool turn_by_tiles(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
                   std::int64_t columns, const After& after = {}) {
    constexpr std::int64_t wide = 16 / Width;
    if (columns < wide || rows < wide) return false;
    if (rows >= static_cast<std::int64_t>(kVector) / Width)
        tiles<kVector, Width, Squares>(dst, dst_step, src, src_step, rows, columns, after);
    else if (kVector > 32 && rows >= 32 / Width)
        tiles<kVector < 32 ? kVector : 32, Width, Squares>(dst, dst_step, src, src_step, rows, columns, after);
    else
        tiles<16, Width, Squares>(dst, dst_step, src, src_step, rows, columns, after);
    return true;
}

}  // namespace dovetail::DOVETAIL_ISA
