// What is done to the sums of a convolution or a matrix product before they are written.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/gemm_microkernel.h"
#include "kernel.h"

namespace dovetail {

struct Finish {
    float low;  // bounds; NaN passes
    float high;
    Activation activation = Activation::bounds;
    float alpha = 0;
    bool has_residual = false;
    bool residual_last = false;
    Operand residual;

    // The attributes "activation" ("none", "relu", "clip" between "low" and "high", or one of Activation's names; leaky_relu and elu
    // have an "alpha", which matmul, whose "alpha" is a factor, calls "activation_alpha") and "residual_after_activation". The
    // residual is the last input where "has_residual" is set.
    explicit Finish(const Spec& spec);

    // Puts all but scale, bias and residual into a tile.
    void set(ProductTile& tile) const;
};

// The constant one-dimensional operand, as floats.
std::vector<float> floats_of(const Operand& operand);

// Strides in floats instead of bytes; throws where an operand is not f32 or lies between floats. An axis of size 1 takes no step.
std::vector<std::int64_t> float_strides(const Spec& spec, const Operand& operand);

}  // namespace dovetail
