// What is done to the sums of a convolution or a matrix product before they are written.
#pragma once

#include <cstdint>
#include <vector>

#include "step.h"

namespace dovetail {

struct Finish {
    float low;  // bounds; NaN passes
    float high;
    bool has_residual = false;
    bool residual_last = false;
    Operand residual;

    // The attributes "activation", "low", "high", "residual_after_activation"; the residual is the last input where has_residual is set.
    explicit Finish(const Spec& spec);
};

// The constant one-dimensional operand, as floats.
std::vector<float> floats_of(const Operand& operand);

// Strides in floats instead of bytes; throws where an operand is not f32 or lies between floats. An axis of size 1 takes no step.
std::vector<std::int64_t> float_strides(const Spec& spec, const Operand& operand);

}  // namespace dovetail
