#include <algorithm>
#include <memory>
#include <new>

#include "copy/strategy.h"

namespace dovetail::moving {
namespace {

constexpr std::int64_t kLine = 64;
// What a tile takes of a row.
constexpr std::int64_t kTileBytes = 16;
// Shorter runs have too much that is not in whole lines, or too little in a block.
constexpr std::int64_t kLeastWritten = 512, kLeastDense = 32;
// Each column sends two lines, one right after the other: single lines of 64 bytes here and there cost the memory half as much again.
constexpr std::int64_t kMostLines = 2;
// Rows that lie side by side in the source are fetched in one run: in the stage a power of two apart, which only the first cache bears.
constexpr std::int64_t kDenseBytes = 16 * 1024;
// While a task's first block comes in nothing goes out, so tasks are long, but there are so many of them at least.
constexpr std::int64_t kLeastTasks = 32;

// What is turned while as much comes in.
struct Staging {
    std::int64_t bytes;     // of each of the two stages
    std::int64_t most_run;  // of a row at once
    std::int64_t long_run;  // runs of the source that are shorter are lengthened by a second axis
    std::int64_t gap;       // between the rows of a stage
    std::int64_t ahead;     // how many bytes before it is read a run is asked for
};

Staging staging(std::int64_t width) {
    // Where the processor fetches ahead within a page only, the next rows are asked for, half a page of each, and the second cache holds what
    // they bring; a line between them keeps them from falling on the same places of the first one.
    if (fetches_within_pages()) return {128 * 1024, kPage, kPage / 2, kLine, kPage};
    // Both stages in the first cache. Narrow elements take more rows: theirs would be too short in half of it.
    const std::int64_t bytes = width < 4 ? 16 * 1024 : 8 * 1024;
    return {bytes, bytes, 512, 0, 0};
}

// Memory that a thread keeps for its stages.
class Stages {
public:
    // Null where there is none to be had.
    static std::byte* of_this_thread(std::int64_t bytes) {
        static thread_local Stages stages;
        if (stages.bytes_ < bytes) {
            stages.bytes_ = 0;
            stages.memory_.reset(static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), std::align_val_t{kLine}, std::nothrow)));
            if (stages.memory_ != nullptr) stages.bytes_ = bytes;
        }
        return stages.memory_.get();
    }

private:
    struct Free {
        void operator()(std::byte* memory) const { ::operator delete(memory, std::align_val_t{kLine}); }
    };
    std::unique_ptr<std::byte, Free> memory_;
    std::int64_t bytes_ = 0;
};

// A transpose past the cache that goes out in whole lines only, wherever the destination begins. The rows, contiguous in the destination,
// are the axes that follow each other there; a group of them makes up two lines, counted from where a line begins. The columns are
// contiguous in the source: each row's are fetched in one run, since rows that lie a power of two apart share one place in the cache, and
// so that few pages are read at a time.
class Turns : public Walk {
public:
    struct Axes {
        std::vector<Stride> rows;  // the innermost first
        Stride along;
        Stride beyond{1, 0, 0};  // continues `along` in the source
        std::vector<Stride> others;
    };

    Turns(const Shape& shape, Axes axes, std::unique_ptr<Walk> otherwise, const Manner& manner)
        : dst_(shape.dst), src_(shape.src), width_(shape.run), axes_(std::move(axes)), otherwise_(std::move(otherwise)) {
        for (const Stride& axis : axes_.rows) rows_ *= axis.size;
        group_ = least(kMostLines, rows_ * width_ / kLine) * kLine / width_;
        groups_ = parts(rows_, group_);
        const Stride& along = axes_.along;
        const Staging staged = staging(width_);
        const std::int64_t most_columns = least(staged.bytes / group_, staged.most_run) / width_;
        is_dense_ = axes_.rows.size() == 1 && axes_.rows[0].src == along.size * width_ &&
                    group_ * along.size * width_ <= least(staged.bytes, kDenseBytes);
        const std::int64_t even = parts(parts(along.size, parts(along.size, most_columns)) * width_, kTileBytes) * kTileBytes / width_;
        columns_ = is_dense_ ? along.size : least(along.size, even);
        outer_ = columns_ < along.size ? 1 : least(axes_.beyond.size, most(1, most_columns / columns_));
        wraps_ = axes_.beyond.size == 1 && along.dst == rows_ * width_ && columns_ * width_ > kLine;
        blocks_ = groups_ * parts(axes_.beyond.size, outer_) * parts(along.size, columns_);
        for (const Stride& axis : axes_.others) blocks_ *= axis.size;
        const std::int64_t run = columns_ * outer_ * width_;
        stage_step_ = parts(run, kLine) * kLine + staged.gap;
        stage_bytes_ = group_ * stage_step_;
        ahead_ = parts(staged.ahead, run);
        task_blocks_ = most(most(1, manner.task_bytes / (group_ * run)), blocks_ / kLeastTasks);
    }

    std::int64_t tasks() const override { return parts(blocks_, task_blocks_); }
    const char* name() const override { return "turns"; }

    void run(std::byte* const* bases, std::int64_t task) const override {
        std::byte* const dst = dst_.in(bases);
        const std::byte* const src = src_.in(bases);
        const std::int64_t ahead = (0 - reinterpret_cast<std::uintptr_t>(dst)) % kLine;
        if (ahead % width_ != 0) return run_otherwise(bases, task);
        // Half a page from what is read: a load waits for every store before it that has the same place in its page.
        std::byte* const memory = Stages::of_this_thread(2 * stage_bytes_ + kPage);
        if (memory == nullptr) return run_otherwise(bases, task);
        const std::byte* const begin = src + row_at(ahead / width_ % rows_);
        std::byte* const stages = memory + (reinterpret_cast<std::uintptr_t>(begin) + kPage / 2 - reinterpret_cast<std::uintptr_t>(memory)) % kPage / kLine * kLine;
        Rows rows;
        Turned now;
        int stage = 0;
        const std::int64_t first = task * task_blocks_, end = least(blocks_, first + task_blocks_);
        for (std::int64_t block = first; block < end; ++block) {
            Part part = at(dst, src, block, ahead / width_);
            fill_edges(part);
            if (part.lines == 0) continue;
            Fetched next = fetched(part, rows, stages + (stage ^= 1) * stage_bytes_);
            if (next.ahead != 0 && block + 1 < end) next.places += place_ahead(rows, part, next, at(dst, src, block + 1, ahead / width_));
            movers().turn(now, next, static_cast<std::size_t>(width_));
            now = turned(part, next);
        }
        movers().turn(now, {}, static_cast<std::size_t>(width_));
        movers().settle();
    }

private:
    // A block: rows from `row` on, of which `lines` whole lines go the fast way.
    struct Part {
        std::byte* dst;
        const std::byte* src;
        std::int64_t lead, row, rows, column, columns, outer;
        int lines;
    };

    Part at(std::byte* dst, const std::byte* src, std::int64_t block, std::int64_t lead) const {
        Part part{dst, src, lead, 0, 0, 0, 0, 0, 0};
        part.column = take(block, axes_.along.size, columns_, part.columns);
        const std::int64_t outer = take(block, axes_.beyond.size, outer_, part.outer);
        part.row = lead + block % groups_ * group_;
        block /= groups_;
        part.dst += outer * axes_.beyond.dst + part.column * axes_.along.dst;
        part.src += outer * axes_.beyond.src + part.column * width_;
        for (std::size_t i = axes_.others.size(); i-- > 0; block /= axes_.others[i].size) {
            const std::int64_t number = block % axes_.others[i].size;
            part.dst += number * axes_.others[i].dst;
            part.src += number * axes_.others[i].src;
        }
        part.rows = least(group_, rows_ + (wraps_ ? lead : 0) - part.row);
        if (part.rows > 0 && (is_dense_ || part.columns * part.outer * width_ >= kLine)) part.lines = static_cast<int>(part.rows * width_ / kLine);
        return part;
    }

    static std::int64_t take(std::int64_t& block, std::int64_t size, std::int64_t most, std::int64_t& taken) {
        const std::int64_t blocks = parts(size, most), first = block % blocks * most;
        block /= blocks;
        taken = least(most, size - first);
        return first;
    }

    // Where a row lies in the source; those after the last are the first ones of the next column.
    std::int64_t row_at(std::int64_t row) const {
        std::int64_t at = row < rows_ ? 0 : width_;
        if (row >= rows_) row -= rows_;
        for (const Stride& axis : axes_.rows) {
            at += row % axis.size * axis.src;
            row /= axis.size;
        }
        return at;
    }

    // What does not fill whole lines goes through the cache.
    void fill_edges(Part& part) const {
        const bool is_first = part.row == part.lead, begins = part.column == 0, ends = part.column + part.columns == axes_.along.size;
        if (is_first && part.lead > 0 && (!wraps_ || begins)) fill(part, 0, least(part.lead, rows_), 0, wraps_ ? 1 : part.columns);
        if (part.rows <= 0) return;
        if (wraps_ && ends && part.row + part.rows > rows_) {
            --part.columns;
            fill(part, part.row, rows_, part.columns, part.columns + 1);
            if (part.columns * width_ < kLine) part.lines = 0;
        }
        const std::int64_t sent = part.lines * kLine / width_;
        fill(part, part.row + sent, part.row + part.rows, 0, part.columns);
    }

    void fill(const Part& part, std::int64_t row, std::int64_t end, std::int64_t first, std::int64_t last) const {
        const Stride& inner = axes_.rows[0];
        while (row < end && first < last) {
            const std::int64_t some = least(end - row, inner.size - row % inner.size);
            for (std::int64_t o = 0; o < part.outer; ++o)
                movers().transpose(part.dst + o * axes_.beyond.dst + row * width_ + first * axes_.along.dst, axes_.along.dst,
                                   part.src + o * axes_.beyond.src + row_at(row) + first * width_, inner.src, some, last - first,
                                   static_cast<std::size_t>(width_));
            row += some;
        }
    }

    // Where the rows of a group lie, worked out once for all its blocks.
    struct Rows {
        std::int64_t first = -1;
        std::ptrdiff_t at[2 * kLine * kMostLines];
    };

    void place(Rows& rows, std::int64_t first, std::int64_t count) const {
        if (rows.first == first) return;
        rows.first = first;
        const Stride& inner = axes_.rows[0];
        for (std::int64_t i = 0; i < count;) {
            const std::ptrdiff_t at = row_at(first + i);
            const std::int64_t end = least(count, i + inner.size - (first + i) % inner.size);
            for (std::int64_t k = 0; i + k < end; ++k) rows.at[i + k] = at + k * inner.src;
            i = end;
        }
    }

    Fetched fetched(const Part& part, Rows& rows, std::byte* stage) const {
        const std::int64_t count = part.lines * kLine / width_, bytes = part.columns * part.outer * width_;
        const bool is_one_run = is_dense_ && part.row + count <= rows_;
        place(rows, part.row, is_one_run ? 1 : count);
        if (is_one_run) return {part.src, rows.at, 1, count * bytes, stage, bytes, 0, 1};
        return {part.src, rows.at, count, bytes, stage, stage_step_, least(ahead_, count), count};
    }

    // Where the first rows of the part after this one lie, behind the places of its own; how many.
    std::int64_t place_ahead(Rows& rows, const Part& part, const Fetched& from, const Part& then) const {
        for (std::int64_t i = 0; i < from.ahead; ++i)
            rows.at[from.rows + i] = then.src - part.src + (then.row == part.row ? rows.at[i] : row_at(least(then.row + i, rows_ - 1)));
        return from.ahead;
    }

    Turned turned(const Part& part, const Fetched& from) const {
        // In the second cache, columns that share lines of the stage follow each other: each line comes from there once.
        return {part.dst + part.row * width_, axes_.along.dst, part.columns, axes_.beyond.dst, part.outer,
                from.stage,                   from.step,       part.lines,   ahead_ != 0};
    }

    void run_otherwise(std::byte* const* bases, std::int64_t task) const {
        const std::int64_t count = tasks(), all = otherwise_->tasks();
        for (std::int64_t i = all * task / count; i < all * (task + 1) / count; ++i) otherwise_->run(bases, i);
    }

    Place dst_;
    Place src_;
    std::int64_t width_;
    Axes axes_;
    std::unique_ptr<Walk> otherwise_;  // where elements cross lines
    std::int64_t rows_ = 1, group_, groups_;
    std::int64_t columns_, outer_;
    std::int64_t stage_step_, stage_bytes_, ahead_;
    bool is_dense_, wraps_;
    std::int64_t blocks_;
    std::int64_t task_blocks_;
};

std::size_t found(const std::vector<Stride>& axes, std::int64_t Stride::* stride, std::int64_t bytes) {
    std::size_t i = 0;
    while (i < axes.size() && axes[i].*stride != bytes) ++i;
    return i;
}

Stride taken(std::vector<Stride>& axes, std::size_t i) {
    const Stride axis = axes[i];
    axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(i));
    return axis;
}

}  // namespace

std::unique_ptr<Walk> walk_turns(const Shape& shape, std::size_t along, std::unique_ptr<Walk> otherwise, const Manner& manner) {
    const std::int64_t width = shape.run;
    if (!manner.past_cache || 8 % width != 0) return otherwise;
    Turns::Axes axes;
    axes.others = shape.axes;
    axes.along = taken(axes.others, along);
    // Rows until two lines are full, then what lengthens the runs of the source, then what else there is of rows.
    std::int64_t rows = 1;
    const auto take_rows = [&](std::int64_t bytes) {
        for (std::size_t i = 0; rows * width < bytes && (i = found(axes.others, &Stride::dst, rows * width)) < axes.others.size();) {
            axes.rows.push_back(taken(axes.others, i));
            rows *= axes.rows.back().size;
        }
    };
    take_rows(kMostLines * kLine);
    const std::int64_t run = axes.along.size * width;
    const std::size_t beyond = found(axes.others, &Stride::src, run);
    if (run < staging(width).long_run && beyond < axes.others.size()) axes.beyond = taken(axes.others, beyond);
    take_rows(shape.rows() * width);
    const auto is_odd = [](const Stride& axis) { return axis.dst % kLine != 0; };
    if (is_odd(axes.along) || is_odd(axes.beyond) || std::any_of(axes.others.begin(), axes.others.end(), is_odd)) return otherwise;
    const bool wraps = axes.beyond.size == 1 && axes.along.dst == rows * width && run > kLine;
    const bool is_dense = axes.rows.size() == 1 && axes.rows[0].src == run && run >= kLeastDense;
    if (rows * width < (wraps ? kLine : kLeastWritten) || run < kTileBytes || (run * axes.beyond.size < kLine && !is_dense)) return otherwise;
    return std::make_unique<Turns>(shape, std::move(axes), std::move(otherwise), manner);
}

}  // namespace dovetail::moving
