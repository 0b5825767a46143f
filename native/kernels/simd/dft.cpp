// Stockham stages of fast Fourier transforms. Lanes are independent transforms.
#include "kernels/dft.h"

#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

// Scratch buffers are aligned to 64.
typedef double DoubleLanes __attribute__((vector_size(64), may_alias));

// Real and imaginary parts of a buffer.
template <typename V>
struct Parts {
    V* re;
    V* im;
};

// `V` is double or DoubleLanes.
template <typename V>
DOVETAIL_INLINE void put(Parts<V> y, std::int64_t at, V re, V im, const double* w) {
    y.re[at] = re * w[0] - im * w[1];
    y.im[at] = re * w[1] + im * w[0];
}

template <typename V>
DOVETAIL_INLINE void radix2(const FftStage& stage, Parts<V> x, Parts<V> y) {
    const std::int64_t m = stage.m, s = stage.stride;
    for (std::int64_t p = 0; p < m; ++p) {
        const double* w = stage.twiddles + p * 4;
        DOVETAIL_INDEPENDENT
        for (std::int64_t q = 0; q < s; ++q) {
            const std::int64_t a = q + s * p, b = a + s * m, to = q + s * 2 * p;
            const V re = x.re[a], im = x.im[a], other_re = x.re[b], other_im = x.im[b];
            y.re[to] = re + other_re;
            y.im[to] = im + other_im;
            put(y, to + s, re - other_re, im - other_im, w + 2);
        }
    }
}

template <typename V>
DOVETAIL_INLINE void radix4(const FftStage& stage, Parts<V> x, Parts<V> y) {
    const std::int64_t m = stage.m, s = stage.stride;
    for (std::int64_t p = 0; p < m; ++p) {
        const double* w = stage.twiddles + p * 8;
        DOVETAIL_INDEPENDENT
        for (std::int64_t q = 0; q < s; ++q) {
            const std::int64_t a = q + s * p, b = a + s * m, c = b + s * m, d = c + s * m, to = q + s * 4 * p;
            const V ac_re = x.re[a] + x.re[c], ac_im = x.im[a] + x.im[c];
            const V a_c_re = x.re[a] - x.re[c], a_c_im = x.im[a] - x.im[c];
            const V bd_re = x.re[b] + x.re[d], bd_im = x.im[b] + x.im[d];
            const V b_d_re = x.re[b] - x.re[d], b_d_im = x.im[b] - x.im[d];
            y.re[to] = ac_re + bd_re;
            y.im[to] = ac_im + bd_im;
            put(y, to + s, a_c_re + b_d_im, a_c_im - b_d_re, w + 2);
            put(y, to + 2 * s, ac_re - bd_re, ac_im - bd_im, w + 4);
            put(y, to + 3 * s, a_c_re - b_d_im, a_c_im + b_d_re, w + 6);
        }
    }
}

// Butterflies of any other radix compute the sums of the definition.
template <typename V, int kRadix>
DOVETAIL_INLINE void odd_radix(const FftStage& stage, Parts<V> x, Parts<V> y) {
    const std::int64_t m = stage.m, s = stage.stride;
    for (std::int64_t p = 0; p < m; ++p) {
        const double* w = stage.twiddles + p * kRadix * 2;
        DOVETAIL_INDEPENDENT
        for (std::int64_t q = 0; q < s; ++q) {
            // With sums and differences of elements j and radix - j, a multiplication by a root serves two frequencies.
            V sum_re[kRadix / 2], sum_im[kRadix / 2], difference_re[kRadix / 2], difference_im[kRadix / 2];
            const std::int64_t from = q + s * p, to = q + s * kRadix * p;
            const V first_re = x.re[from], first_im = x.im[from];
            V total_re = first_re, total_im = first_im;
            for (int j = 0; j < kRadix / 2; ++j) {
                const std::int64_t a = from + s * m * (j + 1), b = from + s * m * (kRadix - 1 - j);
                sum_re[j] = x.re[a] + x.re[b];
                sum_im[j] = x.im[a] + x.im[b];
                difference_re[j] = x.re[a] - x.re[b];
                difference_im[j] = x.im[a] - x.im[b];
                total_re += sum_re[j];
                total_im += sum_im[j];
            }
            y.re[to] = total_re;
            y.im[to] = total_im;
            for (int k = 1; k <= kRadix / 2; ++k) {
                V even_re = first_re, even_im = first_im, odd_re = V{}, odd_im = V{};
                for (int j = 0; j < kRadix / 2; ++j) {
                    const double* root = stage.roots + (k * (j + 1) % kRadix) * 2;
                    even_re += sum_re[j] * root[0];
                    even_im += sum_im[j] * root[0];
                    odd_re -= difference_im[j] * root[1];
                    odd_im += difference_re[j] * root[1];
                }
                put(y, to + s * k, even_re + odd_re, even_im + odd_im, w + 2 * k);
                put(y, to + s * (kRadix - k), even_re - odd_re, even_im - odd_im, w + 2 * (kRadix - k));
            }
        }
    }
}

template <typename V>
DOVETAIL_INLINE void run_stages(const FftStage* stages, int count, std::int64_t n, V* x, V* y) {
    for (int i = 0; i < count; ++i) {
        const FftStage& stage = stages[i];
        const Parts<V> from{x, x + n}, to{y, y + n};
        switch (stage.radix) {
            case 2: radix2(stage, from, to); break;
            case 3: odd_radix<V, 3>(stage, from, to); break;
            case 4: radix4(stage, from, to); break;
            case 5: odd_radix<V, 5>(stage, from, to); break;
            case 7: odd_radix<V, 7>(stage, from, to); break;
            case 11: odd_radix<V, 11>(stage, from, to); break;
            default: odd_radix<V, 13>(stage, from, to); break;
        }
        V* other = x;
        x = y;
        y = other;
    }
}

void run_fft(const FftStage* stages, int count, std::int64_t n, bool in_lanes, double* x, double* y) {
    if (in_lanes)
        run_stages(stages, count, n, reinterpret_cast<DoubleLanes*>(x), reinterpret_cast<DoubleLanes*>(y));
    else
        run_stages(stages, count, n, x, y);
}

}  // namespace

FftFunction fft() { return run_fft; }

}  // namespace dovetail::DOVETAIL_ISA
