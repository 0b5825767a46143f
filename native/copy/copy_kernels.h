// The inner loops of strided copies, compiled once per instruction set (copy/simd/). Sources and destinations never overlap.
// Non-temporal stores serve data that is larger than the caches and is not read again soon.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dovetail {

constexpr std::int64_t kPage = 4096;
constexpr int kMaxInterleave = 64;
constexpr std::int64_t kMinStreamedRun = 64;

// A load of rows into a staging buffer: row i has `bytes` >= 64 bytes at src + row_offsets[i] and is copied to staging + i *
// step, for i < rows. If `prefetch_rows` is not 0, row i + prefetch_rows is prefetched while row i is loaded, as long as i +
// prefetch_rows < known_rows.
struct StagingLoad {
    const std::byte* src = nullptr;
    const std::ptrdiff_t* row_offsets = nullptr;
    std::int64_t rows = 0;
    std::int64_t bytes = 0;
    std::byte* staging = nullptr;
    std::ptrdiff_t step = 0;
    std::int64_t prefetch_rows = 0;
    std::int64_t known_rows = 0;
};

// A transpose of the rows in a staging buffer. In the destination, each column fills `lines` (1 or 2) whole cache lines. Column c
// of outer index o is written to dst + o * outer_step + c * step, for o < outer and c < columns. In a row, the columns of one
// outer index follow those of the previous outer index. columns * width is at least 16 bytes. The outer loop runs over o if
// `columns_first`, else over blocks of columns.
struct StagedTranspose {
    std::byte* dst = nullptr;
    std::ptrdiff_t step = 0;
    std::int64_t columns = 0;
    std::ptrdiff_t outer_step = 0;
    std::int64_t outer = 1;
    const std::byte* staging = nullptr;
    std::ptrdiff_t staging_step = 0;
    int lines = 0;
    bool columns_first = false;
};

// One column of a row-by-row copy: in row r, `bytes` >= 64 bytes are copied from src + r * src_step to dst + r * dst_step.
struct ColumnCopy {
    std::byte* dst;
    std::ptrdiff_t dst_step;
    const std::byte* src;
    std::ptrdiff_t src_step;
    std::size_t bytes;
};

// A batch of matrices of at most kMatrixBytes bytes each: row r of matrix i begins at src + i * step + r * row_step.
constexpr std::int64_t kMatrixBytes = 8 * 1024;
struct MatrixBatch {
    const std::byte* src;
    std::ptrdiff_t step;
    std::int64_t count;
    std::ptrdiff_t row_step;
    std::int64_t rows;
    std::int64_t columns;
};

struct CopyKernels {
    // Copies contiguous bytes with non-temporal stores.
    void (*stream)(std::byte* dst, const std::byte* src, std::size_t bytes);

    // Copies one or more runs of at least 64 bytes each to consecutive addresses with non-temporal stores; a cache line that
    // two runs share is written once. If `prefetch_runs` is not 0, run i + prefetch_runs is prefetched while run i is copied.
    void (*stream_runs)(std::byte* dst, const std::byte* const* src, const std::size_t* bytes, int runs, int prefetch_runs);

    // Makes non-temporal stores visible to other threads; required before a flag lets another thread read the data.
    void (*store_fence)();

    // Copies `rows` rows of `bytes` bytes each: row i from src + i * src_step to dst + i * dst_step.
    void (*copy_rows)(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
                      std::size_t bytes);

    // Copies several columns row by row with ordinary stores, prefetching the next row of each column.
    void (*copy_columns)(const ColumnCopy* columns, int count, std::int64_t rows);

    // Interleaves elements of `width` bytes from `count` <= kMaxInterleave contiguous sources: dst[i * count + k] = src[k][i],
    // for i < rows.
    void (*interleave)(std::byte* dst, const std::byte* const* src, int count, std::size_t width, std::int64_t rows,
                       bool non_temporal);

    // Inverse of interleave: dst[k][i] = src[i * count + k]. Stores are non-temporal only if all destinations are aligned to 16
    // bytes.
    void (*deinterleave)(std::byte* const* dst, const std::byte* src, int count, std::size_t width, std::int64_t rows,
                         bool non_temporal);

    // Transposes elements of any width: copies the element at src + r * src_step + c * width to dst + c * dst_step + r * width,
    // for r < rows and c < columns.
    void (*transpose)(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
                      std::int64_t columns, std::size_t width);

    // Transposes the staged block `now` with non-temporal stores, and loads the block `next` meanwhile; either block may be
    // empty. The element width is 1, 2, 4 or 8 bytes.
    void (*transpose_staged)(const StagedTranspose& now, const StagingLoad& next, std::size_t width);

    // Transposes each matrix, and writes the results one after the other with non-temporal stores. The element width is 1, 2, 4
    // or 8 bytes.
    void (*transpose_batch_streaming)(std::byte* dst, const MatrixBatch& from, std::size_t width);

    // Transposes each matrix with ordinary stores: column c of matrix i goes to dst + i * dst_step + c * column_step. The element
    // width is 1, 2, 4 or 8 bytes.
    void (*transpose_batch)(std::byte* dst, std::ptrdiff_t dst_step, std::ptrdiff_t column_step, const MatrixBatch& from,
                            std::size_t width);
};

// The kernels of the instruction set in use.
const CopyKernels& copy_kernels();

}  // namespace dovetail
