#include "kernels/packed_bytes.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "int_math.h"
#include "kernels/quantized.h"

namespace dovetail {
namespace {

std::int32_t read(const std::byte* at, Element element) {
    return element == Element::i8 ? *reinterpret_cast<const std::int8_t*>(at) : *reinterpret_cast<const std::uint8_t*>(at);
}

bool fits_i8(const ByteMatrix& matrix) {
    for (std::int64_t j = 0; j < matrix.columns; ++j) {
        const std::byte* column = matrix.base + j * matrix.column_stride;
        const std::int32_t zero = matrix.zero[static_cast<std::size_t>(j)];
        if (zero == 0 && matrix.element == Element::i8) continue;
        for (const std::int64_t offset : matrix.depth) {
            const std::int32_t weight = read(column + offset, matrix.element) - zero;
            if (weight < -128 || weight > 127) return false;
        }
    }
    return true;
}

// The weights are stored panel by panel, followed by the total of each column.
std::shared_ptr<float> pack_columns(const ByteMatrix& matrix, const PackedBytes& layout, const std::vector<std::int32_t>& shift);

std::shared_ptr<PackedBytes> pack(WeightCache& cache, const std::string& key, const ByteMatrix& matrix) {
    auto result = std::make_shared<PackedBytes>();
    const auto depth = static_cast<std::int64_t>(matrix.depth.size()), run = depth / matrix.segments;
    result->panels = ceil_div(matrix.columns, kInt8Columns);
    result->blocks = ceil_div(run, kInt8Depth);
    result->last_depth = round_up(run - (result->blocks - 1) * kInt8Depth, 8);
    result->panel_bytes = matrix.segments * result->blocks * kInt8Block;
    std::vector<std::int32_t> shift = matrix.zero;
    if (!fits_i8(matrix)) {
        std::fill(shift.begin(), shift.end(), matrix.element == Element::i8 ? 0 : 128);
        for (std::size_t j = 0; j < shift.size(); ++j) result->zero.push_back(matrix.zero[j] - shift[j]);
    }
    const auto floats = static_cast<std::size_t>(result->panels * result->panel_bytes) / sizeof(float);
    const auto count = floats + shift.size();
    result->memory = cache.get_or_create_floats(key + " weights", count, [&] { return pack_columns(matrix, *result, shift); });
    result->total.resize(shift.size());
    if (!shift.empty()) std::memcpy(result->total.data(), result->memory.get() + floats, shift.size() * sizeof(std::uint32_t));
    return result;
}

std::shared_ptr<float> pack_columns(const ByteMatrix& matrix, const PackedBytes& layout, const std::vector<std::int32_t>& shift) {
    const auto depth = static_cast<std::int64_t>(matrix.depth.size()), run = depth / matrix.segments;
    const auto bytes = static_cast<std::size_t>(layout.panels * layout.panel_bytes);
    const auto memory = aligned_floats(bytes / sizeof(float) + shift.size());
    std::vector<std::uint32_t> totals(shift.size());
    auto* to = reinterpret_cast<std::int8_t*>(memory.get());
    std::memset(to, 0, bytes);
    for (std::int64_t j = 0; j < matrix.columns; ++j) {
        const std::int64_t own = j / kInt8Columns, pair = own / 2 * 2, width = std::min<std::int64_t>(layout.panels - pair, 2);
        const std::byte* column = matrix.base + j * matrix.column_stride;
        std::int8_t* panel = to + pair * layout.panel_bytes + (own - pair) * kInt8Block + j % kInt8Columns * 4;
        std::uint32_t total = 0;
        for (std::int64_t k = 0; k < depth; ++k) {
            const std::int64_t block = k / run * layout.blocks + k % run / kInt8Depth, i = k % run % kInt8Depth;
            const std::int32_t weight =
                read(column + matrix.depth[static_cast<std::size_t>(k)], matrix.element) - shift[static_cast<std::size_t>(j)];
            panel[block * width * kInt8Block + i / 4 * 64 + i % 4] = static_cast<std::int8_t>(weight);
            total += static_cast<std::uint32_t>(weight);
        }
        totals[static_cast<std::size_t>(j)] = total;
    }
    if (!totals.empty()) std::memcpy(memory.get() + bytes / sizeof(float), totals.data(), totals.size() * sizeof(std::uint32_t));
    return memory;
}

// FNV-1a.
std::uint64_t hash_of(const std::vector<std::int64_t>& numbers) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const std::int64_t number : numbers) hash = (hash ^ static_cast<std::uint64_t>(number)) * 0x100000001b3u;
    return hash;
}

}  // namespace

std::shared_ptr<const PackedBytes> pack_bytes(WeightCache& cache, const ByteMatrix& matrix) {
    // The key includes the layout, because one address may be packed in several layouts.
    std::string key = cache.key_of(matrix.base) + " bytes " + std::to_string(matrix.column_stride) + " " +
                      std::to_string(matrix.columns) + " " + std::to_string(matrix.segments) + " " +
                      std::to_string(matrix.depth.size()) + " " + std::to_string(hash_of(matrix.depth)) + " ";
    key.append(reinterpret_cast<const char*>(matrix.zero.data()), matrix.zero.size() * sizeof matrix.zero[0]);
    return std::static_pointer_cast<const PackedBytes>(
        cache.get_or_create(key, [&] { return std::static_pointer_cast<const void>(pack(cache, key, matrix)); }));
}

template <typename T>
std::vector<T> read_columns(const Operand& operand, Element element, std::int64_t count, const char* rule) {
    if (!operand.is_constant() || operand.element != element || operand.rank() != 1 || operand.sizes[0] != count)
        throw std::invalid_argument(rule);
    std::vector<T> columns(static_cast<std::size_t>(round_up(count, kInt8Columns) + kInt8Columns));
    for (std::int64_t j = 0; j < count; ++j)
        std::memcpy(&columns[static_cast<std::size_t>(j)], operand.constant + j * operand.strides[0], sizeof(T));
    return columns;
}
template std::vector<float> read_columns(const Operand&, Element, std::int64_t, const char*);
template std::vector<std::int32_t> read_columns(const Operand&, Element, std::int64_t, const char*);

}  // namespace dovetail
