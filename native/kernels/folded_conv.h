// Convolution of few output channels: adjacent pixels of a row are computed as channels of one pixel, so that they fill a vector.
#pragma once

#include <memory>
#include <vector>

#include "kernels/conv.h"

namespace dovetail {

// With outputs o and stride s, pixels m * i .. m * i + m - 1 of a row become m * o channels of pixel i of a convolution with
// stride m * s. Its windows are (m - 1) * s longer; the weights of the elements that a pixel does not read are 0. An infinity or
// NaN times 0 would reach other outputs: for an input that has one, direct convolution runs.
class FoldedConv : public Kernel {
public:
    // Returns null where direct convolution is as fast, or where the operands cannot be folded.
    static std::unique_ptr<Kernel> create(const Spec& spec, WeightCache& cache);

    void run(const Run& run) const override;
    bool flushes_subnormals() const override { return true; }
    std::size_t scratch_bytes() const override;
    std::string name() const override { return "conv folded " + direct_.name().substr(5); }

private:
    FoldedConv(const Spec& spec, WeightCache& cache, std::int64_t pixels);
    bool has_finite_input(const Run& run) const;

    Conv direct_;
    std::unique_ptr<Conv> folded_, rest_;  // rest: the last pixels of each row, which fill no folded pixel
    Operand x_;
    ConvGeometry geometry_;
};

}  // namespace dovetail
