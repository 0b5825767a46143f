#include "kernels/epilogue.h"

#include <limits>
#include <stdexcept>
#include <utility>

namespace dovetail {

namespace {

Activation activation_of(const Spec& spec, const std::string& name) {
    static const std::pair<const char*, Activation> table[] = {
        {"none", Activation::bounds},
        {"relu", Activation::bounds},
        {"clip", Activation::bounds},
        {"leaky_relu", Activation::leaky_relu},
        {"elu", Activation::elu},
        {"sigmoid", Activation::sigmoid},
        {"silu", Activation::silu},
        {"tanh", Activation::tanh},
        {"hardswish", Activation::hardswish},
        {"gelu_erf", Activation::gelu_erf},
        {"gelu_tanh", Activation::gelu_tanh},
    };
    for (const auto& [candidate, activation] : table)
        if (name == candidate) return activation;
    throw std::invalid_argument(spec.kernel + ": there is no activation " + name);
}

}  // namespace

Epilogue::Epilogue(const Spec& spec)
    : low(-std::numeric_limits<float>::infinity()), high(std::numeric_limits<float>::infinity()) {
    const std::string name = spec.text("activation", "none");
    activation = activation_of(spec, name);
    if (name == "relu") low = 0;
    if (name == "clip") {
        low = static_cast<float>(spec.real("low", low));
        high = static_cast<float>(spec.real("high", high));
    }
    if (activation != Activation::bounds)
        alpha = static_cast<float>(spec.real(spec.kernel == "matmul" ? "activation_alpha" : "alpha", name == "elu" ? 1 : 0.01));
    output_scale = static_cast<float>(spec.real("output_scale", 1));
    output_shift = static_cast<float>(spec.real("output_shift"));
    has_residual = spec.integer("has_residual") != 0;
    residual_last = has_residual && spec.integer("residual_after_activation") != 0;
    if (!has_residual) return;
    residual = spec.inputs.back();
    if (residual.sizes != spec.outputs.at(0).sizes)
        throw std::invalid_argument(spec.kernel + ": the residual must have the sizes of the output");
}

void Epilogue::apply_to(GemmTile& tile) const {
    tile.has_epilogue = true;
    tile.residual_last = residual_last;
    tile.low = low;
    tile.high = high;
    tile.activation = activation;
    tile.alpha = alpha;
    tile.is_rescaled = output_scale != 1 || output_shift != 0;
    tile.output_scale = output_scale;
    tile.output_shift = output_shift;
}

Sizes float_strides(const Spec& spec, const Operand& operand) {
    if (operand.element != Element::f32) throw std::invalid_argument(spec.kernel + ": operands must be f32");
    Sizes strides;
    for (std::size_t i = 0; i < operand.rank(); ++i) {
        const std::int64_t stride = operand.sizes[i] > 1 ? operand.strides[i] : 0;
        if (stride % 4 != 0) throw std::invalid_argument(spec.kernel + ": strides must be multiples of 4 bytes");
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
