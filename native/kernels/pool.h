// Pooling over up to three spatial axes.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel.h"

namespace dovetail {

// Inline functions that vector code calls are always inlined: a copy that the linker keeps might be the form for another
// processor.
#define DOVETAIL_ALWAYS_INLINE __attribute__((always_inline)) inline

// One spatial axis: sizes and steps in elements, strides in bytes. Fewer than three axes are led by ones of size 1.
struct PoolAxis {
    std::int64_t size = 1;
    std::int64_t out = 1;
    std::int64_t kernel = 1;
    std::int64_t stride = 1;
    std::int64_t dilation = 1;
    std::int64_t begin = 0;
    std::int64_t x_stride = 0;
    std::int64_t y_stride = 0;

    // The first place of window `o`, and the places k of it that are inside: [first, last).
    DOVETAIL_ALWAYS_INLINE std::int64_t start(std::int64_t o) const { return o * stride - begin; }
    DOVETAIL_ALWAYS_INLINE std::int64_t first(std::int64_t o) const {
        const std::int64_t missing = -start(o);
        return missing <= 0 ? 0 : (missing + dilation - 1) / dilation;
    }
    DOVETAIL_ALWAYS_INLINE std::int64_t last(std::int64_t o) const {
        const std::int64_t room = size - start(o);
        const std::int64_t fitting = room <= 0 ? 0 : (room + dilation - 1) / dilation;
        return fitting < kernel ? fitting : kernel;
    }
    // How many places of window `o` are inside of the padded input, with `end` elements of padding behind it.
    DOVETAIL_ALWAYS_INLINE std::int64_t padded(std::int64_t o, std::int64_t end) const {
        const std::int64_t room = size + end - start(o);
        const std::int64_t fitting = room <= 0 ? 0 : (room + dilation - 1) / dilation;
        return fitting < kernel ? fitting : kernel;
    }
    // Drops the places that are outside of the input in every window; one stays where all are.
    DOVETAIL_ALWAYS_INLINE void trim() {
        const std::int64_t from = first(out - 1), to = last(0);
        if (from < to) {
            begin -= from * dilation;
            kernel = to - from;
        } else {
            kernel = 1;
        }
    }
    // How far the windows together reach.
    DOVETAIL_ALWAYS_INLINE std::int64_t span() const { return (out - 1) * stride + (kernel - 1) * dilation + 1; }
};

struct PoolPlan {
    PoolAxis axes[3];
    std::int64_t batch = 1;
    std::int64_t channels = 1;
    std::int64_t x_batch = 0;  // strides in bytes
    std::int64_t x_channel = 0;
    std::int64_t y_batch = 0;
    std::int64_t y_channel = 0;
    // How many bytes before it is read a place is asked for, in its row; 0: it is not.
    std::int64_t ahead = 0;
    // By what a sum is divided: the product of one number for each axis.
    const float* counts[3] = {nullptr, nullptr, nullptr};
};

// Tasks [first, last) of: an output row (batch, o0, o1) for channels that lie dense; (batch, channel, o0, o1) otherwise, with
// `scratch` for pool_row_floats numbers.
using PoolFunction = void (*)(const PoolPlan& plan, const std::byte* x, std::byte* y, std::int64_t first, std::int64_t last,
                              float* scratch);

DOVETAIL_ALWAYS_INLINE std::int64_t pool_row_floats(const PoolPlan& plan) {
    return 2 * plan.axes[2].span() + plan.axes[2].out + 64;
}

struct PoolFunctions {
    PoolFunction dense_max;
    PoolFunction dense_average;
    PoolFunction row_max;
    PoolFunction row_average;
};

DOVETAIL_IN_EVERY_ISA(PoolFunctions pool_functions();)

}  // namespace dovetail
