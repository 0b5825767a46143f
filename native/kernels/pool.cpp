// Pooling of f32: channels-last data in vectors of channels, other layouts row by row; maxima with their indices one by one.
#include "kernels/pool.h"

#include <algorithm>
#include <cstring>
#include <limits>
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

// Reads the axes and strides from the operands and attributes of a kernel.
void read_axes(PoolPlan& plan, const Spec& spec) {
    const Operand &x = spec.inputs.at(0), &y = spec.outputs.at(0);
    const std::size_t spatial = x.rank() - 2;
    const auto kernel = spec.integers("kernel");
    if (kernel.size() != spatial) throw std::invalid_argument("pool: kernel must have one value for each spatial axis");
    const auto strides = per_axis(spec, "strides", spatial, 1);
    const auto dilations = per_axis(spec, "dilations", spatial, 1);
    const auto begins = per_axis(spec, "pads_begin", spatial, 0);
    check_windows("pool", kernel, strides, dilations, begins);
    for (std::size_t i = 0; i < spatial; ++i) {
        plan.axes[3 - spatial + i] = {x.sizes[i + 2], y.sizes[i + 2], kernel[i],        strides[i],
                                      dilations[i],   begins[i],      x.strides[i + 2], y.strides[i + 2]};
    }
    if (x.sizes[0] != y.sizes[0] || x.sizes[1] != y.sizes[1])
        throw std::invalid_argument("pool: input and output must have equal batch and channels");
    plan.batch = x.sizes[0];
    plan.channels = x.sizes[1];
    plan.x_batch = x.strides[0];
    plan.x_channel = x.strides[1];
    plan.y_batch = y.strides[0];
    plan.y_channel = y.strides[1];
}

void check_operands(const Spec& spec) {
    const Operand &x = spec.inputs.at(0), &y = spec.outputs.at(0);
    if (x.element != Element::f32 || y.element != Element::f32) throw std::invalid_argument("pool: operands must be f32");
    if (x.rank() < 3 || x.rank() > 5 || y.rank() != x.rank())
        throw std::invalid_argument("pool: operands must have 1 to 3 spatial axes");
}

class Pooling : public Kernel {
public:
    explicit Pooling(const Spec& spec) : x_(spec.inputs.at(0)), y_(spec.outputs.at(0)) {
        check_operands(spec);
        const std::string mode = spec.text("mode");
        if (mode != "max" && mode != "average") throw std::invalid_argument("pool: there is no mode " + mode);
        read_axes(plan_, spec);
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

// Maxima, and the row-major index of each maximum's first occurrence in the axes of the input from `axis` on. A NaN is the
// greatest value. A window without elements has the maximum -inf and the index of the first element of its plane.
class MaxPoolIndices : public Kernel {
public:
    explicit MaxPoolIndices(const Spec& spec)
        : x_(spec.inputs.at(0)), y_(spec.outputs.at(0)), indices_(spec.outputs.at(1)),
          plane_axes_(2 - std::min<std::int64_t>(spec.integer("axis"), 2)) {
        check_operands(spec);
        if (indices_.element != Element::i64 || indices_.sizes != y_.sizes)
            throw std::invalid_argument("pool: the indices must be i64, of the sizes of the maxima");
        if (spec.text("mode") != "max" || spec.integer("axis") < 0 || spec.integer("axis") > 2)
            throw std::invalid_argument("pool: only maxima have indices, from an axis up to the first spatial axis on");
        read_axes(plan_, spec);
        for (std::size_t i = 0; i < y_.rank() - 2; ++i) index_strides_[5 - y_.rank() + i] = indices_.strides[i + 2];
    }

    std::string name() const override { return "pool max indices"; }

    void run(const Run& run) const override {
        if (y_.count() == 0) return;
        const std::int64_t rows = plan_.batch * plan_.channels * plan_.axes[0].out * plan_.axes[1].out;
        const std::int64_t work = y_.count() * plan_.axes[0].kernel * plan_.axes[1].kernel * plan_.axes[2].kernel * 8;
        const std::int64_t tasks = run.pool->task_count(rows, work);
        const auto part = [&](std::int64_t task, int) {
            for (std::int64_t row = task * rows / tasks; row < (task + 1) * rows / tasks; ++row) pool_row(run, row);
        };
        if (tasks == 1) return part(0, 0);
        run.pool->parallel_for(tasks, part);
    }

private:
    void pool_row(const Run& run, std::int64_t row) const {
        const PoolAxis* axes = plan_.axes;
        const std::int64_t height = row % axes[1].out, depth = row / axes[1].out % axes[0].out;
        const std::int64_t plane = row / (axes[1].out * axes[0].out), n = plane / plan_.channels, c = plane % plan_.channels;
        const std::byte* x = run.at(x_) + n * plan_.x_batch + c * plan_.x_channel;
        std::byte* y =
            run.at(y_) + n * plan_.y_batch + c * plan_.y_channel + depth * axes[0].y_stride + height * axes[1].y_stride;
        std::byte* index = run.at(indices_) + n * indices_.strides[0] + c * indices_.strides[1] + depth * index_strides_[0] +
                           height * index_strides_[1];
        const std::int64_t from = plane_axes_ == 2 ? plane : plane_axes_ == 1 ? c : 0;
        const std::int64_t first = from * axes[0].size * axes[1].size * axes[2].size;
        for (std::int64_t o = 0; o < axes[2].out; ++o, y += axes[2].y_stride, index += index_strides_[2]) {
            float best = -std::numeric_limits<float>::infinity();
            std::int64_t at = 0;
            bool seen = false;
            for (std::int64_t i = axes[0].first(depth); i < axes[0].last(depth); ++i)
                for (std::int64_t j = axes[1].first(height); j < axes[1].last(height); ++j)
                    for (std::int64_t k = axes[2].first(o); k < axes[2].last(o); ++k) {
                        const std::int64_t d = axes[0].start(depth) + i * axes[0].dilation;
                        const std::int64_t h = axes[1].start(height) + j * axes[1].dilation;
                        const std::int64_t w = axes[2].start(o) + k * axes[2].dilation;
                        float value;
                        std::memcpy(&value, x + d * axes[0].x_stride + h * axes[1].x_stride + w * axes[2].x_stride, sizeof value);
                        if (seen && !(value > best) && !(value != value && best == best)) continue;
                        best = value;
                        at = (d * axes[1].size + h) * axes[2].size + w;
                        seen = true;
                    }
            at += first;
            std::memcpy(y, &best, sizeof best);
            std::memcpy(index, &at, sizeof at);
        }
    }

    Operand x_, y_, indices_;
    PoolPlan plan_;
    std::int64_t plane_axes_;  // axes before the spatial ones that an index counts
    std::int64_t index_strides_[3] = {};
};

}  // namespace

std::unique_ptr<Kernel> make_pool(const Spec& spec, WeightCache&) {
    if (spec.outputs.size() == 2) return std::make_unique<MaxPoolIndices>(spec);
    return std::make_unique<Pooling>(spec);
}

}  // namespace dovetail
