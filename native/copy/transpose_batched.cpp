#include <algorithm>

#include "copy/strategy.h"

namespace dovetail::moving {
namespace {

// Through the cache larger matrices are turned in parts.
constexpr std::int64_t kNearMatrixBytes = 16 * 1024;
// A task is no less than this.
constexpr std::int64_t kLeastTogether = 2 * 1024;

// Matrices along an axis, each turned; past the cache they follow each other in the destination. A task is some of them.
class MatrixWalk : public Walk {
public:
    MatrixWalk(const Shape& shape, std::size_t down, std::size_t along, std::size_t over, const Manner& manner)
        : dst_(shape.dst), src_(shape.src), width_(shape.run), past_cache_(manner.past_cache), down_(shape.axes[down]), along_(shape.axes[along]), over_(shape.axes[over]) {
        for (std::size_t i = 0; i < shape.axes.size(); ++i)
            if (i != down && i != along && i != over) others_.push_back(shape.axes[i]);
        together_ = least(over_.size, most(1, manner.task_bytes / (down_.size * along_.size * width_)));
        tasks_ = parts(over_.size, together_);
        for (const Stride& axis : others_) tasks_ *= axis.size;
    }

    std::int64_t tasks() const override { return tasks_; }
    const char* name() const override { return "matrices"; }

    void run(std::byte* const* bases, std::int64_t task) const override {
        std::byte* dst = dst_.in(bases);
        const std::byte* src = src_.in(bases);
        const std::int64_t batches = parts(over_.size, together_), first = task % batches * together_;
        task /= batches;
        dst += first * over_.dst;
        src += first * over_.src;
        for (std::size_t i = others_.size(); i-- > 0; task /= others_[i].size) {
            dst += task % others_[i].size * others_[i].dst;
            src += task % others_[i].size * others_[i].src;
        }
        const Matrices from{src, over_.src, least(together_, over_.size - first), down_.src, down_.size, along_.size};
        if (!past_cache_) return movers().turn_near(dst, over_.dst, along_.dst, from, static_cast<std::size_t>(width_));
        movers().turn_matrices(dst, from, static_cast<std::size_t>(width_));
        movers().settle();
    }

private:
    Place dst_;
    Place src_;
    std::int64_t width_;
    bool past_cache_;
    Stride down_, along_, over_;
    std::vector<Stride> others_;
    std::int64_t together_;
    std::int64_t tasks_;
};

}  // namespace

std::unique_ptr<Walk> walk_matrices(const Shape& shape, std::size_t down, std::size_t along, const Manner& manner) {
    const std::int64_t width = shape.run, run = shape.axes[down].size * width, bytes = run * shape.axes[along].size;
    if (8 % width != 0) return nullptr;
    std::size_t over = 0;
    if (!manner.past_cache) {
        // The longest of the other axes.
        for (std::size_t i = 0; i < down; ++i)
            if (i != along && (over == along || shape.axes[i].size > shape.axes[over].size)) over = i;
        if (over == along || bytes > kNearMatrixBytes || shape.axes[over].size * bytes < kLeastTogether) return nullptr;
        return std::make_unique<MatrixWalk>(shape, down, along, over, manner);
    }
    if (shape.axes[along].dst != run || bytes > kMatrixBytes) return nullptr;
    while (over < shape.axes.size() && shape.axes[over].dst != bytes) ++over;
    // Few of the lines may be shared by two tasks.
    if (over == shape.axes.size() || shape.axes[over].size * bytes < kBlockBytes) return nullptr;
    return std::make_unique<MatrixWalk>(shape, down, along, over, manner);
}

}  // namespace dovetail::moving
