// Packed weights: constants in the order in which GEMM tiles read them.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernel.h"
#include "kernels/gemm_microkernel.h"

namespace dovetail {

// The columns of one tile.
struct Panel {
    std::int64_t first;  // index of the first column
    std::int64_t columns;
    int vectors;
};

// Divides `columns` into panels of `widest` vectors. A panel of one vector occurs only if `widest` is at most 2, or if it is
// the only panel.
std::vector<Panel> panels_of(std::int64_t columns, int widest, int lanes);

// A matrix of weights: element (k, j) is from[order[k] + j * stride] * factor[j], or 0 where order[k] is kZero; a null `factor`
// is 1. With `is_bf16`, elements (2k, j) and (2k + 1, j) are rounded to bf16 and packed as one float; the depth is even.
struct Matrix {
    // Offsets of the reversed taps of a transposed convolution are negative.
    static constexpr std::int64_t kZero = std::numeric_limits<std::int64_t>::min();
    const float* from;
    std::vector<std::int64_t> order;
    std::int64_t stride;
    const float* factor = nullptr;
    bool is_bf16 = false;
};

// Packs a matrix panel by panel. Each panel begins first * depth floats after the start, where the depth counts packed floats.
std::shared_ptr<const float> pack(const Matrix& matrix, const std::vector<Panel>& panels, int lanes);

// Matrices of equal shape that are no constants, packed one behind the other at the start of each run.
struct MatricesOfRun {
    Matrix matrix;                     // of the first one, without the address of the weights
    std::int64_t count = 0, step = 0;  // number of matrices, and floats from one to the next in the source

    // Packed floats of one matrix.
    std::int64_t packed_floats(const std::vector<Panel>& panels, int lanes) const;
    // Packs all matrices, whose first weight is at `from`; the panels are shared among the threads.
    void pack(ThreadPool& pool, float* to, const float* from, const std::vector<Panel>& panels, int lanes) const;
};

// Returns the key of a packing of a constant: the key of the constant, the name of the packing and all integers that distinguish
// the packing.
std::string packing_key(const WeightCache& cache, const void* from, const char* packing,
                        std::initializer_list<std::int64_t> numbers);

// Returns the packed matrix from the cache; the key is the address of the constant with all parameters of the packing.
std::shared_ptr<const float> pack_cached(WeightCache& cache, const char* packing, const Matrix& matrix,
                                         const std::vector<Panel>& panels, int lanes);

// Returns the packed matrix, from the cache, of the matrix whose element (k, j) is from[k * row + j * stride], for k below
// `depth`; in bf16 an odd depth is followed by a zero.
std::shared_ptr<const float> pack_cached(WeightCache& cache, const char* packing, const float* from, std::int64_t depth,
                                         std::int64_t row, std::int64_t stride, const std::vector<Panel>& panels, int lanes,
                                         bool is_bf16 = false);

// A prefetch of the next weights into L2, divided among the tiles of a task.
struct WeightPrefetch {
    const float* from;  // null: no prefetch
    std::int64_t floats;
    std::int64_t tiles;  // number of tiles that share the prefetch

    // Sets the prefetch of `tile`, whose index is `index` and whose panel is `panel` of `panels`.
    void set(GemmTile& tile, std::int64_t index, std::int64_t panel, std::int64_t panels) const;
};

// Division of a line of rows into tiles of nearly equal size, and the width of its panels.
struct Tiling {
    int vectors;         // vectors of the widest panel
    std::int64_t tiles;  // number of tiles of a line
    double cost;         // cost of a line, in cycles per position
};

// Returns the tiling with the least cost for the available registers. `step` is the row stride in floats, `depth` the number of
// positions of one panel.
Tiling tiling_of(std::int64_t length, std::int64_t columns, std::int64_t step, std::int64_t depth, const GemmKernels& table);

}  // namespace dovetail
