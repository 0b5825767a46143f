// GridSample: the value at each position of a grid, which is the nearest element or a weighted sum of neighbours.
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "int_math.h"
#include "kernels/kernels.h"

namespace dovetail {
namespace {

constexpr std::int64_t kMaxAxes = 3;
constexpr std::int64_t kTerms = 2048;                                        // neighbours of the positions of one block
constexpr std::int64_t kOutside = std::numeric_limits<std::int64_t>::min();  // the offset of an element beyond the edges

enum class Mode { nearest, linear, cubic };
enum class Padding { zeros, border, reflection };

template <typename T>
class GridSample : public Kernel {
public:
    explicit GridSample(const Spec& spec)
        : x_(spec.inputs[0]), grid_(spec.inputs[1]), y_(spec.outputs[0]), axes_(static_cast<std::int64_t>(x_.rank()) - 2),
          is_aligned_(spec.integer("align_corners") != 0) {
        const std::string mode = spec.text("mode"), padding = spec.text("padding_mode");
        mode_ = mode == "nearest" ? Mode::nearest : mode == "linear" ? Mode::linear : Mode::cubic;
        padding_ = padding == "zeros" ? Padding::zeros : padding == "border" ? Padding::border : Padding::reflection;
        taps_ = mode_ == Mode::nearest ? 1 : mode_ == Mode::linear ? 2 : 4;
        for (std::int64_t axis = 0; axis < axes_; ++axis) {
            terms_ *= taps_;
            positions_ *= y_.sizes[static_cast<std::size_t>(axis) + 2];
        }
        block_ = kTerms / terms_;
        blocks_ = ceil_div(positions_, block_);
    }

    std::string name() const override { return "grid_sample"; }
    std::size_t scratch_bytes() const override {
        return static_cast<std::size_t>(kTerms) * (sizeof(std::int64_t) + sizeof(T)) +
               static_cast<std::size_t>(block_) * sizeof(std::int64_t);
    }

    void run(const Run& run) const override {
        if (y_.count() == 0) return;
        run.pool->parallel_for(x_.sizes[0] * blocks_, [&](std::int64_t task, int worker) {
            const std::int64_t batch = task / blocks_, first = task % blocks_ * block_;
            sample(run, batch, first, min(block_, positions_ - first), worker);
        });
    }

private:
    struct Tap {
        std::int64_t offset;  // in bytes, or kOutside
        T weight;
    };

    // Computes the offsets and weights of the neighbours of a block of positions, then the elements of every channel at these
    // positions.
    void sample(const Run& run, std::int64_t batch, std::int64_t first, std::int64_t count, int worker) const {
        auto* offsets = reinterpret_cast<std::int64_t*>(run.scratch_of(worker));
        auto* targets = offsets + kTerms;
        auto* weights = reinterpret_cast<T*>(targets + block_);
        for (std::int64_t i = 0; i < count; ++i) {
            std::int64_t from = 0, rest = first + i;
            targets[i] = 0;
            for (std::int64_t axis = axes_; axis-- > 0;) {
                const auto own = static_cast<std::size_t>(axis);
                const std::int64_t at = rest % y_.sizes[own + 2];
                rest /= y_.sizes[own + 2];
                targets[i] += at * y_.strides[own + 2];
                from += at * grid_.strides[own + 1];
            }
            find_terms(run.at(grid_) + batch * grid_.strides[0] + from, offsets + i * terms_, weights + i * terms_);
        }
        const std::byte* x = run.at(x_) + batch * x_.strides[0];
        std::byte* y = run.at(y_) + batch * y_.strides[0];
        for (std::int64_t channel = 0; channel < x_.sizes[1]; ++channel, x += x_.strides[1], y += y_.strides[1]) switch (terms_) {
                case 1: copy_elements(x, y, count, offsets, targets); break;
                case 2: sum_terms<2>(x, y, count, offsets, weights, targets); break;
                case 4: sum_terms<4>(x, y, count, offsets, weights, targets); break;
                case 8: sum_terms<8>(x, y, count, offsets, weights, targets); break;
                case 16: sum_terms<16>(x, y, count, offsets, weights, targets); break;
                default: sum_terms<64>(x, y, count, offsets, weights, targets); break;
            }
    }

    static T element(const std::byte* x, std::int64_t offset) {
        return offset == kOutside ? T{} : *reinterpret_cast<const T*>(x + offset);
    }

    void copy_elements(const std::byte* x, std::byte* y, std::int64_t count, const std::int64_t* offsets,
                       const std::int64_t* targets) const {
        for (std::int64_t i = 0; i < count; ++i) *reinterpret_cast<T*>(y + targets[i]) = element(x, offsets[i]);
    }

    template <int kCount>
    void sum_terms(const std::byte* x, std::byte* y, std::int64_t count, const std::int64_t* offsets, const T* weights,
                   const std::int64_t* targets) const {
        for (std::int64_t i = 0; i < count; ++i, offsets += kCount, weights += kCount) {
            T total = element(x, offsets[0]) * weights[0];
            for (int term = 1; term < kCount; ++term) total += element(x, offsets[term]) * weights[term];
            *reinterpret_cast<T*>(y + targets[i]) = total;
        }
    }

    // Finds the terms of one position, each the offset and the weight of a neighbour: all combinations of the taps of each axis,
    // the last axis fastest.
    void find_terms(const std::byte* grid, std::int64_t* offsets, T* weights) const {
        std::array<std::array<Tap, 4>, kMaxAxes> taps{};
        for (std::int64_t axis = 0; axis < axes_; ++axis) {
            const T coordinate = *reinterpret_cast<const T*>(grid + (axes_ - 1 - axis) * grid_.strides.back());
            find_taps(coordinate, static_cast<std::size_t>(axis) + 2, taps[static_cast<std::size_t>(axis)]);
        }
        for (std::int64_t term = 0; term < terms_; ++term) {
            std::int64_t offset = 0, divisor = terms_;
            T weight = 1;
            for (std::int64_t axis = 0; axis < axes_; ++axis) {
                divisor /= taps_;
                const Tap& tap = taps[static_cast<std::size_t>(axis)][static_cast<std::size_t>(term / divisor % taps_)];
                offset = offset == kOutside || tap.offset == kOutside ? kOutside : offset + tap.offset;
                weight = axis == 0 ? tap.weight : weight * tap.weight;
            }
            offsets[term] = offset;
            weights[term] = weight;
        }
    }

    void find_taps(T coordinate, std::size_t axis, std::array<Tap, 4>& taps) const {
        const auto size = static_cast<T>(x_.sizes[axis]);
        const T position = is_aligned_ ? (coordinate + 1) / 2 * (size - 1) : ((coordinate + 1) * size - 1) / 2;
        if (mode_ == Mode::nearest) {
            taps[0] = {offset_of(std::nearbyint(position), axis), 1};
            return;
        }
        const T floor = std::floor(position), share = position - floor;
        if (mode_ == Mode::linear) {
            taps[0] = {offset_of(floor, axis), 1 - share};
            taps[1] = {offset_of(floor + 1, axis), share};
            return;
        }
        // Keys' cubic convolution.
        constexpr T a = T(-0.75);
        const auto far = [&](T distance) { return ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a; };
        const auto near = [&](T distance) { return ((a + 2) * distance - (a + 3)) * distance * distance + 1; };
        const std::array<T, 4> weights = {far(share + 1), near(share), near(1 - share), far(2 - share)};
        for (int i = 0; i < 4; ++i)
            taps[static_cast<std::size_t>(i)] = {offset_of(floor + static_cast<T>(i - 1), axis),
                                                 weights[static_cast<std::size_t>(i)]};
    }

    // Returns the offset, along an axis, of the element that padding selects for an index; the index may have any value.
    std::int64_t offset_of(T index, std::size_t axis) const {
        const auto last = static_cast<T>(x_.sizes[axis] - 1);
        if (padding_ == Padding::zeros && !(index >= 0 && index <= last)) return kOutside;
        if (padding_ == Padding::reflection)
            index = reflected(index, is_aligned_ ? T(0) : T(-0.5), is_aligned_ ? last : last + T(0.5));
        // A NaN position selects the first element.
        const std::int64_t at = index >= last ? x_.sizes[axis] - 1 : index > 0 ? static_cast<std::int64_t>(index) : 0;
        return min(at, x_.sizes[axis] - 1) * x_.strides[axis];
    }

    static T reflected(T position, T low, T high) {
        T period = (high - low) * 2;
        if (!(period >= 1)) period = 1;
        T rest = std::abs(position - low);
        rest -= std::floor(rest / period) * period;
        const T other = period - rest;
        return (other < rest ? other : rest) + low;
    }

    Operand x_, grid_, y_;
    std::int64_t axes_;
    bool is_aligned_;
    Mode mode_ = Mode::linear;
    Padding padding_ = Padding::zeros;
    std::int64_t taps_ = 1;
    std::int64_t terms_ = 1;
    std::int64_t positions_ = 1;
    std::int64_t block_ = 1;
    std::int64_t blocks_ = 1;
};

void require(const Spec& spec, bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(spec.kernel + ": " + what);
}

}  // namespace

std::unique_ptr<Kernel> make_grid_sample(const Spec& spec, WeightCache&) {
    require(spec, spec.inputs.size() == 2 && spec.outputs.size() == 1, "needs 2 inputs and 1 output");
    const Operand &x = spec.inputs[0], &grid = spec.inputs[1], &y = spec.outputs[0];
    require(spec, x.rank() >= 3 && x.rank() <= 2 + kMaxAxes && grid.rank() == x.rank() && y.rank() == x.rank(),
            "operands must have equal ranks of 3 to 5");
    require(spec, grid.sizes.back() == static_cast<std::int64_t>(x.rank()) - 2, "the grid needs one number per spatial axis");
    require(spec, y.sizes[0] == x.sizes[0] && grid.sizes[0] == x.sizes[0] && y.sizes[1] == x.sizes[1],
            "operands must have equal batch and channels");
    for (std::size_t i = 2; i < x.rank(); ++i)
        require(spec, y.sizes[i] == grid.sizes[i - 1] && x.sizes[i] > 0, "the output must have the sizes of the grid");
    const std::string mode = spec.text("mode"), padding = spec.text("padding_mode");
    require(spec, mode == "nearest" || mode == "linear" || mode == "cubic", "there is no such mode");
    require(spec, padding == "zeros" || padding == "border" || padding == "reflection", "there is no such padding_mode");
    require(spec, x.element == y.element && grid.element == x.element, "operands must have equal element types");
    if (x.element == Element::f64) return std::make_unique<GridSample<double>>(spec);
    require(spec, x.element == Element::f32, "element type must be f32 or f64");
    return std::make_unique<GridSample<float>>(spec);
}

}  // namespace dovetail
