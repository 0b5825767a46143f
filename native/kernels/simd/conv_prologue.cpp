#include "kernels/conv_prologue.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

void copy_run(float* __restrict to, const float* __restrict from, std::int64_t count, std::int64_t step) {
    if (step == 1)
        for (std::int64_t i = 0; i < count; ++i) to[i] = from[i];
    else
        for (std::int64_t i = 0; i < count; ++i) to[i] = from[i * step];
}

// max(value, 0); NaN stays NaN.
inline float clamp_to_zero(float value) { return value < 0 ? 0 : value; }

template <bool clamp>
void map_run(float* __restrict to, const float* __restrict from, std::int64_t count, const float* __restrict scale,
             const float* __restrict shift) {
    for (std::int64_t i = 0; i < count; ++i) {
        const float value = from[i] * scale[i] + shift[i];
        to[i] = clamp ? clamp_to_zero(value) : value;
    }
}

void run(float* to, const float* from, std::int64_t count, std::int64_t step, const Prologue& prologue, std::int64_t channel) {
    if (prologue.scale == nullptr) return copy_run(to, from, count, step);
    const float *scale = prologue.scale + channel, *shift = prologue.shift + channel;
    if (step == 1) return (prologue.clamp ? map_run<true> : map_run<false>)(to, from, count, scale, shift);
    for (std::int64_t i = 0; i < count; ++i) {
        const float value = from[i * step] * scale[i] + shift[i];
        to[i] = prologue.clamp ? clamp_to_zero(value) : value;
    }
}

void pixels(float* to, std::int64_t to_step, const float* from, std::int64_t from_step, std::int64_t count, std::int64_t length,
            const Prologue& prologue, std::int64_t channel) {
    constexpr std::int64_t line = 16;
    for (std::int64_t r = 0; r < count; ++r) {
        const float* next = from + (r + count) * from_step;
        for (std::int64_t k = 0; k < length; k += line) __builtin_prefetch(next + k, 0, 2);
        run(to + r * to_step, from + r * from_step, length, 1, prologue, channel);
    }
}

template <int channels>
void interleave_of(float* __restrict to, const float* __restrict from, std::int64_t count, std::int64_t plane) {
    for (std::int64_t i = 0; i < count; ++i)
#pragma GCC unroll 4
        for (std::int64_t c = 0; c < channels; ++c) to[i * channels + c] = from[i + c * plane];
}

void interleave(float* to, const float* from, std::int64_t count, std::int64_t channels, std::int64_t plane) {
    if (channels == 3) return interleave_of<3>(to, from, count, plane);
    for (std::int64_t c = 0; c < channels; ++c)
        for (std::int64_t i = 0; i < count; ++i) to[i * channels + c] = from[i + c * plane];
}

}  // namespace

extern const PrologueKernels prologue_kernel_table;
const PrologueKernels prologue_kernel_table = {run, pixels, interleave};

}  // namespace dovetail::DOVETAIL_ISA
