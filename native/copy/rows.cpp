#include <cstring>

#include "copy/strategy.h"

namespace dovetail::copying {
namespace {

// Copies rows of `run` bytes over any axes. A task is a range of the bytes in destination order; a long row may be divided among
// several tasks.
class RowCopy : public CopyStrategy {
public:
    RowCopy(const NormalizedCopy& normalized, const CopyOptions& options)
        : normalized_(normalized), non_temporal_(options.non_temporal), bytes_(normalized.rows() * normalized.run),
          task_bytes_(options.task_bytes) {
        if (normalized_.axes.empty()) normalized_.axes.push_back({1, normalized_.run, normalized_.run});
        if (normalized_.run < task_bytes_) task_bytes_ = max(1, task_bytes_ / normalized_.run) * normalized_.run;
    }

    std::int64_t tasks() const override { return ceil_div(bytes_, task_bytes_); }
    const char* name() const override { return "rows"; }
    bool has_long_runs() const override { return normalized_.run >= 1024; }

    void run(std::byte* const* bases, std::int64_t task) const override {
        std::byte* const dst = normalized_.dst.resolve(bases);
        const std::byte* const src = normalized_.src.resolve(bases);
        std::int64_t position = task * task_bytes_;
        const std::int64_t end = min(bytes_, position + task_bytes_);
        while (position < end) position += copy(dst, src, position, end - position);
        if (non_temporal_) copy_kernels().store_fence();
    }

private:
    // Copies from `position` to the end of the innermost axis, but at most `bytes` bytes. Returns the number of copied bytes.
    std::int64_t copy(std::byte* dst, const std::byte* src, std::int64_t position, std::int64_t bytes) const {
        std::int64_t row = position / normalized_.run;
        const std::int64_t offset = position - row * normalized_.run;
        const CopyAxis& inner = normalized_.axes.back();
        const std::int64_t first = row % inner.size;
        row /= inner.size;
        std::ptrdiff_t to = first * inner.dst + offset, from = first * inner.src + offset;
        for (std::size_t i = normalized_.axes.size() - 1; i-- > 0; row /= normalized_.axes[i].size) {
            const std::int64_t index = row % normalized_.axes[i].size;
            to += index * normalized_.axes[i].dst;
            from += index * normalized_.axes[i].src;
        }
        if (offset != 0 || bytes < normalized_.run) {
            const std::int64_t bytes_left = min(bytes, normalized_.run - offset);
            copy_rows(dst + to, 0, src + from, 0, 1, bytes_left);
            return bytes_left;
        }
        const std::int64_t rows = min(bytes / normalized_.run, inner.size - first);
        copy_rows(dst + to, inner.dst, src + from, inner.src, rows, normalized_.run);
        return rows * normalized_.run;
    }

    void copy_rows(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
                   std::int64_t bytes) const {
        if (non_temporal_)
            stream_rows(dst, dst_step, src, src_step, rows, bytes);
        else
            copy_kernels().copy_rows(dst, dst_step, src, src_step, rows, static_cast<std::size_t>(bytes));
    }

    NormalizedCopy normalized_;
    bool non_temporal_;
    std::int64_t bytes_;
    std::int64_t task_bytes_;
};

}  // namespace

void stream_rows(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
                 std::int64_t bytes) {
    const CopyKernels& kernels = copy_kernels();
    if (bytes >= kMinStreamedRow && dst_step == bytes) {
        RunStream runs(dst);
        for (; rows > 0; --rows, src += src_step) runs.add(src, bytes);
        return runs.flush();
    }
    if (bytes >= kMinStreamedRow) {
        for (; rows > 0; --rows, dst += dst_step, src += src_step) kernels.stream(dst, src, static_cast<std::size_t>(bytes));
        return;
    }
    if (dst_step != bytes) return kernels.copy_rows(dst, dst_step, src, src_step, rows, static_cast<std::size_t>(bytes));
    // Short rows end within a cache line: they are assembled in L1 and streamed together.
    alignas(64) std::byte block[kWriteCombiningBytes];
    const std::int64_t rows_per_block = max(1, kWriteCombiningBytes / bytes);
    for (std::int64_t row = 0; row < rows; row += rows_per_block) {
        const std::int64_t count = min(rows_per_block, rows - row);
        kernels.copy_rows(block, bytes, src + row * src_step, src_step, count, static_cast<std::size_t>(bytes));
        kernels.stream(dst + row * bytes, block, static_cast<std::size_t>(count * bytes));
    }
}

std::unique_ptr<CopyStrategy> make_row_copy(const NormalizedCopy& normalized, const CopyOptions& options) {
    return std::make_unique<RowCopy>(normalized, options);
}

}  // namespace dovetail::copying
