#include <algorithm>
#include <cstring>

#include "copy/strategy.h"

namespace dovetail::moving {
namespace {

struct Block {
    Place dst;
    Place src;
    std::int64_t end;  // of all the bytes up to this block's last
};

// A task is a range of all the bytes: it may begin and end within a block.
class Blocks : public Walk {
public:
    Blocks(const std::vector<Shape>& shapes, const Manner& manner) : past_cache_(manner.past_cache), task_bytes_(manner.task_bytes) {
        for (const Shape& shape : shapes) blocks_.push_back({shape.dst, shape.src, bytes_ += shape.run});
    }

    std::int64_t tasks() const override { return parts(bytes_, task_bytes_); }
    const char* name() const override { return "blocks"; }
    bool is_plain() const override { return true; }

    void run(std::byte* const* bases, std::int64_t task) const override {
        std::int64_t position = task * task_bytes_;
        const std::int64_t end = least(bytes_, position + task_bytes_);
        auto block = std::upper_bound(blocks_.begin(), blocks_.end(), position,
                                      [](std::int64_t at, const Block& each) { return at < each.end; });
        for (; position < end; ++block) {
            const std::int64_t first = block == blocks_.begin() ? 0 : (block - 1)->end;
            const std::int64_t bytes = least(end, block->end) - position;
            copy(block->dst.in(bases) + (position - first), block->src.in(bases) + (position - first), static_cast<std::size_t>(bytes));
            position += bytes;
        }
        if (past_cache_) movers().settle();
    }

private:
    void copy(std::byte* dst, const std::byte* src, std::size_t bytes) const {
        if (past_cache_)
            movers().stream(dst, src, bytes);
        else
            std::memcpy(dst, src, bytes);
    }

    std::vector<Block> blocks_;
    bool past_cache_;
    std::int64_t task_bytes_;
    std::int64_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<Walk> walk_blocks(const std::vector<Shape>& shapes, const Manner& manner) {
    return std::make_unique<Blocks>(shapes, manner);
}

}  // namespace dovetail::moving
