#include <cstring>

#include "copy/strategy.h"

namespace dovetail::moving {
namespace {

// Rows of `run` bytes over any axes. A task is a range of all the bytes in the order of the destination; long rows are cut.
class Rows : public Walk {
public:
    Rows(const Shape& shape, const Manner& manner)
        : shape_(shape), past_cache_(manner.past_cache), bytes_(shape.rows() * shape.run), task_bytes_(manner.task_bytes) {
        if (shape_.axes.empty()) shape_.axes.push_back({1, shape_.run, shape_.run});
        if (shape_.run < task_bytes_) task_bytes_ = most(1, task_bytes_ / shape_.run) * shape_.run;
    }

    std::int64_t tasks() const override { return parts(bytes_, task_bytes_); }
    const char* name() const override { return "rows"; }
    bool is_plain() const override { return shape_.run >= 1024; }

    void run(std::byte* const* bases, std::int64_t task) const override {
        std::byte* const dst = shape_.dst.in(bases);
        const std::byte* const src = shape_.src.in(bases);
        std::int64_t position = task * task_bytes_;
        const std::int64_t end = least(bytes_, position + task_bytes_);
        while (position < end) position += copy(dst, src, position, end - position);
        if (past_cache_) movers().settle();
    }

private:
    // As many bytes from `position` as lie along the innermost axis; how many it was.
    std::int64_t copy(std::byte* dst, const std::byte* src, std::int64_t position, std::int64_t bytes) const {
        std::int64_t row = position / shape_.run;
        const std::int64_t within = position - row * shape_.run;
        const Stride& inner = shape_.axes.back();
        const std::int64_t first = row % inner.size;
        row /= inner.size;
        std::ptrdiff_t to = first * inner.dst + within, from = first * inner.src + within;
        for (std::size_t i = shape_.axes.size() - 1; i-- > 0; row /= shape_.axes[i].size) {
            const std::int64_t at = row % shape_.axes[i].size;
            to += at * shape_.axes[i].dst;
            from += at * shape_.axes[i].src;
        }
        if (within != 0 || bytes < shape_.run) {
            const std::int64_t part = least(bytes, shape_.run - within);
            copy_rows(dst + to, 0, src + from, 0, 1, part);
            return part;
        }
        const std::int64_t rows = least(bytes / shape_.run, inner.size - first);
        copy_rows(dst + to, inner.dst, src + from, inner.src, rows, shape_.run);
        return rows * shape_.run;
    }

    void copy_rows(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
                   std::int64_t bytes) const {
        if (past_cache_)
            copy_rows_past(dst, dst_step, src, src_step, rows, bytes);
        else
            movers().copy_rows(dst, dst_step, src, src_step, rows, static_cast<std::size_t>(bytes));
    }

    Shape shape_;
    bool past_cache_;
    std::int64_t bytes_;
    std::int64_t task_bytes_;
};

}  // namespace

void copy_rows_past(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
                    std::int64_t bytes) {
    const Movers& move = movers();
    if (bytes >= kStreamedRow && dst_step == bytes) {
        Runs runs(dst);
        for (; rows > 0; --rows, src += src_step) runs.add(src, bytes);
        return runs.flush();
    }
    if (bytes >= kStreamedRow) {
        for (; rows > 0; --rows, dst += dst_step, src += src_step) move.stream(dst, src, static_cast<std::size_t>(bytes));
        return;
    }
    if (dst_step != bytes) return move.copy_rows(dst, dst_step, src, src_step, rows, static_cast<std::size_t>(bytes));
    // Short rows end in the middle of a line: they are put together first.
    alignas(64) std::byte block[kStagedBytes];
    const std::int64_t together = most(1, kStagedBytes / bytes);
    for (std::int64_t row = 0; row < rows; row += together) {
        const std::int64_t some = least(together, rows - row);
        move.copy_rows(block, bytes, src + row * src_step, src_step, some, static_cast<std::size_t>(bytes));
        move.stream(dst + row * bytes, block, static_cast<std::size_t>(some * bytes));
    }
}

std::unique_ptr<Walk> walk_rows(const Shape& shape, const Manner& manner) { return std::make_unique<Rows>(shape, manner); }

}  // namespace dovetail::moving
