// The epilogue of convolution and matrix multiplication: operations on the accumulators before the results are written.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel.h"
#include "kernels/gemm_microkernel.h"

namespace dovetail {

struct Epilogue {
    float low;  // bounds; a NaN stays a NaN
    float high;
    Activation activation = Activation::bounds;
    float alpha = 0;
    float output_scale = 1, output_shift = 0;  // applied to the activation's result
    bool has_residual = false;
    bool residual_last = false;
    Operand residual;

    // Reads the attributes "activation", its parameters and "residual_after_activation". The activation is "none", "relu", "clip"
    // between "low" and "high", or a name of enum Activation. leaky_relu and elu have an "alpha"; matmul, whose "alpha" is a
    // factor, calls it "activation_alpha". Convolutions have "output_scale" and "output_shift" after the activation. The residual
    // is the last input if "has_residual" is set.
    explicit Epilogue(const Spec& spec);

    // Sets all fields of the epilogue but scale, bias and residual.
    void apply_to(GemmTile& tile) const;
};

// Returns the elements of a constant one-dimensional operand.
std::vector<float> floats_of(const Operand& operand);

// Returns the operand's strides in floats instead of bytes. Throws if the operand is not f32 or has a stride that is no multiple
// of 4. An axis of size 1 has stride 0.
Sizes float_strides(const Spec& spec, const Operand& operand);

}  // namespace dovetail
