#include "kernels/weight_packing.h"

#include <algorithm>
#include <cstring>

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
            for (std::int64_t j = 0; j < panel.columns; ++j) to[j] = from[j * matrix.stride];
            if (matrix.factor != nullptr)
                for (std::int64_t j = 0; j < panel.columns; ++j) to[j] *= matrix.factor[panel.first + j];
            const std::int64_t whole = static_cast<std::int64_t>(panel.vectors) * lanes;
            std::fill(to + panel.columns, to + whole, 0.0f);
            to += whole;
        }
    return packed;
}

namespace {

std::uint32_t bits_of(float number) {
    std::uint32_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    return bits;
}

}  // namespace

std::shared_ptr<const float> pack_once(Store& store, const std::string& packing, const Matrix& matrix,
                                       const std::vector<Panel>& panels, int lanes) {
    // The same constant may be read in several orders: what tells them apart is a number that depends on all of them.
    auto mixed = static_cast<std::uint64_t>(matrix.stride);
    const auto mix = [&mixed](std::uint64_t each) { mixed = (mixed ^ each) * 0x100000001b3u; };
    for (const auto each : matrix.order) mix(static_cast<std::uint64_t>(each));
    if (matrix.factor != nullptr)
        for (const Panel& panel : panels)
            for (std::int64_t j = panel.first; j < panel.first + panel.columns; ++j) mix(bits_of(matrix.factor[j]));
    std::string key = packing + " " + std::to_string(reinterpret_cast<std::uintptr_t>(matrix.from)) + " " + std::to_string(mixed);
    for (const Panel& panel : panels) key += " " + std::to_string(panel.columns);
    return std::static_pointer_cast<const float>(store.keep(key, [&] {
        std::size_t width = 0;
        for (const Panel& panel : panels) width += static_cast<std::size_t>(panel.vectors * lanes);
        store.count(width * matrix.order.size() * sizeof(float));
        return std::static_pointer_cast<const void>(pack(matrix, panels, lanes));
    }));
}

void Ahead::set(ProductTile& tile, std::int64_t index, std::int64_t panel, std::int64_t panels) const {
    tile.next = tile.weights;
    tile.next_step = 0;
    const std::int64_t parts = tiles * panels, positions = tile.segments * tile.length;
    if (from == nullptr || positions == 0) return;
    tile.next = from + floats * (index * panels + panel) / parts;
    tile.next_step = (floats / parts + positions - 1) / positions;
}

namespace {

// Cycles that a tile takes for one position: multiplications, two a cycle, unless each has to wait for the one before it, what is
// read from the first level of cache, two a cycle, takes longer, or the weights cannot come in so fast from the second one; and
// what a tile costs beside them.
double cost_of(double rows, int vectors, int lanes) {
    constexpr double latency = 4, line = 2.2;
    const double products = rows * vectors / 2, loads = (rows + vectors) / 2, weights = line * vectors * lanes / 16;
    return std::max({products, loads, weights, latency}) + 0.4;
}

// A panel and the next one have room in the second level of cache.
constexpr std::int64_t kPanelBytes = 640 << 10;

// Rows a multiple of a page apart share one set of the first level of cache, which holds twelve lines.
std::int64_t most_rows(int vectors, std::int64_t step, const ProductTable& table) {
    const std::int64_t most = table.rows[vectors - 1];
    return step != 0 && step % 1024 == 0 ? std::min<std::int64_t>(most, 9) : most;
}

double cost_of(std::int64_t length, std::int64_t columns, int widest, std::int64_t most, int lanes) {
    double cost = 0;
    const auto tiles = static_cast<double>((length + most - 1) / most);
    for (const Panel& panel : panels_of(columns, widest, lanes))
        cost += tiles * cost_of(static_cast<double>(length) / tiles, panel.vectors, lanes);
    return cost;
}

}  // namespace

Cut cut_of(std::int64_t length, std::int64_t columns, std::int64_t step, std::int64_t depth, const ProductTable& table) {
    Cut best{};
    double least = 0;
    for (int widest = kMostVectors; widest > 0; --widest) {
        const std::int64_t most = most_rows(widest, step, table);
        const bool fits = depth * widest * table.lanes * 4 <= kPanelBytes || widest <= 2;
        if (most == 0 || !fits) continue;
        const double cost = cost_of(length, columns, widest, most, table.lanes);
        if (best.vectors != 0 && cost >= least) continue;
        least = cost;
        best = {widest, std::max<std::int64_t>((length + most - 1) / most, 1), cost};
    }
    return best;
}

}  // namespace dovetail
