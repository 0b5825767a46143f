// Kernels for rows of dense indices along one axis: the range check of the indices, and the copy of the elements at the indices.
#pragma once

#include <cstdint>

#include "isa.h"

namespace dovetail {

// True if all indices are in [0, size), or with `wraps` in [-size, size).
template <typename Index>
using RangeCheck = bool (*)(const Index* indices, std::int64_t count, std::int64_t size, bool wraps);

// to[i] = data[i * step + index * stride], steps in elements, for indices in range.
template <typename Index, typename T>
using GatherRow = void (*)(T* to, const T* data, const Index* indices, std::int64_t count, std::int64_t step, std::int64_t stride,
                           std::int64_t wrapped_size);

// Instantiated for indices of i32, u32 and i64, and elements of 1, 2, 4 and 8 bytes.
DOVETAIL_DECLARE_PER_ISA(template <typename Index> RangeCheck<Index> range_check();
                         template <typename Index, typename T> GatherRow<Index, T> gather_row();)

}  // namespace dovetail
