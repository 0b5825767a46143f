// Transforms of Winograd convolution, compiled for each instruction set.
#include "kernels/winograd.h"

#include "kernels/simd/epilogue.h"
#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

constexpr float kA = static_cast<float>(kWinogradA), kB = static_cast<float>(kWinogradB);
constexpr float kA2 = kA * kA, kB2 = kB * kB, kA3 = kA2 * kA, kB3 = kB2 * kB;

// Evaluates the inputs of an axis at the interpolation points.
DOVETAIL_INLINE void transform_input(const Floats (&d)[4], Floats (&t)[4]) {
    t[0] = d[0] - d[2];
    t[1] = d[1] + d[2];
    t[2] = d[2] - d[1];
    t[3] = d[3] - d[1];
}
DOVETAIL_INLINE void transform_input(const Floats (&d)[6], Floats (&t)[6]) {
    const Floats even_a = fma(d[2], splat(-kB2), d[4]), odd_a = fma(d[1], splat(-kB2), d[3]);
    const Floats even_b = fma(d[2], splat(-kA2), d[4]), odd_b = fma(d[1], splat(-kA2), d[3]);
    t[0] = fma(d[0], splat(kA2 * kB2), fma(d[2], splat(-kA2 - kB2), d[4]));
    t[1] = fma(odd_a, splat(kA), even_a);
    t[2] = fma(odd_a, splat(-kA), even_a);
    t[3] = fma(odd_b, splat(kB), even_b);
    t[4] = fma(odd_b, splat(-kB), even_b);
    t[5] = fma(d[1], splat(kA2 * kB2), fma(d[3], splat(-kA2 - kB2), d[5]));
}

// Computes the outputs of an axis from the values at the interpolation points.
DOVETAIL_INLINE void transform_output(const Floats (&m)[4], Floats (&y)[2]) {
    y[0] = m[0] + m[1] + m[2];
    y[1] = m[1] - m[2] + m[3];
}
DOVETAIL_INLINE void transform_output(const Floats (&m)[6], Floats (&y)[4]) {
    const Floats even_a = m[1] + m[2], odd_a = m[1] - m[2], even_b = m[3] + m[4], odd_b = m[3] - m[4];
    y[0] = m[0] + even_a + even_b;
    y[1] = fma(odd_a, splat(kA), odd_b * kB);
    y[2] = fma(even_a, splat(kA2), even_b * kB2);
    y[3] = fma(odd_a, splat(kA3), fma(odd_b, splat(kB3), m[5]));
}

template <int kIn>
void input(float* to, std::int64_t point_stride, const float* const* pixels, std::int64_t channels) {
    for (std::int64_t c = 0; c < channels; c += kLanes) {
        const std::int64_t valid = channels - c;
        Floats half[kIn][kIn];  // by point of the columns, column
#pragma GCC unroll 6
        for (int j = 0; j < kIn; ++j) {
            Floats d[kIn], t[kIn];
#pragma GCC unroll 6
            for (int i = 0; i < kIn; ++i) d[i] = load_partial(pixels[i * kIn + j] + c, valid);
            transform_input(d, t);
#pragma GCC unroll 6
            for (int i = 0; i < kIn; ++i) half[i][j] = t[i];
        }
#pragma GCC unroll 6
        for (int i = 0; i < kIn; ++i) {
            Floats t[kIn];
            transform_input(half[i], t);
#pragma GCC unroll 6
            for (int j = 0; j < kIn; ++j) store(to + (i * kIn + j) * point_stride + c, t[j]);
        }
    }
}

// The epilogue of whole vectors without an activation beyond the bounds.
template <int kOut>
DOVETAIL_INLINE void store_outputs(const WinogradOutput& tile, const Floats (&sums)[kOut][kOut], std::int64_t c) {
    const Floats low = splat(tile.epilogue.low), high = splat(tile.epilogue.high);
    const Floats bias = tile.epilogue.bias != nullptr ? load(tile.epilogue.bias + c) : Floats{};
    const float* residual = tile.epilogue.residual != nullptr ? tile.epilogue.residual + c : nullptr;
    float* y = tile.y + c;
    const std::int64_t y_row = tile.y_row, y_pixel = tile.y_pixel, rows = tile.rows, pixels = tile.pixels;
#pragma GCC unroll 4
    for (int i = 0; i < kOut; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < kOut; ++j) {
            if (i >= rows || j >= pixels) continue;
            Floats value = sums[i][j] + bias;
            if (residual != nullptr) value += load(residual + i * tile.residual_row + j * tile.residual_pixel);
            store(y + i * y_row + j * y_pixel, clamp(value, low, high));
        }
}

template <int kOut>
void output(const WinogradOutput& tile) {
    constexpr int kIn = kOut + 2;
    GemmTile epilogue = tile.epilogue;
    const float* residual = epilogue.residual;
    epilogue.y_stride = tile.y_pixel;
    epilogue.residual_stride = tile.residual_pixel;
    const bool is_plain = is_simple(epilogue);
    for (std::int64_t c = 0; c < epilogue.columns; c += kLanes) {
        const std::int64_t valid = epilogue.columns - c;
        const float* from = tile.products + c;
        Floats half[kOut][kIn], sums[kOut][kOut];
#pragma GCC unroll 6
        for (int j = 0; j < kIn; ++j) {
            Floats m[kIn], t[kOut];
#pragma GCC unroll 6
            for (int i = 0; i < kIn; ++i) m[i] = load(from + (i * kIn + j) * tile.point_stride);
            transform_output(m, t);
#pragma GCC unroll 4
            for (int i = 0; i < kOut; ++i) half[i][j] = t[i];
        }
        Floats zero{};  // NaN where a sum is infinite or NaN
#pragma GCC unroll 4
        for (int i = 0; i < kOut; ++i) {
            transform_output(half[i], sums[i]);
#pragma GCC unroll 4
            for (int j = 0; j < kOut; ++j) zero = fma(sums[i][j], Floats{}, zero);
        }
        if (__builtin_expect(sum_of(zero) != 0, 0))
            tile.mend(tile.context, reinterpret_cast<float*>(sums), c, valid < kLanes ? valid : kLanes);
        if (is_plain && valid >= kLanes)
            store_outputs(tile, sums, c);
        else
            for (int i = 0; i < tile.rows; ++i) {
                epilogue.y = tile.y + i * tile.y_row;
                if (residual != nullptr) epilogue.residual = residual + i * tile.residual_row;
                store_any(epilogue, sums[i], static_cast<int>(tile.pixels), 1, c);
            }
    }
}

}  // namespace

extern const WinogradKernels winograd_kernel_table[2];
const WinogradKernels winograd_kernel_table[2] = {{input<4>, output<2>}, {input<6>, output<4>}};

}  // namespace dovetail::DOVETAIL_ISA
