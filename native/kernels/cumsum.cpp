// CumSum and CumProd along one axis; the elements of each line are combined in order.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "int_math.h"
#include "kernels/axis_lines.h"
#include "kernels/kernels.h"

namespace dovetail {
namespace {

constexpr std::int64_t kColumns = 64;  // lines summed together
constexpr std::int64_t kElementsPerTask = 16 * 1024;

// Integers wrap around.
template <bool kIsProduct, typename T>
T combine(T x, T y) {
    using Wrapping = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;
    const auto a = static_cast<Wrapping>(x), b = static_cast<Wrapping>(y);
    return static_cast<T>(kIsProduct ? a * b : a + b);
}

template <typename T, bool kIsProduct>
class CumSum : public Kernel {
public:
    CumSum(const Spec& spec, std::size_t axis)
        : x_(spec.inputs[0]), y_(spec.outputs[0]), lines_(axis, {&x_, &y_}), size_(x_.sizes[axis]), x_stride_(x_.strides[axis]),
          y_stride_(y_.strides[axis]), is_exclusive_(spec.integer("exclusive") != 0) {
        if (spec.integer("reverse") == 0) return;
        first_x_ = (size_ - 1) * x_stride_;
        first_y_ = (size_ - 1) * y_stride_;
        x_stride_ = -x_stride_;
        y_stride_ = -y_stride_;
    }

    std::string name() const override { return std::string(kIsProduct ? "cumprod " : "cumsum ") + name_of(x_.element); }

    void run(const Run& run) const override {
        if (y_.count() == 0) return;
        const std::int64_t lines_per_task = std::max<std::int64_t>(1, kElementsPerTask / size_);
        const bool in_columns = x_stride_ != sizeof(T) && lines_.step(0) == sizeof(T) && lines_.step(1) == sizeof(T);
        run.pool->parallel_for(ceil_div(lines_.count(), lines_per_task), [&](std::int64_t task, int) {
            const std::int64_t end = std::min(lines_.count(), (task + 1) * lines_per_task);
            for (std::int64_t line = task * lines_per_task; line < end;) {
                const std::int64_t width = in_columns ? std::min({kColumns, lines_.adjacent(line), end - line}) : 1;
                const std::byte* x = run.at(x_) + lines_.start(0, line) + first_x_;
                std::byte* y = run.at(y_) + lines_.start(1, line) + first_y_;
                width == 1 ? sum_lines<1>(x, y, 1) : sum_lines<kColumns>(x, y, width);
                line += width;
            }
        });
    }

private:
    // Accumulates `width` adjacent lines together: writes the running sum or product of each line.
    template <std::int64_t kMaxLines>
    void sum_lines(const std::byte* x, std::byte* y, std::int64_t width) const {
        if (kMaxLines == 1) width = 1;
        T totals[kMaxLines];
        std::fill(totals, totals + width, T{kIsProduct});
        if (!is_exclusive_) std::memcpy(totals, x, static_cast<std::size_t>(width) * sizeof(T));
        for (std::int64_t i = 0;; y += y_stride_) {
            std::memcpy(y, totals, static_cast<std::size_t>(width) * sizeof(T));
            if (++i == size_) return;
            if (!is_exclusive_) x += x_stride_;
            const T* row = reinterpret_cast<const T*>(x);
            for (std::int64_t c = 0; c < width; ++c) totals[c] = combine<kIsProduct>(totals[c], row[c]);
            if (is_exclusive_) x += x_stride_;
        }
    }

    Operand x_, y_;
    AxisLines lines_;
    std::int64_t size_;
    std::int64_t x_stride_;
    std::int64_t y_stride_;
    std::int64_t first_x_ = 0;
    std::int64_t first_y_ = 0;
    bool is_exclusive_;
};

void require(bool holds, const Spec& spec, const char* what) {
    if (!holds) throw std::invalid_argument(spec.kernel + ": " + what);
}

template <typename T>
std::unique_ptr<Kernel> make(const Spec& spec, std::size_t axis) {
    if (spec.integer("product") != 0) return std::make_unique<CumSum<T, true>>(spec, axis);
    return std::make_unique<CumSum<T, false>>(spec, axis);
}

}  // namespace

std::unique_ptr<Kernel> make_cumsum(const Spec& spec, WeightCache&) {
    require(spec.inputs.size() == 1 && spec.outputs.size() == 1, spec, "needs 1 input and 1 output");
    const Operand &x = spec.inputs[0], &y = spec.outputs[0];
    const auto axis = static_cast<std::size_t>(spec.integer("axis", -1));
    require(axis < x.rank() && x.sizes == y.sizes && x.element == y.element, spec,
            "axis must be in range, and input and output equal in shape and type");
    switch (x.element) {
        case Element::f32: return make<float>(spec, axis);
        case Element::f64: return make<double>(spec, axis);
        case Element::i32: return make<std::int32_t>(spec, axis);
        case Element::i64: return make<std::int64_t>(spec, axis);
        default: throw std::invalid_argument("cumsum: element type must be f32, f64, i32 or i64");
    }
}

}  // namespace dovetail
