// Pooling of f32. Sums have the interpreter's order: along the first axis, then the second, then the last.
#include "kernels/pool.h"

#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

struct Max {
    static constexpr bool kDivides = false;
    DOVETAIL_INLINE float identity() { return -__builtin_inff(); }
    DOVETAIL_INLINE Floats combine(Floats total, Floats x) { return x != x ? x : greater_of(x, total); }
    DOVETAIL_INLINE float combine(float total, float x) { return x > total || x != x ? x : total; }
};

struct Sum {
    static constexpr bool kDivides = true;
    DOVETAIL_INLINE float identity() { return 0; }
    DOVETAIL_INLINE Floats combine(Floats total, Floats x) { return total + x; }
    DOVETAIL_INLINE float combine(float total, float x) { return total + x; }
};

DOVETAIL_INLINE const float* floats(const std::byte* address) { return reinterpret_cast<const float*>(address); }
DOVETAIL_INLINE float* floats(std::byte* address) { return reinterpret_cast<float*>(address); }

// ---- channels-last ----

// The taps of one window inside the input.
struct WindowTaps {
    std::int64_t first[3];
    std::int64_t last[3];
};

template <int Vectors, bool IsPartial, bool Prefetches>
DOVETAIL_INLINE void load_all(Floats* xs, const float* from, std::int64_t tail, std::int64_t prefetch_bytes) {
    if (Prefetches)
        for (int v = 0; v < Vectors; ++v)
            __builtin_prefetch(reinterpret_cast<const std::byte*>(from + v * kLanes) + prefetch_bytes);
    for (int v = 0; v < Vectors; ++v)
        xs[v] = IsPartial && v == Vectors - 1 ? load_first(from + v * kLanes, tail) : load(from + v * kLanes);
}

// Pools one window of `Vectors` vectors of channels, the last of them with `tail` elements. `x` is the address of the first
// position of the window, which may be outside the input.
template <typename F, int Vectors, bool IsPartial, bool Prefetches>
DOVETAIL_INLINE void pool_window(const PoolPlan& plan, const WindowTaps& taps, const std::byte* x, float* y, float count,
                                 std::int64_t tail) {
    const std::int64_t step0 = plan.axes[0].dilation * plan.axes[0].x_stride;
    const std::int64_t step1 = plan.axes[1].dilation * plan.axes[1].x_stride;
    const std::int64_t step2 = plan.axes[2].dilation * plan.axes[2].x_stride;
    const bool is_flat = taps.last[0] - taps.first[0] == 1;
    Floats total[Vectors];
    for (int v = 0; v < Vectors; ++v) total[v] = splat(F::identity());
    for (std::int64_t k2 = taps.first[2]; k2 < taps.last[2]; ++k2) {
        Floats column[Vectors];
        for (int v = 0; v < Vectors; ++v) column[v] = splat(F::identity());
        for (std::int64_t k1 = taps.first[1]; k1 < taps.last[1]; ++k1) {
            const std::byte* address = x + k2 * step2 + k1 * step1;
            Floats deep[Vectors];
            load_all<Vectors, IsPartial, Prefetches>(deep, floats(address + taps.first[0] * step0), tail, plan.prefetch_bytes);
            if (!is_flat) {
                for (std::int64_t k0 = taps.first[0] + 1; k0 < taps.last[0]; ++k0) {
                    Floats next[Vectors];
                    load_all<Vectors, IsPartial, Prefetches>(next, floats(address + k0 * step0), tail, plan.prefetch_bytes);
                    for (int v = 0; v < Vectors; ++v) deep[v] = F::combine(deep[v], next[v]);
                }
            }
            for (int v = 0; v < Vectors; ++v) column[v] = F::combine(column[v], deep[v]);
        }
        for (int v = 0; v < Vectors; ++v) total[v] = F::combine(total[v], column[v]);
    }
    for (int v = 0; v < Vectors; ++v) {
        if (F::kDivides) total[v] = total[v] / splat(count);
        if (IsPartial && v == Vectors - 1)
            store_first(y + v * kLanes, total[v], tail);
        else
            store(y + v * kLanes, total[v]);
    }
}

template <typename F, bool Prefetches>
void dense_pixel(const PoolPlan& plan, const WindowTaps& taps, const std::byte* x, float* y, float count) {
    constexpr int kVectors = 4;
    std::int64_t channel = 0;
    for (; channel + kVectors * kLanes <= plan.channels; channel += kVectors * kLanes)
        pool_window<F, kVectors, false, Prefetches>(plan, taps, x + channel * 4, y + channel, count, kLanes);
    for (; channel + kLanes <= plan.channels; channel += kLanes)
        pool_window<F, 1, false, Prefetches>(plan, taps, x + channel * 4, y + channel, count, kLanes);
    if (channel < plan.channels)
        pool_window<F, 1, true, Prefetches>(plan, taps, x + channel * 4, y + channel, count, plan.channels - channel);
}

template <typename F, bool Prefetches>
void pool_dense_rows(const PoolPlan& plan, const std::byte* x, std::byte* y, std::int64_t first, std::int64_t last) {
    const PoolAxis* axes = plan.axes;
    for (std::int64_t row = first; row < last; ++row) {
        const std::int64_t o1 = row % axes[1].out;
        const std::int64_t o0 = row / axes[1].out % axes[0].out;
        const std::int64_t n = row / axes[1].out / axes[0].out;
        const std::byte* x_row =
            x + n * plan.x_batch + axes[0].start(o0) * axes[0].x_stride + axes[1].start(o1) * axes[1].x_stride;
        std::byte* y_row = y + n * plan.y_batch + o0 * axes[0].y_stride + o1 * axes[1].y_stride;
        WindowTaps taps{{axes[0].first(o0), axes[1].first(o1), 0}, {axes[0].last(o0), axes[1].last(o1), 0}};
        const bool is_empty = taps.first[0] >= taps.last[0] || taps.first[1] >= taps.last[1];
        const float rows_count = F::kDivides ? plan.divisors[0][o0] * plan.divisors[1][o1] : 0;
        for (std::int64_t o2 = 0; o2 < axes[2].out; ++o2) {
            taps.first[2] = axes[2].first(o2);
            taps.last[2] = is_empty ? taps.first[2] : axes[2].last(o2);
            const float count = F::kDivides ? rows_count * plan.divisors[2][o2] : 0;
            dense_pixel<F, Prefetches>(plan, taps, x_row + axes[2].start(o2) * axes[2].x_stride,
                                       floats(y_row + o2 * axes[2].y_stride), count);
        }
    }
}

template <typename F>
void dense_rows(const PoolPlan& plan, const std::byte* x, std::byte* y, std::int64_t first, std::int64_t last, float*) {
    if (plan.prefetch_bytes != 0) return pool_dense_rows<F, true>(plan, x, y, first, last);
    pool_dense_rows<F, false>(plan, x, y, first, last);
}

// ---- other layouts ----

// line[i] = of(line[i], x[i]) for the elements inside; `stride` in bytes.
template <typename F>
void combine_line(float* line, const std::byte* x, std::int64_t count, std::int64_t stride) {
    if (stride == 4) {
        const float* from = floats(x);
        std::int64_t i = 0;
        for (; i + kLanes <= count; i += kLanes) store(line + i, F::combine(load(line + i), load(from + i)));
        for (; i < count; ++i) line[i] = F::combine(line[i], from[i]);
        return;
    }
    for (std::int64_t i = 0; i < count; ++i) line[i] = F::combine(line[i], *floats(x + i * stride));
}

void fill(float* line, std::int64_t count, float value) {
    for (std::int64_t i = 0; i < count; ++i) line[i] = value;
}

// Pools the windows of one row along the innermost axis; their input is the line that is already pooled over the other axes.
template <typename F, int Stride>
void pool_row(float* row, const float* line, const PoolAxis& axis) {
    const std::int64_t stride = Stride ? Stride : axis.stride;
    for (std::int64_t k = 0; k < axis.kernel; ++k) {
        const float* from = line + k * axis.dilation;
        DOVETAIL_INDEPENDENT
        for (std::int64_t o = 0; o < axis.out; ++o) row[o] = F::combine(row[o], from[o * stride]);
    }
}

template <typename F>
void single_rows(const PoolPlan& plan, const std::byte* x, std::byte* y, std::int64_t first, std::int64_t last, float* scratch) {
    const PoolAxis* axes = plan.axes;
    const PoolAxis& axis = axes[2];
    const std::int64_t span = axis.span();
    float* line = scratch;
    float* deep = line + span;
    float* row = deep + span;
    // The elements that the windows reach, and the position of the first one in the line.
    const std::int64_t from = axis.begin < 0 ? -axis.begin : 0;
    const std::int64_t to = axis.size < span - axis.begin ? axis.size : span - axis.begin;
    const std::int64_t at = from + axis.begin;
    const std::int64_t inside = to > from ? to - from : 0;
    for (std::int64_t task = first; task < last; ++task) {
        const std::int64_t o1 = task % axes[1].out;
        const std::int64_t o0 = task / axes[1].out % axes[0].out;
        const std::int64_t plane = task / axes[1].out / axes[0].out;
        const std::int64_t n = plane / plan.channels;
        const std::int64_t c = plane % plan.channels;
        const std::byte* corner = x + n * plan.x_batch + c * plan.x_channel + axes[0].start(o0) * axes[0].x_stride +
                                  axes[1].start(o1) * axes[1].x_stride + from * axis.x_stride;
        fill(line, span, F::identity());
        const std::int64_t first0 = axes[0].first(o0);
        const std::int64_t last0 = axes[0].last(o0);
        for (std::int64_t k1 = axes[1].first(o1); k1 < axes[1].last(o1) && first0 < last0; ++k1) {
            const std::byte* address = corner + k1 * axes[1].dilation * axes[1].x_stride;
            const std::int64_t step = axes[0].dilation * axes[0].x_stride;
            if (last0 - first0 == 1) {
                combine_line<F>(line + at, address + first0 * step, inside, axis.x_stride);
                continue;
            }
            fill(deep, inside, F::identity());
            for (std::int64_t k0 = first0; k0 < last0; ++k0) combine_line<F>(deep, address + k0 * step, inside, axis.x_stride);
            combine_line<F>(line + at, reinterpret_cast<const std::byte*>(deep), inside, 4);
        }
        fill(row, axis.out, F::identity());
        if (axis.stride == 1)
            pool_row<F, 1>(row, line, axis);
        else if (axis.stride == 2)
            pool_row<F, 2>(row, line, axis);
        else
            pool_row<F, 0>(row, line, axis);
        std::byte* into = y + n * plan.y_batch + c * plan.y_channel + o0 * axes[0].y_stride + o1 * axes[1].y_stride;
        const float count = F::kDivides ? plan.divisors[0][o0] * plan.divisors[1][o1] : 0;
        if (F::kDivides)
            for (std::int64_t o = 0; o < axis.out; ++o) row[o] = row[o] / (count * plan.divisors[2][o]);
        if (axis.y_stride == 4)
            __builtin_memcpy(into, row, static_cast<std::size_t>(axis.out) * 4);
        else
            for (std::int64_t o = 0; o < axis.out; ++o) *floats(into + o * axis.y_stride) = row[o];
    }
}

}  // namespace

PoolFunctions pool_functions() { return {dense_rows<Max>, dense_rows<Sum>, single_rows<Max>, single_rows<Sum>}; }

}  // namespace dovetail::DOVETAIL_ISA
