// Weights of 8 bits, packed for Int8Tile.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernel.h"
#include "memory.h"

namespace dovetail {

// A matrix of 8-bit integers [depth, columns] in any layout, in bytes. The depth is cut into `segments` of equal length.
struct ByteMatrix {
    const std::byte* base;
    Element element;
    std::vector<std::int64_t> depth;  // offset of each row
    std::int64_t column_stride;
    std::int64_t columns;
    std::int64_t segments;
    std::vector<std::int32_t> zero;  // zero points of the columns, padded to whole panels
};

// Packed weights: each weight minus its zero point, or minus 128 if i8 cannot hold the difference. Weights are stored panel by
// panel, in the order in which tiles read them. Panels are packed in pairs; an odd last panel is packed alone. Padding at the end
// of a segment has weight 0.
struct PackedBytes {
    std::shared_ptr<const float> memory;
    std::int64_t panels = 0;
    std::int64_t panel_bytes = 0;
    std::int64_t blocks = 0;           // blocks of each segment
    std::int64_t last_depth = 0;       // bytes of a segment's last block that have weights, a multiple of 8
    std::vector<std::uint32_t> total;  // sum of the packed weights of each column
    std::vector<std::int32_t> zero;    // zero points of the packed weights; empty: all are 0

    const std::int8_t* weights() const { return reinterpret_cast<const std::int8_t*>(memory.get()); }
};

// Packs a matrix, or returns the packed matrix from the cache, which identifies weights by their address.
std::shared_ptr<const PackedBytes> pack_bytes(WeightCache& cache, const ByteMatrix& matrix);

// Reads a constant operand that has one element for each of `count` columns. The result is padded with zeros to whole panels,
// and with one more panel of zeros. Throws std::invalid_argument(rule) for any other operand.
template <typename T>
std::vector<T> read_columns(const Operand& operand, Element element, std::int64_t count, const char* rule);

}  // namespace dovetail
