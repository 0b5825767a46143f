#include <algorithm>

#include "copy/strategy.h"

namespace dovetail::moving {
namespace {

// The block that is turned at once: long enough runs on both sides for the memory, small enough for the cache.
constexpr std::int64_t kReadBytes = 256;
constexpr std::int64_t kReadElements = 64;
constexpr std::int64_t kWrittenBytes = 1024;

struct Extent {
    std::int64_t size = 1;
    std::int64_t block = 1;
    std::int64_t dst = 0;
    std::int64_t src = 0;
    bool shifts = false;

    // Shifted blocks: the first one is short, so that the others begin at whole lines; the first and last may be empty.
    std::int64_t blocks() const { return parts(size, block) + shifts; }
    std::int64_t first(std::int64_t number, std::int64_t shift) const { return shifts ? most(0, (number - 1) * block + shift) : number * block; }
    std::int64_t last(std::int64_t number, std::int64_t shift) const { return least(size, shifts ? number * block + shift : (number + 1) * block); }
};

// A transpose: `down` is contiguous in the destination, `along` in the source. `under` continues `down` in the destination, `beyond`
// continues `along` in the source, where the axis itself is too short. A block is a part of all four; all other axes are walked.
class Tiles : public Walk {
public:
    Tiles(const Shape& shape, std::size_t down, std::size_t along, const Manner& manner)
        : dst_(shape.dst), src_(shape.src), width_(shape.run), past_cache_(manner.past_cache) {
        std::vector<Stride> axes = shape.axes;
        down_ = extent(axes[down]);
        along_ = extent(axes[along]);
        axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(std::max(down, along)));
        axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(std::min(down, along)));
        const std::int64_t columns = least(kReadElements, kReadBytes / width_), run = down_.size * width_;
        down_.block = least(down_.size, most(1, kWrittenBytes / width_));
        along_.block = least(along_.size, columns);
        if (run < kWrittenBytes) under_ = take(axes, &Stride::dst, run, kWrittenBytes / run);
        if (along_.size < columns) beyond_ = take(axes, &Stride::src, along_.size * width_, columns / along_.size);
        down_.shifts = past_cache_ && down_.size > down_.block && 64 % width_ == 0;
        along_.shifts = past_cache_ && along_.size * width_ >= kWrittenBytes && along_.size > along_.block && 64 % width_ == 0;
        for (const Stride& axis : axes) others_.push_back(extent(axis));
        others_.insert(others_.end(), {under_, down_, beyond_, along_});
        for (const Extent& axis : others_) blocks_ *= axis.blocks();
        const std::int64_t block_bytes = width_ * under_.block * down_.block * beyond_.block * along_.block;
        task_blocks_ = most(1, manner.task_bytes / block_bytes);
    }

    std::int64_t tasks() const override { return parts(blocks_, task_blocks_); }
    const char* name() const override { return "tiles"; }

    void run(std::byte* const* bases, std::int64_t task) const override {
        std::byte* const dst = dst_.in(bases);
        const std::byte* const src = src_.in(bases);
        const std::int64_t end = least(blocks_, (task + 1) * task_blocks_);
        for (std::int64_t block = task * task_blocks_; block < end; ++block) turn(dst, src, block);
        if (past_cache_) movers().settle();
    }

private:
    // Where a block lies and how large it is, the four axes of a block last.
    struct Part {
        std::byte* dst;
        const std::byte* src;
        std::int64_t under, down, beyond, along;
    };

    static Extent extent(const Stride& axis) { return {axis.size, 1, axis.dst, axis.src}; }

    static Extent take(std::vector<Stride>& axes, std::int64_t Stride::* stride, std::int64_t bytes, std::int64_t block) {
        for (std::size_t i = 0; i < axes.size(); ++i)
            if (axes[i].*stride == bytes) {
                Extent found = extent(axes[i]);
                found.block = least(found.size, block);
                axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(i));
                return found;
            }
        return {};
    }

    // How many elements until a line begins.
    std::int64_t to_line(const std::byte* at) const { return (0 - reinterpret_cast<std::uintptr_t>(at)) % 64 / width_; }

    void turn(std::byte* dst, const std::byte* src, std::int64_t block) const {
        std::int64_t sizes[4];
        const std::int64_t dst_shift = to_line(dst), src_shift = to_line(src);
        for (std::size_t i = others_.size(), last = i; i-- > 0;) {
            const Extent& axis = others_[i];
            const std::int64_t shift = i + 1 == last ? src_shift : dst_shift;
            const std::int64_t number = block % axis.blocks(), at = axis.first(number, shift);
            block /= axis.blocks();
            dst += at * axis.dst;
            src += at * axis.src;
            if (last - i <= 4) sizes[i + 4 - last] = axis.last(number, shift) - at;
        }
        if (sizes[1] <= 0 || sizes[3] <= 0) return;
        const Part part{dst, src, sizes[0], sizes[1], sizes[2], sizes[3]};
        if (past_cache_)
            turn_past(part);
        else
            turn_into(part, dst, under_.dst, beyond_.dst, along_.dst);
    }

    void turn_into(const Part& part, std::byte* dst, std::ptrdiff_t under, std::ptrdiff_t beyond, std::ptrdiff_t along) const {
        for (std::int64_t i = 0; i < part.under; ++i)
            for (std::int64_t j = 0; j < part.beyond; ++j)
                movers().transpose(dst + i * under + j * beyond, along, part.src + i * under_.src + j * beyond_.src, down_.src, part.down,
                                   part.along, static_cast<std::size_t>(width_));
    }

    // Turned into a block of its own, from which it goes in whole runs past the cache: one for all columns where they follow each other
    // in the destination too. An odd line between the runs keeps them from falling on the same places of the cache.
    void turn_past(const Part& part) const {
        alignas(64) std::byte block[(kWrittenBytes + 64) * kReadElements];
        const std::int64_t run = part.under * part.down * width_;
        const bool joins = along_.dst == run;
        const std::int64_t step = joins ? run : kWrittenBytes + 64;
        turn_into(part, block, part.down * width_, part.along * step, step);
        for (std::int64_t j = 0; j < part.beyond; ++j) {
            if (joins) {
                movers().stream(part.dst + j * beyond_.dst, block + j * part.along * step, static_cast<std::size_t>(part.along * run));
                continue;
            }
            for (std::int64_t i = 0; i < part.along; ++i)
                movers().stream(part.dst + j * beyond_.dst + i * along_.dst, block + (j * part.along + i) * step,
                                static_cast<std::size_t>(run));
        }
    }

    Place dst_;
    Place src_;
    std::int64_t width_;
    bool past_cache_;
    Extent under_, down_, beyond_, along_;
    std::vector<Extent> others_;
    std::int64_t blocks_ = 1;
    std::int64_t task_blocks_;
};

// The axis that is contiguous in the source.
std::size_t contiguous_in_source(const Shape& shape) {
    std::size_t i = 0;
    while (i < shape.axes.size() && shape.axes[i].src != shape.run) ++i;
    return i;
}

}  // namespace

std::unique_ptr<Walk> walk_tiles(const Shape& shape, const Manner& manner) {
    if (shape.axes.size() < 2 || shape.run > kReadBytes / 2 || shape.axes.back().dst != shape.run) return nullptr;
    const std::size_t down = shape.axes.size() - 1, along = contiguous_in_source(shape);
    if (along >= down) return nullptr;
    if (auto matrices = walk_matrices(shape, down, along, manner)) return matrices;
    return walk_turns(shape, along, std::make_unique<Tiles>(shape, down, along, manner), manner);
}

}  // namespace dovetail::moving
