#include "kernels/conv_geometry.h"

#include <stdexcept>

namespace dovetail {
namespace {

Three spatial(const std::vector<std::int64_t>& values, std::int64_t otherwise) {
    Three three{otherwise, otherwise, otherwise};
    for (std::size_t i = 0; i < values.size(); ++i) three[3 - values.size() + i] = values[i];
    return three;
}

Three sizes_behind(const std::vector<std::int64_t>& sizes) { return spatial({sizes.begin() + 2, sizes.end()}, 1); }

Layout layout_of(const Spec& spec, const Operand& operand) {
    const auto strides = float_strides(spec, operand);
    return {strides[0], strides[1], spatial({strides.begin() + 2, strides.end()}, 0)};
}

Three attribute(const Spec& spec, const char* name, std::size_t rank, std::int64_t otherwise) {
    const auto values = spec.integers(name);
    if (!values.empty() && values.size() != rank) throw std::invalid_argument(spec.kernel + ": " + name + " has another rank");
    return spatial(values, otherwise);
}

// Whether an outer axis of some size and stride goes on where the innermost one ends.
bool follows(const Layout& layout, std::int64_t inner, std::int64_t outer, std::int64_t stride) {
    return outer == 1 || inner == 1 || stride == layout.at[2] * inner;
}

// Lets the innermost axis take the outer one's step where it has none of its own.
void take_step(Layout& layout, std::int64_t inner, std::int64_t outer, std::int64_t stride) {
    if (inner == 1 && outer != 1) layout.at[2] = stride;
}

}  // namespace

void check_windows(const std::string& kernel, const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides,
                   const std::vector<std::int64_t>& dilations, const std::vector<std::int64_t>& pads) {
    constexpr std::int64_t kMost = std::int64_t{1} << 31;
    for (const auto* numbers : {&sizes, &strides, &dilations})
        for (const auto number : *numbers)
            if (number < 1 || number > kMost) throw std::invalid_argument(kernel + ": a window, stride or dilation out of range");
    for (const auto pad : pads)
        if (pad < -kMost || pad > kMost) throw std::invalid_argument(kernel + ": padding out of range");
}

Geometry::Geometry(const Spec& spec, const Finish& finish) {
    const Operand &to = spec.outputs.at(0), &from = spec.inputs.at(0), &w = spec.inputs.at(1);
    const std::size_t rank = from.rank() - 2;
    if (from.rank() < 3 || from.rank() > 5 || to.rank() != from.rank() || w.rank() != from.rank())
        throw std::invalid_argument(spec.kernel + ": one to three spatial axes are served");
    images = from.sizes[0];
    groups = spec.integer("groups", 1);
    if (groups < 1) throw std::invalid_argument(spec.kernel + ": there are no groups");
    channels = from.sizes[1] / groups;
    outputs = to.sizes[1] / groups;
    in = sizes_behind(from.sizes);
    out = sizes_behind(to.sizes);
    kernel = sizes_behind(w.sizes);
    stride = attribute(spec, "strides", rank, 1);
    dilation = attribute(spec, "dilations", rank, 1);
    before = attribute(spec, "pads_begin", rank, 0);
    check_windows(spec.kernel, {w.sizes.begin() + 2, w.sizes.end()}, {stride.begin(), stride.end()},
                  {dilation.begin(), dilation.end()}, {before.begin(), before.end()});
    if (channels * groups != from.sizes[1] || outputs * groups != to.sizes[1] || to.sizes[0] != images)
        throw std::invalid_argument(spec.kernel + ": the operands disagree");
    x = layout_of(spec, from);
    y = layout_of(spec, to);
    if (finish.has_residual) residual = layout_of(spec, finish.residual);
    join_lines();
}

// A pointwise convolution knows no rows: where pixels lie evenly in all operands they make one long line.
void Geometry::join_lines() {
    if (!is_pointwise() || stride != Three{1, 1, 1}) return;
    for (int axis = 1; axis >= -1; --axis) {
        const std::int64_t inner = out[2], outer = axis < 0 ? images : out[static_cast<std::size_t>(axis)];
        const auto step = [axis](const Layout& layout) {
            return axis < 0 ? layout.image : layout.at[static_cast<std::size_t>(axis)];
        };
        for (const Layout* layout : {&x, &y, &residual})
            if (!follows(*layout, inner, outer, step(*layout))) return;
        for (Layout* layout : {&x, &y, &residual}) take_step(*layout, inner, outer, step(*layout));
        in[2] = out[2] = inner * outer;
        (axis < 0 ? images : out[static_cast<std::size_t>(axis)]) = 1;
        if (axis >= 0) in[static_cast<std::size_t>(axis)] = 1;
    }
}

}  // namespace dovetail
