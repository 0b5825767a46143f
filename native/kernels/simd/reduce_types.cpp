// Reductions of f64 and integers: plain loops over independent accumulators, which the compiler vectorizes.
#include "kernels/reduce.h"
#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

// Accumulators of one contiguous row.
constexpr int kParts = 16;

// Signed integers are combined as unsigned ones, since they wrap around.
template <typename T>
using Wrapping = std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>;

struct Sum {
    template <typename T>
    DOVETAIL_INLINE Total<T> map(T x, T) {
        return static_cast<Total<T>>(x);
    }
    template <typename T>
    DOVETAIL_INLINE Total<T> combine(Total<T> total, Total<T> x) {
        return static_cast<Total<T>>(static_cast<Wrapping<T>>(total) + static_cast<Wrapping<T>>(x));
    }
    template <typename T>
    DOVETAIL_INLINE Total<T> identity() {
        return 0;
    }
};

struct SumAbs : Sum {
    template <typename T>
    DOVETAIL_INLINE Total<T> map(T x, T) {
        const auto wide = static_cast<Wrapping<T>>(static_cast<Total<T>>(x));
        return static_cast<Total<T>>(x < 0 || (std::is_floating_point_v<T> && x == 0) ? 0 - wide : wide);
    }
};

struct SumSquare : Sum {
    template <typename T>
    DOVETAIL_INLINE Total<T> map(T x, T) {
        const auto wide = static_cast<Wrapping<T>>(static_cast<Total<T>>(x));
        return static_cast<Total<T>>(wide * wide);
    }
};

struct SumExp : Sum {
    DOVETAIL_INLINE double map(double x, double offset) { return __builtin_exp(x - offset); }
};

struct Max {
    template <typename T>
    DOVETAIL_INLINE Total<T> map(T x, T) {
        return static_cast<Total<T>>(x);
    }
    template <typename T>
    DOVETAIL_INLINE Total<T> combine(Total<T> total, Total<T> x) {
        return ((x > total) | (x != x)) ? x : total;
    }
    template <typename T>
    DOVETAIL_INLINE Total<T> identity() {
        if constexpr (std::is_floating_point_v<T>)
            return -__builtin_inf();
        else
            return std::is_signed_v<T> ? static_cast<Total<T>>(std::int64_t{1} << 63) : 0;
    }
};

struct Min {
    template <typename T>
    DOVETAIL_INLINE Total<T> map(T x, T) {
        return static_cast<Total<T>>(x);
    }
    template <typename T>
    DOVETAIL_INLINE Total<T> combine(Total<T> total, Total<T> x) {
        return ((x < total) | (x != x)) ? x : total;
    }
    template <typename T>
    DOVETAIL_INLINE Total<T> identity() {
        if constexpr (std::is_floating_point_v<T>)
            return __builtin_inf();
        else
            return std::is_signed_v<T> ? static_cast<Total<T>>(~(std::uint64_t{1} << 63)) : ~Total<T>{0};
    }
};

struct Product {
    template <typename T>
    DOVETAIL_INLINE Total<T> map(T x, T) {
        return static_cast<Total<T>>(x);
    }
    template <typename T>
    DOVETAIL_INLINE Total<T> combine(Total<T> total, Total<T> x) {
        return static_cast<Total<T>>(static_cast<Wrapping<T>>(total) * static_cast<Wrapping<T>>(x));
    }
    template <typename T>
    DOVETAIL_INLINE Total<T> identity() {
        return 1;
    }
};

template <typename T>
DOVETAIL_INLINE T read(const std::byte* address) {
    return *reinterpret_cast<const T*>(address);
}

template <typename F, typename T>
DOVETAIL_INLINE Total<T> reduce_row(const T* x, std::int64_t count, T offset) {
    Total<T> parts[kParts];
    for (int v = 0; v < kParts; ++v) parts[v] = F::template identity<T>();
    std::int64_t i = 0;
    for (; i + kParts <= count; i += kParts)
        for (int v = 0; v < kParts; ++v) parts[v] = F::template combine<T>(parts[v], F::map(x[i + v], offset));
    for (; i < count; ++i) parts[0] = F::template combine<T>(parts[0], F::map(x[i], offset));
    for (int width = kParts / 2; width > 0; width /= 2)
        for (int v = 0; v < width; ++v) parts[v] = F::template combine<T>(parts[v], parts[v + width]);
    return parts[0];
}

template <typename F, typename T>
void reduce(const ReduceBlock<T>& block) {
    constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
    if (block.stride == kSize && !(block.column_stride == kSize && block.width > 1)) {
        for (std::int64_t column = 0; column < block.width; ++column) {
            const T* x = reinterpret_cast<const T*>(block.x + column * block.column_stride);
            const T offset = block.offsets ? block.offsets[column] : T{};
            block.totals[column] = F::template combine<T>(block.totals[column], reduce_row<F>(x, block.count, offset));
        }
        return;
    }
    for (std::int64_t row = 0; row < block.count; ++row) {
        const std::byte* x = block.x + row * block.stride;
        Total<T>* totals = block.totals;
        const T* offsets = block.offsets;
        if (block.column_stride == kSize && offsets == nullptr) {
            const T* columns = reinterpret_cast<const T*>(x);
            DOVETAIL_INDEPENDENT
            for (std::int64_t i = 0; i < block.width; ++i) totals[i] = F::template combine<T>(totals[i], F::map(columns[i], T{}));
            continue;
        }
        for (std::int64_t i = 0; i < block.width; ++i) {
            const T offset = offsets ? offsets[i] : T{};
            totals[i] = F::template combine<T>(totals[i], F::map(read<T>(x + i * block.column_stride), offset));
        }
    }
}

}  // namespace

template <typename T>
ReduceFunctions<T> reduce_functions() {
    typename ReduceFunctions<T>::Function sum_exp = nullptr;
    if constexpr (std::is_floating_point_v<T>) sum_exp = reduce<SumExp, T>;
    return {
        {reduce<Sum, T>, reduce<SumAbs, T>, reduce<SumSquare, T>, sum_exp, reduce<Max, T>, reduce<Min, T>, reduce<Product, T>}};
}

template ReduceFunctions<double> reduce_functions<double>();
template ReduceFunctions<std::int8_t> reduce_functions<std::int8_t>();
template ReduceFunctions<std::int16_t> reduce_functions<std::int16_t>();
template ReduceFunctions<std::int32_t> reduce_functions<std::int32_t>();
template ReduceFunctions<std::int64_t> reduce_functions<std::int64_t>();
template ReduceFunctions<std::uint8_t> reduce_functions<std::uint8_t>();
template ReduceFunctions<std::uint16_t> reduce_functions<std::uint16_t>();
template ReduceFunctions<std::uint32_t> reduce_functions<std::uint32_t>();
template ReduceFunctions<std::uint64_t> reduce_functions<std::uint64_t>();

}  // namespace dovetail::DOVETAIL_ISA
