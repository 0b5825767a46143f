#include <algorithm>
#include <memory>
#include <new>

#include "copy/strategy.h"

namespace dovetail::copying {
namespace {

constexpr std::int64_t kLine = 64;
// Bytes of a row in one register tile.
constexpr std::int64_t kTileBytes = 16;
// Minimum bytes of a destination run and of a dense source run. Shorter destination runs have too many partial lines; shorter
// source runs fill too little of a block.
constexpr std::int64_t kMinDestinationRun = 512, kMinDenseRun = 32;
// Each column stores two adjacent cache lines consecutively: scattered single lines of 64 bytes take about 1.5 times as much
// memory time.
constexpr std::int64_t kMaxLines = 2;
// Adjacent source rows are copied as one run. In the staging buffer their stride is then a power of two, which causes set
// conflicts beyond L1.
constexpr std::int64_t kDenseBytes = 16 * 1024;
// A task stores nothing while its first block is loaded, so tasks are long; there are at least this many of them.
constexpr std::int64_t kMinTasks = 32;

// Sizes of the two staging buffers: one block is transposed while the next one is loaded.
struct StagingSizes {
    std::int64_t bytes;           // of each staging buffer
    std::int64_t max_run;         // maximum bytes of a row in one block
    std::int64_t min_run;         // minimum bytes of a source run; a second axis lengthens shorter ones
    std::int64_t row_gap;         // bytes between the rows of a staging buffer
    std::int64_t prefetch_bytes;  // prefetch distance, bytes
};

StagingSizes staging_sizes(std::int64_t width) {
    // If the hardware prefetcher does not cross pages, the next rows are prefetched explicitly, half a page of each row, into
    // L2. A gap of one line between rows avoids set conflicts in L1.
    if (prefetches_within_pages()) return {128 * 1024, kPage, kPage / 2, kLine, kPage};
    // Both staging buffers fit into L1. Narrow elements need more rows, whose runs would be too short in a buffer of 8 KiB.
    const std::int64_t bytes = width < 4 ? 16 * 1024 : 8 * 1024;
    return {bytes, bytes, 512, 0, 0};
}

// The staging memory of a thread.
class StagingMemory {
public:
    // Null if memory is exhausted.
    static std::byte* of_this_thread(std::int64_t bytes) {
        static thread_local StagingMemory buffers;
        if (buffers.bytes_ < bytes) {
            buffers.bytes_ = 0;
            buffers.memory_.reset(
                static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), std::align_val_t{kLine}, std::nothrow)));
            if (buffers.memory_ != nullptr) buffers.bytes_ = bytes;
        }
        return buffers.memory_.get();
    }

private:
    struct Free {
        void operator()(std::byte* memory) const { ::operator delete(memory, std::align_val_t{kLine}); }
    };
    std::unique_ptr<std::byte, Free> memory_;
    std::int64_t bytes_ = 0;
};

// A transpose that stores only whole cache lines, non-temporally, at any alignment of the destination.
//
// The row axes are the axes that are consecutive in the destination. A group of rows fills two cache lines of the destination,
// counted from a line boundary. The columns are contiguous in the source; the columns of each row are loaded as one run into a
// staging buffer. Without the staging buffer, rows a power of two apart would cause set conflicts in the cache; with it, few
// pages are read at a time.
class StreamingTranspose : public CopyStrategy {
public:
    struct Axes {
        std::vector<CopyAxis> rows;  // innermost first
        CopyAxis src_inner;
        CopyAxis src_outer{1, 0, 0};  // continues `src_inner` in the source
        std::vector<CopyAxis> others;
    };

    StreamingTranspose(const NormalizedCopy& normalized, Axes axes, std::unique_ptr<CopyStrategy> fallback,
                       const CopyOptions& options)
        : dst_(normalized.dst), src_(normalized.src), width_(normalized.run), axes_(std::move(axes)),
          fallback_(std::move(fallback)) {
        for (const CopyAxis& axis : axes_.rows) rows_ *= axis.size;
        group_ = min(kMaxLines, rows_ * width_ / kLine) * kLine / width_;
        groups_ = ceil_div(rows_, group_);
        const CopyAxis& src_inner = axes_.src_inner;
        const StagingSizes sizes = staging_sizes(width_);
        const std::int64_t max_columns = min(sizes.bytes / group_, sizes.max_run) / width_;
        is_dense_ = axes_.rows.size() == 1 && axes_.rows[0].src == src_inner.size * width_ &&
                    group_ * src_inner.size * width_ <= min(sizes.bytes, kDenseBytes);
        const std::int64_t even_columns =
            ceil_div(ceil_div(src_inner.size, ceil_div(src_inner.size, max_columns)) * width_, kTileBytes) * kTileBytes / width_;
        columns_ = is_dense_ ? src_inner.size : min(src_inner.size, even_columns);
        outer_ = columns_ < src_inner.size ? 1 : min(axes_.src_outer.size, max(1, max_columns / columns_));
        wraps_ = axes_.src_outer.size == 1 && src_inner.dst == rows_ * width_ && columns_ * width_ > kLine;
        blocks_ = groups_ * ceil_div(axes_.src_outer.size, outer_) * ceil_div(src_inner.size, columns_);
        for (const CopyAxis& axis : axes_.others) blocks_ *= axis.size;
        const std::int64_t run = columns_ * outer_ * width_;
        staging_step_ = ceil_div(run, kLine) * kLine + sizes.row_gap;
        staging_bytes_ = group_ * staging_step_;
        prefetch_rows_ = ceil_div(sizes.prefetch_bytes, run);
        task_blocks_ = max(max(1, options.task_bytes / (group_ * run)), blocks_ / kMinTasks);
    }

    std::int64_t tasks() const override { return ceil_div(blocks_, task_blocks_); }
    const char* name() const override { return "streaming transpose"; }

    void run(std::byte* const* bases, std::int64_t task) const override {
        std::byte* const dst = dst_.resolve(bases);
        const std::byte* const src = src_.resolve(bases);
        const std::int64_t bytes_to_line = (0 - reinterpret_cast<std::uintptr_t>(dst)) % kLine;
        if (bytes_to_line % width_ != 0) return run_fallback(bases, task);
        // The buffer lies half a page from the source: a load waits for every earlier store with the same offset in its page
        // (4K aliasing).
        std::byte* const memory = StagingMemory::of_this_thread(2 * staging_bytes_ + kPage);
        if (memory == nullptr) return run_fallback(bases, task);
        const std::byte* const begin = src + row_offset(bytes_to_line / width_ % rows_);
        std::byte* const buffers =
            memory + (reinterpret_cast<std::uintptr_t>(begin) + kPage / 2 - reinterpret_cast<std::uintptr_t>(memory)) % kPage /
                         kLine * kLine;
        RowOffsets rows;
        StagedTranspose current;
        int staging = 0;
        const std::int64_t first = task * task_blocks_, end = min(blocks_, first + task_blocks_);
        for (std::int64_t block = first; block < end; ++block) {
            BlockView view = at(dst, src, block, bytes_to_line / width_);
            copy_edges(view);
            if (view.lines == 0) continue;
            StagingLoad next = staging_load(view, rows, buffers + (staging ^= 1) * staging_bytes_);
            if (next.prefetch_rows != 0 && block + 1 < end)
                next.known_rows += append_next_offsets(rows, view, next, at(dst, src, block + 1, bytes_to_line / width_));
            copy_kernels().transpose_staged(current, next, static_cast<std::size_t>(width_));
            current = staged_transpose(view, next);
        }
        copy_kernels().transpose_staged(current, {}, static_cast<std::size_t>(width_));
        copy_kernels().store_fence();
    }

private:
    // A block of `rows` rows and `columns` columns that begins at (`row`, `column`). Of each column, `lines` whole cache lines
    // are written with non-temporal stores, and the other elements with ordinary stores.
    struct BlockView {
        std::byte* dst;
        const std::byte* src;
        std::int64_t lead, row, rows, column, columns, outer;
        int lines;
    };

    BlockView at(std::byte* dst, const std::byte* src, std::int64_t block, std::int64_t lead) const {
        BlockView view{dst, src, lead, 0, 0, 0, 0, 0, 0};
        view.column = take_range(block, axes_.src_inner.size, columns_, view.columns);
        const std::int64_t outer = take_range(block, axes_.src_outer.size, outer_, view.outer);
        view.row = lead + block % groups_ * group_;
        block /= groups_;
        view.dst += outer * axes_.src_outer.dst + view.column * axes_.src_inner.dst;
        view.src += outer * axes_.src_outer.src + view.column * width_;
        for (std::size_t i = axes_.others.size(); i-- > 0; block /= axes_.others[i].size) {
            const std::int64_t index = block % axes_.others[i].size;
            view.dst += index * axes_.others[i].dst;
            view.src += index * axes_.others[i].src;
        }
        view.rows = min(group_, rows_ + (wraps_ ? lead : 0) - view.row);
        if (view.rows > 0 && (is_dense_ || view.columns * view.outer * width_ >= kLine))
            view.lines = static_cast<int>(view.rows * width_ / kLine);
        return view;
    }

    static std::int64_t take_range(std::int64_t& block, std::int64_t size, std::int64_t limit, std::int64_t& length) {
        const std::int64_t blocks = ceil_div(size, limit), first = block % blocks * limit;
        block /= blocks;
        length = min(limit, size - first);
        return first;
    }

    // The source offset of a row; rows after the last one are the first rows of the next column.
    std::int64_t row_offset(std::int64_t row) const {
        std::int64_t at = row < rows_ ? 0 : width_;
        if (row >= rows_) row -= rows_;
        for (const CopyAxis& axis : axes_.rows) {
            at += row % axis.size * axis.src;
            row /= axis.size;
        }
        return at;
    }

    // Copies, with ordinary stores, the elements at the ends that do not fill a whole cache line.
    void copy_edges(BlockView& view) const {
        const bool is_first = view.row == view.lead, begins = view.column == 0,
                   ends = view.column + view.columns == axes_.src_inner.size;
        if (is_first && view.lead > 0 && (!wraps_ || begins))
            copy_edge(view, 0, min(view.lead, rows_), 0, wraps_ ? 1 : view.columns);
        if (view.rows <= 0) return;
        if (wraps_ && ends && view.row + view.rows > rows_) {
            --view.columns;
            copy_edge(view, view.row, rows_, view.columns, view.columns + 1);
            if (view.columns * width_ < kLine) view.lines = 0;
        }
        const std::int64_t streamed = view.lines * kLine / width_;
        copy_edge(view, view.row + streamed, view.row + view.rows, 0, view.columns);
    }

    void copy_edge(const BlockView& view, std::int64_t row, std::int64_t end, std::int64_t first, std::int64_t last) const {
        const CopyAxis& inner = axes_.rows[0];
        while (row < end && first < last) {
            const std::int64_t count = min(end - row, inner.size - row % inner.size);
            for (std::int64_t o = 0; o < view.outer; ++o)
                copy_kernels().transpose(view.dst + o * axes_.src_outer.dst + row * width_ + first * axes_.src_inner.dst,
                                         axes_.src_inner.dst,
                                         view.src + o * axes_.src_outer.src + row_offset(row) + first * width_, inner.src, count,
                                         last - first, static_cast<std::size_t>(width_));
            row += count;
        }
    }

    // The source offsets of the rows of a group, computed once for all blocks of the group.
    struct RowOffsets {
        std::int64_t first = -1;
        std::ptrdiff_t at[2 * kLine * kMaxLines];
    };

    void compute_offsets(RowOffsets& rows, std::int64_t first, std::int64_t count) const {
        if (rows.first == first) return;
        rows.first = first;
        const CopyAxis& inner = axes_.rows[0];
        for (std::int64_t i = 0; i < count;) {
            const std::ptrdiff_t at = row_offset(first + i);
            const std::int64_t end = min(count, i + inner.size - (first + i) % inner.size);
            for (std::int64_t k = 0; i + k < end; ++k) rows.at[i + k] = at + k * inner.src;
            i = end;
        }
    }

    StagingLoad staging_load(const BlockView& view, RowOffsets& rows, std::byte* staging) const {
        const std::int64_t count = view.lines * kLine / width_, bytes = view.columns * view.outer * width_;
        const bool is_one_run = is_dense_ && view.row + count <= rows_;
        compute_offsets(rows, view.row, is_one_run ? 1 : count);
        if (is_one_run) return {view.src, rows.at, 1, count * bytes, staging, bytes, 0, 1};
        return {view.src, rows.at, count, bytes, staging, staging_step_, min(prefetch_rows_, count), count};
    }

    // Appends the offsets of the first rows of the next block to the offsets of this block. Returns the number of appended
    // offsets.
    std::int64_t append_next_offsets(RowOffsets& rows, const BlockView& view, const StagingLoad& from,
                                     const BlockView& following) const {
        for (std::int64_t i = 0; i < from.prefetch_rows; ++i)
            rows.at[from.rows + i] = following.src - view.src +
                                     (following.row == view.row ? rows.at[i] : row_offset(min(following.row + i, rows_ - 1)));
        return from.prefetch_rows;
    }

    StagedTranspose staged_transpose(const BlockView& view, const StagingLoad& from) const {
        // If the staging buffer is in L2, columns that share cache lines of the buffer are processed one after another, so that
        // each line is fetched once.
        return {view.dst + view.row * width_,
                axes_.src_inner.dst,
                view.columns,
                axes_.src_outer.dst,
                view.outer,
                from.staging,
                from.step,
                view.lines,
                prefetch_rows_ != 0};
    }

    void run_fallback(std::byte* const* bases, std::int64_t task) const {
        const std::int64_t count = tasks(), all = fallback_->tasks();
        for (std::int64_t i = all * task / count; i < all * (task + 1) / count; ++i) fallback_->run(bases, i);
    }

    Location dst_;
    Location src_;
    std::int64_t width_;
    Axes axes_;
    std::unique_ptr<CopyStrategy> fallback_;  // used where elements straddle cache lines
    std::int64_t rows_ = 1, group_, groups_;
    std::int64_t columns_, outer_;
    std::int64_t staging_step_, staging_bytes_, prefetch_rows_;
    bool is_dense_, wraps_;
    std::int64_t blocks_;
    std::int64_t task_blocks_;
};

std::size_t find_axis(const std::vector<CopyAxis>& axes, std::int64_t CopyAxis::* stride, std::int64_t bytes) {
    std::size_t i = 0;
    while (i < axes.size() && axes[i].*stride != bytes) ++i;
    return i;
}

CopyAxis take_axis(std::vector<CopyAxis>& axes, std::size_t i) {
    const CopyAxis axis = axes[i];
    axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(i));
    return axis;
}

}  // namespace

std::unique_ptr<CopyStrategy> make_streaming_transpose(const NormalizedCopy& normalized, std::size_t src_inner,
                                                       std::unique_ptr<CopyStrategy> fallback, const CopyOptions& options) {
    const std::int64_t width = normalized.run;
    if (!options.non_temporal || 8 % width != 0) return fallback;
    StreamingTranspose::Axes axes;
    axes.others = normalized.axes;
    axes.src_inner = take_axis(axes.others, src_inner);
    // The first rows are chosen until two lines are full, then the axis that lengthens the source runs, then all other row
    // axes.
    std::int64_t rows = 1;
    const auto take_rows = [&](std::int64_t bytes) {
        for (std::size_t i = 0;
             rows * width < bytes && (i = find_axis(axes.others, &CopyAxis::dst, rows * width)) < axes.others.size();) {
            axes.rows.push_back(take_axis(axes.others, i));
            rows *= axes.rows.back().size;
        }
    };
    take_rows(kMaxLines * kLine);
    const std::int64_t run = axes.src_inner.size * width;
    const std::size_t src_outer = find_axis(axes.others, &CopyAxis::src, run);
    if (run < staging_sizes(width).min_run && src_outer < axes.others.size()) axes.src_outer = take_axis(axes.others, src_outer);
    take_rows(normalized.rows() * width);
    const auto is_odd = [](const CopyAxis& axis) { return axis.dst % kLine != 0; };
    if (is_odd(axes.src_inner) || is_odd(axes.src_outer) || std::any_of(axes.others.begin(), axes.others.end(), is_odd))
        return fallback;
    const bool wraps = axes.src_outer.size == 1 && axes.src_inner.dst == rows * width && run > kLine;
    const bool is_dense = axes.rows.size() == 1 && axes.rows[0].src == run && run >= kMinDenseRun;
    if (rows * width < (wraps ? kLine : kMinDestinationRun) || run < kTileBytes ||
        (run * axes.src_outer.size < kLine && !is_dense))
        return fallback;
    return std::make_unique<StreamingTranspose>(normalized, std::move(axes), std::move(fallback), options);
}

}  // namespace dovetail::copying
