#include "kernels/panels.h"

#include <algorithm>

namespace dovetail {

std::vector<Panel> panels_of(std::int64_t columns, int widest, int lanes) {
    std::vector<Panel> panels;
    std::int64_t left = (columns + lanes - 1) / lanes;
    for (std::int64_t first = 0; left > 0;) {
        int vectors = static_cast<int>(std::min<std::int64_t>(left, widest));
        if (left == widest + 1 && widest > 2) --vectors;
        const std::int64_t width = static_cast<std::int64_t>(vectors) * lanes;
        panels.push_back({first, std::min(width, columns - first), vectors});
        first += width;
        left -= vectors;
    }
    return panels;
}

std::shared_ptr<const float> pack(const Matrix& matrix, const std::vector<Panel>& panels, int lanes) {
    const auto depth = static_cast<std::int64_t>(matrix.order.size());
    std::int64_t width = 0;
    for (const Panel& panel : panels) width += static_cast<std::int64_t>(panel.vectors) * lanes;
    auto packed = aligned_floats(static_cast<std::size_t>(width * depth));
    float* to = packed.get();
    for (const Panel& panel : panels)
        for (std::int64_t k = 0; k < depth; ++k) {
            const float* from = matrix.from + matrix.order[static_cast<std::size_t>(k)] + panel.first * matrix.stride;
            for (std::int64_t j = 0; j < panel.columns; ++j) *to++ = from[j * matrix.stride];
            for (std::int64_t j = panel.columns; j < static_cast<std::int64_t>(panel.vectors) * lanes; ++j) *to++ = 0;
        }
    return packed;
}

std::shared_ptr<const float> pack_once(Store& store, const std::string& packing, const Matrix& matrix, const std::vector<Panel>& panels,
                                       int lanes) {
    std::string key = packing + " " + std::to_string(reinterpret_cast<std::uintptr_t>(matrix.from));
    for (const Panel& panel : panels) key += " " + std::to_string(panel.columns);
    return std::static_pointer_cast<const float>(store.keep(key, [&] {
        std::size_t width = 0;
        for (const Panel& panel : panels) width += static_cast<std::size_t>(panel.vectors * lanes);
        store.count(width * matrix.order.size() * sizeof(float));
        return std::static_pointer_cast<const void>(pack(matrix, panels, lanes));
    }));
}

namespace {

// Cycles that a tile takes for one position: multiplications, two a cycle, unless the weights cannot come in so fast from the second
// level of cache (a third of a vector a cycle); and what a tile costs beside them.
double cost_of(double rows, int vectors) { return std::max(rows * vectors / 2, vectors * 2.5) + 0.4; }

double cost_of(std::int64_t length, std::int64_t columns, int widest, const ProductTable& table) {
    double cost = 0;
    const std::int64_t most = table.rows[widest - 1];
    const double tiles = static_cast<double>((length + most - 1) / most);
    for (const Panel& panel : panels_of(columns, widest, table.lanes))
        cost += tiles * cost_of(static_cast<double>(length) / tiles, panel.vectors);
    return cost;
}

}  // namespace

Cut cut_of(std::int64_t length, std::int64_t columns, const ProductTable& table) {
    int best = 1;
    for (int widest = 1; widest <= kMostVectors; ++widest)
        if (table.rows[widest - 1] != 0 && cost_of(length, columns, widest, table) < cost_of(length, columns, best, table)) best = widest;
    // Every panel of a line is cut alike, so that what its rows read is looked up once.
    const std::int64_t most = table.rows[best - 1];
    return {best, std::max<std::int64_t>((length + most - 1) / most, 1)};
}

}  // namespace dovetail
