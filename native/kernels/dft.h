// Fast Fourier transforms of one length: Stockham stages of small radices, over one line or many side by side.
#pragma once

#include <cstdint>

#include "isa.h"

namespace dovetail {

// One stage of the transform: `m` butterflies of `radix` elements for each of `stride` interleaved transforms.
struct FftStage {
    std::int64_t radix;
    std::int64_t m;
    std::int64_t stride;
    const double* twiddles;  // [m][radix][2]: exp(-2 pi i p k / (m * radix))
    const double* roots;     // [radix][2]: exp(-2 pi i k / radix)
};

constexpr std::int64_t kMaxRadix = 13;
// Lines that are transformed side by side: one vector of 64 bytes.
constexpr std::int64_t kFftLanes = 64 / static_cast<std::int64_t>(sizeof(double));

// Runs the stages on `x` [2][n][lanes], real parts first, with `y` as the other buffer of each stage. If `in_lanes`, the buffers
// have kFftLanes lanes, otherwise 1. The result is in `x` after an even number of stages, in `y` after an odd number.
using FftFunction = void (*)(const FftStage* stages, int count, std::int64_t n, bool in_lanes, double* x, double* y);

DOVETAIL_DECLARE_PER_ISA(FftFunction fft();)

}  // namespace dovetail
