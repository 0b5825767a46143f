// Copies of what a convolution reads, made task by task where it cannot be read in place.
#pragma once

#include <cstdint>

namespace dovetail {

// What is done to an element on the way: x * scale + shift, then at least 0 where `clamp` is set. Null: nothing.
struct Prologue {
    const float* scale = nullptr;  // by channel
    const float* shift = nullptr;
    bool clamp = false;
};

struct StageTable {
    // to[0 .. count) = from[0], from[step], ... , which are channels in turn from `channel`.
    void (*run)(float* to, const float* from, std::int64_t count, std::int64_t step, const Prologue& prologue,
                std::int64_t channel);
    // `count` runs, `from` and `to` steps apart, of `length` floats that lie side by side; those that come next are asked for.
    void (*pixels)(float* to, std::int64_t to_step, const float* from, std::int64_t from_step, std::int64_t count,
                   std::int64_t length, const Prologue& prologue, std::int64_t channel);
    // to[i * channels + c] = from[i + c * plane].
    void (*interleave)(float* to, const float* from, std::int64_t count, std::int64_t channels, std::int64_t plane);
    void (*clear)(float* to, std::int64_t count);
};

const StageTable& stage_table();

}  // namespace dovetail
