// TopK along one axis: values and indices, sorted by value or by index.
#include <algorithm>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <utility>

#include "int_math.h"
#include "kernels/axis_lines.h"
#include "kernels/kernels.h"
#include "kernels/sort_keys.h"

namespace dovetail {
namespace {

constexpr std::int64_t kBlock = 32;  // elements compared with the threshold together
constexpr std::int64_t kElementsPerTask = 8 * 1024;
constexpr std::int64_t kMaxInserted = 16;  // maximum number of entries that insertion keeps sorted

// A sort key and an index. The greater entry comes first; of entries with equal keys, the one with the smaller index is
// greater.
using WideEntry = std::pair<std::uint64_t, std::uint64_t>;
std::uint64_t entry_of(std::uint32_t key, std::int64_t position) {
    return static_cast<std::uint64_t>(key) << 32 | static_cast<std::uint32_t>(~position);
}
WideEntry entry_of(std::uint64_t key, std::int64_t position) { return {key, ~static_cast<std::uint64_t>(position)}; }
std::int64_t position_of(std::uint64_t entry) { return static_cast<std::uint32_t>(~entry); }
std::int64_t position_of(const WideEntry& entry) { return static_cast<std::int64_t>(~entry.second); }

template <typename T>
class TopK : public Kernel {
    using Entry = decltype(entry_of(sort_key(T{}), 0));

public:
    TopK(const Spec& spec, std::size_t axis)
        : x_(spec.inputs[0]), values_(spec.outputs[0]), indices_(spec.outputs[1]), lines_(axis, {&x_, &values_, &indices_}),
          size_(x_.sizes[axis]), stride_(x_.strides[axis]), k_(values_.sizes[axis]), value_stride_(values_.strides[axis]),
          index_stride_(indices_.strides[axis]), is_largest_(spec.integer("largest") != 0),
          sorts_by_index_(spec.integer("by_place") != 0), capacity_(std::min(size_, 2 * k_)) {}

    std::string name() const override { return std::string("top_k ") + name_of(x_.element); }

    std::size_t scratch_bytes() const override { return static_cast<std::size_t>(capacity_) * sizeof(Entry); }

    void run(const Run& run) const override {
        if (values_.count() == 0) return;
        const std::int64_t lines_per_task = std::max<std::int64_t>(1, kElementsPerTask / size_);
        run.pool->parallel_for(ceil_div(lines_.count(), lines_per_task), [&](std::int64_t task, int worker) {
            const std::int64_t end = std::min(lines_.count(), (task + 1) * lines_per_task);
            for (std::int64_t line = task * lines_per_task; line < end; ++line)
                run_line(run, line, reinterpret_cast<Entry*>(run.scratch_of(worker)));
        });
    }

private:
    void run_line(const Run& run, std::int64_t line, Entry* entries) const {
        const std::byte* x = run.at(x_) + lines_.start(0, line);
        k_ <= kMaxInserted ? insert(x, entries) : select(x, entries);
        if (sorts_by_index_)
            std::sort(entries, entries + k_, [](const Entry& a, const Entry& b) { return position_of(a) < position_of(b); });
        else if (k_ > kMaxInserted)
            std::sort(entries, entries + k_, std::greater<Entry>());
        std::byte* value = run.at(values_) + lines_.start(1, line);
        std::byte* index = run.at(indices_) + lines_.start(2, line);
        for (std::int64_t i = 0; i < k_; ++i, value += value_stride_, index += index_stride_) {
            const std::int64_t position = position_of(entries[i]);
            std::memcpy(value, x + position * stride_, sizeof(T));
            if (indices_.itemsize == 8)
                *reinterpret_cast<std::int64_t*>(index) = position;
            else
                *reinterpret_cast<std::int32_t*>(index) = static_cast<std::int32_t>(position);
        }
    }

    // Keeps the best `k_` of the elements read so far in `entries`, sorted. The last entry is the threshold for all following
    // elements.
    void insert(const std::byte* x, Entry* entries) const {
        std::int64_t count = 0;
        T limit{};
        T buffer[kBlock];
        for (std::int64_t first = 0; first < size_; first += kBlock) {
            const std::int64_t length = std::min(kBlock, size_ - first);
            const T* block = block_at(x + first * stride_, length, buffer);
            if (count == k_ && length == kBlock && !any_reaches(block, limit)) continue;
            for (std::int64_t i = 0; i < length; ++i) {
                if (count == k_ && !reaches(block[i], limit)) continue;
                const auto key = sort_key(block[i]);
                const Entry entry = entry_of(is_largest_ ? key : ~key, first + i);
                if (count == k_ && entry < entries[k_ - 1]) continue;
                std::int64_t at = count == k_ ? k_ - 1 : count++;
                for (; at > 0 && entries[at - 1] < entry; --at) entries[at] = entries[at - 1];
                entries[at] = entry;
                limit = *reinterpret_cast<const T*>(x + position_of(entries[count - 1]) * stride_);
            }
        }
    }

    // Collects the best `k_` elements of a line in `entries`, in any order. Whenever `entries` is full, it is reduced to the
    // best `k_`, the last of which is the threshold for all following elements.
    void select(const std::byte* x, Entry* entries) const {
        std::int64_t count = 0;
        bool has_threshold = false;
        Entry threshold{};
        T limit{};
        T buffer[kBlock];
        for (std::int64_t first = 0; first < size_; first += kBlock) {
            const std::int64_t length = std::min(kBlock, size_ - first);
            const T* block = block_at(x + first * stride_, length, buffer);
            if (has_threshold && length == kBlock && !any_reaches(block, limit)) continue;
            for (std::int64_t i = 0; i < length; ++i) {
                if (has_threshold && !reaches(block[i], limit)) continue;
                const auto key = sort_key(block[i]);
                const Entry entry = entry_of(is_largest_ ? key : ~key, first + i);
                if (has_threshold && entry < threshold) continue;
                if (count == capacity_) {
                    select_k(entries, count);
                    count = k_;
                    has_threshold = true;
                    threshold = entries[k_ - 1];
                    limit = *reinterpret_cast<const T*>(x + position_of(threshold) * stride_);
                    if (entry < threshold) continue;
                }
                entries[count++] = entry;
            }
        }
        select_k(entries, count);
    }

    void select_k(Entry* entries, std::int64_t count) const {
        if (count > k_) std::nth_element(entries, entries + k_ - 1, entries + count, std::greater<Entry>());
    }

    const T* block_at(const std::byte* x, std::int64_t length, T* buffer) const {
        if (stride_ == sizeof(T)) return reinterpret_cast<const T*>(x);
        for (std::int64_t i = 0; i < length; ++i) buffer[i] = *reinterpret_cast<const T*>(x + i * stride_);
        return buffer;
    }

    // True if an element may come before the threshold, whose value is `limit`. True for every NaN.
    bool reaches(T x, T limit) const { return is_largest_ ? !(x < limit) : !(x > limit); }

    bool any_reaches(const T* block, T limit) const {
        int any = 0;
        if (is_largest_)
            for (std::int64_t i = 0; i < kBlock; ++i) any |= block[i] < limit ? 0 : 1;
        else
            for (std::int64_t i = 0; i < kBlock; ++i) any |= block[i] > limit ? 0 : 1;
        return any != 0;
    }

    Operand x_, values_, indices_;
    AxisLines lines_;
    std::int64_t size_;
    std::int64_t stride_;
    std::int64_t k_;
    std::int64_t value_stride_;
    std::int64_t index_stride_;
    bool is_largest_;
    bool sorts_by_index_;
    std::int64_t capacity_;
};

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("top_k: ") + what);
}

}  // namespace

std::unique_ptr<Kernel> make_top_k(const Spec& spec, WeightCache&) {
    require(spec.inputs.size() == 1 && spec.outputs.size() == 2, "needs 1 input and 2 outputs");
    const Operand &x = spec.inputs[0], &values = spec.outputs[0], &indices = spec.outputs[1];
    const auto axis = static_cast<std::size_t>(spec.integer("axis", -1));
    require(axis < x.rank() && values.rank() == x.rank(), "axis is out of range");
    require(values.sizes == indices.sizes && values.sizes[axis] <= x.sizes[axis], "k must be at most the size of the axis");
    require(x.sizes[axis] < std::int64_t{1} << 31, "the axis must have less than 2^31 elements");
    require(values.element == x.element, "values must have the type of the input");
    require(indices.element == Element::i32 || indices.element == Element::i64, "indices must be i32 or i64");
    switch (x.element) {
        case Element::f32: return std::make_unique<TopK<float>>(spec, axis);
        case Element::f64: return std::make_unique<TopK<double>>(spec, axis);
        case Element::i32: return std::make_unique<TopK<std::int32_t>>(spec, axis);
        case Element::i64: return std::make_unique<TopK<std::int64_t>>(spec, axis);
        default: throw std::invalid_argument("top_k: element type must be f32, f64, i32 or i64");
    }
}

}  // namespace dovetail
