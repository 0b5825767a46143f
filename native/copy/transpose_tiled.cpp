#include <algorithm>

#include "copy/strategy.h"

namespace dovetail::copying {
namespace {

// Sizes of a block: the runs are long enough in source and destination for memory bandwidth, and the block fits into the cache.
constexpr std::int64_t kReadBytes = 256;
constexpr std::int64_t kReadElements = 64;
constexpr std::int64_t kWrittenBytes = 1024;

struct BlockedAxis {
    std::int64_t size = 1;
    std::int64_t block = 1;
    std::int64_t dst = 0;
    std::int64_t src = 0;
    bool shifts = false;

    // In shifted blocks the first block is short, so that the other blocks begin at cache lines; the first and the last block
    // may be empty.
    std::int64_t blocks() const { return ceil_div(size, block) + shifts; }
    std::int64_t first(std::int64_t index, std::int64_t shift) const {
        return shifts ? max(0, (index - 1) * block + shift) : index * block;
    }
    std::int64_t last(std::int64_t index, std::int64_t shift) const {
        return min(size, shifts ? index * block + shift : (index + 1) * block);
    }
};

// A transpose in blocks of four axes; all other axes are outer loops. `dst_inner` is contiguous in the destination, `src_inner`
// in the source. `dst_outer` continues `dst_inner` in the destination and `src_outer` continues `src_inner` in the source, where
// the inner axis is short.
class TiledTranspose : public CopyStrategy {
public:
    TiledTranspose(const NormalizedCopy& normalized, std::size_t dst_inner, std::size_t src_inner, const CopyOptions& options)
        : dst_(normalized.dst), src_(normalized.src), width_(normalized.run), non_temporal_(options.non_temporal) {
        std::vector<CopyAxis> axes = normalized.axes;
        dst_inner_ = axis_of(axes[dst_inner]);
        src_inner_ = axis_of(axes[src_inner]);
        axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(std::max(dst_inner, src_inner)));
        axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(std::min(dst_inner, src_inner)));
        const std::int64_t columns = min(kReadElements, kReadBytes / width_), run = dst_inner_.size * width_;
        dst_inner_.block = min(dst_inner_.size, max(1, kWrittenBytes / width_));
        src_inner_.block = min(src_inner_.size, columns);
        if (run < kWrittenBytes) dst_outer_ = take_axis(axes, &CopyAxis::dst, run, kWrittenBytes / run);
        if (src_inner_.size < columns)
            src_outer_ = take_axis(axes, &CopyAxis::src, src_inner_.size * width_, columns / src_inner_.size);
        dst_inner_.shifts = non_temporal_ && dst_inner_.size > dst_inner_.block && 64 % width_ == 0;
        src_inner_.shifts =
            non_temporal_ && src_inner_.size * width_ >= kWrittenBytes && src_inner_.size > src_inner_.block && 64 % width_ == 0;
        for (const CopyAxis& axis : axes) axes_.push_back(axis_of(axis));
        axes_.insert(axes_.end(), {dst_outer_, dst_inner_, src_outer_, src_inner_});
        for (const BlockedAxis& axis : axes_) blocks_ *= axis.blocks();
        const std::int64_t block_bytes = width_ * dst_outer_.block * dst_inner_.block * src_outer_.block * src_inner_.block;
        task_blocks_ = max(1, options.task_bytes / block_bytes);
    }

    std::int64_t tasks() const override { return ceil_div(blocks_, task_blocks_); }
    const char* name() const override { return "tiled transpose"; }

    void run(std::byte* const* bases, std::int64_t task) const override {
        std::byte* const dst = dst_.resolve(bases);
        const std::byte* const src = src_.resolve(bases);
        const std::int64_t end = min(blocks_, (task + 1) * task_blocks_);
        for (std::int64_t block = task * task_blocks_; block < end; ++block) transpose_block(dst, src, block);
        if (non_temporal_) copy_kernels().store_fence();
    }

private:
    // The addresses of a block, and its sizes along the last four axes of the loop nest.
    struct BlockView {
        std::byte* dst;
        const std::byte* src;
        std::int64_t dst_outer, dst_inner, src_outer, src_inner;
    };

    static BlockedAxis axis_of(const CopyAxis& axis) { return {axis.size, 1, axis.dst, axis.src}; }

    static BlockedAxis take_axis(std::vector<CopyAxis>& axes, std::int64_t CopyAxis::* stride, std::int64_t bytes,
                                 std::int64_t block) {
        for (std::size_t i = 0; i < axes.size(); ++i)
            if (axes[i].*stride == bytes) {
                BlockedAxis axis = axis_of(axes[i]);
                axis.block = min(axis.size, block);
                axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(i));
                return axis;
            }
        return {};
    }

    // Returns the number of elements from `position` to the next cache line.
    std::int64_t elements_to_line(const std::byte* position) const {
        return static_cast<std::int64_t>((0 - reinterpret_cast<std::uintptr_t>(position)) % 64) / width_;
    }

    void transpose_block(std::byte* dst, const std::byte* src, std::int64_t block) const {
        std::int64_t sizes[4];
        const std::int64_t dst_shift = elements_to_line(dst), src_shift = elements_to_line(src);
        for (std::size_t i = axes_.size(), last = i; i-- > 0;) {
            const BlockedAxis& axis = axes_[i];
            const std::int64_t shift = i + 1 == last ? src_shift : dst_shift;
            const std::int64_t index = block % axis.blocks(), position = axis.first(index, shift);
            block /= axis.blocks();
            dst += position * axis.dst;
            src += position * axis.src;
            if (last - i <= 4) sizes[i + 4 - last] = axis.last(index, shift) - position;
        }
        if (sizes[1] <= 0 || sizes[3] <= 0) return;
        const BlockView view{dst, src, sizes[0], sizes[1], sizes[2], sizes[3]};
        if (non_temporal_)
            transpose_and_stream(view);
        else
            transpose_into(view, dst, dst_outer_.dst, src_outer_.dst, src_inner_.dst);
    }

    void transpose_into(const BlockView& view, std::byte* dst, std::ptrdiff_t dst_outer, std::ptrdiff_t src_outer,
                        std::ptrdiff_t src_inner) const {
        for (std::int64_t i = 0; i < view.dst_outer; ++i)
            for (std::int64_t j = 0; j < view.src_outer; ++j)
                copy_kernels().transpose(dst + i * dst_outer + j * src_outer, src_inner,
                                         view.src + i * dst_outer_.src + j * src_outer_.src, dst_inner_.src, view.dst_inner,
                                         view.src_inner, static_cast<std::size_t>(width_));
    }

    // Transposes into a block in L1, then streams its runs: a single run if the columns are consecutive in the destination too.
    // One extra line between the runs avoids set conflicts.
    void transpose_and_stream(const BlockView& view) const {
        alignas(64) std::byte block[(kWrittenBytes + 64) * kReadElements];
        const std::int64_t run = view.dst_outer * view.dst_inner * width_;
        const bool is_consecutive = src_inner_.dst == run;
        const std::int64_t step = is_consecutive ? run : kWrittenBytes + 64;
        transpose_into(view, block, view.dst_inner * width_, view.src_inner * step, step);
        for (std::int64_t j = 0; j < view.src_outer; ++j) {
            if (is_consecutive) {
                copy_kernels().stream(view.dst + j * src_outer_.dst, block + j * view.src_inner * step,
                                      static_cast<std::size_t>(view.src_inner * run));
                continue;
            }
            for (std::int64_t i = 0; i < view.src_inner; ++i)
                copy_kernels().stream(view.dst + j * src_outer_.dst + i * src_inner_.dst, block + (j * view.src_inner + i) * step,
                                      static_cast<std::size_t>(run));
        }
    }

    Location dst_;
    Location src_;
    std::int64_t width_;
    bool non_temporal_;
    BlockedAxis dst_outer_, dst_inner_, src_outer_, src_inner_;
    std::vector<BlockedAxis> axes_;
    std::int64_t blocks_ = 1;
    std::int64_t task_blocks_;
};

// The axis that is contiguous in the source.
std::size_t contiguous_in_source(const NormalizedCopy& normalized) {
    std::size_t i = 0;
    while (i < normalized.axes.size() && normalized.axes[i].src != normalized.run) ++i;
    return i;
}

}  // namespace

std::unique_ptr<CopyStrategy> make_transpose(const NormalizedCopy& normalized, const CopyOptions& options) {
    if (normalized.axes.size() < 2 || normalized.run > kReadBytes / 2 || normalized.axes.back().dst != normalized.run)
        return nullptr;
    const std::size_t dst_inner = normalized.axes.size() - 1, src_inner = contiguous_in_source(normalized);
    if (src_inner >= dst_inner) return nullptr;
    if (auto matrices = make_batched_transpose(normalized, dst_inner, src_inner, options)) return matrices;
    return make_streaming_transpose(normalized, src_inner,
                                    std::make_unique<TiledTranspose>(normalized, dst_inner, src_inner, options), options);
}

}  // namespace dovetail::copying
