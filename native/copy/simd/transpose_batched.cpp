// Transposes of small matrices in batches.
#include "copy/simd/copy_kernels.h"
#include "copy/simd/register_transpose.h"
#include "copy/simd/write_combining.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

// Bytes of the matrices in one batch.
constexpr std::int64_t kBatchBytes = 4 * 1024;

template <int Width>
void stream_all(std::byte* dst, const MatrixBatch& from) {
    const std::int64_t bytes = from.rows * from.columns * Width, run = from.rows * Width;
    const std::int64_t matrices_per_batch = bytes < kBatchBytes ? kBatchBytes / bytes : 1;
    const bool is_dense = from.row_step == from.columns * Width && from.step == bytes;
    WriteCombiner combiner(dst, from.src);
    for (std::int64_t first = 0; first < from.count; first += matrices_per_batch) {
        const std::int64_t count = from.count - first < matrices_per_batch ? from.count - first : matrices_per_batch;
        // The hardware prefetcher follows sequential reads; tiles are not sequential.
        const bool has_next = is_dense && first + 2 * count <= from.count;
        std::byte* const to = combiner.begin_batch(has_next ? from.src + (first + count) * from.step : nullptr);
        for (std::int64_t i = 0; i < count; ++i) {
            const std::byte* const src = from.src + (first + i) * from.step;
            const auto on_tile = [&](std::int64_t bytes_done) { combiner.stream_as_many(bytes_done); };
            if (!transpose_by_tiles<Width, false>(to + i * bytes, run, src, from.row_step, from.rows, from.columns, on_tile))
                transpose(to + i * bytes, run, src, from.row_step, from.rows, from.columns, Width);
        }
        combiner.end_batch(count * bytes);
    }
    combiner.flush();
}

template <int Width>
void transpose_all(std::byte* dst, std::ptrdiff_t dst_step, std::ptrdiff_t column_step, const MatrixBatch& from) {
    const std::byte* src = from.src;
    for (std::int64_t i = 0; i < from.count; ++i, src += from.step, dst += dst_step)
        if (!transpose_by_tiles<Width, true>(dst, column_step, src, from.row_step, from.rows, from.columns))
            transpose(dst, column_step, src, from.row_step, from.rows, from.columns, Width);
}

}  // namespace

void transpose_batch(std::byte* dst, std::ptrdiff_t dst_step, std::ptrdiff_t column_step, const MatrixBatch& from,
                     std::size_t width) {
    switch (width) {
        case 1: return transpose_all<1>(dst, dst_step, column_step, from);
        case 2: return transpose_all<2>(dst, dst_step, column_step, from);
        case 4: return transpose_all<4>(dst, dst_step, column_step, from);
        default: return transpose_all<8>(dst, dst_step, column_step, from);
    }
}

void transpose_batch_streaming(std::byte* dst, const MatrixBatch& from, std::size_t width) {
    switch (width) {
        case 1: return stream_all<1>(dst, from);
        case 2: return stream_all<2>(dst, from);
        case 4: return stream_all<4>(dst, from);
        default: return stream_all<8>(dst, from);
    }
}

}  // namespace dovetail::DOVETAIL_ISA
