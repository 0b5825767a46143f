// Slices of a tensor at indices known at run time: their traversal, and the resolution and check of the indices.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "int_math.h"
#include "kernel.h"
#include "kernels/gather_rows.h"

namespace dovetail {

// One axis along which slices are counted: the strides between slices in the output, in the other operand (the data of a gather
// before indexing, the updates of a scatter), and in the indices.
struct GatherAxis {
    std::int64_t size;
    std::int64_t to;
    std::int64_t data;
    std::int64_t index;
};

struct Offsets {
    std::int64_t to = 0;
    std::int64_t data = 0;
    std::int64_t index = 0;
};

// Slices in row-major order, traversed row by row.
class SliceSpace {
public:
    explicit SliceSpace(const std::vector<GatherAxis>& axes = {}) {
        for (const GatherAxis& axis : axes) {
            count_ *= axis.size;
            if (axis.size == 1) continue;
            if (!outer_.empty() && can_merge(outer_.back(), axis))
                outer_.back() = {outer_.back().size * axis.size, axis.to, axis.data, axis.index};
            else
                outer_.push_back(axis);
        }
        if (outer_.empty()) return;
        row_ = outer_.back();
        outer_.pop_back();
    }

    std::int64_t count() const { return count_; }

    const GatherAxis& row() const { return row_; }

    // Calls visit(offsets, length) for the slices [first, end), row by row.
    template <typename F>
    void for_each_row(std::int64_t first, std::int64_t end, const F& visit) const {
        while (first < end) {
            const std::int64_t at = first % row_.size;
            const std::int64_t length = std::min(row_.size - at, end - first);
            Offsets offsets = row_offsets(first);
            offsets.to += at * row_.to;
            offsets.data += at * row_.data;
            offsets.index += at * row_.index;
            visit(offsets, length);
            first += length;
        }
    }

private:
    static bool can_merge(const GatherAxis& a, const GatherAxis& b) {
        return a.to == b.to * b.size && a.data == b.data * b.size && a.index == b.index * b.size;
    }

    // The offsets of the row that holds a slice.
    Offsets row_offsets(std::int64_t position) const {
        Offsets offsets;
        position /= row_.size;
        for (std::size_t i = outer_.size(); i-- > 0; position /= outer_[i].size) {
            const std::int64_t at = position % outer_[i].size;
            offsets.to += at * outer_[i].to;
            offsets.data += at * outer_[i].data;
            offsets.index += at * outer_[i].index;
        }
        return offsets;
    }

    std::int64_t count_ = 1;
    std::vector<GatherAxis> outer_;
    GatherAxis row_{1, 0, 0, 0};
};

// An axis of the data, addressed by one coordinate of an index.
struct Coordinate {
    std::int64_t size;
    std::int64_t stride;
};

constexpr std::size_t kMaxCoordinates = 8;

// Resolves indices to offsets in the data. Kernels use local copies of a resolver, whose members stay in registers despite
// stores through other pointers.
template <typename Index>
struct IndexReader {
    Coordinate axes[kMaxCoordinates]{};
    std::size_t count;
    std::int64_t next;  // stride between coordinates of the indices
    bool wraps;         // negative indices count from the end

    IndexReader(const std::vector<Coordinate>& coordinates, std::int64_t next, bool wraps)
        : count(coordinates.size()), next(next), wraps(wraps) {
        std::copy(coordinates.begin(), coordinates.end(), axes);
    }

    // Adds the offset of the index at `at` to `source`. Returns true if all coordinates of the index are in range.
    bool read(const std::byte* at, std::int64_t& source) const {
        bool in_range = true;
        for (std::size_t i = 0; i < count; ++i, at += next) in_range &= read_one(axes[i], at, source);
        return in_range;
    }

    bool read_one(const Coordinate& axis, const std::byte* at, std::int64_t& source) const {
        Index index;
        std::memcpy(&index, at, sizeof(Index));
        const std::int64_t position = index + (wraps && index < 0 ? axis.size : 0);
        // The product is unsigned, since an index out of range may overflow; the offset of such an index is not used.
        const auto distance = static_cast<std::uint64_t>(position) * static_cast<std::uint64_t>(axis.stride);
        source = static_cast<std::int64_t>(static_cast<std::uint64_t>(source) + distance);
        return static_cast<std::uint64_t>(position) < static_cast<std::uint64_t>(axis.size);
    }
};

constexpr bool is_index_type(Element element) {
    return element == Element::i32 || element == Element::i64 || element == Element::u32 || element == Element::u64;
}

// Calls `run` with a value of the type in which indices are read. Indices of u64 beyond the range of i64 count as negative, as
// a cast wraps them.
template <typename F>
void with_index_type(Element element, const F& run) {
    switch (element) {
        case Element::i32: return run(std::int32_t{});
        case Element::u32: return run(std::uint32_t{});
        default: return run(std::int64_t{});
    }
}

constexpr std::int64_t kIndicesPerTask = 4096;

// True if every index at the slices of `space` is in range.
template <typename Index>
bool are_in_range(const Run& run, const SliceSpace& space, const std::byte* indices, const IndexReader<Index>& prototype) {
    const std::int64_t count = space.count(), step = space.row().index;
    const RangeCheck<Index> check = DOVETAIL_SELECT_ISA(range_check<Index>)();
    std::atomic<bool> in_range{true};
    run.pool->parallel_for(ceil_div(count, kIndicesPerTask), [&](std::int64_t task, int) {
        const std::int64_t end = min(count, (task + 1) * kIndicesPerTask);
        space.for_each_row(task * kIndicesPerTask, end, [&](const Offsets& at, std::int64_t length) {
            const IndexReader<Index> reader = prototype;
            const std::byte* index = indices + at.index;
            std::int64_t unused = 0;
            bool all = true;
            if (reader.count == 1 && step == static_cast<std::int64_t>(sizeof(Index)))
                all = check(reinterpret_cast<const Index*>(index), length, reader.axes[0].size, reader.wraps);
            else if (reader.count == 1)
                for (std::int64_t i = 0; i < length; ++i, index += step) all &= reader.read_one(reader.axes[0], index, unused);
            else
                for (std::int64_t i = 0; i < length; ++i, index += step) all &= reader.read(index, unused);
            if (!all) in_range.store(false, std::memory_order_relaxed);
        });
    });
    return in_range.load();
}

}  // namespace dovetail
