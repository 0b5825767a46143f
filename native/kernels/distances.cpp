// SquaredDistances: the squared distance between each row of x and each of several constant vectors.
#include "kernels/distances.h"

#include <stdexcept>

#include "int_math.h"
#include "kernels/kernels.h"

namespace dovetail {
namespace {

constexpr std::int64_t kDifferencesPerTask = 64 * 1024;

class SquaredDistances : public Kernel {
public:
    explicit SquaredDistances(const Spec& spec)
        : x_(spec.inputs[0]), y_(spec.outputs[0]), count_(spec.inputs[1].sizes[0]), size_(x_.sizes[1]) {
        const Operand& v = spec.inputs[1];
        blocks_ = ceil_div(count_, kDistanceColumns);
        packed_.resize(static_cast<std::size_t>(blocks_ * size_ * kDistanceColumns));
        for (std::int64_t row = 0; row < count_; ++row)
            for (std::int64_t i = 0; i < size_; ++i) {
                const std::int64_t at = (row / kDistanceColumns * size_ + i) * kDistanceColumns + row % kDistanceColumns;
                packed_[static_cast<std::size_t>(at)] =
                    *reinterpret_cast<const float*>(v.constant + row * v.strides[0] + i * v.strides[1]);
            }
    }

    std::string name() const override { return std::string("squared_distances ") + name_of(isa()); }

    void run(const Run& run) const override {
        const std::int64_t rows = y_.sizes[0];
        const std::int64_t per_task = max(1, kDifferencesPerTask / max(1, count_ * size_));
        run.pool->parallel_for(ceil_div(rows, per_task), [&](std::int64_t task, int) {
            for (std::int64_t row = task * per_task; row < min(rows, (task + 1) * per_task); ++row) write_row(run, row);
        });
    }

private:
    void write_row(const Run& run, std::int64_t row) const {
        const auto* x = reinterpret_cast<const float*>(run.at(x_) + row * x_.strides[0]);
        std::byte* y = run.at(y_) + row * y_.strides[0];
        for (std::int64_t block = 0; block < blocks_; ++block) {
            double totals[kDistanceColumns];
            function_(x, x_.strides[1] / static_cast<std::int64_t>(sizeof(float)),
                      packed_.data() + block * size_ * kDistanceColumns, size_, totals);
            for (std::int64_t i = 0; i < min(kDistanceColumns, count_ - block * kDistanceColumns); ++i)
                *reinterpret_cast<float*>(y + (block * kDistanceColumns + i) * y_.strides[1]) = static_cast<float>(totals[i]);
        }
    }

    Operand x_, y_;
    std::int64_t count_, size_;
    std::int64_t blocks_ = 0;
    std::vector<float> packed_;  // [blocks][size][kDistanceColumns]
    DistanceFunction function_ = DOVETAIL_SELECT_ISA(squared_distances)();
};

void require(const Spec& spec, bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(spec.kernel + ": " + what);
}

}  // namespace

std::unique_ptr<Kernel> make_squared_distances(const Spec& spec, WeightCache&) {
    require(spec, spec.inputs.size() == 2 && spec.outputs.size() == 1, "needs 2 inputs and 1 output");
    const Operand &x = spec.inputs[0], &v = spec.inputs[1], &y = spec.outputs[0];
    require(spec, x.rank() == 2 && v.rank() == 2 && y.rank() == 2, "operands must be matrices");
    require(spec, x.element == Element::f32 && v.element == Element::f32 && y.element == Element::f32, "operands must be f32");
    require(spec, v.is_constant(), "the vectors must be constants");
    require(spec, x.sizes[1] == v.sizes[1] && y.sizes[0] == x.sizes[0] && y.sizes[1] == v.sizes[0], "the sizes do not fit");
    require(spec, x.strides[1] % static_cast<std::int64_t>(sizeof(float)) == 0, "elements must be aligned");
    return std::make_unique<SquaredDistances>(spec);
}

}  // namespace dovetail
