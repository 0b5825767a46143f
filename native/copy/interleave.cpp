#include <algorithm>

#include "copy/strategy.h"

namespace dovetail::moving {
namespace {

// So many columns at most are passed row by row, each row in several vectors.
constexpr std::size_t kMostColumns = 16;
constexpr std::int64_t kLeastByRows = 128;

// What the inner loops put in turn and take apart: elements of a vector or less, and past the cache wider ones by 2, 4 or 8.
bool is_lane(std::int64_t bytes, std::size_t count, bool past_cache) {
    if (bytes == 32 || bytes == 64) return past_cache && (count == 2 || count == 4 || count == 8);
    return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16;
}

// One column of a table: in each row, `bytes` that lie together on both sides.
struct Column {
    Place dst;
    Place src;
    std::int64_t dst_step;
    std::int64_t src_step;
    std::int64_t bytes;
};

// The rows of a Concat or Split along an inner axis: all columns of a block of rows are done before the next block, so that the side
// they share is passed once.
class Table : public Walk {
public:
    // joins: the columns, in this order, fill rows of the destination.
    Table(std::vector<Column> columns, std::int64_t rows, bool joins, const Manner& manner)
        : columns_(std::move(columns)), rows_(rows), joins_(joins), past_cache_(manner.past_cache) {
        std::int64_t width = 0, least_bytes = columns_[0].bytes, most_bytes = 0;
        for (const Column& column : columns_) {
            width += column.bytes;
            least_bytes = least(least_bytes, column.bytes);
            most_bytes = most(most_bytes, column.bytes);
        }
        task_rows_ = most(1, manner.task_bytes / width);
        in_runs_ = past_cache_ && joins_ && width > kStagedBytes / 2 && least_bytes >= kLeastRun;
        block_rows_ = most(1, (past_cache_ && joins_ ? kStagedBytes : kBlockBytes) / width);
        // Long rows of a column follow each other on the side that is theirs alone: there few lines are shared by two blocks then, and the
        // processor fetches ahead in one run.
        if (least_bytes >= kStreamedRow && !(joins_ && past_cache_)) block_rows_ = task_rows_;
        by_rows_ = !past_cache_ && fetches_within_pages() && columns_.size() <= kMostColumns && least_bytes >= kLeastByRows && most_bytes < kPage;
    }

    std::int64_t tasks() const override { return parts(rows_, task_rows_); }
    const char* name() const override { return "table"; }
    bool is_plain() const override { return columns_[0].bytes >= 1024; }

    void run(std::byte* const* bases, std::int64_t task) const override {
        const std::int64_t end = least(rows_, (task + 1) * task_rows_);
        if (by_rows_) return copy_by_rows(bases, task * task_rows_, end);
        if (in_runs_) join_runs(bases, task * task_rows_, end);
        for (std::int64_t row = task * task_rows_; row < end && !in_runs_; row += block_rows_) {
            const std::int64_t rows = least(block_rows_, end - row);
            if (past_cache_ && joins_ && rows > 1)
                join(bases, row, rows);
            else
                for (const Column& column : columns_) copy(column, bases, row, rows);
        }
        if (past_cache_) movers().settle();
    }

private:
    void copy(const Column& column, std::byte* const* bases, std::int64_t row, std::int64_t rows) const {
        std::byte* const dst = column.dst.in(bases) + row * column.dst_step;
        const std::byte* const src = column.src.in(bases) + row * column.src_step;
        if (past_cache_)
            copy_rows_past(dst, column.dst_step, src, column.src_step, rows, column.bytes);
        else
            movers().copy_rows(dst, column.dst_step, src, column.src_step, rows, static_cast<std::size_t>(column.bytes));
    }

    // The side that all columns share in one run, and of each row what the next one needs.
    void copy_by_rows(std::byte* const* bases, std::int64_t row, std::int64_t end) const {
        ColumnRows at[kMostColumns];
        int count = 0;
        for (const Column& column : columns_)
            at[count++] = {column.dst.in(bases) + row * column.dst_step, column.dst_step, column.src.in(bases) + row * column.src_step,
                           column.src_step, static_cast<std::size_t>(column.bytes)};
        movers().copy_columns(at, count, end - row);
    }

    // Long rows go from where they are.
    void join_runs(std::byte* const* bases, std::int64_t row, std::int64_t end) const {
        Runs runs(columns_[0].dst.in(bases) + row * columns_[0].dst_step);
        for (; row < end; ++row)
            for (const Column& column : columns_) runs.add(column.src.in(bases) + row * column.src_step, column.bytes);
        runs.flush();
        movers().settle();
    }

    // A block of whole rows, put together before it is written past the cache.
    void join(std::byte* const* bases, std::int64_t row, std::int64_t rows) const {
        alignas(64) std::byte block[kStagedBytes];
        const std::int64_t step = columns_[0].dst_step;
        std::int64_t at = 0;
        for (const Column& column : columns_) {
            const std::byte* const src = column.src.in(bases) + row * column.src_step;
            movers().copy_rows(block + at, step, src, column.src_step, rows, static_cast<std::size_t>(column.bytes));
            at += column.bytes;
        }
        movers().stream(columns_[0].dst.in(bases) + row * step, block, static_cast<std::size_t>(rows * step));
    }

    std::vector<Column> columns_;
    std::int64_t rows_;
    bool joins_;
    bool past_cache_;
    bool in_runs_;
    bool by_rows_;
    std::int64_t task_rows_;
    std::int64_t block_rows_;
};

// Narrow columns of one width, contiguous on the side that is theirs alone, filling the rows of the other side.
class Lanes : public Walk {
public:
    Lanes(std::vector<Column> columns, std::int64_t rows, bool joins, const Manner& manner)
        : columns_(std::move(columns)), rows_(rows), joins_(joins), past_cache_(manner.past_cache), width_(columns_[0].bytes) {
        // Whole blocks of 64 rows: each task begins where whole vectors do.
        task_rows_ = parts(manner.task_bytes, 64 * width_ * static_cast<std::int64_t>(columns_.size())) * 64;
    }

    std::int64_t tasks() const override { return parts(rows_, task_rows_); }
    const char* name() const override { return "lanes"; }

    void run(std::byte* const* bases, std::int64_t task) const override {
        const std::int64_t row = task * task_rows_;
        if (joins_)
            join(bases, row, least(task_rows_, rows_ - row));
        else
            part(bases, row, least(task_rows_, rows_ - row));
        if (past_cache_) movers().settle();
    }

private:
    void join(std::byte* const* bases, std::int64_t row, std::int64_t rows) const {
        const std::byte* from[kMostLanes];
        for (std::size_t k = 0; k < columns_.size(); ++k) from[k] = columns_[k].src.in(bases) + row * width_;
        std::byte* const dst = columns_[0].dst.in(bases) + row * columns_[0].dst_step;
        movers().interleave(dst, from, static_cast<int>(columns_.size()), static_cast<std::size_t>(width_), rows, past_cache_);
    }

    void part(std::byte* const* bases, std::int64_t row, std::int64_t rows) const {
        std::byte* to[kMostLanes];
        for (std::size_t k = 0; k < columns_.size(); ++k) to[k] = columns_[k].dst.in(bases) + row * width_;
        const std::byte* const src = columns_[0].src.in(bases) + row * columns_[0].src_step;
        movers().deinterleave(to, src, static_cast<int>(columns_.size()), static_cast<std::size_t>(width_), rows, past_cache_);
    }

    std::vector<Column> columns_;
    std::int64_t rows_;
    bool joins_;
    bool past_cache_;
    std::int64_t width_;
    std::int64_t task_rows_;
};

bool same_place(const Place& a, std::int64_t bytes, const Place& b) {
    return a.base == b.base && a.constant == b.constant && a.offset + bytes == b.offset;
}

// Whether the columns lie side by side and fill the rows, on the side that the two members name.
bool fill_rows(const std::vector<Column>& columns, Place Column::* place, std::int64_t Column::* step) {
    std::int64_t width = 0;
    for (const Column& column : columns) {
        if (!same_place(columns[0].*place, width, column.*place)) return false;
        width += column.bytes;
    }
    return std::all_of(columns.begin(), columns.end(), [&](const Column& column) { return column.*step == width; });
}

bool are_lanes(const std::vector<Column>& columns, std::int64_t Column::* own_step, bool past_cache) {
    return columns.size() <= kMostLanes && is_lane(columns[0].bytes, columns.size(), past_cache) &&
           std::all_of(columns.begin(), columns.end(), [&](const Column& column) {
               return column.bytes == columns[0].bytes && column.*own_step == column.bytes;
           });
}

}  // namespace

std::unique_ptr<Walk> walk_table(const std::vector<Shape>& shapes, const Manner& manner) {
    if (shapes.size() < 2) return nullptr;
    std::vector<Column> columns;
    for (const Shape& shape : shapes) {
        if (shape.axes.size() != 1 || shape.axes[0].size != shapes[0].axes[0].size) return nullptr;
        columns.push_back({shape.dst, shape.src, shape.axes[0].dst, shape.axes[0].src, shape.run});
    }
    const std::int64_t rows = shapes[0].axes[0].size;
    std::vector<Column> sorted = columns;
    std::sort(sorted.begin(), sorted.end(), [](const Column& a, const Column& b) { return a.dst.offset < b.dst.offset; });
    if (fill_rows(sorted, &Column::dst, &Column::dst_step)) {
        if (are_lanes(sorted, &Column::src_step, manner.past_cache)) return std::make_unique<Lanes>(sorted, rows, true, manner);
        return std::make_unique<Table>(sorted, rows, true, manner);
    }
    std::sort(sorted.begin(), sorted.end(), [](const Column& a, const Column& b) { return a.src.offset < b.src.offset; });
    if (fill_rows(sorted, &Column::src, &Column::src_step) && are_lanes(sorted, &Column::dst_step, manner.past_cache))
        return std::make_unique<Lanes>(sorted, rows, false, manner);
    return std::make_unique<Table>(columns, rows, false, manner);
}

}  // namespace dovetail::moving
