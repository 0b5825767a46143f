// Squared distances between one row of f32 and several vectors, whose elements are interleaved.
#include "kernels/distances.h"

#include "kernels/simd/vector.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

void sum_squares(const float* x, std::int64_t step, const float* v, std::int64_t size, double* totals) {
    constexpr int kVectors = kDistanceColumns / kLanes;
    Doubles sums[kVectors] = {};
    for (std::int64_t i = 0; i < size; ++i) {
        const double value = x[i * step];
        for (int j = 0; j < kVectors; ++j) {
            const Doubles difference = value - __builtin_convertvector(load(v + i * kDistanceColumns + j * kLanes), Doubles);
            sums[j] += difference * difference;
        }
    }
    for (int j = 0; j < kVectors; ++j) __builtin_memcpy(totals + j * kLanes, &sums[j], sizeof sums[j]);
}

}  // namespace

DistanceFunction squared_distances() { return sum_squares; }

}  // namespace dovetail::DOVETAIL_ISA
