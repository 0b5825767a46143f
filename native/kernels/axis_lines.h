// The lines of elements along one axis, of operands with equal sizes on all other axes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <vector>

#include "kernel.h"

namespace dovetail {

// A line's index counts lines in row-major order over all axes but `axis`.
class AxisLines {
public:
    // Throws std::invalid_argument if the operands' other sizes differ.
    AxisLines(std::size_t axis, std::initializer_list<const Operand*> operands) {
        const Operand& first = **operands.begin();
        if (axis >= first.rank()) throw std::invalid_argument("axis is out of range");
        for (std::size_t i = 0; i < first.rank(); ++i)
            if (i != axis) {
                sizes_.push_back(first.sizes[i]);
                count_ *= first.sizes[i];
            }
        for (const Operand* operand : operands) {
            if (operand->rank() != first.rank()) throw std::invalid_argument("operands must have equal ranks");
            for (std::size_t i = 0; i < first.rank(); ++i) {
                if (i == axis) continue;
                if (operand->sizes[i] != first.sizes[i])
                    throw std::invalid_argument("operands must have equal sizes on all other axes");
                strides_.push_back(operand->strides[i]);
            }
        }
    }

    std::int64_t count() const { return count_; }

    // The byte offset of a line's first element, in the operand with this index in the list.
    std::int64_t start(std::size_t operand, std::int64_t line) const {
        const std::int64_t* strides = strides_.data() + operand * sizes_.size();
        std::int64_t offset = 0;
        for (std::size_t i = sizes_.size(); i-- > 0; line /= sizes_[i]) offset += line % sizes_[i] * strides[i];
        return offset;
    }

    // Returns the number of lines, from `line` on, that are step() bytes apart: the lines that are adjacent along the last of the
    // other axes.
    std::int64_t adjacent(std::int64_t line) const { return sizes_.empty() ? 1 : sizes_.back() - line % sizes_.back(); }
    std::int64_t step(std::size_t operand) const { return sizes_.empty() ? 0 : strides_[(operand + 1) * sizes_.size() - 1]; }

private:
    std::int64_t count_ = 1;
    std::vector<std::int64_t> sizes_;
    std::vector<std::int64_t> strides_;  // strides along the other axes, operand by operand
};

}  // namespace dovetail
