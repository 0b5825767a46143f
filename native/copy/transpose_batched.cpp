#include <algorithm>

#include "copy/strategy.h"

namespace dovetail::copying {
namespace {

// Maximum bytes of a matrix in a batch with ordinary stores; larger matrices are transposed in tiles.
constexpr std::int64_t kMaxCachedMatrixBytes = 16 * 1024;
// Minimum bytes of a task.
constexpr std::int64_t kMinTaskBytes = 2 * 1024;

// Transposes matrices along a batch axis; with non-temporal stores, the matrices must be consecutive in the destination. A task
// is a range of the batch.
class BatchedTranspose : public CopyStrategy {
public:
    BatchedTranspose(const NormalizedCopy& normalized, std::size_t dst_inner, std::size_t src_inner, std::size_t batch,
                     const CopyOptions& options)
        : dst_(normalized.dst), src_(normalized.src), width_(normalized.run), non_temporal_(options.non_temporal),
          dst_inner_(normalized.axes[dst_inner]), src_inner_(normalized.axes[src_inner]), batch_(normalized.axes[batch]) {
        for (std::size_t i = 0; i < normalized.axes.size(); ++i)
            if (i != dst_inner && i != src_inner && i != batch) others_.push_back(normalized.axes[i]);
        task_matrices_ = min(batch_.size, max(1, options.task_bytes / (dst_inner_.size * src_inner_.size * width_)));
        tasks_ = ceil_div(batch_.size, task_matrices_);
        for (const CopyAxis& axis : others_) tasks_ *= axis.size;
    }

    std::int64_t tasks() const override { return tasks_; }
    const char* name() const override { return "batched transpose"; }

    void run(std::byte* const* bases, std::int64_t task) const override {
        std::byte* dst = dst_.resolve(bases);
        const std::byte* src = src_.resolve(bases);
        const std::int64_t tasks_per_axis = ceil_div(batch_.size, task_matrices_), first = task % tasks_per_axis * task_matrices_;
        task /= tasks_per_axis;
        dst += first * batch_.dst;
        src += first * batch_.src;
        for (std::size_t i = others_.size(); i-- > 0; task /= others_[i].size) {
            dst += task % others_[i].size * others_[i].dst;
            src += task % others_[i].size * others_[i].src;
        }
        const MatrixBatch from{
            src, batch_.src, min(task_matrices_, batch_.size - first), dst_inner_.src, dst_inner_.size, src_inner_.size};
        if (!non_temporal_)
            return copy_kernels().transpose_batch(dst, batch_.dst, src_inner_.dst, from, static_cast<std::size_t>(width_));
        copy_kernels().transpose_batch_streaming(dst, from, static_cast<std::size_t>(width_));
        copy_kernels().store_fence();
    }

private:
    Location dst_;
    Location src_;
    std::int64_t width_;
    bool non_temporal_;
    CopyAxis dst_inner_, src_inner_, batch_;
    std::vector<CopyAxis> others_;
    std::int64_t task_matrices_;
    std::int64_t tasks_;
};

}  // namespace

std::unique_ptr<CopyStrategy> make_batched_transpose(const NormalizedCopy& normalized, std::size_t dst_inner,
                                                     std::size_t src_inner, const CopyOptions& options) {
    const std::int64_t width = normalized.run, run = normalized.axes[dst_inner].size * width,
                       bytes = run * normalized.axes[src_inner].size;
    if (8 % width != 0) return nullptr;
    std::size_t batch = 0;
    if (!options.non_temporal) {
        // The longest of the other axes.
        for (std::size_t i = 0; i < dst_inner; ++i)
            if (i != src_inner && (batch == src_inner || normalized.axes[i].size > normalized.axes[batch].size)) batch = i;
        if (batch == src_inner || bytes > kMaxCachedMatrixBytes || normalized.axes[batch].size * bytes < kMinTaskBytes)
            return nullptr;
        return std::make_unique<BatchedTranspose>(normalized, dst_inner, src_inner, batch, options);
    }
    if (normalized.axes[src_inner].dst != run || bytes > kMatrixBytes) return nullptr;
    while (batch < normalized.axes.size() && normalized.axes[batch].dst != bytes) ++batch;
    // A minimum task size bounds the cache lines that two tasks share.
    if (batch == normalized.axes.size() || normalized.axes[batch].size * bytes < kL1BlockBytes) return nullptr;
    return std::make_unique<BatchedTranspose>(normalized, dst_inner, src_inner, batch, options);
}

}  // namespace dovetail::copying
