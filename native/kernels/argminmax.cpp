// ArgMax and ArgMin along one axis: the index of the first or the last extreme element of each line.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "int_math.h"
#include "kernels/axis_lines.h"
#include "kernels/kernels.h"

namespace dovetail {
namespace {

constexpr std::int64_t kBlock = 32;    // elements of a line compared together
constexpr std::int64_t kColumns = 64;  // lines compared together
constexpr std::int64_t kElementsPerTask = 16 * 1024;

// True if x is more extreme than best. NaN is more extreme than every number, and equal to NaN.
template <bool kIsMax, typename T>
bool is_better(T x, T best) {
    return (kIsMax ? x > best : x < best) | ((x != x) & (best == best));
}

template <typename T, bool kIsMax>
class ArgMinMax : public Kernel {
public:
    ArgMinMax(const Spec& spec, std::size_t axis, const Operand& indices)
        : x_(spec.inputs[0]), y_(indices), lines_(axis, {&x_, &y_}), size_(x_.sizes[axis]), stride_(x_.strides[axis]),
          is_last_(spec.integer("last") != 0) {}

    std::string name() const override { return std::string("argminmax ") + name_of(x_.element); }

    void run(const Run& run) const override {
        if (y_.count() == 0) return;
        const std::int64_t lines_per_task = std::max<std::int64_t>(1, kElementsPerTask / size_);
        const bool in_columns = stride_ != sizeof(T) && lines_.step(0) == sizeof(T);
        run.pool->parallel_for(ceil_div(lines_.count(), lines_per_task), [&](std::int64_t task, int) {
            const std::int64_t end = std::min(lines_.count(), (task + 1) * lines_per_task);
            for (std::int64_t line = task * lines_per_task; line < end;) {
                const std::byte* x = run.at(x_) + lines_.start(0, line);
                std::byte* y = run.at(y_) + lines_.start(1, line);
                const std::int64_t width = in_columns ? std::min({kColumns, lines_.adjacent(line), end - line}) : 1;
                if (width == 1)
                    *reinterpret_cast<std::int64_t*>(y) = find_index(x);
                else
                    is_last_ ? write_indices<true>(x, y, width) : write_indices<false>(x, y, width);
                line += width;
            }
        });
    }

private:
    using Index = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;

    // Writes the index of the extreme element of each of `width` adjacent lines; the first line is at `x`.
    template <bool kLast>
    void write_indices(const std::byte* x, std::byte* y, std::int64_t width) const {
        T best[kColumns];
        Index best_index[kColumns] = {};
        std::memcpy(best, x, static_cast<std::size_t>(width) * sizeof(T));
        for (std::int64_t i = 1; i < size_; ++i) {
            const T* row = reinterpret_cast<const T*>(x + i * stride_);
            for (std::int64_t c = 0; c < width; ++c) {
                const bool is_new = is_better<kIsMax>(row[c], best[c]) | (kLast & ((row[c] == best[c]) | (row[c] != row[c])));
                best[c] = is_new ? row[c] : best[c];
                best_index[c] = is_new ? static_cast<Index>(i) : best_index[c];
            }
        }
        for (std::int64_t c = 0; c < width; ++c) *reinterpret_cast<std::int64_t*>(y + c * lines_.step(1)) = best_index[c];
    }

    // Finds the extreme value, then its index.
    std::int64_t find_index(const std::byte* x) const {
        T bests[kBlock];
        std::fill(bests, bests + kBlock, *reinterpret_cast<const T*>(x));
        T buffer[kBlock];
        int any_nan = 0;
        for (std::int64_t first = 0; first < size_; first += kBlock) {
            const T* block = block_at(x, first, buffer);
            for (std::int64_t i = 0; i < kBlock; ++i) any_nan |= block[i] != block[i] ? 1 : 0;
            for (std::int64_t i = 0; i < kBlock; ++i)
                bests[i] = (kIsMax ? block[i] > bests[i] : block[i] < bests[i]) ? block[i] : bests[i];
        }
        if (any_nan) return find_first(x, [](T value) { return value != value; });
        const T best = *std::max_element(bests, bests + kBlock, [](T a, T b) { return kIsMax ? a < b : b < a; });
        return find_first(x, [best](T value) { return value == best; });
    }

    template <typename F>
    std::int64_t find_first(const std::byte* x, const F& matches) const {
        T buffer[kBlock];
        const std::int64_t blocks = ceil_div(size_, kBlock);
        for (std::int64_t block_number = 0; block_number < blocks; ++block_number) {
            const std::int64_t first = (is_last_ ? blocks - 1 - block_number : block_number) * kBlock;
            const T* block = block_at(x, first, buffer);
            int any = 0;
            for (std::int64_t i = 0; i < kBlock; ++i) any |= matches(block[i]) ? 1 : 0;
            if (!any) continue;
            for (std::int64_t i = 0; i < kBlock; ++i) {
                const std::int64_t at = is_last_ ? kBlock - 1 - i : i;
                if (matches(block[at])) return std::min(first + at, size_ - 1);
            }
        }
        return 0;
    }

    // Returns kBlock elements of the line from index `first` on, in place or copied to `buffer`. Beyond the end of the line, the
    // last element is repeated.
    const T* block_at(const std::byte* x, std::int64_t first, T* buffer) const {
        if (stride_ == sizeof(T) && first + kBlock <= size_) return reinterpret_cast<const T*>(x) + first;
        for (std::int64_t i = 0; i < kBlock; ++i)
            buffer[i] = *reinterpret_cast<const T*>(x + std::min(first + i, size_ - 1) * stride_);
        return buffer;
    }

    Operand x_, y_;
    AxisLines lines_;
    std::int64_t size_;
    std::int64_t stride_;
    bool is_last_;
};

template <typename T>
std::unique_ptr<Kernel> make(const Spec& spec, std::size_t axis, const Operand& indices) {
    if (spec.integer("greatest") != 0) return std::make_unique<ArgMinMax<T, true>>(spec, axis, indices);
    return std::make_unique<ArgMinMax<T, false>>(spec, axis, indices);
}

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("argminmax: ") + what);
}

}  // namespace

std::unique_ptr<Kernel> make_argminmax(const Spec& spec, WeightCache&) {
    require(spec.inputs.size() == 1 && spec.outputs.size() == 1, "needs 1 input and 1 output");
    const Operand& x = spec.inputs[0];
    Operand indices = spec.outputs[0];
    const auto axis = static_cast<std::size_t>(spec.integer("axis", -1));
    require(axis < x.rank() && x.sizes[axis] > 0 && x.sizes[axis] < std::int64_t{1} << 31 && indices.element == Element::i64,
            "axis must be in range and not empty, and indices i64");
    if (indices.rank() + 1 == x.rank()) {
        indices.sizes.insert(indices.sizes.begin() + static_cast<std::ptrdiff_t>(axis), 1);
        indices.strides.insert(indices.strides.begin() + static_cast<std::ptrdiff_t>(axis), 0);
    }
    require(indices.rank() == x.rank() && indices.sizes[axis] == 1, "the output has the wrong shape");
    switch (x.element) {
        case Element::f32: return make<float>(spec, axis, indices);
        case Element::f64: return make<double>(spec, axis, indices);
        case Element::i32: return make<std::int32_t>(spec, axis, indices);
        case Element::i64: return make<std::int64_t>(spec, axis, indices);
        default: throw std::invalid_argument("argminmax: element type must be f32, f64, i32 or i64");
    }
}

}  // namespace dovetail
