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
    // to[0 .. count) = from[0], from[step], ... , with the channel's or, where `along` is set, each position's own scale and shift.
    void (*run)(float* to, const float* from, std::int64_t count, std::int64_t step, const Prologue& prologue, std::int64_t channel,
                bool along);
    void (*clear)(float* to, std::int64_t count);
};

const StageTable& stage_table();

}  // namespace dovetail
