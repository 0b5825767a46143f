// Squared distances of f32 rows, summed in f64.
#pragma once

#include <cstdint>

#include "isa.h"

namespace dovetail {

constexpr std::int64_t kDistanceColumns = 32;  // vectors that are compared with one row together

// `totals[c]` = sum over i < size of (x[i * step] - v[i * kDistanceColumns + c])^2, for kDistanceColumns vectors.
using DistanceFunction = void (*)(const float* x, std::int64_t step, const float* v, std::int64_t size, double* totals);

DOVETAIL_DECLARE_PER_ISA(DistanceFunction squared_distances();)

}  // namespace dovetail
