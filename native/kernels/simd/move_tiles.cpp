// Transposes, by tiles that fit the registers.
#include "kernels/simd/lanes.h"
#include "kernels/simd/move.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

// A vector whose lane l holds 16 bytes of row l * Rows: the loads do a part of the shuffling.
template <std::size_t Bytes, int Rows>
inline Vector<Bytes> load_lanes(const std::byte* src, std::ptrdiff_t step) {
    unsigned char lanes[Bytes];
    for (std::size_t l = 0; l < Bytes / 16; ++l) std::memcpy(lanes + 16 * l, src + static_cast<std::ptrdiff_t>(l) * Rows * step, 16);
    Vector<Bytes> vector;
    std::memcpy(&vector, lanes, Bytes);
    return vector;
}

// Bytes / Width rows by 16 / Width columns: each column becomes one vector.
template <std::size_t Bytes, int Width>
inline void tile(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step) {
    constexpr int columns = 16 / Width;
    Vector<Bytes> vectors[columns];
    for (int i = 0; i < columns; ++i) vectors[i] = load_lanes<Bytes, columns>(src + i * src_step, src_step);
    shuffles<Bytes, Width, columns, bits(columns)>(vectors);
    for (int i = 0; i < columns; ++i) store<Bytes>(dst + i * dst_step, vectors[i]);
}

inline std::int64_t less(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

// The last tile of a row or column may overlap the one before it.
template <std::size_t Bytes, int Width>
void tiles(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
           std::int64_t columns) {
    constexpr std::int64_t high = Bytes / Width, wide = 16 / Width;
    for (std::int64_t r = 0; r < rows; r += high) {
        const std::int64_t row = less(r, rows - high);
        for (std::int64_t c = 0; c < columns; c += wide) {
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

const Movers& own_movers() {
    static constexpr Movers table = {stream, settle, copy_rows, interleave, deinterleave, transpose};
    return table;
}

}  // namespace dovetail::DOVETAIL_ISA
