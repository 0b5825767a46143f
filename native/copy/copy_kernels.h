// The inner loops of all movement, compiled once per instruction set (simd/move_*.cpp). Sources and destinations never overlap.
// "Past the cache" means non-temporal stores: for what is larger than the caches and is not read again soon.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dovetail {

constexpr std::int64_t kPage = 4096;
constexpr int kMostLanes = 64;
constexpr std::int64_t kLeastRun = 64;

// `rows` runs of `bytes` >= 64 each, at src + row[i], put at `stage`, `step` bytes apart. If `ahead` is not 0, the run that many rows
// further on is asked for meanwhile, as far as `places` of runs are known.
struct Fetched {
    const std::byte* src = nullptr;
    const std::ptrdiff_t* row = nullptr;
    std::int64_t rows = 0;
    std::int64_t bytes = 0;
    std::byte* stage = nullptr;
    std::ptrdiff_t step = 0;
    std::int64_t ahead = 0;
    std::int64_t places = 0;
};

// Rows in a stage whose columns, each `lines` (1 or 2) whole lines of 64 bytes, go to dst + o * outer_step + c * step for o < outer,
// c < columns; a row holds one after the other what belongs to each o. columns * width is at least 16. All columns of one o go first, or
// all o of some columns.
struct Turned {
    std::byte* dst = nullptr;
    std::ptrdiff_t step = 0;
    std::int64_t columns = 0;
    std::ptrdiff_t outer_step = 0;
    std::int64_t outer = 1;
    const std::byte* stage = nullptr;
    std::ptrdiff_t stage_step = 0;
    int lines = 0;
    bool columns_first = false;
};

// Row r of a column: `bytes` >= 64, to dst + r * dst_step from src + r * src_step.
struct ColumnRows {
    std::byte* dst;
    std::ptrdiff_t dst_step;
    const std::byte* src;
    std::ptrdiff_t src_step;
    std::size_t bytes;
};

// Matrices of at most kMatrixBytes: matrix i, row r begins at src + i * step + r * row_step.
constexpr std::int64_t kMatrixBytes = 8 * 1024;
struct Matrices {
    const std::byte* src;
    std::ptrdiff_t step;
    std::int64_t count;
    std::ptrdiff_t row_step;
    std::int64_t rows;
    std::int64_t columns;
};

struct Movers {
    // Contiguous bytes past the cache.
    void (*stream)(std::byte* dst, const std::byte* src, std::size_t bytes);

    // One or more runs, each of at least 64 bytes, one after the other past the cache: lines that two of them share are written once.
    // If `ahead` is not 0, the run that many further on is asked for meanwhile.
    void (*stream_runs)(std::byte* dst, const std::byte* const* src, const std::size_t* bytes, int runs, int ahead);

    // To be called before another thread may learn that what was written past the cache is there.
    void (*settle)();

    // `rows` rows of `bytes` each: dst + i * dst_step = src + i * src_step.
    void (*copy_rows)(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
                      std::size_t bytes);

    // Row after row of several columns, through the cache. Each row asks for the next one of its column.
    void (*copy_columns)(const ColumnRows* columns, int count, std::int64_t rows);

    // Elements of `width` bytes from `count` <= kMostLanes contiguous sources in turn: dst[i * count + k] = src[k][i], for i < rows.
    void (*interleave)(std::byte* dst, const std::byte* const* src, int count, std::size_t width, std::int64_t rows, bool past_cache);

    // Its mirror: dst[k][i] = src[i * count + k]. It goes past the cache only where all destinations are aligned to 16 bytes.
    void (*deinterleave)(std::byte* const* dst, const std::byte* src, int count, std::size_t width, std::int64_t rows, bool past_cache);

    // dst + c * dst_step + r * width = src + r * src_step + c * width, for r < rows, c < columns; elements of any width.
    void (*transpose)(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
                      std::int64_t columns, std::size_t width);

    // Turns one block past the cache and fetches another one meanwhile; either may be empty. Width as above.
    void (*turn)(const Turned& now, const Fetched& next, std::size_t width);

    // Each matrix turned, one after the other past the cache. Width as above.
    void (*turn_matrices)(std::byte* dst, const Matrices& from, std::size_t width);

    // Each matrix turned through the cache: matrix i, column c goes to dst + i * dst_step + c * column_step.
    void (*turn_near)(std::byte* dst, std::ptrdiff_t dst_step, std::ptrdiff_t column_step, const Matrices& from, std::size_t width);
};

// Those of the instruction set in use.
const Movers& movers();

}  // namespace dovetail
