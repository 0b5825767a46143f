// Interpolation over up to three spatial axes: each output element is a weighted sum along each axis.
#pragma once

#include <cstdint>

#include "isa.h"
#include "kernel.h"

namespace dovetail {

// One spatial axis: output element o is the sum over t of weights[o * taps + t] times input element indices[o * taps + t].
// Strides are in bytes. Missing leading axes have size 1.
struct ResizeAxis {
    std::int64_t size = 1;
    std::int64_t out = 1;
    std::int64_t taps = 1;
    std::int64_t x_stride = 0;
    std::int64_t y_stride = 0;
    const std::int64_t* indices = nullptr;
    const float* weights = nullptr;
    bool is_copy = true;  // one tap of weight 1: elements are copied
};

struct ResizePlan {
    ResizeAxis axes[3];
    std::int64_t channels = 1;
    std::int64_t x_batch = 0;  // strides in bytes
    std::int64_t x_channel = 0;
    std::int64_t y_batch = 0;
    std::int64_t y_channel = 0;
};

// Runs tasks [first, last). In channels-last data, a task is an output row (batch, o0, o1); in other layouts, an output row
// (batch, channel, o0, o1). `scratch` holds one row of the input.
using ResizeFunction = void (*)(const ResizePlan& plan, const std::byte* x, std::byte* y, std::int64_t first, std::int64_t last,
                                float* scratch);

struct ResizeFunctions {
    ResizeFunction dense;
    ResizeFunction rows;
};

DOVETAIL_DECLARE_PER_ISA(ResizeFunctions resize_functions();)

}  // namespace dovetail
