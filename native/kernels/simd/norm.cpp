// Normalization of rows of f32.
#include "kernels/norm.h"

#include "kernels/simd/math.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

DOVETAIL_INLINE const float* floats(const std::byte* address) { return reinterpret_cast<const float*>(address); }
DOVETAIL_INLINE float* floats(std::byte* address) { return reinterpret_cast<float*>(address); }

// Calls body(i, lanes) for each vector of a row; the last one may have fewer lanes.
template <typename Body>
DOVETAIL_INLINE void for_each_vector(std::int64_t count, const Body& body) {
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) body(i, std::int64_t{kLanes});
    if (i < count) body(i, count - i);
}

DOVETAIL_INLINE Floats load_lanes(const float* from, std::int64_t lanes) {
    return lanes == kLanes ? load(from) : load_first(from, lanes);
}

DOVETAIL_INLINE void store_lanes(float* to, Floats x, std::int64_t lanes) {
    if (lanes == kLanes)
        store(to, x);
    else
        store_first(to, x, lanes);
}

DOVETAIL_INLINE Floats first_lanes(Floats x, std::int64_t count, float other) {
    Ints lanes;
    for (int i = 0; i < kLanes; ++i) lanes[i] = i;
    return lanes < static_cast<std::int32_t>(count) ? x : splat(other);
}

// Returns the sum of of(vector) over a row: added in f32 within blocks of 4096 elements, and in f64 across the blocks. Lanes past
// the end count as 0.
template <typename F>
DOVETAIL_INLINE double sum_row(std::int64_t count, const F& of) {
    constexpr std::int64_t kBlock = 4096;
    double total = 0;
    for (std::int64_t first = 0; first < count; first += kBlock) {
        const std::int64_t stop = count - first < kBlock ? count : first + kBlock;
        Floats parts[4] = {};
        std::int64_t i = first;
        for (; i + 4 * kLanes <= stop; i += 4 * kLanes)
            for (int v = 0; v < 4; ++v) parts[v] += of(i + v * kLanes, kLanes);
        for (; i + kLanes <= stop; i += kLanes) parts[0] += of(i, kLanes);
        if (i < stop) parts[1] += first_lanes(of(i, stop - i), stop - i, 0);
        total += sum_of((parts[0] + parts[1]) + (parts[2] + parts[3]));
    }
    return total;
}

DOVETAIL_INLINE float max_of_row(const float* x, std::int64_t count) {
    Floats parts[4];
    for (int v = 0; v < 4; ++v) parts[v] = splat(-__builtin_inff());
    std::int64_t i = 0;
    for (; i + 4 * kLanes <= count; i += 4 * kLanes)
        for (int v = 0; v < 4; ++v) parts[v] = greater_of(load(x + i + v * kLanes), parts[v]);
    for (; i + kLanes <= count; i += kLanes) parts[0] = greater_of(load(x + i), parts[0]);
    if (i < count) parts[1] = greater_of(first_lanes(load_first(x + i, count - i), count - i, -__builtin_inff()), parts[1]);
    return max_of(greater_of(greater_of(parts[0], parts[1]), greater_of(parts[2], parts[3])));
}

// ---- softmax ----

// The maximum may ignore a NaN; the exponential of the NaN makes the sum a NaN.
void softmax_row(const float* x, float* y, std::int64_t count) {
    const Floats maximum_of_row = splat(max_of_row(x, count));
    const double total = sum_row(count, [&](std::int64_t i, std::int64_t lanes) __attribute__((always_inline)) {
        const Floats power = exp_below(load_lanes(x + i, lanes) - maximum_of_row);
        store_lanes(y + i, power, lanes);
        return power;
    });
    const Floats inverse = splat(static_cast<float>(1 / total));
    for_each_vector(count, [&](std::int64_t i, std::int64_t lanes)
                               __attribute__((always_inline)) { store_lanes(y + i, load_lanes(y + i, lanes) * inverse, lanes); });
}

void log_softmax_row(const float* x, float* y, std::int64_t count) {
    const Floats maximum_of_row = splat(max_of_row(x, count));
    const double total = sum_row(count, [&](std::int64_t i, std::int64_t lanes) __attribute__((always_inline)) {
        return exp_below(load_lanes(x + i, lanes) - maximum_of_row);
    });
    const Floats logarithm = log(splat(static_cast<float>(total)));
    for_each_vector(count, [&](std::int64_t i, std::int64_t lanes) __attribute__((always_inline)) {
        store_lanes(y + i, load_lanes(x + i, lanes) - maximum_of_row - logarithm, lanes);
    });
}

// Softmax of a vector of adjacent rows.
template <bool IsLog>
DOVETAIL_INLINE void softmax_columns(const NormBlock& block, const std::byte* x, std::byte* y, std::int64_t lanes) {
    Floats maximum_of_row = splat(-__builtin_inff());
    for (std::int64_t i = 0; i < block.count; ++i)
        maximum_of_row = greater_of(load_lanes(floats(x + i * block.x_stride), lanes), maximum_of_row);
    Floats total = {};
    Floats rest = {};
    for (std::int64_t i = 0; i < block.count; ++i) {
        const Floats power = exp_below(load_lanes(floats(x + i * block.x_stride), lanes) - maximum_of_row);
        if (!IsLog) store_lanes(floats(y + i * block.y_stride), power, lanes);
        // Compensated (Kahan) summation.
        const Floats part = power - rest;
        const Floats sum = total + part;
        rest = (sum - total) - part;
        total = sum;
    }
    const Floats scale = IsLog ? log(total) : 1.0f / total;
    for (std::int64_t i = 0; i < block.count; ++i) {
        float* to = floats(y + i * block.y_stride);
        if (IsLog)
            store_lanes(to, load_lanes(floats(x + i * block.x_stride), lanes) - maximum_of_row - scale, lanes);
        else
            store_lanes(to, load_lanes(to, lanes) * scale, lanes);
    }
}

template <bool IsLog>
void softmax(const NormBlock& block) {
    if (block.x_stride == 4 && block.y_stride == 4) {
        for (std::int64_t row = 0; row < block.width; ++row) {
            const float* x = floats(block.x + row * block.x_width_stride);
            float* y = floats(block.y + row * block.y_width_stride);
            if (IsLog)
                log_softmax_row(x, y, block.count);
            else
                softmax_row(x, y, block.count);
        }
        return;
    }
    for_each_vector(block.width, [&](std::int64_t i, std::int64_t lanes) __attribute__((always_inline)) {
        softmax_columns<IsLog>(block, block.x + i * 4, block.y + i * 4, lanes);
    });
}

// ---- layer and RMS normalization ----

template <bool HasMean>
DOVETAIL_INLINE void normalize_row(const NormBlock& block, const float* x, float* y) {
    const std::int64_t count = block.count;
    const double size = static_cast<double>(count);
    Floats mean = {};
    if (HasMean) {
        const auto value = [&](std::int64_t i, std::int64_t lanes)
                               __attribute__((always_inline)) { return load_lanes(x + i, lanes); };
        mean = splat(static_cast<float>(sum_row(count, value) / size));
    }
    const double squares = sum_row(count, [&](std::int64_t i, std::int64_t lanes) __attribute__((always_inline)) {
        const Floats centred = load_lanes(x + i, lanes) - mean;
        return centred * centred;
    });
    const Floats inverse = 1.0f / sqrt(splat(static_cast<float>(squares / size) + block.epsilon));
    for_each_vector(count, [&](std::int64_t i, std::int64_t lanes) __attribute__((always_inline)) {
        Floats value = (load_lanes(x + i, lanes) - mean) * inverse;
        if (block.scale) value = value * load_lanes(block.scale + i, lanes);
        if (block.bias) value = value + load_lanes(block.bias + i, lanes);
        store_lanes(y + i, value, lanes);
    });
}

template <bool HasMean>
void normalize(const NormBlock& block) {
    for (std::int64_t row = 0; row < block.width; ++row)
        normalize_row<HasMean>(block, floats(block.x + row * block.x_width_stride), floats(block.y + row * block.y_width_stride));
}

// ---- local response normalization ----

// x^beta for positive x.
DOVETAIL_INLINE Floats power_of(Floats x, float beta) {
    if (beta == 0.75f) {
        const Floats root = sqrt(x);
        return root * sqrt(root);
    }
    if (beta == 0.5f) return sqrt(x);
    if (beta == 1.0f) return x;
    return exp(beta * log(x));
}

DOVETAIL_INLINE Floats normalize_response(Floats x, Floats total, const LrnBlock& block) {
    return x / power_of(fma(splat(block.alpha), total, block.bias), block.beta);
}

// In channels-last data, scratch holds the squares of a pixel, padded with zeros.
void lrn_channels_last(const LrnBlock& block) {
    const std::int64_t before = (block.size - 1) / 2;
    const std::int64_t floats_used = block.channels + block.size + kLanes;
    for (std::int64_t i = 0; i < floats_used; ++i) block.scratch[i] = 0;
    for (std::int64_t pixel = 0; pixel < block.pixels; ++pixel) {
        const float* x = floats(block.x + pixel * block.x_pixel);
        float* y = floats(block.y + pixel * block.y_pixel);
        for_each_vector(block.channels, [&](std::int64_t i, std::int64_t lanes) __attribute__((always_inline)) {
            const Floats value = load_lanes(x + i, lanes);
            store_lanes(block.scratch + before + i, value * value, lanes);
        });
        for_each_vector(block.channels, [&](std::int64_t i, std::int64_t lanes) __attribute__((always_inline)) {
            Floats total = load(block.scratch + i);
            for (std::int64_t k = 1; k < block.size; ++k) total += load(block.scratch + i + k);
            store_lanes(y + i, normalize_response(load_lanes(x + i, lanes), total, block), lanes);
        });
    }
}

// A vector of contiguous pixels is processed channel by channel.
void lrn_pixels(const LrnBlock& block) {
    const std::int64_t before = (block.size - 1) / 2;
    for_each_vector(block.pixels, [&](std::int64_t i, std::int64_t lanes) __attribute__((always_inline)) {
        for (std::int64_t c = 0; c < block.channels; ++c) {
            const std::int64_t first = c < before ? 0 : c - before;
            const std::int64_t last = c - before + block.size < block.channels ? c - before + block.size : block.channels;
            Floats total = {};
            for (std::int64_t k = first; k < last; ++k) {
                const Floats value = load_lanes(floats(block.x + k * block.x_channel) + i, lanes);
                total += value * value;
            }
            const Floats x = load_lanes(floats(block.x + c * block.x_channel) + i, lanes);
            store_lanes(floats(block.y + c * block.y_channel) + i, normalize_response(x, total, block), lanes);
        }
    });
}

void lrn(const LrnBlock& block) {
    if (block.x_channel == 4 && block.y_channel == 4)
        lrn_channels_last(block);
    else
        lrn_pixels(block);
}

}  // namespace

NormFunctions norm_functions() { return {softmax<false>, softmax<true>, normalize<true>, normalize<false>, lrn}; }

}  // namespace dovetail::DOVETAIL_ISA
