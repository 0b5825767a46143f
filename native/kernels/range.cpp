// Range of integers: start + i * step.
#include <stdexcept>

#include "kernels/kernels.h"

namespace dovetail {
namespace {

template <typename T>
class Range : public Kernel {
public:
    explicit Range(const Spec& spec) : y_(spec.outputs[0]), start_(spec.integer("start")), step_(spec.integer("step")) {}

    std::string name() const override { return "range"; }

    void run(const Run& run) const override {
        std::byte* y = run.at(y_);
        for (std::int64_t i = 0; i < y_.sizes[0]; ++i, y += y_.strides[0])
            *reinterpret_cast<T*>(y) = static_cast<T>(start_ + i * step_);
    }

private:
    Operand y_;
    std::int64_t start_;
    std::int64_t step_;
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
        default: throw std::invalid_argument("range: element type must be i32 or i64");
    }
}

}  // namespace dovetail
