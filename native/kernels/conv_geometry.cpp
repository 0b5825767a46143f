#include "kernels/conv_geometry.h"

#include <stdexcept>

namespace dovetail {
namespace {

Spatial to_spatial(const std::vector<std::int64_t>& values, std::int64_t fallback) {
    Spatial result{fallback, fallback, fallback};
    for (std::size_t i = 0; i < values.size(); ++i) result[3 - values.size() + i] = values[i];
    return result;
}

Spatial spatial_sizes(const std::vector<std::int64_t>& sizes) { return to_spatial({sizes.begin() + 2, sizes.end()}, 1); }

TensorStrides strides_of(const Spec& spec, const Operand& operand) {
    const auto strides = float_strides(spec, operand);
    return {strides[0], strides[1], to_spatial({strides.begin() + 2, strides.end()}, 0)};
}

Spatial attribute(const Spec& spec, const char* name, std::size_t rank, std::int64_t fallback) {
    const auto values = spec.integers(name);
    if (!values.empty() && values.size() != rank)
        throw std::invalid_argument(spec.kernel + ": " + name + " must have one value for each spatial axis");
    return to_spatial(values, fallback);
}

// True if an outer axis with this size and stride continues where the innermost axis ends.
bool continues(const TensorStrides& layout, std::int64_t inner, std::int64_t outer, std::int64_t stride) {
    return outer == 1 || inner == 1 || stride == layout.spatial[2] * inner;
}

// If the innermost axis has size 1, replaces its stride by the stride of the outer axis.
void take_outer_stride(TensorStrides& layout, std::int64_t inner, std::int64_t outer, std::int64_t stride) {
    if (inner == 1 && outer != 1) layout.spatial[2] = stride;
}

}  // namespace

void check_windows(const std::string& kernel, const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides,
                   const std::vector<std::int64_t>& dilations, const std::vector<std::int64_t>& pads) {
    constexpr std::int64_t kMax = std::int64_t{1} << 31;
    for (const auto* numbers : {&sizes, &strides, &dilations})
        for (const auto number : *numbers)
            if (number < 1 || number > kMax) throw std::invalid_argument(kernel + ": a window, stride or dilation out of range");
    for (const auto pad : pads)
        if (pad < -kMax || pad > kMax) throw std::invalid_argument(kernel + ": padding out of range");
}

Spec without_unit_axes(Spec spec) {
    const std::size_t rank = spec.inputs.at(0).rank();
    const auto is_full = [rank](const Operand& operand) { return operand.rank() == rank; };
    if (!is_full(spec.inputs.at(1)) || !is_full(spec.outputs.at(0))) return spec;
    for (std::size_t axis = rank; axis-- > 2;) {
        if (spec.inputs[0].rank() == 3) break;
        const auto is_unit = [axis](const Operand& operand) { return operand.sizes[axis] == 1; };
        const auto pads = spec.integers("pads_begin");
        if (!is_unit(spec.inputs[0]) || !is_unit(spec.inputs[1]) || !is_unit(spec.outputs[0]) ||
            (axis - 2 < pads.size() && pads[axis - 2] != 0))
            continue;
        const std::size_t full = spec.inputs[0].rank();
        const auto drop = [axis](auto& values, std::size_t index) {
            if (axis - index < values.size()) values.erase(values.begin() + static_cast<std::ptrdiff_t>(axis - index));
        };
        for (auto* operands : {&spec.inputs, &spec.outputs})
            for (Operand& operand : *operands)
                if (operand.rank() == full) {
                    drop(operand.sizes, 0);
                    drop(operand.strides, 0);
                }
        for (const char* name : {"strides", "dilations", "pads_begin", "pads_end"}) {
            const auto attribute = spec.attributes.find(name);
            if (attribute == spec.attributes.end()) continue;
            if (auto* values = std::get_if<std::vector<std::int64_t>>(&attribute->second)) drop(*values, 2);
        }
    }
    return spec;
}

ConvGeometry::ConvGeometry(const Spec& spec, const Epilogue& epilogue) {
    const Operand &to = spec.outputs.at(0), &from = spec.inputs.at(0), &w = spec.inputs.at(1);
    const std::size_t rank = from.rank() - 2;
    if (from.rank() < 3 || from.rank() > 5 || to.rank() != from.rank() || w.rank() != from.rank())
        throw std::invalid_argument(spec.kernel + ": operands must have 1 to 3 spatial axes");
    images = from.sizes[0];
    groups = spec.integer("groups", 1);
    if (groups < 1) throw std::invalid_argument(spec.kernel + ": groups must be at least 1");
    channels = from.sizes[1] / groups;
    outputs = to.sizes[1] / groups;
    in = spatial_sizes(from.sizes);
    out = spatial_sizes(to.sizes);
    kernel = spatial_sizes(w.sizes);
    stride = attribute(spec, "strides", rank, 1);
    dilation = attribute(spec, "dilations", rank, 1);
    pad_begin = attribute(spec, "pads_begin", rank, 0);
    check_windows(spec.kernel, {w.sizes.begin() + 2, w.sizes.end()}, {stride.begin(), stride.end()},
                  {dilation.begin(), dilation.end()}, {pad_begin.begin(), pad_begin.end()});
    if (channels * groups != from.sizes[1] || outputs * groups != to.sizes[1] || to.sizes[0] != images)
        throw std::invalid_argument(spec.kernel + ": the shapes of the operands disagree");
    x = strides_of(spec, from);
    y = strides_of(spec, to);
    if (epilogue.has_residual) residual = strides_of(spec, epilogue.residual);
    join_lines();
}

// A pointwise convolution needs no row boundaries: axes whose pixels are evenly spaced in all operands are merged into one axis.
void ConvGeometry::join_lines() {
    if (!is_pointwise() || stride != Spatial{1, 1, 1}) return;
    for (int axis = 1; axis >= -1; --axis) {
        const std::int64_t inner = out[2], outer = axis < 0 ? images : out[static_cast<std::size_t>(axis)];
        const auto step = [axis](const TensorStrides& layout) {
            return axis < 0 ? layout.image : layout.spatial[static_cast<std::size_t>(axis)];
        };
        for (const TensorStrides* layout : {&x, &y, &residual})
            if (!continues(*layout, inner, outer, step(*layout))) return;
        for (TensorStrides* layout : {&x, &y, &residual}) take_outer_stride(*layout, inner, outer, step(*layout));
        in[2] = out[2] = inner * outer;
        (axis < 0 ? images : out[static_cast<std::size_t>(axis)]) = 1;
        if (axis >= 0) in[static_cast<std::size_t>(axis)] = 1;
    }
}

}  // namespace dovetail
