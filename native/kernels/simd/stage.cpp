#include "kernels/stage.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

void copy_run(float* __restrict to, const float* __restrict from, std::int64_t count, std::int64_t step) {
    if (step == 1)
        for (std::int64_t i = 0; i < count; ++i) to[i] = from[i];
    else
        for (std::int64_t i = 0; i < count; ++i) to[i] = from[i * step];
}

// A NaN stays one.
inline float at_least_zero(float value) { return value < 0 ? 0 : value; }

template <bool clamp>
void change_along(float* __restrict to, const float* __restrict from, std::int64_t count, const float* __restrict scale,
                  const float* __restrict shift) {
    for (std::int64_t i = 0; i < count; ++i) {
        const float value = from[i] * scale[i] + shift[i];
        to[i] = clamp ? at_least_zero(value) : value;
    }
}

void run(float* to, const float* from, std::int64_t count, std::int64_t step, const Prologue& prologue, std::int64_t channel,
         bool along) {
    if (prologue.scale == nullptr) return copy_run(to, from, count, step);
    const float *scale = prologue.scale + channel, *shift = prologue.shift + channel;
    if (along && step == 1) return (prologue.clamp ? change_along<true> : change_along<false>)(to, from, count, scale, shift);
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t at = along ? i : 0;
        const float value = from[i * step] * scale[at] + shift[at];
        to[i] = prologue.clamp ? at_least_zero(value) : value;
    }
}

void clear(float* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = 0;
}

}  // namespace

extern const StageTable stages;
const StageTable stages = {run, clear};

}  // namespace dovetail::DOVETAIL_ISA
