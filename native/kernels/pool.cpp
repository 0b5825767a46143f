// Pooling of f32: channels-last data in vectors of channels, other layouts row by row.
#include "kernels/pool.h"

#include <algorithm>
#include <stdexcept>

#include "copy/copy_kernels.h"
#include "copy/strided_copy.h"
#include "kernels/conv_geometry.h"
#include "kernels/kernels.h"

namespace dovetail {
namespace {

// Every thread gets an equal share of the output, as in the kernel before, so that the input of its share is in the cache of its
// core. A thread pools about 25 elements per nanosecond; a task of this size outweighs the cost of waking a thread.
constexpr std::int64_t kElementsPerTask = 1 << 17, kTasksPerThread = 4;
// Maximum span of a row of windows, padding included: each worker has two buffers of this length.
constexpr std::int64_t kMaxSpan = 1 << 26;

std::vector<std::int64_t> per_axis(const Spec& spec, const char* name, std::size_t count, std::int64_t fallback) {
    auto values = spec.integers(name);
    if (values.empty()) values.assign(count, fallback);
    if (values.size() != count)
        throw std::invalid_argument("pool: " + std::string(name) + " must have one value for each spatial axis");
    return values;
}

class Pooling : public Kernel {
public:
    explicit Pooling(const Spec& spec) : x_(spec.inputs.at(0)), y_(spec.outputs.at(0)) {
        if (x_.element != Element::f32 || y_.element != Element::f32) throw std::invalid_argument("pool: operands must be f32");
        if (x_.rank() < 3 || x_.rank() > 5 || y_.rank() != x_.rank())
            throw std::invalid_argument("pool: operands must have 1 to 3 spatial axes");
        const std::string mode = spec.text("mode");
        if (mode != "max" && mode != "average") throw std::invalid_argument("pool: there is no mode " + mode);
        read_axes(spec);
        is_empty_ = y_.count() == 0;
        if (!is_empty_) {
            if (mode == "average") set_divisors(spec);
            for (PoolAxis& axis : plan_.axes) axis.trim();
            if (plan_.axes[2].span() > kMaxSpan) throw std::invalid_argument("pool: the windows of a row span too many elements");
        }
        is_dense_ = (plan_.x_channel == 4 && plan_.y_channel == 4) || (plan_.channels == 1 && plan_.axes[2].x_stride != 4);
        if (copying::prefetches_within_pages() && x_.count() * 4 > kL2Bytes) plan_.prefetch_bytes = kPage;
        const PoolFunctions functions = DOVETAIL_SELECT_ISA(pool_functions)();
        const bool is_max = mode == "max";
        function_ = is_dense_ ? (is_max ? functions.dense_max : functions.dense_average)
                              : (is_max ? functions.row_max : functions.row_average);
        name_ = "pool " + mode + (is_dense_ ? " channels " : " rows ") + name_of(isa());
    }

    std::string name() const override { return name_; }
    std::size_t scratch_bytes() const override {
        return is_empty_ || is_dense_ ? 0 : static_cast<std::size_t>(pool_row_floats(plan_)) * sizeof(float);
    }

    void run(const Run& run) const override {
        if (is_empty_) return;
        PoolPlan plan = plan_;
        for (int axis = 0; axis < 3; ++axis) plan.divisors[axis] = divisors_[axis].data();
        const std::byte* x = run.at(x_);
        std::byte* y = run.at(y_);
        const std::int64_t rows = plan.batch * plan.axes[0].out * plan.axes[1].out * (is_dense_ ? 1 : plan.channels);
        const std::int64_t work = y_.count() * plan.axes[0].kernel * plan.axes[1].kernel * plan.axes[2].kernel;
        const std::int64_t threads = run.pool->threads(),
                           tasks_per_thread = std::min(work / (kElementsPerTask * threads), kTasksPerThread);
        const std::int64_t tasks = threads == 1            ? run.pool->task_count(rows, work)
                                   : tasks_per_thread == 0 ? 1
                                                           : std::min(threads * tasks_per_thread, rows);
        const auto part = [&](std::int64_t task, int worker) {
            function_(plan, x, y, task * rows / tasks, (task + 1) * rows / tasks,
                      reinterpret_cast<float*>(run.scratch_of(worker)));
        };
        if (tasks == 1) return part(0, 0);
        run.pool->parallel_for(tasks, part);
    }

private:
    void read_axes(const Spec& spec) {
        const std::size_t spatial = x_.rank() - 2;
        const auto kernel = spec.integers("kernel");
        if (kernel.size() != spatial) throw std::invalid_argument("pool: kernel must have one value for each spatial axis");
        const auto strides = per_axis(spec, "strides", spatial, 1);
        const auto dilations = per_axis(spec, "dilations", spatial, 1);
        const auto begins = per_axis(spec, "pads_begin", spatial, 0);
        check_windows("pool", kernel, strides, dilations, begins);
        for (std::size_t i = 0; i < spatial; ++i) {
            plan_.axes[3 - spatial + i] = {x_.sizes[i + 2], y_.sizes[i + 2], kernel[i],         strides[i],
                                           dilations[i],    begins[i],       x_.strides[i + 2], y_.strides[i + 2]};
        }
        if (x_.sizes[0] != y_.sizes[0] || x_.sizes[1] != y_.sizes[1])
            throw std::invalid_argument("pool: input and output must have equal batch and channels");
        plan_.batch = x_.sizes[0];
        plan_.channels = x_.sizes[1];
        plan_.x_batch = x_.strides[0];
        plan_.x_channel = x_.strides[1];
        plan_.y_batch = y_.strides[0];
        plan_.y_channel = y_.strides[1];
    }

    // Computes the divisors of average pooling: the number of elements of a window that are inside the input ("inside") or
    // inside the padded input ("padded"), or the size of the window ("window").
    void set_divisors(const Spec& spec) {
        const std::size_t spatial = x_.rank() - 2;
        const auto ends = per_axis(spec, "pads_end", spatial, 0);
        const std::string divisor = spec.text("divisor", "inside");
        if (divisor != "inside" && divisor != "padded" && divisor != "window")
            throw std::invalid_argument("pool: there is no divisor " + divisor);
        bool is_padded = false;
        for (std::size_t i = 0; i < spatial; ++i) is_padded = is_padded || ends[i] != 0 || plan_.axes[3 - spatial + i].begin != 0;
        for (std::size_t i = 0; i < 3; ++i) {
            const PoolAxis& axis = plan_.axes[i];
            const std::int64_t end = i + spatial < 3 ? 0 : ends[i + spatial - 3];
            for (std::int64_t o = 0; o < axis.out; ++o) {
                std::int64_t elements = divisor == "padded" ? axis.padded(o, end) : axis.last(o) - axis.first(o);
                if (divisor == "window" && is_padded) elements = axis.kernel;
                divisors_[i].push_back(static_cast<float>(std::max<std::int64_t>(elements, 1)));
            }
        }
    }

    Operand x_;
    Operand y_;
    PoolPlan plan_;
    std::vector<float> divisors_[3];
    PoolFunction function_;
    std::string name_;
    bool is_empty_ = false;
    bool is_dense_ = false;
};

}  // namespace

std::unique_ptr<Kernel> make_pool(const Spec& spec, WeightCache&) { return std::make_unique<Pooling>(spec); }

}  // namespace dovetail
