// Weights in the order in which tiles read them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/gemm_microkernel.h"
#include "kernel.h"

namespace dovetail {

// A run of columns that one tile covers.
struct Panel {
    std::int64_t first;  // column
    std::int64_t columns;
    int vectors;
};

// `columns` cut into panels of `widest` vectors; no panel of one vector is left beside wider ones.
std::vector<Panel> panels_of(std::int64_t columns, int widest, int lanes);

// A matrix of constants: element (k, j) lies at `from` + order[k] + j * stride floats, and is multiplied by factor[j] unless that is null.
struct Matrix {
    const float* from;
    std::vector<std::int64_t> order;
    std::int64_t stride;
    const float* factor = nullptr;
};

// The matrix panel by panel, in each k by k whole vectors, zeros behind the last column. A panel begins at first * depth floats.
std::shared_ptr<const float> pack(const Matrix& matrix, const std::vector<Panel>& panels, int lanes);

// The same, kept in the store under the constant's address and what distinguishes this packing.
std::shared_ptr<const float> pack_once(Store& store, const std::string& packing, const Matrix& matrix,
                                       const std::vector<Panel>& panels, int lanes);

// Weights that come to be read when a run of panels is done: each tile fetches its part of them into the second level of cache.
struct Ahead {
    const float* from;  // null: nothing follows
    std::int64_t floats;
    std::int64_t tiles;  // that share the work

    // Puts into `tile`, the `index`th of them and at `panel` of `panels`, what it is to fetch.
    void set(ProductTile& tile, std::int64_t index, std::int64_t panel, std::int64_t panels) const;
};

// How a line of `length` rows is cut into tiles of nearly equal size, and how wide the panels beside it are.
struct Cut {
    int vectors;         // of the widest panel
    std::int64_t tiles;  // of a line
    double cost;         // of a line, in cycles for each position
};

// The cheapest cut for the registers there are. `step`: floats from row to row. `depth`: positions that a panel holds together.
Cut cut_of(std::int64_t length, std::int64_t columns, std::int64_t step, std::int64_t depth, const ProductTable& table);

}  // namespace dovetail
