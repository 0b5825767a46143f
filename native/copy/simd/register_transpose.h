// Transposes of tiles in registers.
#pragma once

#include "copy/simd/byte_shuffles.h"
#include "int_math.h"

namespace dovetail::DOVETAIL_ISA {

// Transposes a tile of Bytes / Width rows by 16 / Width columns: each column becomes one vector.
template <std::size_t Bytes, int Width>
inline void transpose_tile(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step) {
    constexpr int columns = 16 / Width;
    Vector<Bytes> vectors[columns];
#pragma GCC unroll 64
    for (int i = 0; i < columns; ++i) vectors[i] = load_lanes<Bytes, columns>(src + i * src_step, src_step);
    perfect_shuffles<Bytes, Width, columns, log2_of(columns)>(vectors);
#pragma GCC unroll 64
    for (int i = 0; i < columns; ++i) store<Bytes>(dst + i * dst_step, vectors[i]);
}

#if defined(__AVX512F__)
template <int Lanes, int... I>
inline Vector<64> select_lanes(Vector<64> a, Vector<64> b, Indices<I...>) {
    // Lanes holds four octal digits; the last digit is for the first lane. Digits of 4 and above select lanes of b.
    return __builtin_shufflevector(a, b, (((Lanes >> (4 * (I / 16))) & 7) * 16 + I % 16)...);
}

// Transposes the 4 x 4 lanes of four vectors: lane j of vector l becomes lane l of vector j.
inline void transpose_lanes(Vector<64>* lines) {
    using All = typename IndexSequence<64>::type;
    const Vector<64> a = select_lanes<0x5140>(lines[0], lines[1], All()), b = select_lanes<0x7362>(lines[0], lines[1], All());
    const Vector<64> c = select_lanes<0x5140>(lines[2], lines[3], All()), d = select_lanes<0x7362>(lines[2], lines[3], All());
    lines[0] = select_lanes<0x5410>(a, c, All());
    lines[1] = select_lanes<0x7632>(a, c, All());
    lines[2] = select_lanes<0x5410>(b, d, All());
    lines[3] = select_lanes<0x7632>(b, d, All());
}

// Transposes a square of 64 / Width rows and columns: each row and each column is a whole cache line, which is accessed once.
template <int Width>
inline void transpose_square(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step) {
    constexpr int columns = 16 / Width;
    Vector<64> quarters[4][columns];
#pragma GCC unroll 64
    for (int i = 0; i < columns; ++i) {
        Vector<64> lines[4];
        for (int l = 0; l < 4; ++l) lines[l] = load<64>(src + (l * columns + i) * src_step);
        transpose_lanes(lines);
        for (int q = 0; q < 4; ++q) quarters[q][i] = lines[q];
    }
#pragma GCC unroll 64
    for (int q = 0; q < 4; ++q) {
        perfect_shuffles<64, Width, columns, log2_of(columns)>(quarters[q]);
#pragma GCC unroll 64
        for (int i = 0; i < columns; ++i) store<64>(dst + (q * columns + i) * dst_step, quarters[q][i]);
    }
}
#endif

struct NoCallback {
    void operator()(std::int64_t) const {}
};

// Transposes in tiles; the last tile of a row or column may overlap the one before it. After each tile, `after` is called with
// the number of bytes of the tile.
template <std::size_t Bytes, int Width, bool Squares, typename After>
void transpose_tiles(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
                     std::int64_t columns, const After& after) {
    constexpr std::int64_t tile_rows = Bytes / Width, tile_columns = 16 / Width;
    for (std::int64_t r = 0; r < rows; r += tile_rows) {
        const std::int64_t row = min(r, rows - tile_rows);
        std::int64_t c = 0;
#if defined(__AVX512F__)
        if constexpr (Squares && Bytes == 64)
            for (; c + tile_rows <= columns; c += tile_rows) {
                transpose_square<Width>(dst + c * dst_step + row * Width, dst_step, src + row * src_step + c * Width, src_step);
                after(64 * tile_rows);
            }
#endif
        for (; c < columns; c += tile_columns) {
            const std::int64_t column = min(c, columns - tile_columns);
            transpose_tile<Bytes, Width>(dst + column * dst_step + row * Width, dst_step, src + row * src_step + column * Width,
                                         src_step);
            after(static_cast<std::int64_t>(Bytes) * tile_columns);
        }
    }
}

// Transposes in the largest tiles that fit. Squares use whole cache lines; tiles that are not squares leave registers for
// `after`. Returns false, without any effect, if no tile fits.
template <int Width, bool Squares, typename After = NoCallback>
bool transpose_by_tiles(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
                        std::int64_t columns, const After& after = {}) {
    constexpr std::int64_t tile_columns = 16 / Width;
    if (columns < tile_columns || rows < tile_columns) return false;
    if (rows >= static_cast<std::int64_t>(kVector) / Width)
        transpose_tiles<kVector, Width, Squares>(dst, dst_step, src, src_step, rows, columns, after);
    else if (kVector > 32 && rows >= 32 / Width)
        transpose_tiles < kVector<32 ? kVector : 32, Width, Squares>(dst, dst_step, src, src_step, rows, columns, after);
    else
        transpose_tiles<16, Width, Squares>(dst, dst_step, src, src_step, rows, columns, after);
    return true;
}

}  // namespace dovetail::DOVETAIL_ISA
