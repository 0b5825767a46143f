// Small matrices, many at a time.
#include "copy/simd/write_combining.h"
#include "copy/simd/copy_kernels.h"
#include "copy/simd/register_transpose.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

// As many matrices as make up this are one batch.
constexpr std::int64_t kTogetherBytes = 4 * 1024;

template <int Width>
void turn_each(std::byte* dst, const Matrices& from) {
    const std::int64_t bytes = from.rows * from.columns * Width, run = from.rows * Width;
    const std::int64_t together = bytes < kTogetherBytes ? kTogetherBytes / bytes : 1;
    const bool is_dense = from.row_step == from.columns * Width && from.step == bytes;
    Batches batches(dst, from.src);
    for (std::int64_t first = 0; first < from.count; first += together) {
        const std::int64_t count = from.count - first < together ? from.count - first : together;
        // The processor fetches ahead what is read in order; tiles are not.
        const bool is_followed = is_dense && first + 2 * count <= from.count;
        std::byte* const to = batches.open(is_followed ? from.src + (first + count) * from.step : nullptr);
        for (std::int64_t i = 0; i < count; ++i) {
            const std::byte* const src = from.src + (first + i) * from.step;
            const auto send = [&](std::int64_t made) { batches.send_as_many(made); };
            if (!turn_by_tiles<Width, false>(to + i * bytes, run, src, from.row_step, from.rows, from.columns, send))
                transpose(to + i * bytes, run, src, from.row_step, from.rows, from.columns, Width);
        }
        batches.close(count * bytes);
    }
    batches.end();
}

template <int Width>
void turn_each_near(std::byte* dst, std::ptrdiff_t dst_step, std::ptrdiff_t column_step, const Matrices& from) {
    const std::byte* src = from.src;
    for (std::int64_t i = 0; i < from.count; ++i, src += from.step, dst += dst_step)
        if (!turn_by_tiles<Width, true>(dst, column_step, src, from.row_step, from.rows, from.columns))
            transpose(dst, column_step, src, from.row_step, from.rows, from.columns, Width);
}

}  // namespace

void turn_near(std::byte* dst, std::ptrdiff_t dst_step, std::ptrdiff_t column_step, const Matrices& from, std::size_t width) {
    switch (width) {
        case 1: return turn_each_near<1>(dst, dst_step, column_step, from);
        case 2: return turn_each_near<2>(dst, dst_step, column_step, from);
        case 4: return turn_each_near<4>(dst, dst_step, column_step, from);
        default: return turn_each_near<8>(dst, dst_step, column_step, from);
    }
}

void turn_matrices(std::byte* dst, const Matrices& from, std::size_t width) {
    switch (width) {
        case 1: return turn_each<1>(dst, from);
        case 2: return turn_each<2>(dst, from);
        case 4: return turn_each<4>(dst, from);
        default: return turn_each<8>(dst, from);
    }
}

}  // namespace dovetail::DOVETAIL_ISA
