// Softmax, LogSoftmax, LayerNormalization, RMSNormalization and LRN of f32.
#include "kernels/norm.h"

#include <algorithm>
#include <stdexcept>

#include "int_math.h"
#include "kernels/kernels.h"
#include "kernels/strided_loop.h"

namespace dovetail {
namespace {

constexpr std::int64_t kElementsPerTask = 8 * 1024;

NormFunctions norm_kernels() { return DOVETAIL_SELECT_ISA(norm_functions)(); }

struct Axis {
    std::int64_t size;
    std::int64_t x;  // strides in bytes
    std::int64_t y;
};

// Returns the axes [first, last) of both operands; axes of size 1 are dropped and contiguous axes merged.
std::vector<Axis> axes_of(const Operand& x, const Operand& y, std::size_t first, std::size_t last) {
    std::vector<Axis> axes;
    for (std::size_t i = first; i < last; ++i) {
        if (x.sizes[i] == 1) continue;
        const Axis axis{x.sizes[i], x.strides[i], y.strides[i]};
        if (!axes.empty() && axes.back().x == axis.x * axis.size && axes.back().y == axis.y * axis.size)
            axes.back() = {axes.back().size * axis.size, axis.x, axis.y};
        else
            axes.push_back(axis);
    }
    return axes;
}

void check_operands(const Spec& spec) {
    for (const auto* operands : {&spec.inputs, &spec.outputs})
        for (const Operand& operand : *operands)
            if (operand.element != Element::f32) throw std::invalid_argument(spec.kernel + ": operands must be f32");
    if (spec.inputs.at(0).sizes != spec.outputs.at(0).sizes)
        throw std::invalid_argument(spec.kernel + ": input and output must have equal sizes");
}

// Applies a function to the rows along one axis, in a loop over all other axes.
class RowNormalization : public Kernel {
public:
    RowNormalization(const Spec& spec, void (*function)(const NormBlock&))
        : kernel_(spec.kernel), x_(spec.inputs.at(0)), y_(spec.outputs.at(0)), function_(function) {}

    std::string name() const override {
        return kernel_ + (is_gathered_ ? " gathered " : is_across_ ? " columns " : " rows ") + name_of(isa());
    }
    std::size_t scratch_bytes() const override { return is_gathered_ ? static_cast<std::size_t>(along_.size) * 4 : 0; }

    void run(const Run& run) const override {
        if (x_.count() == 0) return;
        const std::int64_t rows = rows_count();
        const std::int64_t tasks =
            run.pool->task_count(std::clamp<std::int64_t>(x_.count() / kElementsPerTask, 1, ceil_div(rows, step_)), x_.count());
        if (tasks == 1) return run_rows(run, 0, rows, 0);
        run.pool->parallel_for(tasks, [&](std::int64_t task, int worker) {
            run_rows(run, task_boundary(task, tasks, rows), task_boundary(task + 1, tasks, rows), worker);
        });
    }

protected:
    // `across`: a vector of adjacent rows may be processed together.
    void set_axes(Axis along, std::vector<Axis> others, bool across) {
        along_ = along;
        const bool is_dense = along.x == 4 && along.y == 4;
        const auto adjacent =
            std::find_if(others.begin(), others.end(), [](const Axis& axis) { return axis.x == 4 && axis.y == 4; });
        // Rows side by side are added in another order than a row alone.
        is_across_ = across && !is_dense && adjacent != others.end() && !is_reproducible();
        if (is_across_) std::rotate(adjacent, adjacent + 1, others.end());
        if (others.empty()) others.push_back({1, 0, 0});
        step_ = is_across_ ? 16 : 1;
        is_gathered_ = !is_dense && !is_across_;
        inner_ = others.back();
        others.pop_back();
        outer_ = others;
    }

    Operand scale_;
    Operand bias_;
    bool has_scale_ = false;
    bool has_bias_ = false;
    float epsilon_ = 0;

private:
    std::int64_t rows_count() const {
        std::int64_t count = inner_.size;
        for (const Axis& axis : outer_) count *= axis.size;
        return count;
    }

    // Returns the first row of a task: a multiple of the number of rows that are processed together.
    std::int64_t task_boundary(std::int64_t task, std::int64_t tasks, std::int64_t rows) const {
        return task == tasks ? rows : task * rows / tasks / step_ * step_;
    }

    void run_rows(const Run& run, std::int64_t first, std::int64_t last, int worker) const {
        while (first < last) {
            const std::int64_t start = first % inner_.size;
            const std::int64_t width = std::min(last - first, inner_.size - start);
            std::int64_t x = start * inner_.x;
            std::int64_t y = start * inner_.y;
            std::int64_t rest = first / inner_.size;
            for (std::size_t i = outer_.size(); i-- > 0; rest /= outer_[i].size) {
                x += rest % outer_[i].size * outer_[i].x;
                y += rest % outer_[i].size * outer_[i].y;
            }
            NormBlock block{run.at(x_) + x, run.at(y_) + y, along_.size, along_.x, along_.y, width,
                            inner_.x,       inner_.y,       nullptr,     nullptr,  epsilon_};
            if (has_scale_) block.scale = reinterpret_cast<const float*>(run.at(scale_));
            if (has_bias_) block.bias = reinterpret_cast<const float*>(run.at(bias_));
            if (is_gathered_)
                run_gathered(block, run.scratch_of(worker));
            else
                function_(block);
            first += width;
        }
    }

    // Copies each row to scratch memory, normalizes the copy, and writes it to the output.
    void run_gathered(NormBlock block, std::byte* scratch) const {
        const NormBlock all = block;
        for (std::int64_t row = 0; row < all.width; ++row) {
            std::byte* x = const_cast<std::byte*>(all.x) + row * all.x_width_stride;
            std::byte* y = all.y + row * all.y_width_stride;
            copy_strided({scratch, 0, 4}, {x, 0, all.x_stride}, 1, all.count, 4);
            block.x = block.y = scratch;
            block.x_stride = block.y_stride = 4;
            block.width = 1;
            function_(block);
            copy_strided({y, 0, all.y_stride}, {scratch, 0, 4}, 1, all.count, 4);
        }
    }

    std::string kernel_;
    Operand x_;
    Operand y_;
    void (*function_)(const NormBlock&);
    Axis along_{1, 4, 4};
    Axis inner_{1, 0, 0};
    std::vector<Axis> outer_;
    std::int64_t step_ = 1;
    bool is_across_ = false;
    bool is_gathered_ = false;
};

class Softmax : public RowNormalization {
public:
    Softmax(const Spec& spec, void (*function)(const NormBlock&)) : RowNormalization(spec, function) {
        check_operands(spec);
        const Operand& x = spec.inputs[0];
        const Operand& y = spec.outputs[0];
        const auto axis = static_cast<std::size_t>(spec.integer("axis", -1));
        if (axis >= x.rank()) throw std::invalid_argument(spec.kernel + ": axis is out of range");
        auto others = axes_of(x, y, 0, axis);
        for (const Axis& other : axes_of(x, y, axis + 1, x.rank())) others.push_back(other);
        Axis along{x.sizes[axis], x.strides[axis], y.strides[axis]};
        if (along.size == 1) along.x = along.y = 4;
        set_axes(along, others, true);
    }
};

// Inputs: x, scale, bias (with has_bias). Scale and bias are contiguous and as large as the axes from `axis` on.
class Normalization : public RowNormalization {
public:
    Normalization(const Spec& spec, void (*function)(const NormBlock&)) : RowNormalization(spec, function) {
        check_operands(spec);
        const Operand& x = spec.inputs[0];
        const auto axis = static_cast<std::size_t>(spec.integer("axis", -1));
        if (axis >= x.rank()) throw std::invalid_argument(spec.kernel + ": axis is out of range");
        const auto along = axes_of(x, spec.outputs[0], axis, x.rank());
        if (along.size() > 1) throw std::invalid_argument(spec.kernel + ": the normalized axes must be contiguous");
        const Axis row = along.empty() ? Axis{1, 4, 4} : along[0];
        has_bias_ = spec.integer("has_bias", spec.inputs.size() > 2) != 0;
        has_scale_ = spec.inputs.size() > (has_bias_ ? 2u : 1u);
        if (has_scale_) scale_ = parameter(spec, 1, row.size);
        if (has_bias_) bias_ = parameter(spec, spec.inputs.size() - 1, row.size);
        epsilon_ = static_cast<float>(spec.real("epsilon"));
        set_axes(row, axes_of(x, spec.outputs[0], 0, axis), false);
    }

private:
    static Operand parameter(const Spec& spec, std::size_t index, std::int64_t size) {
        const Operand& operand = spec.inputs.at(index);
        std::int64_t dense = 4;
        for (std::size_t i = operand.rank(); i-- > 0; dense *= operand.sizes[i])
            if (operand.sizes[i] != 1 && operand.strides[i] != dense)
                throw std::invalid_argument(spec.kernel + ": a parameter must be contiguous");
        if (operand.count() != size)
            throw std::invalid_argument(spec.kernel + ": a parameter must have the size of the normalized axes");
        return operand;
    }
};

class LocalResponse : public Kernel {
public:
    explicit LocalResponse(const Spec& spec) : x_(spec.inputs.at(0)), y_(spec.outputs.at(0)) {
        check_operands(spec);
        if (x_.rank() < 2) throw std::invalid_argument("lrn: the input must have rank 2 or more");
        auto spatial = axes_of(x_, y_, 2, x_.rank());
        is_dense_ = x_.strides[1] == 4 && y_.strides[1] == 4;
        if (spatial.empty()) spatial.push_back({1, 4, 4});
        if (!is_dense_ && (spatial.back().x != 4 || spatial.back().y != 4))
            throw std::invalid_argument("lrn: channels or pixels must be contiguous");
        pixels_ = spatial.back();
        spatial.pop_back();
        outer_ = spatial;
        outer_.insert(outer_.begin(), {x_.sizes[0], x_.strides[0], y_.strides[0]});
        block_ = {nullptr, nullptr, 0, pixels_.x, pixels_.y, x_.sizes[1], x_.strides[1], y_.strides[1], spec.integer("size", 1),
                  0,       0,       0, nullptr};
        if (block_.size < 1) throw std::invalid_argument("lrn: size must be at least 1");
        block_.alpha = static_cast<float>(spec.real("alpha") / static_cast<double>(block_.size));
        // A window larger than the number of channels gives the same sums as one of that number.
        block_.size = std::min(block_.size, 2 * block_.channels + 2 - block_.size % 2);
        block_.beta = static_cast<float>(spec.real("beta"));
        block_.bias = static_cast<float>(spec.real("bias"));
    }

    std::string name() const override { return std::string("lrn ") + (is_dense_ ? "channels " : "pixels ") + name_of(isa()); }
    std::size_t scratch_bytes() const override { return static_cast<std::size_t>(block_.channels + block_.size + 32) * 4; }

    void run(const Run& run) const override {
        if (x_.count() == 0) return;
        std::int64_t rows = 1;
        for (const Axis& axis : outer_) rows *= axis.size;
        const std::int64_t total = rows * pixels_.size;
        const std::int64_t tasks =
            run.pool->task_count(std::clamp<std::int64_t>(x_.count() / kElementsPerTask, 1, (total + 63) / 64), x_.count());
        const auto task_boundary = [&](std::int64_t task) { return task == tasks ? total : task * total / tasks / 16 * 16; };
        if (tasks == 1) return run_rows(run, 0, total, 0);
        run.pool->parallel_for(
            tasks, [&](std::int64_t task, int worker) { run_rows(run, task_boundary(task), task_boundary(task + 1), worker); });
    }

private:
    void run_rows(const Run& run, std::int64_t first, std::int64_t last, int worker) const {
        while (first < last) {
            LrnBlock block = block_;
            const std::int64_t start = first % pixels_.size;
            block.pixels = std::min(last - first, pixels_.size - start);
            block.x = run.at(x_) + start * pixels_.x;
            block.y = run.at(y_) + start * pixels_.y;
            std::int64_t rest = first / pixels_.size;
            for (std::size_t i = outer_.size(); i-- > 0; rest /= outer_[i].size) {
                block.x += rest % outer_[i].size * outer_[i].x;
                block.y += rest % outer_[i].size * outer_[i].y;
            }
            block.scratch = reinterpret_cast<float*>(run.scratch_of(worker));
            kernels_.lrn(block);
            first += block.pixels;
        }
    }

    Operand x_;
    Operand y_;
    NormFunctions kernels_ = norm_kernels();
    LrnBlock block_;
    Axis pixels_{1, 4, 4};
    std::vector<Axis> outer_;
    bool is_dense_ = false;
};

}  // namespace

std::unique_ptr<Kernel> make_softmax(const Spec& spec, WeightCache&) {
    return std::make_unique<Softmax>(spec, norm_kernels().softmax);
}
std::unique_ptr<Kernel> make_log_softmax(const Spec& spec, WeightCache&) {
    return std::make_unique<Softmax>(spec, norm_kernels().log_softmax);
}
std::unique_ptr<Kernel> make_layer_norm(const Spec& spec, WeightCache&) {
    return std::make_unique<Normalization>(spec, norm_kernels().layer_norm);
}
std::unique_ptr<Kernel> make_rms_norm(const Spec& spec, WeightCache&) {
    return std::make_unique<Normalization>(spec, norm_kernels().rms_norm);
}
std::unique_ptr<Kernel> make_lrn(const Spec& spec, WeightCache&) { return std::make_unique<LocalResponse>(spec); }

}  // namespace dovetail
