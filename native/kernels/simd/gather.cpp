// Rows of dense indices: plain loops, which the compiler vectorizes.
#include "kernels/gather_rows.h"

#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

template <typename Index>
bool are_in_range(const Index* indices, std::int64_t count, std::int64_t size, bool wraps) {
    const auto limit = static_cast<std::uint64_t>(size), shift = wraps ? limit : 0;
    std::uint64_t outside = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        const auto index = static_cast<std::int64_t>(indices[i]);
        const std::uint64_t position = static_cast<std::uint64_t>(index) + (index < 0 ? shift : 0);
        outside |= static_cast<std::uint64_t>(position >= limit);
    }
    return outside == 0;
}

template <typename Index, typename T>
void gather(T* to, const T* data, const Index* indices, std::int64_t count, std::int64_t step, std::int64_t stride,
            std::int64_t wrapped_size) {
    const auto position = [wrapped_size](Index index) __attribute__((always_inline)) {
        const auto wide = static_cast<std::int64_t>(index);
        return wide + (wide < 0 ? wrapped_size : 0);
    };
    if (step == 0 && stride == 1) {
        DOVETAIL_INDEPENDENT
        for (std::int64_t i = 0; i < count; ++i) to[i] = data[position(indices[i])];
    } else {
        DOVETAIL_INDEPENDENT
        for (std::int64_t i = 0; i < count; ++i) to[i] = data[i * step + position(indices[i]) * stride];
    }
}

}  // namespace

template <typename Index>
RangeCheck<Index> range_check() {
    return are_in_range<Index>;
}

template <typename Index, typename T>
GatherRow<Index, T> gather_row() {
    return gather<Index, T>;
}

#define DOVETAIL_INDEX_TYPE(Index)                                               \
    template RangeCheck<Index> range_check<Index>();                             \
    template GatherRow<Index, std::uint8_t> gather_row<Index, std::uint8_t>();   \
    template GatherRow<Index, std::uint16_t> gather_row<Index, std::uint16_t>(); \
    template GatherRow<Index, std::uint32_t> gather_row<Index, std::uint32_t>(); \
    template GatherRow<Index, std::uint64_t> gather_row<Index, std::uint64_t>();
DOVETAIL_INDEX_TYPE(std::int32_t)
DOVETAIL_INDEX_TYPE(std::uint32_t)
DOVETAIL_INDEX_TYPE(std::int64_t)

}  // namespace dovetail::DOVETAIL_ISA
