// Trilu: one triangle of the matrices in the last two axes; the other elements are 0.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "int_math.h"
#include "kernels/axis_lines.h"
#include "kernels/kernels.h"
#include "kernels/strided_loop.h"

namespace dovetail {
namespace {

constexpr std::int64_t kElementsPerTask = 64 * 1024;

class Trilu : public Kernel {
public:
    explicit Trilu(const Spec& spec)
        : x_(spec.inputs[0]), y_(spec.outputs[0]), rows_(x_.rank() - 1, {&x_, &y_}), columns_(x_.sizes.back()),
          height_(x_.sizes[x_.rank() - 2]), k_(spec.integer("k")), is_upper_(spec.integer("upper", 1) != 0) {}

    std::string name() const override { return "trilu"; }

    void run(const Run& run) const override {
        const std::int64_t per_task = max(1, kElementsPerTask / max(1, columns_));
        run.pool->parallel_for(ceil_div(rows_.count(), per_task), [&](std::int64_t task, int) {
            const std::int64_t end = min(rows_.count(), (task + 1) * per_task);
            for (std::int64_t row = task * per_task; row < end; ++row) copy_row(run, row);
        });
    }

private:
    void copy_row(const Run& run, std::int64_t row) const {
        const std::byte* x = run.at(x_) + rows_.start(0, row);
        std::byte* y = run.at(y_) + rows_.start(1, row);
        // The first column of the upper triangle of a row: on the diagonal, or next to it if the diagonal is excluded.
        const std::int64_t first = std::clamp<std::int64_t>(row % height_ + k_ + (is_upper_ ? 0 : 1), 0, columns_);
        is_upper_ ? clear(y, 0, first) : clear(y, first, columns_);
        is_upper_ ? copy(x, y, first, columns_) : copy(x, y, 0, first);
    }

    void clear(std::byte* y, std::int64_t first, std::int64_t end) const {
        static constexpr std::byte kZero[8]{};
        copy_strided({y + first * y_.strides.back(), 0, y_.strides.back()}, {const_cast<std::byte*>(kZero), 0, 0}, 1, end - first,
                     y_.itemsize);
    }

    void copy(const std::byte* x, std::byte* y, std::int64_t first, std::int64_t end) const {
        if (x == y && x_.strides.back() == y_.strides.back()) return;
        copy_strided({y + first * y_.strides.back(), 0, y_.strides.back()},
                     {const_cast<std::byte*>(x) + first * x_.strides.back(), 0, x_.strides.back()}, 1, end - first, y_.itemsize);
    }

    Operand x_, y_;
    AxisLines rows_;
    std::int64_t columns_, height_, k_;
    bool is_upper_;
};

}  // namespace

std::unique_ptr<Kernel> make_trilu(const Spec& spec, WeightCache&) {
    if (spec.inputs.size() != 1 || spec.outputs.size() != 1) throw std::invalid_argument("trilu: needs 1 input and 1 output");
    const Operand &x = spec.inputs[0], &y = spec.outputs[0];
    const bool is_copyable = y.itemsize == 1 || y.itemsize == 2 || y.itemsize == 4 || y.itemsize == 8;
    if (x.rank() < 2 || x.sizes != y.sizes || x.itemsize != y.itemsize || !is_copyable)
        throw std::invalid_argument("trilu: input and output must be matrices of equal shape and element type");
    const std::int64_t k = spec.integer("k");
    if (k < -x.sizes[x.rank() - 2] || k > x.sizes.back()) throw std::invalid_argument("trilu: k is beyond the matrix");
    return std::make_unique<Trilu>(spec);
}

}  // namespace dovetail
