// top_k: the greatest or least elements of each line along an axis, in order, and where they stand.
#include <algorithm>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <utility>

#include "kernels/kernels.h"
#include "kernels/axis_lines.h"
#include "kernels/sort_keys.h"

namespace dovetail {
namespace {

constexpr std::int64_t kBlock = 32;  // elements that are passed over together
constexpr std::int64_t kElementsPerTask = 8 * 1024;

// A rank and a place: of two entries the greater one comes first, and of equal ranks the first place has the greater entry.
using Wide = std::pair<std::uint64_t, std::uint64_t>;
std::uint64_t entry_of(std::uint32_t rank, std::int64_t place) {
    return static_cast<std::uint64_t>(rank) << 32 | static_cast<std::uint32_t>(~place);
}
Wide entry_of(std::uint64_t rank, std::int64_t place) { return {rank, ~static_cast<std::uint64_t>(place)}; }
std::int64_t place_of(std::uint64_t entry) { return static_cast<std::uint32_t>(~entry); }
std::int64_t place_of(const Wide& entry) { return static_cast<std::int64_t>(~entry.second); }

template <typename T>
class TopK : public Step {
    using Entry = decltype(entry_of(rank_of(T{}), 0));

public:
    TopK(const Spec& spec, std::size_t axis)
        : x_(spec.inputs[0]), values_(spec.outputs[0]), places_(spec.outputs[1]), lines_(axis, {&x_, &values_, &places_}),
          size_(x_.sizes[axis]), stride_(x_.strides[axis]), wanted_(values_.sizes[axis]), value_stride_(values_.strides[axis]),
          place_stride_(places_.strides[axis]), is_largest_(spec.integer("largest") != 0), is_by_place_(spec.integer("by_place") != 0),
          room_(std::min(size_, 2 * wanted_)) {}

    std::string name() const override { return std::string("top_k ") + name_of(x_.element); }

    std::size_t scratch_bytes() const override { return static_cast<std::size_t>(room_) * sizeof(Entry); }

    void run(const Run& run) const override {
        if (values_.count() == 0) return;
        const std::int64_t together = std::max<std::int64_t>(1, kElementsPerTask / size_);
        run.pool->each((lines_.count() + together - 1) / together, [&](std::int64_t task, int worker) {
            const std::int64_t end = std::min(lines_.count(), (task + 1) * together);
            for (std::int64_t line = task * together; line < end; ++line)
                choose_in(run, line, reinterpret_cast<Entry*>(run.scratch_of(worker)));
        });
    }

private:
    void choose_in(const Run& run, std::int64_t line, Entry* kept) const {
        const std::byte* x = run.at(x_) + lines_.start(0, line);
        choose(x, kept);
        if (is_by_place_)
            std::sort(kept, kept + wanted_, [](const Entry& a, const Entry& b) { return place_of(a) < place_of(b); });
        else
            std::sort(kept, kept + wanted_, std::greater<Entry>());
        std::byte* value = run.at(values_) + lines_.start(1, line);
        std::byte* index = run.at(places_) + lines_.start(2, line);
        for (std::int64_t i = 0; i < wanted_; ++i, value += value_stride_, index += place_stride_) {
            const std::int64_t place = place_of(kept[i]);
            std::memcpy(value, x + place * stride_, sizeof(T));
            if (places_.itemsize == 8)
                *reinterpret_cast<std::int64_t*>(index) = place;
            else
                *reinterpret_cast<std::int32_t*>(index) = static_cast<std::int32_t>(place);
        }
    }

    // The first `wanted_` of a line into `kept`, in any order. Whenever `kept` is full, those that cannot be among them go, and the
    // last of the others is a bar for all that follow.
    void choose(const std::byte* x, Entry* kept) const {
        std::int64_t count = 0;
        bool is_barred = false;
        Entry bar{};
        T limit{};
        T copied[kBlock];
        for (std::int64_t first = 0; first < size_; first += kBlock) {
            const std::int64_t length = std::min(kBlock, size_ - first);
            const T* block = block_at(x + first * stride_, length, copied);
            if (is_barred && length == kBlock && !any_reaches(block, limit)) continue;
            for (std::int64_t i = 0; i < length; ++i) {
                if (is_barred && !reaches(block[i], limit)) continue;
                const auto rank = rank_of(block[i]);
                const Entry found = entry_of(is_largest_ ? rank : ~rank, first + i);
                if (is_barred && found < bar) continue;
                if (count == room_) {
                    keep_wanted(kept, count);
                    count = wanted_;
                    is_barred = true;
                    bar = kept[wanted_ - 1];
                    limit = *reinterpret_cast<const T*>(x + place_of(bar) * stride_);
                    if (found < bar) continue;
                }
                kept[count++] = found;
            }
        }
        keep_wanted(kept, count);
    }

    void keep_wanted(Entry* kept, std::int64_t count) const {
        if (count > wanted_) std::nth_element(kept, kept + wanted_ - 1, kept + count, std::greater<Entry>());
    }

    const T* block_at(const std::byte* x, std::int64_t length, T* copied) const {
        if (stride_ == sizeof(T)) return reinterpret_cast<const T*>(x);
        for (std::int64_t i = 0; i < length; ++i) copied[i] = *reinterpret_cast<const T*>(x + i * stride_);
        return copied;
    }

    // Whether an element may come before the bar, whose value is `limit`: a NaN may.
    bool reaches(T x, T limit) const { return is_largest_ ? !(x < limit) : !(x > limit); }

    bool any_reaches(const T* block, T limit) const {
        int any = 0;
        if (is_largest_)
            for (std::int64_t i = 0; i < kBlock; ++i) any |= block[i] < limit ? 0 : 1;
        else
            for (std::int64_t i = 0; i < kBlock; ++i) any |= block[i] > limit ? 0 : 1;
        return any != 0;
    }

    Operand x_, values_, places_;
    Lines lines_;
    std::int64_t size_;
    std::int64_t stride_;
    std::int64_t wanted_;
    std::int64_t value_stride_;
    std::int64_t place_stride_;
    bool is_largest_;
    bool is_by_place_;
    std::int64_t room_;
};

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("top_k: ") + what);
}

}  // namespace

std::unique_ptr<Step> make_top_k(const Spec& spec, Store&) {
    require(spec.inputs.size() == 1 && spec.outputs.size() == 2, "one input, two outputs");
    const Operand &x = spec.inputs[0], &values = spec.outputs[0], &places = spec.outputs[1];
    const auto axis = static_cast<std::size_t>(spec.integer("axis", -1));
    require(axis < x.rank() && values.rank() == x.rank(), "there is no such axis");
    require(values.sizes == places.sizes && values.sizes[axis] <= x.sizes[axis], "more than there are");
    require(x.sizes[axis] < std::int64_t{1} << 31, "lines of 2^31 elements");
    require(values.element == x.element, "values of another type");
    require(places.element == Element::i32 || places.element == Element::i64, "places are i32 or i64");
    switch (x.element) {
        case Element::f32: return std::make_unique<TopK<float>>(spec, axis);
        case Element::f64: return std::make_unique<TopK<double>>(spec, axis);
        case Element::i32: return std::make_unique<TopK<std::int32_t>>(spec, axis);
        case Element::i64: return std::make_unique<TopK<std::int64_t>>(spec, axis);
        default: throw std::invalid_argument("top_k: f32, f64, i32 and i64 alone");
    }
}

}  // namespace dovetail
