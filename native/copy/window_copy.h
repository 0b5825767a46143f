// The strided copy of a window: the one way in which data moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dovetail {

// One axis of a window: how many elements, and how far apart they lie, in elements (any sign), in either buffer.
struct Axis {
    std::int64_t size;
    std::int64_t dst_stride;
    std::int64_t src_stride;
};

struct Window {
    std::vector<Axis> axes;
    std::int64_t dst_offset;
    std::int64_t src_offset;
    std::size_t itemsize;

    bool is_empty() const;
};

// Throws std::invalid_argument unless every element of the window lies inside both buffers (sizes in bytes) and no
// element of dst is written twice. Exact for any numbers: nothing is computed that could overflow.
void check(const Window& window, std::size_t dst_bytes, std::size_t src_bytes);

// The bytes that a checked window moves; at most the bytes of dst.
std::size_t bytes_moved(const Window& window);

// Copies a checked window. The result is as though all of src had been read before dst was written.
void copy(const Window& window, std::byte* dst, const std::byte* src);

}  // namespace dovetail
