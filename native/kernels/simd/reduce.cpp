// Reductions of f32. Short runs are added in f32, in many lanes, and the sums of the runs in f64, which is as accurate as
// pairwise summation.
#include "kernels/reduce.h"

#include "kernels/simd/math.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

// Number of f32 that are added one after another, before the sum is added in f64.
constexpr std::int64_t kDepth = 32;

DOVETAIL_INLINE Doubles to_doubles(Floats x) { return __builtin_convertvector(x, Doubles); }

struct Summation {
    DOVETAIL_INLINE float identity() { return 0; }
    DOVETAIL_INLINE Floats combine(Floats total, Floats x) { return total + x; }
    DOVETAIL_INLINE Doubles combine(Doubles total, Doubles x) { return total + x; }
    DOVETAIL_INLINE double combine(double total, double x) { return total + x; }
};

struct Sum : Summation {
    DOVETAIL_INLINE Floats map(Floats x, Floats) { return x; }
};

struct SumAbs : Summation {
    DOVETAIL_INLINE Floats map(Floats x, Floats) { return abs(x); }
};

struct SumSquare : Summation {
    DOVETAIL_INLINE Floats map(Floats x, Floats) { return x * x; }
};

struct SumExp : Summation {
    DOVETAIL_INLINE Floats map(Floats x, Floats offset) { return exp(x - offset); }
};

struct Max {
    DOVETAIL_INLINE float identity() { return -__builtin_inff(); }
    DOVETAIL_INLINE Floats map(Floats x, Floats) { return x; }
    DOVETAIL_INLINE Floats combine(Floats total, Floats x) { return x != x ? x : greater_of(x, total); }
    DOVETAIL_INLINE Doubles combine(Doubles total, Doubles x) { return ((x > total) | (x != x)) ? x : total; }
    DOVETAIL_INLINE double combine(double total, double x) { return x > total || x != x ? x : total; }
};

struct Min {
    DOVETAIL_INLINE float identity() { return __builtin_inff(); }
    DOVETAIL_INLINE Floats map(Floats x, Floats) { return x; }
    DOVETAIL_INLINE Floats combine(Floats total, Floats x) { return x != x ? x : lesser_of(x, total); }
    DOVETAIL_INLINE Doubles combine(Doubles total, Doubles x) { return ((x < total) | (x != x)) ? x : total; }
    DOVETAIL_INLINE double combine(double total, double x) { return x < total || x != x ? x : total; }
};

DOVETAIL_INLINE const float* floats(const std::byte* address) { return reinterpret_cast<const float*>(address); }

// Returns the first `count` lanes of x, and `other` in the remaining lanes.
DOVETAIL_INLINE Floats first_lanes(Floats x, std::int64_t count, float other) {
    Ints lanes;
    for (int i = 0; i < kLanes; ++i) lanes[i] = i;
    return lanes < static_cast<std::int32_t>(count) ? x : splat(other);
}

// ---- contiguous along the reduced axis ----

template <typename F>
DOVETAIL_INLINE double short_row(const float* x, std::int64_t count, Floats offset) {
    Floats parts[2] = {splat(F::identity()), splat(F::identity())};
    std::int64_t i = 0;
    for (; i + 2 * kLanes <= count; i += 2 * kLanes)
        for (int v = 0; v < 2; ++v) parts[v] = F::combine(parts[v], F::map(load(x + i + v * kLanes), offset));
    if (i + kLanes <= count) {
        parts[0] = F::combine(parts[0], F::map(load(x + i), offset));
        i += kLanes;
    }
    if (i < count)
        parts[1] = F::combine(parts[1], first_lanes(F::map(load_first(x + i, count - i), offset), count - i, F::identity()));
    const auto join = [](Floats a, Floats b) __attribute__((always_inline)) { return F::combine(a, b); };
    return static_cast<double>(reduce_lanes(F::combine(parts[0], parts[1]), join));
}

template <typename F>
DOVETAIL_INLINE double dense(const float* x, std::int64_t count, float offset_number) {
    const Floats offset = splat(offset_number);
    if (count <= kDepth * kLanes) return short_row<F>(x, count, offset);
    Doubles totals = to_doubles(splat(F::identity()));
    std::int64_t i = 0;
    while (count - i >= 4 * kLanes) {
        Floats parts[4];
        for (int v = 0; v < 4; ++v) parts[v] = F::map(load(x + i + v * kLanes), offset);
        const std::int64_t blocks = (count - i) / (4 * kLanes);
        const std::int64_t stop = i + 4 * kLanes * (blocks < kDepth ? blocks : kDepth);
        for (i += 4 * kLanes; i < stop; i += 4 * kLanes)
            for (int v = 0; v < 4; ++v) parts[v] = F::combine(parts[v], F::map(load(x + i + v * kLanes), offset));
        totals = F::combine(totals, to_doubles(F::combine(F::combine(parts[0], parts[1]), F::combine(parts[2], parts[3]))));
    }
    Floats part = splat(F::identity());
    for (; i + kLanes <= count; i += kLanes) part = F::combine(part, F::map(load(x + i), offset));
    if (i < count) part = F::combine(part, first_lanes(F::map(load_first(x + i, count - i), offset), count - i, F::identity()));
    totals = F::combine(totals, to_doubles(part));
    double lanes[kLanes];
    __builtin_memcpy(lanes, &totals, sizeof lanes);
    for (int width = kLanes / 2; width > 0; width /= 2)
        for (int lane = 0; lane < width; ++lane) lanes[lane] = F::combine(lanes[lane], lanes[lane + width]);
    return lanes[0];
}

// Reduces elements with any stride, which are copied to a buffer in blocks.
template <typename F>
DOVETAIL_INLINE double strided(const std::byte* x, std::int64_t count, std::int64_t stride, float offset) {
    constexpr std::int64_t kGathered = 256;
    float gathered[kGathered];
    double total = F::identity();
    for (std::int64_t first = 0; first < count; first += kGathered) {
        const std::int64_t size = count - first < kGathered ? count - first : kGathered;
        for (std::int64_t i = 0; i < size; ++i) gathered[i] = *floats(x + (first + i) * stride);
        total = F::combine(total, dense<F>(gathered, size, offset));
    }
    return total;
}

// ---- contiguous across the reduced axis ----

template <typename F, int Vectors, bool IsPartial>
DOVETAIL_INLINE void columns(const ReduceBlock<float>& block, std::int64_t column, std::int64_t tail) {
    Floats offsets[Vectors];
    for (int v = 0; v < Vectors; ++v) offsets[v] = block.offsets ? load(block.offsets + column + v * kLanes) : Floats{};
    for (std::int64_t row = 0; row < block.count; row += kDepth) {
        const std::int64_t stop = row + kDepth < block.count ? row + kDepth : block.count;
        Floats parts[Vectors];
        for (int v = 0; v < Vectors; ++v) parts[v] = splat(F::identity());
        for (std::int64_t i = row; i < stop; ++i) {
            const float* x = floats(block.x + i * block.stride) + column;
            for (int v = 0; v < Vectors; ++v) {
                const Floats x_values = IsPartial ? load_first(x + v * kLanes, tail) : load(x + v * kLanes);
                parts[v] = F::combine(parts[v], F::map(x_values, offsets[v]));
            }
        }
        for (int v = 0; v < Vectors; ++v) {
            Doubles total;
            double* address = block.totals + column + v * kLanes;
            __builtin_memcpy(&total, address, sizeof total);
            total = F::combine(total, to_doubles(parts[v]));
            __builtin_memcpy(address, &total, sizeof total);
        }
    }
}

template <typename F>
void reduce(const ReduceBlock<float>& block) {
    std::int64_t column = 0;
    if (block.column_stride == 4 && block.width > 1) {
        constexpr int kVectors = 8;
        for (; column + kVectors * kLanes <= block.width; column += kVectors * kLanes)
            columns<F, kVectors, false>(block, column, kLanes);
        for (; column + kLanes <= block.width; column += kLanes) columns<F, 1, false>(block, column, kLanes);
        if (column < block.width) columns<F, 1, true>(block, column, block.width - column);
        return;
    }
    for (; column < block.width; ++column) {
        const std::byte* x = block.x + column * block.column_stride;
        const float offset = block.offsets ? block.offsets[column] : 0;
        const double part =
            block.stride == 4 ? dense<F>(floats(x), block.count, offset) : strided<F>(x, block.count, block.stride, offset);
        block.totals[column] = F::combine(block.totals[column], part);
    }
}

// Products are computed in f64 throughout: the lanes of an f32 product would multiply in another order, in which they might
// overflow.
void product(const ReduceBlock<float>& block) {
    for (std::int64_t column = 0; column < block.width; ++column) {
        const std::byte* x = block.x + column * block.column_stride;
        double total = block.totals[column];
        for (std::int64_t i = 0; i < block.count; ++i) total *= *floats(x + i * block.stride);
        block.totals[column] = total;
    }
}

}  // namespace

template <typename T>
ReduceFunctions<T> reduce_functions();

template <>
ReduceFunctions<float> reduce_functions<float>() {
    return {{reduce<Sum>, reduce<SumAbs>, reduce<SumSquare>, reduce<SumExp>, reduce<Max>, reduce<Min>, product}};
}

}  // namespace dovetail::DOVETAIL_ISA
