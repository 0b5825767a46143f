#include <algorithm>
#include <cstring>

#include "copy/strategy.h"

namespace dovetail::copying {
namespace {

struct Block {
    Location dst;
    Location src;
    std::int64_t end;  // bytes of all blocks up to and including this one
};

// Copies contiguous blocks. A task is a range of the concatenated bytes of all blocks, and may begin and end within a block.
class ContiguousCopy : public CopyStrategy {
public:
    ContiguousCopy(const std::vector<NormalizedCopy>& regions, const CopyOptions& options)
        : non_temporal_(options.non_temporal), task_bytes_(options.task_bytes) {
        for (const NormalizedCopy& normalized : regions)
            blocks_.push_back({normalized.dst, normalized.src, bytes_ += normalized.run});
    }

    std::int64_t tasks() const override { return ceil_div(bytes_, task_bytes_); }
    const char* name() const override { return "contiguous"; }
    bool has_long_runs() const override { return true; }

    void run(std::byte* const* bases, std::int64_t task) const override {
        std::int64_t position = task * task_bytes_;
        const std::int64_t end = min(bytes_, position + task_bytes_);
        auto block = std::upper_bound(blocks_.begin(), blocks_.end(), position,
                                      [](std::int64_t value, const Block& candidate) { return value < candidate.end; });
        for (; position < end; ++block) {
            const std::int64_t first = block == blocks_.begin() ? 0 : (block - 1)->end;
            const std::int64_t bytes = min(end, block->end) - position;
            copy(block->dst.resolve(bases) + (position - first), block->src.resolve(bases) + (position - first),
                 static_cast<std::size_t>(bytes));
            position += bytes;
        }
        if (non_temporal_) copy_kernels().store_fence();
    }

private:
    void copy(std::byte* dst, const std::byte* src, std::size_t bytes) const {
        if (non_temporal_)
            copy_kernels().stream(dst, src, bytes);
        else
            std::memcpy(dst, src, bytes);
    }

    std::vector<Block> blocks_;
    bool non_temporal_;
    std::int64_t task_bytes_;
    std::int64_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<CopyStrategy> make_contiguous_copy(const std::vector<NormalizedCopy>& regions, const CopyOptions& options) {
    return std::make_unique<ContiguousCopy>(regions, options);
}

}  // namespace dovetail::copying
