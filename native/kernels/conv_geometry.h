// The numbers of a convolution, in three spatial axes whatever it has.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/epilogue.h"
#include "kernel.h"

namespace dovetail {

using Three = std::array<std::int64_t, 3>;

// Where a tensor's elements lie, in floats.
struct Layout {
    std::int64_t image = 0;
    std::int64_t channel = 0;
    Three at{};
};

// Throws std::invalid_argument unless windows of these sizes, steps and padding can be walked: nothing of them overflows.
void check_windows(const std::string& kernel, const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides,
                   const std::vector<std::int64_t>& dilations, const std::vector<std::int64_t>& pads);

struct Geometry {
    std::int64_t images, groups;
    std::int64_t channels, outputs;  // of one group
    Three in, out, kernel, stride, dilation, before;
    Layout x, y, residual;

    // From the operands x, w, y and the attributes of convolution; throws std::invalid_argument where they do not fit together.
    Geometry(const Spec& spec, const Finish& finish);

    std::int64_t lines() const { return images * out[0] * out[1]; }
    std::int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
    // Each pixel is read where it lies, and nothing else: no window of a transposed convolution begins past the end.
    bool is_pointwise() const {
        for (std::size_t i = 0; i < 3; ++i)
            if ((out[i] - 1) * stride[i] >= in[i]) return false;
        return taps() == 1 && before == Three{};
    }

private:
    void join_lines();
};

}  // namespace dovetail
