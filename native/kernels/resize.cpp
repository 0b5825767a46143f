// Interpolation of f32 with given indices and weights: channels-last data pixel by pixel, other layouts row by row.
#include "kernels/resize.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/kernels.h"

namespace dovetail {
namespace {

constexpr std::int64_t kElementsPerTask = 1 << 15;

class Resizing : public Kernel {
public:
    explicit Resizing(const Spec& spec) : x_(spec.inputs.at(0)), y_(spec.outputs.at(0)) {
        if (x_.element != Element::f32 || y_.element != Element::f32) throw std::invalid_argument("resize: operands must be f32");
        if (x_.rank() < 3 || x_.rank() > 5 || y_.rank() != x_.rank())
            throw std::invalid_argument("resize: operands must have 1 to 3 spatial axes");
        if (x_.sizes[0] != y_.sizes[0] || x_.sizes[1] != y_.sizes[1])
            throw std::invalid_argument("resize: input and output must have equal batch and channels");
        const std::size_t spatial = x_.rank() - 2;
        const auto taps = spec.integers("taps"), indices = spec.integers("places");
        const auto weights = spec.reals("weights");
        if (taps.size() != spatial || indices.size() != weights.size())
            throw std::invalid_argument("resize: needs taps for each spatial axis and a weight for each index");
        std::size_t at = 0;
        for (std::size_t i = 0; i < 3; ++i) {
            ResizeAxis& axis = plan_.axes[i];
            if (i + spatial < 3) {
                indices_[i] = {0};
                weights_[i] = {1};
                continue;
            }
            const std::size_t own = i + spatial - 3;
            axis.size = x_.sizes[own + 2];
            axis.out = y_.sizes[own + 2];
            axis.x_stride = x_.strides[own + 2];
            axis.y_stride = y_.strides[own + 2];
            axis.taps = taps[own];
            const auto available = static_cast<std::int64_t>(indices.size() - at);
            if (axis.taps < 1 || (axis.out > 0 && axis.taps > available / axis.out))
                throw std::invalid_argument("resize: needs out * taps indices for each axis");
            const auto count = static_cast<std::size_t>(axis.taps * axis.out);
            for (; indices_[i].size() < count; ++at) {
                if (indices[at] < 0 || indices[at] >= axis.size) throw std::invalid_argument("resize: an index is out of range");
                indices_[i].push_back(indices[at]);
                weights_[i].push_back(static_cast<float>(weights[at]));
            }
            axis.is_copy =
                axis.taps == 1 && std::all_of(weights_[i].begin(), weights_[i].end(), [](float weight) { return weight == 1; });
        }
        plan_.channels = x_.sizes[1];
        plan_.x_batch = x_.strides[0];
        plan_.x_channel = x_.strides[1];
        plan_.y_batch = y_.strides[0];
        plan_.y_channel = y_.strides[1];
        is_dense_ = plan_.channels > 1 && plan_.x_channel == 4 && plan_.y_channel == 4;
        const ResizeFunctions functions = DOVETAIL_SELECT_ISA(resize_functions)();
        function_ = is_dense_ ? functions.dense : functions.rows;
    }

    std::string name() const override { return std::string("resize ") + (is_dense_ ? "channels " : "rows ") + name_of(isa()); }

    std::size_t scratch_bytes() const override {
        return static_cast<std::size_t>(plan_.axes[2].size * (is_dense_ ? plan_.channels : 1)) * sizeof(float);
    }

    void run(const Run& run) const override {
        if (y_.count() == 0) return;
        ResizePlan plan = plan_;
        for (int axis = 0; axis < 3; ++axis) {
            plan.axes[axis].indices = indices_[axis].data();
            plan.axes[axis].weights = weights_[axis].data();
        }
        const std::byte* x = run.at(x_);
        std::byte* y = run.at(y_);
        const std::int64_t rows = y_.sizes[0] * plan.axes[0].out * plan.axes[1].out * (is_dense_ ? 1 : plan.channels);
        const std::int64_t tasks =
            run.pool->task_count(std::clamp<std::int64_t>(y_.count() / kElementsPerTask, 1, rows), y_.count());
        const auto part = [&](std::int64_t task, int worker) {
            function_(plan, x, y, task * rows / tasks, (task + 1) * rows / tasks,
                      reinterpret_cast<float*>(run.scratch_of(worker)));
        };
        if (tasks == 1) return part(0, 0);
        run.pool->parallel_for(tasks, part);
    }

private:
    Operand x_;
    Operand y_;
    ResizePlan plan_;
    std::vector<std::int64_t> indices_[3];
    std::vector<float> weights_[3];
    ResizeFunction function_;
    bool is_dense_ = false;
};

}  // namespace

std::unique_ptr<Kernel> make_resize(const Spec& spec, WeightCache&) { return std::make_unique<Resizing>(spec); }

}  // namespace dovetail
