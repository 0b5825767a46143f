// Interpolation of f32: first over the outer axes into one row, then along the row.
#include "kernels/resize.h"

#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

DOVETAIL_INLINE const float* floats(const std::byte* address) { return reinterpret_cast<const float*>(address); }
DOVETAIL_INLINE float* floats(std::byte* address) { return reinterpret_cast<float*>(address); }

// line[i] = from[i] * weight, or line[i] += from[i] * weight.
DOVETAIL_INLINE void accumulate(float* line, const float* from, std::int64_t count, float weight, bool adds) {
    if (adds) DOVETAIL_INDEPENDENT
    for (std::int64_t i = 0; i < count; ++i) line[i] += from[i] * weight;
    else DOVETAIL_INDEPENDENT for (std::int64_t i = 0; i < count; ++i) line[i] = from[i] * weight;
}

// Calls `visit` with each input row of an output row, its weight and whether it is the first; `x` is the image.
template <typename Visit>
DOVETAIL_INLINE void for_each_row(const ResizePlan& plan, const std::byte* x, std::int64_t o0, std::int64_t o1,
                                  const Visit& visit) {
    const ResizeAxis &outer = plan.axes[0], &inner = plan.axes[1];
    for (std::int64_t t0 = 0; t0 < outer.taps; ++t0)
        for (std::int64_t t1 = 0; t1 < inner.taps; ++t1) {
            const std::int64_t i0 = o0 * outer.taps + t0, i1 = o1 * inner.taps + t1;
            visit(x + outer.indices[i0] * outer.x_stride + inner.indices[i1] * inner.x_stride,
                  outer.weights[i0] * inner.weights[i1], t0 + t1 == 0);
        }
}

// Interpolates pixels of `channels` contiguous floats.
void dense(const ResizePlan& plan, const std::byte* x, std::byte* y, std::int64_t first, std::int64_t last, float* scratch) {
    const ResizeAxis* axes = plan.axes;
    const ResizeAxis& axis = axes[2];
    const std::int64_t channels = plan.channels, pixel = channels * 4;
    const bool in_place = axes[0].is_copy && axes[1].is_copy;
    for (std::int64_t task = first; task < last; ++task) {
        const std::int64_t o1 = task % axes[1].out, o0 = task / axes[1].out % axes[0].out, n = task / axes[1].out / axes[0].out;
        const std::byte* image = x + n * plan.x_batch;
        const std::byte* line = reinterpret_cast<const std::byte*>(scratch);
        std::int64_t step = pixel;
        if (in_place) {
            line = image + axes[0].indices[o0] * axes[0].x_stride + axes[1].indices[o1] * axes[1].x_stride;
            step = axis.x_stride;
        } else {
            for_each_row(plan, image, o0, o1,
                         [&](const std::byte* row, float weight, bool is_first) __attribute__((always_inline)) {
                             if (axis.x_stride == pixel)
                                 return accumulate(scratch, floats(row), axis.size * channels, weight, !is_first);
                             for (std::int64_t i = 0; i < axis.size; ++i)
                                 accumulate(scratch + i * channels, floats(row + i * axis.x_stride), channels, weight, !is_first);
                         });
        }
        std::byte* to = y + n * plan.y_batch + o0 * axes[0].y_stride + o1 * axes[1].y_stride;
        for (std::int64_t o = 0; o < axis.out; ++o, to += axis.y_stride) {
            const std::int64_t* indices = axis.indices + o * axis.taps;
            const float* weights = axis.weights + o * axis.taps;
            if (axis.is_copy) {
                __builtin_memcpy(to, line + indices[0] * step, static_cast<std::size_t>(pixel));
            } else if (axis.taps == 2) {
                const float *a = floats(line + indices[0] * step), *b = floats(line + indices[1] * step);
                const float left = weights[0], right = weights[1];
                float* into = floats(to);
                DOVETAIL_INDEPENDENT
                for (std::int64_t c = 0; c < channels; ++c) into[c] = a[c] * left + b[c] * right;
            } else {
                for (std::int64_t t = 0; t < axis.taps; ++t)
                    accumulate(floats(to), floats(line + indices[t] * step), channels, weights[t], t != 0);
            }
        }
    }
}

// Interpolates the rows of single channels, in any layout.
void rows(const ResizePlan& plan, const std::byte* x, std::byte* y, std::int64_t first, std::int64_t last, float* scratch) {
    const ResizeAxis* axes = plan.axes;
    const ResizeAxis& axis = axes[2];
    for (std::int64_t task = first; task < last; ++task) {
        const std::int64_t o1 = task % axes[1].out, o0 = task / axes[1].out % axes[0].out;
        const std::int64_t plane = task / axes[1].out / axes[0].out, n = plane / plan.channels, c = plane % plan.channels;
        const bool in_place = axes[0].is_copy && axes[1].is_copy;
        for_each_row(plan, x + n * plan.x_batch + c * plan.x_channel, o0, o1,
                     [&](const std::byte* row, float weight, bool is_first) __attribute__((always_inline)) {
                         if (in_place)
                             for (std::int64_t i = 0; i < axis.size; ++i) scratch[i] = *floats(row + i * axis.x_stride);
                         else if (axis.x_stride == 4)
                             accumulate(scratch, floats(row), axis.size, weight, !is_first);
                         else
                             for (std::int64_t i = 0; i < axis.size; ++i)
                                 accumulate(scratch + i, floats(row + i * axis.x_stride), 1, weight, !is_first);
                     });
        std::byte* to = y + n * plan.y_batch + c * plan.y_channel + o0 * axes[0].y_stride + o1 * axes[1].y_stride;
        const std::int64_t* indices = axis.indices;
        const float* weights = axis.weights;
        for (std::int64_t o = 0; o < axis.out; ++o, to += axis.y_stride, indices += axis.taps, weights += axis.taps) {
            float total = axis.is_copy ? scratch[indices[0]] : scratch[indices[0]] * weights[0];
            for (std::int64_t t = 1; t < axis.taps; ++t) total += scratch[indices[t]] * weights[t];
            *floats(to) = total;
        }
    }
}

}  // namespace

ResizeFunctions resize_functions() { return {dense, rows}; }

}  // namespace dovetail::DOVETAIL_ISA
