// Pooling over up to three spatial axes.
#pragma once

#include <cstdint>
#include <vector>

#include "int_math.h"
#include "kernel.h"

namespace dovetail {

// Inline functions called by vector code are always inlined: a merged copy might be compiled for another instruction set.
#define DOVETAIL_ALWAYS_INLINE __attribute__((always_inline)) inline

// One spatial axis: sizes and steps in elements, strides in bytes. Missing leading axes have size 1.
struct PoolAxis {
    std::int64_t size = 1;
    std::int64_t out = 1;
    std::int64_t kernel = 1;
    std::int64_t stride = 1;
    std::int64_t dilation = 1;
    std::int64_t begin = 0;
    std::int64_t x_stride = 0;
    std::int64_t y_stride = 0;

    // start() is the input position of the first tap of window `o`; [first(), last()) is the range of the window's taps that are
    // inside the input.
    DOVETAIL_ALWAYS_INLINE std::int64_t start(std::int64_t o) const { return o * stride - begin; }
    DOVETAIL_ALWAYS_INLINE std::int64_t first(std::int64_t o) const {
        const std::int64_t missing = -start(o);
        return missing <= 0 ? 0 : ceil_div(missing, dilation);
    }
    DOVETAIL_ALWAYS_INLINE std::int64_t last(std::int64_t o) const {
        const std::int64_t available = size - start(o);
        const std::int64_t fitting = available <= 0 ? 0 : ceil_div(available, dilation);
        return fitting < kernel ? fitting : kernel;
    }
    // The number of taps of window `o` inside the padded input, with `end` elements of padding at the end.
    DOVETAIL_ALWAYS_INLINE std::int64_t padded(std::int64_t o, std::int64_t end) const {
        const std::int64_t available = size + end - start(o);
        const std::int64_t fitting = available <= 0 ? 0 : ceil_div(available, dilation);
        return fitting < kernel ? fitting : kernel;
    }
    // Drops the taps that are outside the input in every window; at least one tap remains.
    DOVETAIL_ALWAYS_INLINE void trim() {
        const std::int64_t from = first(out - 1), to = last(0);
        if (from < to) {
            begin -= from * dilation;
            kernel = to - from;
        } else {
            kernel = 1;
        }
    }
    // The number of elements from the first element of the first window to the last element of the last window.
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
    // Prefetch distance along a row, in bytes; 0: no prefetch.
    std::int64_t prefetch_bytes = 0;
    // The divisor of the sum of a window: the product of one factor per axis.
    const float* divisors[3] = {nullptr, nullptr, nullptr};
};

// Runs tasks [first, last). In channels-last data, a task is an output row (batch, o0, o1). In other layouts, it is an output row
// (batch, channel, o0, o1), and `scratch` has pool_row_floats() floats.
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

DOVETAIL_DECLARE_PER_ISA(PoolFunctions pool_functions();)

}  // namespace dovetail
