// Sizes, strides and padding of a convolution, normalized to three spatial axes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernel.h"
#include "kernels/epilogue.h"

namespace dovetail {

using Spatial = std::array<std::int64_t, 3>;

// Multiplications of a convolution below which waking a thread does not pay.
constexpr std::int64_t kSmallConvolution = 1 << 18;

// Strides of a tensor, in floats.
struct TensorStrides {
    std::int64_t image = 0;
    std::int64_t channel = 0;
    Spatial spatial{};
};

// Throws std::invalid_argument for windows, strides, dilations or padding so large that offsets could overflow.
void check_windows(const std::string& kernel, const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides,
                   const std::vector<std::int64_t>& dilations, const std::vector<std::int64_t>& pads);

// Returns the convolution without the spatial axes that have size 1 in input, weights and output; at least one spatial axis
// stays. Tiles run along the last axis, and an axis of size 1 would leave them a single pixel.
Spec without_unit_axes(Spec spec);

struct ConvGeometry {
    std::int64_t images, groups;
    std::int64_t channels, outputs;  // input and output channels of one group
    Spatial in, out, kernel, stride, dilation, pad_begin;
    TensorStrides x, y, residual;

    // Derives the geometry from the operands x, w, y and the attributes of Conv. Throws std::invalid_argument if they disagree.
    ConvGeometry(const Spec& spec, const Epilogue& epilogue);

    std::int64_t lines() const { return images * out[0] * out[1]; }
    std::int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
    // True if each output reads exactly one input pixel. In a transposed convolution no window may then begin past the end of the
    // input.
    bool is_pointwise() const {
        for (std::size_t i = 0; i < 3; ++i)
            if ((out[i] - 1) * stride[i] >= in[i]) return false;
        return taps() == 1 && pad_begin == Spatial{};
    }

private:
    void join_lines();
};

}  // namespace dovetail
