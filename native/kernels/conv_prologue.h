// The convolution prologue: copies of the input, made for each task if the input cannot be read in place.
#pragma once

#include <cstdint>

namespace dovetail {

// The map applied to each element: x * scale + shift, then max(0, .) if `clamp`. A null `scale` is the identity.
struct Prologue {
    const float* scale = nullptr;  // by channel
    const float* shift = nullptr;
    bool clamp = false;
};

struct PrologueKernels {
    // to[i] = f(from[i * step]) for i < count; element i has channel `channel` + i.
    void (*run)(float* to, const float* from, std::int64_t count, std::int64_t step, const Prologue& prologue,
                std::int64_t channel);
    // Applies the prologue to `count` runs of `length` contiguous floats, and prefetches the following runs. The runs begin
    // `from_step` floats apart in the source and `to_step` floats apart in the destination.
    void (*pixels)(float* to, std::int64_t to_step, const float* from, std::int64_t from_step, std::int64_t count,
                   std::int64_t length, const Prologue& prologue, std::int64_t channel);
    // to[i * channels + c] = from[i + c * plane].
    void (*interleave)(float* to, const float* from, std::int64_t count, std::int64_t channels, std::int64_t plane);
};

const PrologueKernels& prologue_kernels();

}  // namespace dovetail
