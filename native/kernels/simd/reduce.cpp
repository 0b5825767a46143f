// Reductions of f32. A few elements are added in f32, in many lanes; those sums in f64: as exact as sums by halves.
#include "kernels/reduce.h"

#include "kernels/simd/math.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

// How many f32 are added one after another.
constexpr std::int64_t kDepth = 32;

DOVETAIL_INLINE Doubles wide(Floats x) { return __builtin_convertvector(x, Doubles); }

struct Adding {
    DOVETAIL_INLINE float start() { return 0; }
    DOVETAIL_INLINE Floats add(Floats total, Floats x) { return total + x; }
    DOVETAIL_INLINE Doubles add(Doubles total, Doubles x) { return total + x; }
    DOVETAIL_INLINE double add(double total, double x) { return total + x; }
};

struct Sum : Adding {
    DOVETAIL_INLINE Floats of(Floats x, Floats) { return x; }
};

struct SumAbs : Adding {
    DOVETAIL_INLINE Floats of(Floats x, Floats) { return abs(x); }
};

struct SumSquare : Adding {
    DOVETAIL_INLINE Floats of(Floats x, Floats) { return x * x; }
};

struct SumExp : Adding {
    DOVETAIL_INLINE Floats of(Floats x, Floats offset) { return exp(x - offset); }
};

struct Max {
    DOVETAIL_INLINE float start() { return -__builtin_inff(); }
    DOVETAIL_INLINE Floats of(Floats x, Floats) { return x; }
    DOVETAIL_INLINE Floats add(Floats total, Floats x) { return x != x ? x : greater_of(x, total); }
    DOVETAIL_INLINE Doubles add(Doubles total, Doubles x) { return (x > total) | (x != x) ? x : total; }
    DOVETAIL_INLINE double add(double total, double x) { return x > total || x != x ? x : total; }
};

struct Min {
    DOVETAIL_INLINE float start() { return __builtin_inff(); }
    DOVETAIL_INLINE Floats of(Floats x, Floats) { return x; }
    DOVETAIL_INLINE Floats add(Floats total, Floats x) { return x != x ? x : lesser_of(x, total); }
    DOVETAIL_INLINE Doubles add(Doubles total, Doubles x) { return (x < total) | (x != x) ? x : total; }
    DOVETAIL_INLINE double add(double total, double x) { return x < total || x != x ? x : total; }
};

DOVETAIL_INLINE const float* floats(const std::byte* place) { return reinterpret_cast<const float*>(place); }

// The first `count` lanes of x, and `other` in the rest.
DOVETAIL_INLINE Floats first_lanes(Floats x, std::int64_t count, float other) {
    Ints lanes;
    for (int i = 0; i < kLanes; ++i) lanes[i] = i;
    return lanes < static_cast<std::int32_t>(count) ? x : splat(other);
}

// ---- elements that lie dense along what is reduced ----

template <typename F>
DOVETAIL_INLINE double short_row(const float* x, std::int64_t count, Floats offset) {
    Floats parts[2] = {splat(F::start()), splat(F::start())};
    std::int64_t i = 0;
    for (; i + 2 * kLanes <= count; i += 2 * kLanes)
        for (int v = 0; v < 2; ++v) parts[v] = F::add(parts[v], F::of(load(x + i + v * kLanes), offset));
    if (i + kLanes <= count) {
        parts[0] = F::add(parts[0], F::of(load(x + i), offset));
        i += kLanes;
    }
    if (i < count) parts[1] = F::add(parts[1], first_lanes(F::of(load_first(x + i, count - i), offset), count - i, F::start()));
    const auto join = [](Floats a, Floats b) __attribute__((always_inline)) { return F::add(a, b); };
    return static_cast<double>(joined_lanes(F::add(parts[0], parts[1]), join));
}

template <typename F>
DOVETAIL_INLINE double dense(const float* x, std::int64_t count, float offset_number) {
    const Floats offset = splat(offset_number);
    if (count <= kDepth * kLanes) return short_row<F>(x, count, offset);
    Doubles totals = wide(splat(F::start()));
    std::int64_t i = 0;
    while (count - i >= 4 * kLanes) {
        Floats parts[4];
        for (int v = 0; v < 4; ++v) parts[v] = F::of(load(x + i + v * kLanes), offset);
        const std::int64_t room = (count - i) / (4 * kLanes);
        const std::int64_t stop = i + 4 * kLanes * (room < kDepth ? room : kDepth);
        for (i += 4 * kLanes; i < stop; i += 4 * kLanes)
            for (int v = 0; v < 4; ++v) parts[v] = F::add(parts[v], F::of(load(x + i + v * kLanes), offset));
        totals = F::add(totals, wide(F::add(F::add(parts[0], parts[1]), F::add(parts[2], parts[3]))));
    }
    Floats part = splat(F::start());
    for (; i + kLanes <= count; i += kLanes) part = F::add(part, F::of(load(x + i), offset));
    if (i < count) part = F::add(part, first_lanes(F::of(load_first(x + i, count - i), offset), count - i, F::start()));
    totals = F::add(totals, wide(part));
    double lanes[kLanes];
    __builtin_memcpy(lanes, &totals, sizeof lanes);
    for (int width = kLanes / 2; width > 0; width /= 2)
        for (int lane = 0; lane < width; ++lane) lanes[lane] = F::add(lanes[lane], lanes[lane + width]);
    return lanes[0];
}

// Elements anywhere: brought together, some at a time.
template <typename F>
DOVETAIL_INLINE double spread(const std::byte* x, std::int64_t count, std::int64_t stride, float offset) {
    constexpr std::int64_t kTogether = 256;
    float together[kTogether];
    double total = F::start();
    for (std::int64_t first = 0; first < count; first += kTogether) {
        const std::int64_t size = count - first < kTogether ? count - first : kTogether;
        for (std::int64_t i = 0; i < size; ++i) together[i] = *floats(x + (first + i) * stride);
        total = F::add(total, dense<F>(together, size, offset));
    }
    return total;
}

// ---- elements that lie dense across what is reduced ----

template <typename F, int Vectors, bool IsPartial>
DOVETAIL_INLINE void columns(const ReduceBlock& block, std::int64_t column, std::int64_t tail) {
    Floats offsets[Vectors];
    for (int v = 0; v < Vectors; ++v) offsets[v] = block.offsets ? load(block.offsets + column + v * kLanes) : Floats{};
    for (std::int64_t row = 0; row < block.count; row += kDepth) {
        const std::int64_t stop = row + kDepth < block.count ? row + kDepth : block.count;
        Floats parts[Vectors];
        for (int v = 0; v < Vectors; ++v) parts[v] = splat(F::start());
        for (std::int64_t i = row; i < stop; ++i) {
            const float* x = floats(block.x + i * block.stride) + column;
            for (int v = 0; v < Vectors; ++v) {
                const Floats each = IsPartial ? load_first(x + v * kLanes, tail) : load(x + v * kLanes);
                parts[v] = F::add(parts[v], F::of(each, offsets[v]));
            }
        }
        for (int v = 0; v < Vectors; ++v) {
            Doubles total;
            double* place = block.totals + column + v * kLanes;
            __builtin_memcpy(&total, place, sizeof total);
            total = F::add(total, wide(parts[v]));
            __builtin_memcpy(place, &total, sizeof total);
        }
    }
}

template <typename F>
void reduce(const ReduceBlock& block) {
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
            block.stride == 4 ? dense<F>(floats(x), block.count, offset) : spread<F>(x, block.count, block.stride, offset);
        block.totals[column] = F::add(block.totals[column], part);
    }
}

// In f64 throughout: what lanes of f32 multiply would overflow in an order of its own.
void product(const ReduceBlock& block) {
    for (std::int64_t column = 0; column < block.width; ++column) {
        const std::byte* x = block.x + column * block.column_stride;
        double total = block.totals[column];
        for (std::int64_t i = 0; i < block.count; ++i) total *= *floats(x + i * block.stride);
        block.totals[column] = total;
    }
}

}  // namespace

ReduceFunctions reduce_functions() {
    return {{reduce<Sum>, reduce<SumAbs>, reduce<SumSquare>, reduce<SumExp>, reduce<Max>, reduce<Min>, product}};
}

}  // namespace dovetail::DOVETAIL_ISA
