// Weights in the order in which tiles read them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/product.h"
#include "step.h"

namespace dovetail {

// A run of columns that one tile covers.
struct Panel {
    std::int64_t first;  // column
    std::int64_t columns;
    int vectors;
};

// `columns` cut into panels of `widest` vectors; no panel of one vector is left beside wider ones.
std::vector<Panel> panels_of(std::int64_t columns, int widest, int lanes);

// A matrix of constants: element (k, j) lies at `from` + order[k] + j * stride floats.
struct Matrix {
    const float* from;
    std::vector<std::int64_t> order;
    std::int64_t stride;
};

// The matrix panel by panel, in each k by k whole vectors, zeros behind the last column. A panel begins at first * depth floats.
std::shared_ptr<const float> pack(const Matrix& matrix, const std::vector<Panel>& panels, int lanes);

// The same, kept in the store under the constant's address and what distinguishes this packing.
std::shared_ptr<const float> pack_once(Store& store, const std::string& packing, const Matrix& matrix, const std::vector<Panel>& panels,
                                       int lanes);

// How a line of `length` rows is cut into tiles of nearly equal size, and how wide the panels beside it are.
struct Cut {
    int vectors;         // of the widest panel
    std::int64_t tiles;  // of a line
};

// The cheapest cut for the registers there are. `step`: floats from row to row.
Cut cut_of(std::int64_t length, std::int64_t columns, std::int64_t step, const ProductTable& table);

}  // namespace dovetail
