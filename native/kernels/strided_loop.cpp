#include "kernels/strided_loop.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace dovetail {
namespace {

using Operands = std::vector<const Operand*>;

int contiguity(std::int64_t stride, std::int64_t itemsize) { return stride == itemsize ? 2 : stride == 0 ? 1 : 0; }

// Returns the score of an axis as the innermost axis; a larger score is better.
int fitness(const CommonAxis& axis, const Operands& inputs, const Operands& outputs) {
    int total = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) total += contiguity(axis.strides[i], inputs[i]->itemsize);
    for (std::size_t i = 0; i < outputs.size(); ++i)
        total += 2 * contiguity(axis.strides[inputs.size() + i], outputs[i]->itemsize);
    return total;
}

std::int64_t reach(const CommonAxis& axis) {
    std::int64_t total = 0;
    for (const auto stride : axis.strides) total += stride < 0 ? -stride : stride;
    return total;
}

bool can_merge(const CommonAxis& outer, const CommonAxis& inner) {
    for (std::size_t i = 0; i < inner.strides.size(); ++i)
        if (outer.strides[i] != inner.strides[i] * inner.size) return false;
    return true;
}

std::vector<CommonAxis> merged(const std::vector<CommonAxis>& axes) {
    std::vector<CommonAxis> result;
    for (const CommonAxis& axis : axes) {
        if (!result.empty() && can_merge(result.back(), axis))
            result.back() = {result.back().size * axis.size, axis.strides};
        else
            result.push_back(axis);
    }
    return result;
}

std::vector<CommonAxis> axes_of(const Operands& operands) {
    std::vector<CommonAxis> axes;
    for (std::size_t axis = 0; axis < operands.front()->rank(); ++axis) {
        if (operands.front()->sizes[axis] == 1) continue;
        axes.push_back({operands.front()->sizes[axis], {}});
        for (const Operand* operand : operands) axes.back().strides.push_back(operand->strides[axis]);
    }
    if (axes.empty()) axes.push_back({1, std::vector<std::int64_t>(operands.size(), 0)});
    return axes;
}

template <std::size_t Bytes>
void copy_elements(StridedRows to, StridedRows from, std::int64_t rows, std::int64_t columns) {
    for (std::int64_t row = 0; row < rows; ++row) {
        std::byte* into = to.base + row * to.row_step;
        const std::byte* out_of = from.base + row * from.row_step;
        if (to.column_step == static_cast<std::int64_t>(Bytes)) {
            for (std::int64_t i = 0; i < columns; ++i)
                std::memcpy(into + i * static_cast<std::int64_t>(Bytes), out_of + i * from.column_step, Bytes);
        } else {
            for (std::int64_t i = 0; i < columns; ++i)
                std::memcpy(into + i * to.column_step, out_of + i * from.column_step, Bytes);
        }
    }
}

}  // namespace

std::vector<CommonAxis> common_axes(const Operands& inputs, const Operands& outputs) {
    Operands all = inputs;
    all.insert(all.end(), outputs.begin(), outputs.end());
    for (const Operand* operand : all)
        if (operand->sizes != all.front()->sizes) throw std::invalid_argument("operands must have equal sizes");
    auto axes = axes_of(all);
    std::stable_sort(axes.begin(), axes.end(), [](const CommonAxis& a, const CommonAxis& b) { return reach(a) > reach(b); });
    // Axes are merged before the choice of the innermost axis, so that they are as long as possible, and again after it, since
    // the choice moves one axis.
    axes = merged(axes);
    const auto best = std::max_element(axes.begin(), axes.end(), [&](const CommonAxis& a, const CommonAxis& b) {
        const int left = fitness(a, inputs, outputs);
        const int right = fitness(b, inputs, outputs);
        return left != right ? left < right : a.size < b.size;
    });
    std::rotate(best, best + 1, axes.end());
    return merged(axes);
}

void copy_strided(StridedRows to, StridedRows from, std::int64_t rows, std::int64_t columns, std::int64_t itemsize) {
    if (to.column_step == itemsize && from.column_step == itemsize) {
        for (std::int64_t row = 0; row < rows; ++row)
            std::memcpy(to.base + row * to.row_step, from.base + row * from.row_step,
                        static_cast<std::size_t>(columns * itemsize));
        return;
    }
    switch (itemsize) {
        case 1: return copy_elements<1>(to, from, rows, columns);
        case 2: return copy_elements<2>(to, from, rows, columns);
        case 4: return copy_elements<4>(to, from, rows, columns);
        default: return copy_elements<8>(to, from, rows, columns);
    }
}

}  // namespace dovetail
