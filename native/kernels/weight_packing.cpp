#include "kernels/weight_packing.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "int_math.h"
#include "kernels/bf16_products.h"

namespace dovetail {

namespace {

// Divides the columns from `first` on into panels, and calls visit(panel) for each panel.
template <typename Visit>
void for_each_panel(std::int64_t columns, int widest, int lanes, const Visit& visit, std::int64_t first = 0) {
    std::int64_t remaining = ceil_div(columns - first, lanes);
    while (remaining > 0) {
        int vectors = static_cast<int>(std::min<std::int64_t>(remaining, widest));
        if (remaining == widest + 1 && widest > 2) --vectors;
        const std::int64_t width = static_cast<std::int64_t>(vectors) * lanes;
        visit(Panel{first, std::min(width, columns - first), vectors});
        first += width;
        remaining -= vectors;
    }
}

}  // namespace

std::vector<Panel> panels_of(std::int64_t columns, int widest, int lanes) {
    std::vector<Panel> panels;
    panels.reserve(static_cast<std::size_t>(ceil_div(columns, static_cast<std::int64_t>(lanes) * widest)) + 1);
    for_each_panel(columns, widest, lanes, [&panels](const Panel& panel) { panels.push_back(panel); });
    return panels;
}

namespace {

// Element (k, first + j) for j < count.
void copy_row(float* to, const Matrix& matrix, const float* weights, std::int64_t k, std::int64_t first, std::int64_t count) {
    const std::int64_t offset = matrix.order[static_cast<std::size_t>(k)];
    if (offset == Matrix::kZero) {
        std::fill(to, to + count, 0.0f);
        return;
    }
    const float* from = weights + offset + first * matrix.stride;
    for (std::int64_t j = 0; j < count; ++j) to[j] = from[j * matrix.stride];
    if (matrix.factor != nullptr)
        for (std::int64_t j = 0; j < count; ++j) to[j] *= matrix.factor[first + j];
}

}  // namespace

namespace {

// Packed floats of a column.
std::int64_t depth_of(const Matrix& matrix) { return static_cast<std::int64_t>(matrix.order.size()) / (matrix.is_bf16 ? 2 : 1); }

// Packs a panel of a matrix whose weights begin at `from`. For each k the panel holds whole vectors, with zeros after the last
// column.
void pack_panel(float* to, const Matrix& matrix, const float* from, const Panel& panel, int lanes) {
    const std::int64_t depth = depth_of(matrix);
    const std::int64_t width = static_cast<std::int64_t>(panel.vectors) * lanes;
    float two[2 * kMaxVectors * 16];
    for (std::int64_t k = 0; k < depth; ++k, to += width) {
        if (matrix.is_bf16) {
            copy_row(two, matrix, from, 2 * k, panel.first, panel.columns);
            copy_row(two + panel.columns, matrix, from, 2 * k + 1, panel.first, panel.columns);
            bf16_kernels().pack(to, two, 2, panel.columns, panel.columns, panel.columns, 1);
        } else {
            copy_row(to, matrix, from, k, panel.first, panel.columns);
        }
        std::fill(to + panel.columns, to + width, 0.0f);
    }
}

}  // namespace

std::int64_t MatricesOfRun::packed_floats(const std::vector<Panel>& panels, int lanes) const {
    return (panels.back().first + static_cast<std::int64_t>(panels.back().vectors) * lanes) * depth_of(matrix);
}

void MatricesOfRun::pack(ThreadPool& pool, float* to, const float* from, const std::vector<Panel>& panels, int lanes) const {
    const auto size = static_cast<std::int64_t>(panels.size()), floats = packed_floats(panels, lanes), depth = depth_of(matrix);
    pool.parallel_for(count * size, [&](std::int64_t index, int) {
        const Panel& panel = panels[static_cast<std::size_t>(index % size)];
        pack_panel(to + index / size * floats + panel.first * depth, matrix, from + index / size * step, panel, lanes);
    });
}

std::shared_ptr<const float> pack(const Matrix& matrix, const std::vector<Panel>& panels, int lanes) {
    const std::int64_t depth = depth_of(matrix);
    std::int64_t width = 0;
    for (const Panel& panel : panels) width += static_cast<std::int64_t>(panel.vectors) * lanes;
    auto packed = aligned_floats(static_cast<std::size_t>(width * depth));
    for (const Panel& panel : panels) pack_panel(packed.get() + panel.first * depth, matrix, matrix.from, panel, lanes);
    return packed;
}

namespace {

std::uint32_t bits_of(float number) {
    std::uint32_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    return bits;
}

void add_number(std::string& key, std::int64_t number) {
    char text[24] = " ";
    key.append(text, std::to_chars(text + 1, text + sizeof text, number).ptr);
}

// The number of columns and the vectors of the first panel determine all panels.
void add_panels(std::string& key, const std::vector<Panel>& panels) {
    add_number(key, panels.empty() ? 0 : panels.back().first + panels.back().columns);
    add_number(key, panels.empty() ? 0 : panels.front().vectors);
}

std::size_t width_of(const std::vector<Panel>& panels, int lanes) {
    return panels.empty() ? 0 : static_cast<std::size_t>(panels.back().first + panels.back().vectors * lanes);
}

}  // namespace

std::string packing_key(const WeightCache& cache, const void* from, const char* packing,
                        std::initializer_list<std::int64_t> numbers) {
    std::string key = cache.key_of(from);
    key.reserve(128);
    key += ' ';
    key += packing;
    for (const std::int64_t number : numbers) add_number(key, number);
    return key;
}

std::shared_ptr<const float> pack_cached(WeightCache& cache, const char* packing, const float* from, std::int64_t depth,
                                         std::int64_t row, std::int64_t stride, const std::vector<Panel>& panels, int lanes,
                                         bool is_bf16) {
    std::string key = packing_key(cache, from, packing, {depth, row, stride});
    add_panels(key, panels);
    if (is_bf16) key += " bf16";
    const std::int64_t floats = is_bf16 ? ceil_div(depth, 2) : depth;
    return cache.get_or_create_floats(key, width_of(panels, lanes) * static_cast<std::size_t>(floats), [&] {
        Matrix matrix{from, {}, stride, nullptr, is_bf16};
        for (std::int64_t k = 0; k < depth; ++k) matrix.order.push_back(k * row);
        if (is_bf16 && depth % 2 != 0) matrix.order.push_back(Matrix::kZero);
        return pack(matrix, panels, lanes);
    });
}

std::shared_ptr<const float> pack_cached(WeightCache& cache, const char* packing, const Matrix& matrix,
                                         const std::vector<Panel>& panels, int lanes) {
    // A constant may be packed in several orders, so that the key holds an FNV hash of the order.
    auto hash = static_cast<std::uint64_t>(matrix.stride);
    const auto mix = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3u; };
    for (const auto offset : matrix.order) mix(static_cast<std::uint64_t>(offset));
    if (matrix.factor != nullptr)
        for (const Panel& panel : panels)
            for (std::int64_t j = panel.first; j < panel.first + panel.columns; ++j) mix(bits_of(matrix.factor[j]));
    std::string key = packing_key(cache, matrix.from, packing, {static_cast<std::int64_t>(hash)});
    add_panels(key, panels);
    if (matrix.is_bf16) key += " bf16";
    return cache.get_or_create_floats(key, width_of(panels, lanes) * matrix.order.size() / (matrix.is_bf16 ? 2 : 1),
                                      [&] { return pack(matrix, panels, lanes); });
}

void WeightPrefetch::set(GemmTile& tile, std::int64_t index, std::int64_t panel, std::int64_t panels) const {
    tile.next_weights = tile.weights;
    tile.next_weights_step = 0;
    const std::int64_t parts = tiles * panels, positions = tile.segments * tile.length;
    if (from == nullptr || positions == 0) return;
    tile.next_weights = from + floats * (index * panels + panel) / parts;
    tile.next_weights_step = (floats / parts + positions - 1) / positions;
}

namespace {

// Cycles of a tile per position: the maximum of two multiplications per cycle, the latency of one, two L1 loads per cycle, and
// the L2 bandwidth for weights; plus a constant overhead.
double cost_of(double rows, int vectors, int lanes) {
    constexpr double latency = 4, line = 2.2;
    const double products = rows * vectors / 2, loads = (rows + vectors) / 2, weights = line * vectors * lanes / 16;
    return std::max({products, loads, weights, latency}) + 0.4;
}

// Two consecutive panels fit into L2.
constexpr std::int64_t kPanelBytes = 640 << 10;

// Rows whose stride is a multiple of a page map to one L1 set, which holds twelve lines.
std::int64_t max_rows(int vectors, std::int64_t step, const GemmKernels& table) {
    const std::int64_t limit = table.rows[vectors - 1];
    return step != 0 && step % 1024 == 0 ? std::min<std::int64_t>(limit, 9) : limit;
}

double cost_of(std::int64_t length, std::int64_t columns, int widest, std::int64_t limit, int lanes) {
    const auto tiles = static_cast<double>(ceil_div(length, limit));
    const auto panel_cost = [&](int vectors) { return tiles * cost_of(static_cast<double>(length) / tiles, vectors, lanes); };
    // All panels but the last two are equal.
    const std::int64_t equal = std::max<std::int64_t>(columns / (static_cast<std::int64_t>(lanes) * widest) - 2, 0);
    double cost = static_cast<double>(equal) * panel_cost(widest);
    for_each_panel(
        columns, widest, lanes, [&](const Panel& panel) { cost += panel_cost(panel.vectors); }, equal * lanes * widest);
    return cost;
}

}  // namespace

Tiling tiling_of(std::int64_t length, std::int64_t columns, std::int64_t step, std::int64_t depth, const GemmKernels& table) {
    Tiling best{};
    double lowest_cost = 0;
    for (int widest = kMaxVectors; widest > 0; --widest) {
        const std::int64_t limit = max_rows(widest, step, table);
        const bool fits = depth * widest * table.lanes * 4 <= kPanelBytes || widest <= 2;
        if (limit == 0 || !fits) continue;
        const double cost = cost_of(length, columns, widest, limit, table.lanes);
        if (best.vectors != 0 && cost >= lowest_cost) continue;
        lowest_cost = cost;
        best = {widest, std::max<std::int64_t>(ceil_div(length, limit), 1), cost};
    }
    return best;
}

}  // namespace dovetail
