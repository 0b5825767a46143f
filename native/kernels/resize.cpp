// Interpolation of f32. The indices and weights are given as attributes, or computed for an interpolation mode. Channels-last
// data is processed pixel by pixel, other layouts row by row.
#include "kernels/resize.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

#include "kernels/kernels.h"

namespace dovetail {
namespace {

constexpr std::int64_t kElementsPerTask = 1 << 15;
constexpr std::int64_t kMaxTaps = 5;

// The indices and weights of one axis, in the arithmetic of Resize.taps (dovetail.ops.nn.resize): positions in f32, weights in
// f64.
class Taps {
public:
    explicit Taps(const Spec& spec)
        : mode_(spec.text("mode", "")), coordinates_(spec.text("coordinate_transformation_mode", "")),
          nearest_(spec.text("nearest_mode", "")), cubic_(spec.real("cubic_coeff_a")),
          excludes_outside_(spec.integer("exclude_outside") != 0), keeps_equal_(spec.integer("keeps_equal") != 0) {
        const bool is_known = coordinates_ == "half_pixel" || coordinates_ == "half_pixel_symmetric" ||
                              coordinates_ == "pytorch_half_pixel" || coordinates_ == "asymmetric" ||
                              coordinates_ == "tf_half_pixel_for_nn" || coordinates_ == "align_corners" ||
                              coordinates_ == "align_corners_scaled";
        if (!is_known || (mode_ != "nearest" && mode_ != "linear" && mode_ != "cubic"))
            throw std::invalid_argument("resize: the mode");
    }

    // A scale of 0 means that the scale follows from the sizes; a negative scale marks an axis that is not resized.
    void fill(ResizeAxis& axis, double scale, std::vector<std::int64_t>& indices, std::vector<float>& weights) const {
        const float ratio = scale != 0 ? static_cast<float>(scale) : static_cast<float>(axis.out) / static_cast<float>(axis.size);
        if (scale < 0 && axis.out != axis.size) throw std::invalid_argument("resize: the size of an axis that is not resized");
        if (axis.out == axis.size && (scale < 0 || keeps_equal_ || (ratio == 1 && coordinates_ != "tf_half_pixel_for_nn"))) {
            indices.resize(static_cast<std::size_t>(axis.out));
            std::iota(indices.begin(), indices.end(), std::int64_t{0});
            weights.assign(indices.size(), 1);
            return;
        }
        axis.taps = mode_ == "nearest" ? 1 : mode_ == "linear" ? 3 : kMaxTaps;
        const auto count = static_cast<std::size_t>(axis.out * axis.taps);
        indices.resize(count);
        std::vector<double> wide(count, 1.0);
        for (std::int64_t o = 0; o < axis.out; ++o) {
            const auto first = static_cast<std::size_t>(o * axis.taps);
            fill_element(position(static_cast<float>(o), ratio, axis), ratio < 1, axis, &indices[first], &wide[first]);
        }
        drop_unused(axis, indices, wide);
        weights.assign(wide.begin(), wide.end());
    }

private:
    float position(float o, float scale, const ResizeAxis& axis) const {
        const auto out = static_cast<double>(axis.out), size = static_cast<double>(axis.size);
        if (coordinates_ == "asymmetric") return o / scale;
        if (coordinates_ == "tf_half_pixel_for_nn") return (o + 0.5F) / scale;
        if (coordinates_ == "align_corners")
            return axis.out > 1 ? o * static_cast<float>(axis.size - 1) / static_cast<float>(axis.out - 1) : 0;
        if (coordinates_ == "align_corners_scaled") {
            const double length = static_cast<double>(scale) * size;
            return length == 1 ? 0 : o * static_cast<float>(axis.size - 1) / static_cast<float>(length - 1);
        }
        if (coordinates_ == "pytorch_half_pixel" && axis.out <= 1) return 0;
        const float centre = (o + 0.5F) / scale;
        if (coordinates_ != "half_pixel_symmetric") return centre - 0.5F;
        const double margin = axis.size != 0 ? size / 2 * (1 - out / (static_cast<double>(scale) * size)) : 0;
        return static_cast<float>(margin) + centre - 0.5F;
    }

    float rounded(float x, bool shrinks) const {
        if (nearest_ == "floor" || (nearest_ == "simple" && !shrinks)) return std::floor(x);
        if (nearest_ == "round_prefer_floor") return std::ceil(x - 0.5F);
        if (nearest_ == "round_prefer_ceil") return std::floor(x + 0.5F);
        return std::ceil(x);
    }

    // Returns 0 for a NaN, and clamps numbers beyond +-1e15.
    static std::int64_t whole(float x) { return x > -1e15F ? static_cast<std::int64_t>(std::min(x, 1e15F)) : 0; }

    void fill_element(float x, bool shrinks, const ResizeAxis& axis, std::int64_t* indices, double* weights) const {
        const std::int64_t last = std::max<std::int64_t>(axis.size - 1, 0);
        if (mode_ == "nearest") {
            *indices = std::clamp<std::int64_t>(whole(rounded(x, shrinks)), 0, last);
            return;
        }
        const std::int64_t first = whole(std::floor(x)) - axis.taps / 2;
        double total = 0;
        for (std::int64_t tap = 0; tap < axis.taps; ++tap) {
            const std::int64_t index = first + tap;
            const double distance = std::abs(static_cast<double>(x) - static_cast<double>(index));
            double weight = mode_ == "linear" ? std::max(1 - distance, 0.0) : cubic_weight(distance);
            if (excludes_outside_ && (index < 0 || index >= axis.size)) weight = 0;
            indices[tap] = std::clamp<std::int64_t>(index, 0, last);
            weights[tap] = weight;
            total += weight;
        }
        if (excludes_outside_ && total != 0)
            for (std::int64_t tap = 0; tap < axis.taps; ++tap) weights[tap] /= total;
    }

    // The cubic convolution kernel of Keys.
    double cubic_weight(double d) const {
        const double a = cubic_;
        if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
        return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
    }

    // Removes the taps whose weights are 0 for all outputs; the first tap stays if all taps are removed.
    static void drop_unused(ResizeAxis& axis, std::vector<std::int64_t>& indices, std::vector<double>& weights) {
        bool is_used[kMaxTaps] = {};
        for (std::size_t i = 0; i < weights.size(); ++i)
            if (weights[i] != 0) is_used[static_cast<std::int64_t>(i) % axis.taps] = true;
        if (std::none_of(is_used, is_used + axis.taps, [](bool used) { return used; })) is_used[0] = true;
        std::size_t kept = 0;
        for (std::size_t i = 0; i < weights.size(); ++i)
            if (is_used[static_cast<std::int64_t>(i) % axis.taps]) {
                indices[kept] = indices[i];
                weights[kept++] = weights[i];
            }
        axis.taps = std::count(is_used, is_used + axis.taps, true);
        indices.resize(kept);
        weights.resize(kept);
    }

    std::string mode_, coordinates_, nearest_;
    double cubic_;
    bool excludes_outside_;
    bool keeps_equal_;  // an axis that keeps its size is copied, whatever its scale
};

class Resizing : public Kernel {
public:
    explicit Resizing(const Spec& spec) : x_(spec.inputs.at(0)), y_(spec.outputs.at(0)) {
        if (x_.element != Element::f32 || y_.element != Element::f32) throw std::invalid_argument("resize: operands must be f32");
        if (x_.rank() < 3 || x_.rank() > 5 || y_.rank() != x_.rank())
            throw std::invalid_argument("resize: operands must have 1 to 3 spatial axes");
        if (x_.sizes[0] != y_.sizes[0] || x_.sizes[1] != y_.sizes[1])
            throw std::invalid_argument("resize: input and output must have equal batch and channels");
        const std::size_t spatial = x_.rank() - 2;
        for (std::size_t i = 0; i < 3; ++i) {
            ResizeAxis& axis = plan_.axes[i];
            if (i + spatial < 3) {
                indices_[i] = {0};
                weights_[i] = {1};
                continue;
            }
            const std::size_t own = i + spatial - 1;
            axis.size = x_.sizes[own];
            axis.out = y_.sizes[own];
            axis.x_stride = x_.strides[own];
            axis.y_stride = y_.strides[own];
        }
        if (spec.has("mode"))
            compute(spec, spatial);
        else
            copy(spec, spatial);
        for (int i = 0; i < 3; ++i)
            plan_.axes[i].is_copy = plan_.axes[i].taps == 1 &&
                                    std::all_of(weights_[i].begin(), weights_[i].end(), [](float weight) { return weight == 1; });
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
    // Computes the indices and weights for an interpolation mode and the scales of the spatial axes.
    void compute(const Spec& spec, std::size_t spatial) {
        const auto scales = spec.reals("scales");
        if (scales.size() != spatial) throw std::invalid_argument("resize: needs a scale for each spatial axis");
        const Taps taps(spec);
        for (std::size_t own = 0; own < spatial; ++own) {
            const std::size_t i = own + 3 - spatial;
            ResizeAxis& axis = plan_.axes[i];
            if (axis.size < 1 && axis.out > 0) throw std::invalid_argument("resize: an empty axis");
            taps.fill(axis, scales[own], indices_[i], weights_[i]);
        }
    }

    // Reads the indices and weights from the attributes, axis by axis.
    void copy(const Spec& spec, std::size_t spatial) {
        const auto taps = spec.integers("taps"), indices = spec.integers("places");
        const auto weights = spec.reals("weights");
        if (taps.size() != spatial || indices.size() != weights.size())
            throw std::invalid_argument("resize: needs taps for each spatial axis and a weight for each index");
        std::size_t at = 0;
        for (std::size_t own = 0; own < spatial; ++own) {
            const std::size_t i = own + 3 - spatial;
            ResizeAxis& axis = plan_.axes[i];
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
        }
    }

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
