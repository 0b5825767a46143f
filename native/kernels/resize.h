// Resampling over up to three spatial axes, each element a weighted sum of some of its axis.
#pragma once

#include <cstdint>

#include "isa.h"
#include "kernel.h"

namespace dovetail {

// One spatial axis: element o of the result is the sum over t of weights[o * taps + t] times element places[o * taps + t]. Strides in
// bytes. Fewer than three axes are led by ones of size 1.
struct ResizeAxis {
    std::int64_t size = 1;
    std::int64_t out = 1;
    std::int64_t taps = 1;
    std::int64_t x_stride = 0;
    std::int64_t y_stride = 0;
    const std::int64_t* places = nullptr;
    const float* weights = nullptr;
    bool picks = true;  // one tap, of weight 1: an element as it is
};

struct ResizePlan {
    ResizeAxis axes[3];
    std::int64_t channels = 1;
    std::int64_t x_batch = 0;  // strides in bytes
    std::int64_t x_channel = 0;
    std::int64_t y_batch = 0;
    std::int64_t y_channel = 0;
};

// Tasks [first, last) of: a result's row (batch, o0, o1) for channels that lie dense; (batch, channel, o0, o1) otherwise. `scratch`: room
// for one row of the source.
using ResizeFunction = void (*)(const ResizePlan& plan, const std::byte* x, std::byte* y, std::int64_t first, std::int64_t last,
                                float* scratch);

struct ResizeFunctions {
    ResizeFunction dense;
    ResizeFunction rows;
};

DOVETAIL_IN_EVERY_ISA(ResizeFunctions resize_functions();)

}  // namespace dovetail
