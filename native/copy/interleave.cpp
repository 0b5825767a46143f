#include <algorithm>

#include "copy/strategy.h"

namespace dovetail::copying {
namespace {

// Maximum number of columns that are copied row by row; in each row, a column takes several vectors.
constexpr std::size_t kMaxColumnsByRows = 16;
constexpr std::int64_t kMinBytesByRows = 128;

// True for the element widths that the interleave kernels support: widths up to one vector, and with non-temporal stores also
// larger widths if there are 2, 4 or 8 columns.
bool is_interleavable(std::int64_t bytes, std::size_t count, bool non_temporal) {
    if (bytes == 32 || bytes == 64) return non_temporal && (count == 2 || count == 4 || count == 8);
    return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16;
}

// One column of a table: in each row, `bytes` bytes that are contiguous in source and destination.
struct Column {
    Location dst;
    Location src;
    std::int64_t dst_step;
    std::int64_t src_step;
    std::int64_t bytes;
};

// Concat or Split along an inner axis. The array that holds all columns is the shared side: the destination of Concat, the source
// of Split. All columns of a block of rows are copied before the next block, so that the shared side is traversed once.
class ColumnCopyStrategy : public CopyStrategy {
public:
    // If `is_concat`, the columns, in this order, fill the rows of the destination; otherwise those of the source.
    ColumnCopyStrategy(std::vector<Column> columns, std::int64_t rows, bool is_concat, const CopyOptions& options)
        : columns_(std::move(columns)), rows_(rows), is_concat_(is_concat), non_temporal_(options.non_temporal) {
        std::int64_t width = 0, min_bytes = columns_[0].bytes, max_bytes = 0;
        for (const Column& column : columns_) {
            width += column.bytes;
            min_bytes = min(min_bytes, column.bytes);
            max_bytes = max(max_bytes, column.bytes);
        }
        task_rows_ = max(1, options.task_bytes / width);
        streams_runs_ = non_temporal_ && is_concat_ && width > kWriteCombiningBytes / 2 && min_bytes >= kMinStreamedRun;
        block_rows_ = max(1, (non_temporal_ && is_concat_ ? kWriteCombiningBytes : kL1BlockBytes) / width);
        // Long rows of a column are adjacent on the side that is not shared. Larger blocks then share fewer cache lines, and the
        // hardware prefetcher sees one run.
        if (min_bytes >= kMinStreamedRow && !(is_concat_ && non_temporal_)) block_rows_ = task_rows_;
        by_rows_ = !non_temporal_ && prefetches_within_pages() && columns_.size() <= kMaxColumnsByRows &&
                   min_bytes >= kMinBytesByRows && max_bytes < kPage;
    }

    std::int64_t tasks() const override { return ceil_div(rows_, task_rows_); }
    const char* name() const override { return "columns"; }
    bool has_long_runs() const override { return columns_[0].bytes >= 1024; }

    void run(std::byte* const* bases, std::int64_t task) const override {
        const std::int64_t end = min(rows_, (task + 1) * task_rows_);
        if (by_rows_) return copy_by_rows(bases, task * task_rows_, end);
        if (streams_runs_) stream_runs(bases, task * task_rows_, end);
        for (std::int64_t row = task * task_rows_; row < end && !streams_runs_; row += block_rows_) {
            const std::int64_t rows = min(block_rows_, end - row);
            if (non_temporal_ && is_concat_ && rows > 1)
                interleave(bases, row, rows);
            else
                for (const Column& column : columns_) copy(column, bases, row, rows);
        }
        if (non_temporal_) copy_kernels().store_fence();
    }

private:
    void copy(const Column& column, std::byte* const* bases, std::int64_t row, std::int64_t rows) const {
        std::byte* const dst = column.dst.resolve(bases) + row * column.dst_step;
        const std::byte* const src = column.src.resolve(bases) + row * column.src_step;
        if (non_temporal_)
            stream_rows(dst, column.dst_step, src, column.src_step, rows, column.bytes);
        else
            copy_kernels().copy_rows(dst, column.dst_step, src, column.src_step, rows, static_cast<std::size_t>(column.bytes));
    }

    // Copies row by row: one sequential pass over the shared side, with the next row of each column prefetched.
    void copy_by_rows(std::byte* const* bases, std::int64_t row, std::int64_t end) const {
        ColumnCopy at[kMaxColumnsByRows];
        int count = 0;
        for (const Column& column : columns_)
            at[count++] = {column.dst.resolve(bases) + row * column.dst_step, column.dst_step,
                           column.src.resolve(bases) + row * column.src_step, column.src_step,
                           static_cast<std::size_t>(column.bytes)};
        copy_kernels().copy_columns(at, count, end - row);
    }

    // Streams long rows directly from the sources.
    void stream_runs(std::byte* const* bases, std::int64_t row, std::int64_t end) const {
        RunStream runs(columns_[0].dst.resolve(bases) + row * columns_[0].dst_step);
        for (; row < end; ++row)
            for (const Column& column : columns_) runs.add(column.src.resolve(bases) + row * column.src_step, column.bytes);
        runs.flush();
        copy_kernels().store_fence();
    }

    // Assembles a block of whole rows in L1, and copies the block with non-temporal stores.
    void interleave(std::byte* const* bases, std::int64_t row, std::int64_t rows) const {
        alignas(64) std::byte block[kWriteCombiningBytes];
        const std::int64_t step = columns_[0].dst_step;
        std::int64_t at = 0;
        for (const Column& column : columns_) {
            const std::byte* const src = column.src.resolve(bases) + row * column.src_step;
            copy_kernels().copy_rows(block + at, step, src, column.src_step, rows, static_cast<std::size_t>(column.bytes));
            at += column.bytes;
        }
        copy_kernels().stream(columns_[0].dst.resolve(bases) + row * step, block, static_cast<std::size_t>(rows * step));
    }

    std::vector<Column> columns_;
    std::int64_t rows_;
    bool is_concat_;
    bool non_temporal_;
    bool streams_runs_;
    bool by_rows_;
    std::int64_t task_rows_;
    std::int64_t block_rows_;
};

// Concat or Split of narrow columns of equal width. Each column is contiguous on the side that is not shared; together the
// columns fill the rows of the shared side.
class InterleaveStrategy : public CopyStrategy {
public:
    InterleaveStrategy(std::vector<Column> columns, std::int64_t rows, bool is_concat, const CopyOptions& options)
        : columns_(std::move(columns)), rows_(rows), is_concat_(is_concat), non_temporal_(options.non_temporal),
          width_(columns_[0].bytes) {
        // Multiples of 64 rows: each task begins at a whole vector.
        task_rows_ = ceil_div(options.task_bytes, 64 * width_ * static_cast<std::int64_t>(columns_.size())) * 64;
    }

    std::int64_t tasks() const override { return ceil_div(rows_, task_rows_); }
    const char* name() const override { return "interleave"; }

    void run(std::byte* const* bases, std::int64_t task) const override {
        const std::int64_t row = task * task_rows_;
        if (is_concat_)
            interleave(bases, row, min(task_rows_, rows_ - row));
        else
            deinterleave(bases, row, min(task_rows_, rows_ - row));
        if (non_temporal_) copy_kernels().store_fence();
    }

private:
    void interleave(std::byte* const* bases, std::int64_t row, std::int64_t rows) const {
        const std::byte* from[kMaxInterleave];
        for (std::size_t k = 0; k < columns_.size(); ++k) from[k] = columns_[k].src.resolve(bases) + row * width_;
        std::byte* const dst = columns_[0].dst.resolve(bases) + row * columns_[0].dst_step;
        copy_kernels().interleave(dst, from, static_cast<int>(columns_.size()), static_cast<std::size_t>(width_), rows,
                                  non_temporal_);
    }

    void deinterleave(std::byte* const* bases, std::int64_t row, std::int64_t rows) const {
        std::byte* dst_columns[kMaxInterleave];
        for (std::size_t k = 0; k < columns_.size(); ++k) dst_columns[k] = columns_[k].dst.resolve(bases) + row * width_;
        const std::byte* const src = columns_[0].src.resolve(bases) + row * columns_[0].src_step;
        copy_kernels().deinterleave(dst_columns, src, static_cast<int>(columns_.size()), static_cast<std::size_t>(width_), rows,
                                    non_temporal_);
    }

    std::vector<Column> columns_;
    std::int64_t rows_;
    bool is_concat_;
    bool non_temporal_;
    std::int64_t width_;
    std::int64_t task_rows_;
};

bool is_adjacent(const Location& a, std::int64_t bytes, const Location& b) {
    return a.base == b.base && a.constant == b.constant && a.offset + bytes == b.offset;
}

// True if the columns are adjacent and fill the rows on one side, source or destination: the side whose members are `location`
// and `step`.
bool fill_rows(const std::vector<Column>& columns, Location Column::* location, std::int64_t Column::* step) {
    std::int64_t width = 0;
    for (const Column& column : columns) {
        if (!is_adjacent(columns[0].*location, width, column.*location)) return false;
        width += column.bytes;
    }
    return std::all_of(columns.begin(), columns.end(), [&](const Column& column) { return column.*step == width; });
}

bool are_interleavable(const std::vector<Column>& columns, std::int64_t Column::* own_step, bool non_temporal) {
    return columns.size() <= kMaxInterleave && is_interleavable(columns[0].bytes, columns.size(), non_temporal) &&
           std::all_of(columns.begin(), columns.end(), [&](const Column& column) {
               return column.bytes == columns[0].bytes && column.*own_step == column.bytes;
           });
}

}  // namespace

std::unique_ptr<CopyStrategy> make_column_copy(const std::vector<NormalizedCopy>& regions, const CopyOptions& options) {
    if (regions.size() < 2) return nullptr;
    std::vector<Column> columns;
    for (const NormalizedCopy& normalized : regions) {
        if (normalized.axes.size() != 1 || normalized.axes[0].size != regions[0].axes[0].size) return nullptr;
        columns.push_back({normalized.dst, normalized.src, normalized.axes[0].dst, normalized.axes[0].src, normalized.run});
    }
    const std::int64_t rows = regions[0].axes[0].size;
    std::vector<Column> sorted = columns;
    std::sort(sorted.begin(), sorted.end(), [](const Column& a, const Column& b) { return a.dst.offset < b.dst.offset; });
    if (fill_rows(sorted, &Column::dst, &Column::dst_step)) {
        if (are_interleavable(sorted, &Column::src_step, options.non_temporal))
            return std::make_unique<InterleaveStrategy>(sorted, rows, true, options);
        return std::make_unique<ColumnCopyStrategy>(sorted, rows, true, options);
    }
    std::sort(sorted.begin(), sorted.end(), [](const Column& a, const Column& b) { return a.src.offset < b.src.offset; });
    if (fill_rows(sorted, &Column::src, &Column::src_step) && are_interleavable(sorted, &Column::dst_step, options.non_temporal))
        return std::make_unique<InterleaveStrategy>(sorted, rows, false, options);
    return std::make_unique<ColumnCopyStrategy>(columns, rows, false, options);
}

}  // namespace dovetail::copying
