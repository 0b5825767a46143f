// The lines of elements along one axis of operands that have the same sizes elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <vector>

#include "kernel.h"

namespace dovetail {

// Lines are numbered row-major over all axes but `axis`.
class Lines {
public:
    // Throws std::invalid_argument where the operands' other sizes differ.
    Lines(std::size_t axis, std::initializer_list<const Operand*> operands) {
        const Operand& first = **operands.begin();
        if (axis >= first.rank()) throw std::invalid_argument("there is no such axis");
        for (std::size_t i = 0; i < first.rank(); ++i)
            if (i != axis) {
                sizes_.push_back(first.sizes[i]);
                count_ *= first.sizes[i];
            }
        for (const Operand* operand : operands) {
            if (operand->rank() != first.rank()) throw std::invalid_argument("ranks differ");
            for (std::size_t i = 0; i < first.rank(); ++i) {
                if (i == axis) continue;
                if (operand->sizes[i] != first.sizes[i]) throw std::invalid_argument("sizes off the axis differ");
                strides_.push_back(operand->strides[i]);
            }
        }
    }

    std::int64_t count() const { return count_; }

    // How many bytes into an operand (by its place in the list) a line begins.
    std::int64_t start(std::size_t operand, std::int64_t line) const {
        const std::int64_t* strides = strides_.data() + operand * sizes_.size();
        std::int64_t offset = 0;
        for (std::size_t i = sizes_.size(); i-- > 0; line /= sizes_[i]) offset += line % sizes_[i] * strides[i];
        return offset;
    }

    // How many lines from this one on lie `step` bytes apart each: along the last of the other axes.
    std::int64_t beside(std::int64_t line) const { return sizes_.empty() ? 1 : sizes_.back() - line % sizes_.back(); }
    std::int64_t step(std::size_t operand) const { return sizes_.empty() ? 0 : strides_[(operand + 1) * sizes_.size() - 1]; }

private:
    std::int64_t count_ = 1;
    std::vector<std::int64_t> sizes_;
    std::vector<std::int64_t> strides_;  // of one operand after the other
};

}  // namespace dovetail
