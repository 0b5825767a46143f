// The strided copy of a window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dovetail {

// One axis of a window: its size, and its stride in each of the two buffers, in elements. Strides have any sign.
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

// Throws std::invalid_argument unless every element of the window lies inside both buffers (sizes in bytes) and no element of dst
// is written twice. No intermediate result overflows, whatever the values of the window's sizes, strides and offsets.
void check(const Window& window, std::size_t dst_bytes, std::size_t src_bytes);

// Returns the number of bytes that a checked window copies, at most the bytes of dst.
std::size_t bytes_moved(const Window& window);

// Copies a checked window. The buffers may overlap: the result is as if all of src had been read before dst was written.
void copy(const Window& window, std::byte* dst, const std::byte* src);

}  // namespace dovetail
