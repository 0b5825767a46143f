// The micro-kernel of matrix products of f64 and integers, in vectors of 64 bytes; the compiler divides them for narrower
// instruction sets.
#include "kernels/matmul_types.h"

#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

template <typename T>
struct Lanes {
    typedef T Type __attribute__((vector_size(64)));
};

template <typename T>
void multiply(const ProductBlock<T>& block) {
    using V = typename Lanes<T>::Type;
    constexpr int kVectors = 2;
    V sums[kProductRows][kVectors];
    __builtin_memcpy(&sums, block.sums, sizeof sums);
    for (std::int64_t k = 0; k < block.depth; ++k) {
        V b[kVectors];
        __builtin_memcpy(&b, block.b + k * block.b_row, sizeof b);
        for (int row = 0; row < kProductRows; ++row) {
            const T a = block.a[row * block.a_row + k * block.a_column];
            for (int v = 0; v < kVectors; ++v) sums[row][v] += b[v] * a;
        }
    }
    __builtin_memcpy(block.sums, &sums, sizeof sums);
}

}  // namespace

template <typename T>
ProductFunction<T> product_function() {
    return multiply<T>;
}

template ProductFunction<double> product_function<double>();
template ProductFunction<std::uint8_t> product_function<std::uint8_t>();
template ProductFunction<std::uint16_t> product_function<std::uint16_t>();
template ProductFunction<std::uint32_t> product_function<std::uint32_t>();
template ProductFunction<std::uint64_t> product_function<std::uint64_t>();

}  // namespace dovetail::DOVETAIL_ISA
