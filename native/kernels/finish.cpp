#include "kernels/finish.h"

#include <limits>
#include <stdexcept>

namespace dovetail {

Finish::Finish(const Spec& spec)
    : low(-std::numeric_limits<float>::infinity()), high(std::numeric_limits<float>::infinity()) {
    const std::string activation = spec.text("activation", "none");
    if (activation == "relu")
        low = 0;
    else if (activation == "clip") {
        low = static_cast<float>(spec.real("low", low));
        high = static_cast<float>(spec.real("high", high));
    } else if (activation != "none")
        throw std::invalid_argument(spec.kernel + ": no activation " + activation);
    has_residual = spec.integer("has_residual") != 0;
    residual_last = has_residual && spec.integer("residual_after_activation") != 0;
    if (!has_residual) return;
    residual = spec.inputs.back();
    if (residual.sizes != spec.outputs.at(0).sizes) throw std::invalid_argument(spec.kernel + ": the residual has other sizes");
}

std::vector<std::int64_t> float_strides(const Spec& spec, const Operand& operand) {
    if (operand.element != Element::f32) throw std::invalid_argument(spec.kernel + ": an operand is not f32");
    std::vector<std::int64_t> strides;
    for (std::size_t i = 0; i < operand.rank(); ++i) {
        const std::int64_t stride = operand.sizes[i] > 1 ? operand.strides[i] : 0;
        if (stride % 4 != 0) throw std::invalid_argument(spec.kernel + ": a stride is no whole number of floats");
        strides.push_back(stride / 4);
    }
    return strides;
}

std::vector<float> floats_of(const Operand& operand) {
    if (!operand.is_constant() || operand.element != Element::f32 || operand.rank() != 1)
        throw std::invalid_argument("a bias or a scale must be a constant f32 vector");
    std::vector<float> values;
    for (std::int64_t i = 0; i < operand.sizes[0]; ++i)
        values.push_back(*reinterpret_cast<const float*>(operand.constant + i * operand.strides[0]));
    return values;
}

}  // namespace dovetail
