#include "copy/window_copy.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

namespace dovetail {
namespace {

// ---- bounds ----

std::uint64_t magnitude(std::int64_t stride) {
    return stride < 0 ? ~static_cast<std::uint64_t>(stride) + 1 : static_cast<std::uint64_t>(stride);
}

// Sets `reach` to the distance from the first to the last element of an axis; false if it is greater than `available`.
bool reach_within(std::int64_t size, std::int64_t stride, std::uint64_t available, std::uint64_t& reach) {
    const auto steps = static_cast<std::uint64_t>(size - 1);
    const auto step = magnitude(stride);
    if (steps != 0 && step > available / steps) return false;
    reach = steps * step;
    return true;
}

void check_bounds(const Window& window, std::int64_t Axis::* stride, std::int64_t offset, std::size_t bytes, const char* name) {
    const auto outside = [name] { return std::invalid_argument(std::string(name) + ": the window leaves the buffer"); };
    const std::uint64_t elements = bytes / window.itemsize;
    if (offset < 0 || static_cast<std::uint64_t>(offset) >= elements) throw outside();
    std::uint64_t below = static_cast<std::uint64_t>(offset);
    std::uint64_t above = elements - 1 - below;
    for (const Axis& axis : window.axes) {
        std::uint64_t& available = axis.*stride < 0 ? below : above;
        std::uint64_t reach = 0;
        if (!reach_within(axis.size, axis.*stride, available, reach)) throw outside();
        available -= reach;
    }
}

// Throws unless each axis steps beyond the reach of all axes with smaller strides. check_bounds() is called before, so that no
// sum overflows.
void check_written_once(const Window& window) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> axes;
    for (const Axis& axis : window.axes)
        if (axis.size > 1) axes.emplace_back(magnitude(axis.dst_stride), static_cast<std::uint64_t>(axis.size - 1));
    std::sort(axes.begin(), axes.end());
    std::uint64_t reached = 0;
    for (const auto& [step, steps] : axes) {
        if (step <= reached) throw std::invalid_argument("dst: the window writes an element more than once");
        reached += step * steps;
    }
}

// ---- traversal order ----

// The axes of a window with strides in bytes, outermost first. Destination strides are positive, and adjacent axes are merged.
struct Traversal {
    std::vector<Axis> axes;
    std::ptrdiff_t dst;
    std::ptrdiff_t src;
};

void make_ascending(Axis& axis, Traversal& traversal) {
    if (axis.dst_stride >= 0) return;
    traversal.dst += (axis.size - 1) * axis.dst_stride;
    traversal.src += (axis.size - 1) * axis.src_stride;
    axis.dst_stride = -axis.dst_stride;
    axis.src_stride = -axis.src_stride;
}

bool can_merge(const Axis& outer, const Axis& inner) {
    return outer.dst_stride == inner.dst_stride * inner.size && outer.src_stride == inner.src_stride * inner.size;
}

Traversal plan(const Window& window) {
    const auto itemsize = static_cast<std::int64_t>(window.itemsize);
    Traversal traversal{{}, window.dst_offset * itemsize, window.src_offset * itemsize};
    std::vector<Axis> axes;
    for (const Axis& axis : window.axes) {
        if (axis.size == 1) continue;
        axes.push_back({axis.size, axis.dst_stride * itemsize, axis.src_stride * itemsize});
        make_ascending(axes.back(), traversal);
    }
    std::stable_sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.dst_stride > b.dst_stride; });
    for (const Axis& axis : axes) {
        if (!traversal.axes.empty() && can_merge(traversal.axes.back(), axis))
            traversal.axes.back() = {traversal.axes.back().size * axis.size, axis.dst_stride, axis.src_stride};
        else
            traversal.axes.push_back(axis);
    }
    return traversal;
}

// ---- one run ----

// A memcpy of constant length compiles to one load and one store, aligned or not. Strides are passed by value, since a stored
// byte might alias anything passed by reference.
template <std::size_t Bytes>
inline void step_typed(std::byte* dst, const std::byte* src, std::int64_t size, std::ptrdiff_t dst_step,
                       std::ptrdiff_t src_step) {
    std::int64_t i = 0;
    for (; i + 4 <= size; i += 4, dst += 4 * dst_step, src += 4 * src_step) {
        std::byte elements[4][Bytes];
        for (int j = 0; j < 4; ++j) std::memcpy(elements[j], src + j * src_step, Bytes);
        for (int j = 0; j < 4; ++j) std::memcpy(dst + j * dst_step, elements[j], Bytes);
    }
    for (; i < size; ++i, dst += dst_step, src += src_step) std::memcpy(dst, src, Bytes);
}

template <std::size_t Bytes>
void run_typed(std::byte* dst, const std::byte* src, const Axis& run, std::size_t) {
    // The common case, a dense destination, gets a stride that is known at compile time.
    if (run.dst_stride == static_cast<std::int64_t>(Bytes))
        step_typed<Bytes>(dst, src, run.size, static_cast<std::ptrdiff_t>(Bytes), run.src_stride);
    else
        step_typed<Bytes>(dst, src, run.size, run.dst_stride, run.src_stride);
}

void run_generic(std::byte* dst, const std::byte* src, const Axis& run, std::size_t itemsize) {
    for (std::int64_t i = 0; i < run.size; ++i) std::memcpy(dst + i * run.dst_stride, src + i * run.src_stride, itemsize);
}

void run_contiguous(std::byte* dst, const std::byte* src, const Axis& run, std::size_t itemsize) {
    std::memcpy(dst, src, static_cast<std::size_t>(run.size) * itemsize);
}

using RunFunction = void (*)(std::byte*, const std::byte*, const Axis&, std::size_t);

RunFunction select_run(const Axis& run, std::size_t itemsize) {
    const auto step = static_cast<std::int64_t>(itemsize);
    if (run.dst_stride == step && run.src_stride == step) return run_contiguous;
    switch (itemsize) {
        case 1: return run_typed<1>;
        case 2: return run_typed<2>;
        case 4: return run_typed<4>;
        case 8: return run_typed<8>;
        case 16: return run_typed<16>;
        default: return run_generic;
    }
}

// ---- copies of whole windows, run by run ----

void copy_disjoint(const Window& window, std::byte* dst, const std::byte* src) {
    Traversal traversal = plan(window);
    dst += traversal.dst;
    src += traversal.src;
    if (traversal.axes.empty()) {
        std::memcpy(dst, src, window.itemsize);
        return;
    }
    const Axis inner = traversal.axes.back();
    traversal.axes.pop_back();
    const RunFunction run = select_run(inner, window.itemsize);
    std::vector<std::int64_t> position(traversal.axes.size(), 0);
    for (;;) {
        run(dst, src, inner, window.itemsize);
        std::size_t depth = traversal.axes.size();
        for (;; --depth) {
            if (depth == 0) return;
            const Axis& axis = traversal.axes[depth - 1];
            if (++position[depth - 1] < axis.size) {
                dst += axis.dst_stride;
                src += axis.src_stride;
                break;
            }
            position[depth - 1] = 0;
            dst -= (axis.size - 1) * axis.dst_stride;
            src -= (axis.size - 1) * axis.src_stride;
        }
    }
}

// Returns the addresses of the first byte that a window touches in a buffer, and of the byte after the last one.
std::pair<const std::byte*, const std::byte*> extent(const Window& window, std::int64_t Axis::* stride, std::int64_t offset,
                                                     const std::byte* buffer) {
    std::int64_t low = offset;
    std::int64_t high = offset;
    for (const Axis& axis : window.axes) {
        if (axis.size > 1) (axis.*stride < 0 ? low : high) += (axis.size - 1) * (axis.*stride);
    }
    const auto itemsize = static_cast<std::int64_t>(window.itemsize);
    return {buffer + low * itemsize, buffer + (high + 1) * itemsize};
}

bool may_share(const Window& window, const std::byte* dst, const std::byte* src) {
    const auto written = extent(window, &Axis::dst_stride, window.dst_offset, dst);
    const auto read = extent(window, &Axis::src_stride, window.src_offset, src);
    const std::less<const std::byte*> before;
    return before(written.first, read.second) && before(read.first, written.second);
}

// Returns the strides of a dense row-major array with the sizes of the window.
std::vector<std::int64_t> packed_strides(const Window& window) {
    std::vector<std::int64_t> strides(window.axes.size());
    std::int64_t stride = 1;
    for (std::size_t i = window.axes.size(); i-- > 0; stride *= window.axes[i].size) strides[i] = stride;
    return strides;
}

}  // namespace

bool Window::is_empty() const {
    return std::any_of(axes.begin(), axes.end(), [](const Axis& axis) { return axis.size == 0; });
}

void check(const Window& window, std::size_t dst_bytes, std::size_t src_bytes) {
    if (window.itemsize == 0) throw std::invalid_argument("itemsize must be at least 1");
    for (const Axis& axis : window.axes)
        if (axis.size < 0) throw std::invalid_argument("sizes must not be negative");
    if (window.is_empty()) return;
    check_bounds(window, &Axis::dst_stride, window.dst_offset, dst_bytes, "dst");
    check_bounds(window, &Axis::src_stride, window.src_offset, src_bytes, "src");
    check_written_once(window);
}

std::size_t bytes_moved(const Window& window) {
    if (window.is_empty()) return 0;
    std::size_t bytes = window.itemsize;
    for (const Axis& axis : window.axes) bytes *= static_cast<std::size_t>(axis.size);
    return bytes;
}

void copy(const Window& window, std::byte* dst, const std::byte* src) {
    if (window.is_empty()) return;
    if (!may_share(window, dst, src)) {
        copy_disjoint(window, dst, src);
        return;
    }
    std::vector<std::byte> temporary(bytes_moved(window));
    const auto strides = packed_strides(window);
    Window gather = window;
    Window scatter = window;
    gather.dst_offset = scatter.src_offset = 0;
    for (std::size_t i = 0; i < strides.size(); ++i) gather.axes[i].dst_stride = scatter.axes[i].src_stride = strides[i];
    copy_disjoint(gather, temporary.data(), src);
    copy_disjoint(scatter, dst, temporary.data());
}

}  // namespace dovetail
