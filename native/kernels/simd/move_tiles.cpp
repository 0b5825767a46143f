// Transposes, by tiles that fit the registers.
#include "kernels/simd/lanes.h"
#include "kernels/simd/move.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

template <std::size_t Bytes, int... I>
inline Vector<Bytes> joined(Vector<Bytes / 2> low, Vector<Bytes / 2> high, Indices<I...>) {
    return __builtin_shufflevector(low, high, I...);
}

// A vector whose lane l holds 16 bytes of row l * Rows: the loads do a part of the shuffling.
template <std::size_t Bytes, int Rows>
inline Vector<Bytes> load_lanes(const std::byte* src, std::ptrdiff_t step) {
    if constexpr (Bytes == 16) {
        return load<16>(src);
    } else {
        // Half by half: an array in memory would hold up the load that follows.
        constexpr std::ptrdiff_t half = static_cast<std::ptrdiff_t>(Bytes) / 32 * Rows;
        return joined<Bytes>(load_lanes<Bytes / 2, Rows>(src, step), load_lanes<Bytes / 2, Rows>(src + half * step, step),
                             typename Counted<static_cast<int>(Bytes)>::type());
    }
}

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
template <int Width, bool PastCache>
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
        for (int i = 0; i < columns; ++i) put_vector<64, PastCache>(dst + (q * columns + i) * dst_step, quarters[q][i]);
    }
}
#endif

inline std::int64_t less(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

// The last tile of a row or column may overlap the one before it.
template <std::size_t Bytes, int Width>
void tiles(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
           std::int64_t columns) {
    constexpr std::int64_t high = Bytes / Width, wide = 16 / Width;
    for (std::int64_t r = 0; r < rows; r += high) {
        const std::int64_t row = less(r, rows - high);
        std::int64_t c = 0;
#if defined(__AVX512F__)
        if constexpr (Bytes == 64)
            for (; c + high <= columns; c += high)
                square<Width, false>(dst + c * dst_step + row * Width, dst_step, src + row * src_step + c * Width, src_step);
#endif
        for (; c < columns; c += wide) {
            const std::int64_t column = less(c, columns - wide);
            tile<Bytes, Width>(dst + column * dst_step + row * Width, dst_step, src + row * src_step + column * Width, src_step);
        }
    }
}

template <int Width>
void transpose_elements(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
                        std::int64_t columns) {
    constexpr std::int64_t wide = 16 / Width;
    if (columns >= wide && rows >= static_cast<std::int64_t>(kVector) / Width)
        tiles<kVector, Width>(dst, dst_step, src, src_step, rows, columns);
    else if (kVector > 32 && columns >= wide && rows >= 32 / Width)
        tiles<kVector < 32 ? kVector : 32, Width>(dst, dst_step, src, src_step, rows, columns);
    else if (columns >= wide && rows >= wide)
        tiles<16, Width>(dst, dst_step, src, src_step, rows, columns);
    else if (rows < columns)
        for (std::int64_t r = 0; r < rows; ++r) copy_rows(dst + r * Width, dst_step, src + r * src_step, Width, columns, Width);
    else
        for (std::int64_t c = 0; c < columns; ++c) copy_rows(dst + c * dst_step, Width, src + c * Width, src_step, rows, Width);
}

}  // namespace

void transpose(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
               std::int64_t columns, std::size_t width) {
    switch (width) {
        case 1: return transpose_elements<1>(dst, dst_step, src, src_step, rows, columns);
        case 2: return transpose_elements<2>(dst, dst_step, src, src_step, rows, columns);
        case 4: return transpose_elements<4>(dst, dst_step, src, src_step, rows, columns);
        case 8: return transpose_elements<8>(dst, dst_step, src, src_step, rows, columns);
        default: break;
    }
    const auto step = static_cast<std::ptrdiff_t>(width);
    for (std::int64_t c = 0; c < columns; ++c) copy_rows(dst + c * dst_step, step, src + c * step, src_step, rows, width);
}

namespace {

constexpr int kLineVectors = static_cast<int>(64 / kVector);

// 64 / Width rows by 16 / Width columns: each column becomes a line.
template <int Width>
inline void line_tile(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step) {
    constexpr int columns = 16 / Width, high = static_cast<int>(kVector) / Width;
    Vector<kVector> vectors[kLineVectors][columns];
    for (int j = 0; j < kLineVectors; ++j) {
#pragma GCC unroll 64
        for (int i = 0; i < columns; ++i) vectors[j][i] = load_lanes<kVector, columns>(src + (j * high + i) * src_step, src_step);
        shuffles<kVector, Width, columns, bits(columns)>(vectors[j]);
    }
#pragma GCC unroll 64
    for (int i = 0; i < columns; ++i)
        for (int j = 0; j < kLineVectors; ++j) put_vector<kVector, true>(dst + i * dst_step + j * static_cast<int>(kVector), vectors[j][i]);
}

template <int Width>
void transpose_to_lines(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
                        std::int64_t columns) {
    constexpr std::int64_t high = 64 / Width, wide = 16 / Width;
    for (std::int64_t r = 0; r < rows; r += high, dst += 64, src += high * src_step) {
        std::int64_t c = 0;
#if defined(__AVX512F__)
        for (; c + high <= columns; c += high) square<Width, true>(dst + c * dst_step, dst_step, src + c * Width, src_step);
#endif
        for (; c < columns; c += wide) {
            const std::int64_t column = less(c, columns - wide);
            line_tile<Width>(dst + column * dst_step, dst_step, src + column * Width, src_step);
        }
    }
}

}  // namespace

void transpose_lines(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
                     std::int64_t columns, std::size_t width) {
    switch (width) {
        case 1: return transpose_to_lines<1>(dst, dst_step, src, src_step, rows, columns);
        case 2: return transpose_to_lines<2>(dst, dst_step, src, src_step, rows, columns);
        case 4: return transpose_to_lines<4>(dst, dst_step, src, src_step, rows, columns);
        default: return transpose_to_lines<8>(dst, dst_step, src, src_step, rows, columns);
    }
}

const Movers& own_movers() {
    static constexpr Movers table = {stream, stream_runs, settle, copy_rows, interleave, deinterleave, transpose, transpose_lines};
    return table;
}

}  // namespace dovetail::DOVETAIL_ISA
