// Range: y[i] = start + i * step. The numbers start, step and i are rounded to a float element type before the arithmetic;
// integers wrap.
#include <stdexcept>
#include <type_traits>

#include "kernels/kernels.h"

namespace dovetail {
namespace {

template <typename T>
class Range : public Kernel {
public:
    explicit Range(const Spec& spec)
        : y_(spec.outputs[0]), start_(static_cast<T>(spec.integer("start"))), step_(static_cast<T>(spec.integer("step"))) {}

    std::string name() const override { return "range"; }

    void run(const Run& run) const override {
        std::byte* y = run.at(y_);
        for (std::int64_t i = 0; i < y_.sizes[0]; ++i, y += y_.strides[0]) *reinterpret_cast<T*>(y) = element(i);
    }

private:
    T element(std::int64_t i) const {
        if constexpr (std::is_floating_point_v<T>)
            return start_ + static_cast<T>(i) * step_;
        else  // modulo the range of the type
            return static_cast<T>(static_cast<std::uint64_t>(start_) +
                                  static_cast<std::uint64_t>(i) * static_cast<std::uint64_t>(step_));
    }

    Operand y_;
    T start_;
    T step_;
};

void require(bool holds, const Spec& spec, const char* what) {
    if (!holds) throw std::invalid_argument(spec.kernel + ": " + what);
}

}  // namespace

std::unique_ptr<Kernel> make_range(const Spec& spec, WeightCache&) {
    require(spec.inputs.empty() && spec.outputs.size() == 1 && spec.outputs[0].rank() == 1, spec,
            "needs 0 inputs and 1 output of rank 1");
    switch (spec.outputs[0].element) {
        case Element::i32: return std::make_unique<Range<std::int32_t>>(spec);
        case Element::i64: return std::make_unique<Range<std::int64_t>>(spec);
        case Element::f32: return std::make_unique<Range<float>>(spec);
        case Element::f64: return std::make_unique<Range<double>>(spec);
        default: throw std::invalid_argument("range: element type must be i32, i64, f32 or f64");
    }
}

}  // namespace dovetail
