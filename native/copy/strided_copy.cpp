#include "copy/strided_copy.h"

#include <algorithm>

#include "copy/strategy.h"

namespace dovetail::moving {
namespace {

std::size_t bytes_of(const Piece& piece) {
    std::size_t bytes = piece.itemsize;
    for (const Stride& axis : piece.axes) bytes *= static_cast<std::size_t>(axis.size);
    return bytes;
}

bool continues(const Stride& outer, const Stride& inner) {
    return outer.dst == inner.dst * inner.size && outer.src == inner.src * inner.size;
}

// Destinations are walked upwards; it makes no difference to the result.
void turn_upwards(Stride& axis, Shape& shape) {
    if (axis.dst >= 0) return;
    shape.dst.offset += (axis.size - 1) * axis.dst;
    shape.src.offset += (axis.size - 1) * axis.src;
    axis.dst = -axis.dst;
    axis.src = -axis.src;
}

// Enough tasks that threads finish together, each large enough that the memory runs at its speed. In the cache they are short: what two
// threads read and write at a time then lies close together, which matters where all of it hardly fits.
std::int64_t task_bytes_for(std::size_t bytes, bool past_cache) {
    const auto eighth = static_cast<std::int64_t>(bytes / 8);
    return std::clamp<std::int64_t>(eighth, 32 * 1024, past_cache ? 1024 * 1024 : 256 * 1024);
}

// The last level of the cache behind this core in bytes, as far as it is as fast as the memory twice over: AMD's processors with wide
// vectors, where it belongs to few cores. Elsewhere, and of older ones, 0: there many share it, or it is little faster than memory.
std::size_t fast_last_level() {
#if defined(__x86_64__) && defined(__GNUC__)
    if (!__builtin_cpu_is("amd") || !__builtin_cpu_supports("avx512f")) return 0;
    constexpr unsigned kCacheProperties = 0x8000001D, kThirdLevel = 3;
    unsigned a = kCacheProperties, b = 0, c = kThirdLevel, d = 0;
    __asm__("cpuid" : "+a"(a), "+b"(b), "+c"(c), "+d"(d));
    const std::size_t ways = (b >> 22) + 1, partitions = (b >> 12 & 0x3FF) + 1, line = (b & 0xFFF) + 1, sets = std::size_t{c} + 1;
    return (a >> 5 & 7) == 3 ? ways * partitions * line * sets : 0;
#else
    return 0;
#endif
}

}  // namespace

// What is read and written stays in the last level, if it about fits there.
std::size_t past_cache_from() {
    static const std::size_t from = std::max(kPastCacheFrom, fast_last_level() / 16 * 9);
    return from;
}

bool fetches_within_pages() {
    static const bool does = fast_last_level() != 0;
    return does;
}

std::int64_t Shape::rows() const {
    std::int64_t rows = 1;
    for (const Stride& axis : axes) rows *= axis.size;
    return rows;
}

Shape shape_of(const Piece& piece) {
    const auto itemsize = static_cast<std::int64_t>(piece.itemsize);
    Shape shape{piece.dst, piece.src, {}, itemsize, itemsize};
    std::vector<Stride> axes;
    for (Stride axis : piece.axes) {
        if (axis.size == 1) continue;
        turn_upwards(axis, shape);
        axes.push_back(axis);
    }
    std::stable_sort(axes.begin(), axes.end(), [](const Stride& a, const Stride& b) { return a.dst > b.dst; });
    for (const Stride& axis : axes) {
        if (!shape.axes.empty() && continues(shape.axes.back(), axis))
            shape.axes.back() = {shape.axes.back().size * axis.size, axis.dst, axis.src};
        else
            shape.axes.push_back(axis);
    }
    if (!shape.axes.empty() && shape.axes.back().dst == itemsize && shape.axes.back().src == itemsize) {
        shape.run = shape.axes.back().size * itemsize;
        shape.axes.pop_back();
    }
    return shape;
}

Movement::Movement(std::vector<Piece> pieces) {
    std::vector<Shape> shapes;
    for (const Piece& piece : pieces) {
        const std::size_t bytes = bytes_of(piece);
        bytes_ += bytes;
        if (bytes != 0) shapes.push_back(shape_of(piece));
    }
    const bool past_cache = bytes_ >= past_cache_from();
    choose_walks(shapes, {past_cache, task_bytes_for(bytes_, past_cache)});
    const bool plain = std::all_of(walks_.begin(), walks_.end(), [](const auto& walk) { return walk->is_plain(); });
    threads_from_ = plain ? kThreadsFromPlain : kThreadsFrom;
    warm_threads_from_ = plain ? kWarmThreadsFromPlain : kThreadsFrom;
    std::int64_t tasks = 0;
    for (const auto& walk : walks_) tasks_.push_back(tasks += walk->tasks());
}

void Movement::choose_walks(std::vector<Shape>& shapes, const Manner& manner) {
    const auto strided = std::stable_partition(shapes.begin(), shapes.end(), [](const Shape& shape) { return shape.axes.empty(); });
    const std::vector<Shape> blocks(shapes.begin(), strided), others(strided, shapes.end());
    if (!blocks.empty()) walks_.push_back(walk_blocks(blocks, manner));
    if (auto table = walk_table(others, manner)) {
        walks_.push_back(std::move(table));
        return;
    }
    for (const Shape& shape : others) {
        auto tiles = walk_tiles(shape, manner);
        walks_.push_back(tiles ? std::move(tiles) : walk_rows(shape, manner));
    }
}

Movement::~Movement() = default;
Movement::Movement(Movement&&) noexcept = default;

void Movement::run_task(std::byte* const* bases, std::int64_t task) const {
    const auto walk = static_cast<std::size_t>(std::upper_bound(tasks_.begin(), tasks_.end(), task) - tasks_.begin());
    walks_[walk]->run(bases, walk == 0 ? task : task - tasks_[walk - 1]);
}

void Movement::run(std::byte* const* bases, Pool* pool) const {
    if (walks_.empty()) return;
    if (pool != nullptr && bytes_ >= warm_threads_from_ && (bytes_ >= threads_from_ || pool->is_warm())) {
        pool->each(tasks_.back(), [&](std::int64_t task, int) { run_task(bases, task); });
        return;
    }
    for (const auto& walk : walks_)
        for (std::int64_t task = 0; task < walk->tasks(); ++task) walk->run(bases, task);
}

const char* Movement::name() const { return walks_.empty() ? "nothing" : walks_.front()->name(); }

}  // namespace dovetail::moving
