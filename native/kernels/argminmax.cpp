// arg_extreme: where on each line the greatest or least element stands, the first of equal ones or the last.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "kernels/kernels.h"
#include "kernels/axis_lines.h"

namespace dovetail {
namespace {

constexpr std::int64_t kBlock = 32;    // elements of a line that are looked at together
constexpr std::int64_t kColumns = 64;  // lines that are
constexpr std::int64_t kElementsPerTask = 16 * 1024;

// Of several NaNs none is more extreme than another, and each is more than all numbers.
template <bool kGreatest, typename T>
bool is_more(T x, T best) {
    return (kGreatest ? x > best : x < best) | ((x != x) & (best == best));
}

template <typename T, bool kGreatest>
class ArgExtreme : public Step {
public:
    ArgExtreme(const Spec& spec, std::size_t axis, const Operand& places)
        : x_(spec.inputs[0]), y_(places), lines_(axis, {&x_, &y_}), size_(x_.sizes[axis]), stride_(x_.strides[axis]),
          is_last_(spec.integer("last") != 0) {}

    std::string name() const override { return std::string("arg_extreme ") + name_of(x_.element); }

    void run(const Run& run) const override {
        if (y_.count() == 0) return;
        const std::int64_t together = std::max<std::int64_t>(1, kElementsPerTask / size_);
        const bool in_columns = stride_ != sizeof(T) && lines_.step(0) == sizeof(T);
        run.pool->each((lines_.count() + together - 1) / together, [&](std::int64_t task, int) {
            const std::int64_t end = std::min(lines_.count(), (task + 1) * together);
            for (std::int64_t line = task * together; line < end;) {
                const std::byte* x = run.at(x_) + lines_.start(0, line);
                std::byte* y = run.at(y_) + lines_.start(1, line);
                const std::int64_t width = in_columns ? std::min({kColumns, lines_.beside(line), end - line}) : 1;
                if (width == 1)
                    *reinterpret_cast<std::int64_t*>(y) = place_in(x);
                else
                    is_last_ ? write_places<true>(x, y, width) : write_places<false>(x, y, width);
                line += width;
            }
        });
    }

private:
    using Place = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;

    // The lines beside each other from `x` on.
    template <bool kLast>
    void write_places(const std::byte* x, std::byte* y, std::int64_t width) const {
        T best[kColumns];
        Place found[kColumns] = {};
        std::memcpy(best, x, static_cast<std::size_t>(width) * sizeof(T));
        for (std::int64_t i = 1; i < size_; ++i) {
            const T* row = reinterpret_cast<const T*>(x + i * stride_);
            for (std::int64_t c = 0; c < width; ++c) {
                const bool is_new = is_more<kGreatest>(row[c], best[c]) | (kLast & ((row[c] == best[c]) | (row[c] != row[c])));
                best[c] = is_new ? row[c] : best[c];
                found[c] = is_new ? static_cast<Place>(i) : found[c];
            }
        }
        for (std::int64_t c = 0; c < width; ++c) *reinterpret_cast<std::int64_t*>(y + c * lines_.step(1)) = found[c];
    }

    // The extreme first, then where it stands.
    std::int64_t place_in(const std::byte* x) const {
        T bests[kBlock];
        std::fill(bests, bests + kBlock, *reinterpret_cast<const T*>(x));
        T copied[kBlock];
        int any_nan = 0;
        for (std::int64_t first = 0; first < size_; first += kBlock) {
            const T* block = block_at(x, first, copied);
            for (std::int64_t i = 0; i < kBlock; ++i) any_nan |= block[i] != block[i] ? 1 : 0;
            for (std::int64_t i = 0; i < kBlock; ++i) bests[i] = (kGreatest ? block[i] > bests[i] : block[i] < bests[i]) ? block[i] : bests[i];
        }
        if (any_nan) return place_of(x, [](T each) { return each != each; });
        const T best = *std::max_element(bests, bests + kBlock, [](T a, T b) { return kGreatest ? a < b : b < a; });
        return place_of(x, [best](T each) { return each == best; });
    }

    template <typename F>
    std::int64_t place_of(const std::byte* x, const F& is_it) const {
        T copied[kBlock];
        const std::int64_t blocks = (size_ + kBlock - 1) / kBlock;
        for (std::int64_t number = 0; number < blocks; ++number) {
            const std::int64_t first = (is_last_ ? blocks - 1 - number : number) * kBlock;
            const T* block = block_at(x, first, copied);
            int any = 0;
            for (std::int64_t i = 0; i < kBlock; ++i) any |= is_it(block[i]) ? 1 : 0;
            if (!any) continue;
            for (std::int64_t i = 0; i < kBlock; ++i) {
                const std::int64_t at = is_last_ ? kBlock - 1 - i : i;
                if (is_it(block[at])) return std::min(first + at, size_ - 1);
            }
        }
        return 0;
    }

    // A whole block, in which the last element is repeated as often as it takes.
    const T* block_at(const std::byte* x, std::int64_t first, T* copied) const {
        if (stride_ == sizeof(T) && first + kBlock <= size_) return reinterpret_cast<const T*>(x) + first;
        for (std::int64_t i = 0; i < kBlock; ++i)
            copied[i] = *reinterpret_cast<const T*>(x + std::min(first + i, size_ - 1) * stride_);
        return copied;
    }

    Operand x_, y_;
    Lines lines_;
    std::int64_t size_;
    std::int64_t stride_;
    bool is_last_;
};

template <typename T>
std::unique_ptr<Step> made(const Spec& spec, std::size_t axis, const Operand& places) {
    if (spec.integer("greatest") != 0) return std::make_unique<ArgExtreme<T, true>>(spec, axis, places);
    return std::make_unique<ArgExtreme<T, false>>(spec, axis, places);
}

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("arg_extreme: ") + what);
}

}  // namespace

std::unique_ptr<Step> make_arg_extreme(const Spec& spec, Store&) {
    require(spec.inputs.size() == 1 && spec.outputs.size() == 1, "one input, one output");
    const Operand& x = spec.inputs[0];
    Operand places = spec.outputs[0];
    const auto axis = static_cast<std::size_t>(spec.integer("axis", -1));
    require(axis < x.rank() && x.sizes[axis] > 0 && x.sizes[axis] < std::int64_t{1} << 31 && places.element == Element::i64, "there is no such axis, or places of another type");
    if (places.rank() + 1 == x.rank()) {
        places.sizes.insert(places.sizes.begin() + static_cast<std::ptrdiff_t>(axis), 1);
        places.strides.insert(places.strides.begin() + static_cast<std::ptrdiff_t>(axis), 0);
    }
    require(places.rank() == x.rank() && places.sizes[axis] == 1, "the output has another shape");
    switch (x.element) {
        case Element::f32: return made<float>(spec, axis, places);
        case Element::f64: return made<double>(spec, axis, places);
        case Element::i32: return made<std::int32_t>(spec, axis, places);
        case Element::i64: return made<std::int64_t>(spec, axis, places);
        default: throw std::invalid_argument("arg_extreme: f32, f64, i32 and i64 alone");
    }
}

}  // namespace dovetail
