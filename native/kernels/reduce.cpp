// Reductions over any axes.
#include "kernels/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "int_math.h"
#include "kernel.h"
#include "kernels/kernels.h"

namespace dovetail {
namespace {

constexpr std::int64_t kColumns = 256;  // columns reduced together
constexpr std::int64_t kTotals = kColumns + 16;
constexpr std::int64_t kElementsPerTask = 16 * 1024;
constexpr std::int64_t kMaxSlices = 16;

struct Axis {
    std::int64_t size;
    std::int64_t x;  // strides in bytes
    std::int64_t y;
};

std::int64_t count_of(const std::vector<Axis>& axes) {
    std::int64_t count = 1;
    for (const Axis& axis : axes) count *= axis.size;
    return count;
}

// Returns the axes sorted by descending stride, with contiguous axes merged.
std::vector<Axis> merge_axes(std::vector<Axis> axes) {
    const auto reach = [](const Axis& axis) { return std::abs(axis.x); };
    std::stable_sort(axes.begin(), axes.end(), [&](const Axis& a, const Axis& b) { return reach(a) > reach(b); });
    std::vector<Axis> result;
    for (const Axis& axis : axes) {
        if (axis.size == 1) continue;
        if (!result.empty() && result.back().x == axis.x * axis.size && result.back().y == axis.y * axis.size)
            result.back() = {result.back().size * axis.size, axis.x, axis.y};
        else
            result.push_back(axis);
    }
    return result;
}

struct Mode {
    const char* name;
    Reduction reduction;
    double (*finish)(double total, double count);
    bool is_exact;  // integers: no step is rounded
    bool is_mean;
};

const Mode& mode_of(const std::string& name) {
    const auto identity = [](double total, double) { return total; };
    const auto logarithm = [](double total, double) { return std::log(total); };
    static const Mode modes[] = {
        {"sum", Reduction::sum, identity, true, false},
        {"mean", Reduction::sum, [](double total, double count) { return total / count; }, true, true},
        {"max", Reduction::max, identity, true, false},
        {"min", Reduction::min, identity, true, false},
        {"prod", Reduction::product, identity, true, false},
        {"l1", Reduction::sum_abs, identity, true, false},
        {"l2", Reduction::sum_square, [](double total, double) { return std::sqrt(total); }, false, false},
        {"sumsquare", Reduction::sum_square, identity, true, false},
        {"logsum", Reduction::sum, logarithm, false, false},
        {"logsumexp", Reduction::sum_exp, logarithm, false, false},
    };
    for (const Mode& mode : modes)
        if (name == mode.name) return mode;
    throw std::invalid_argument("reduce: there is no mode " + name);
}

template <typename T>
class Reduce : public Kernel {
    using Total = dovetail::Total<T>;

public:
    explicit Reduce(const Spec& spec) : x_(spec.inputs.at(0)), y_(spec.outputs.at(0)), mode_(mode_of(spec.text("mode"))) {
        if (std::is_integral_v<T> && !mode_.is_exact)
            throw std::invalid_argument("reduce: " + spec.text("mode") + " of integers");
        read_axes(spec.integers("axes"));
        count_ = count_of(reduced_);
        is_empty_ = y_.count() == 0;
        choose_columns();
        choose_blocks();
    }

    std::string name() const override { return std::string("reduce ") + mode_.name + " " + name_of(isa()); }

    // The scratch memory of each worker holds the totals and offsets of one block. The totals of all slices follow the totals
    // of the first worker.
    std::size_t scratch_bytes() const override { return static_cast<std::size_t>(round_up(own_bytes(), 64) + shared_bytes()); }

    void run(const Run& run) const override {
        if (is_empty_) return;
        const std::int64_t units = blocks_ * slices_;
        const std::int64_t tasks = std::clamp<std::int64_t>(x_.count() / kElementsPerTask, 1, units);
        const auto part = [&](std::int64_t task, int worker) {
            for (std::int64_t unit = task * units / tasks; unit < (task + 1) * units / tasks; ++unit)
                reduce_unit(run, unit, worker);
        };
        run.pool->parallel_for(tasks, part);
        if (slices_ > 1)
            for (std::int64_t block = 0; block < blocks_; ++block) combine_slices(run, block);
    }

private:
    void read_axes(const std::vector<std::int64_t>& axes) {
        std::size_t next = 0;
        const bool keeps_rank = y_.rank() == x_.rank();
        std::vector<Axis> adjacent;
        for (std::size_t i = 0; i < x_.rank(); ++i) {
            const bool is_reduced = std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(i)) != axes.end();
            if (is_reduced) {
                adjacent.push_back({x_.sizes[i], x_.strides[i], 0});
                next += keeps_rank;
                continue;
            }
            // Around a kept axis of size 1 reduced axes may be merged, but would then be added in another order.
            if (is_reproducible()) take_merged(adjacent);
            if (next >= y_.rank() || y_.sizes[next] != x_.sizes[i])
                throw std::invalid_argument("reduce: the output has wrong sizes");
            kept_.push_back({x_.sizes[i], x_.strides[i], y_.strides[next++]});
        }
        if (next != y_.rank()) throw std::invalid_argument("reduce: the output has the wrong rank");
        take_merged(adjacent);
        kept_ = merge_axes(kept_);
    }

    void take_merged(std::vector<Axis>& axes) {
        for (const Axis& axis : merge_axes(axes)) reduced_.push_back(axis);
        axes.clear();
    }

    // The innermost kept axis becomes the columns, and the innermost reduced axis the rows, whichever of the two is contiguous.
    void choose_columns() {
        rows_ = {1, sizeof(T), 0};
        if (!reduced_.empty()) {
            rows_ = reduced_.back();
            reduced_.pop_back();
        }
        if (kept_.empty()) return;
        columns_ = kept_.back();
        kept_.pop_back();
    }

    void choose_blocks() {
        column_blocks_ = ceil_div(columns_.size, kColumns);
        // Blocks are narrower if there would be fewer blocks than threads.
        width_ = std::min(columns_.size, kColumns);
        const std::int64_t positions = count_of(kept_);
        while (width_ > 64 && positions * column_blocks_ < 8 && x_.count() > 2 * kElementsPerTask) {
            width_ = (width_ / 2 + 63) / 64 * 64;
            column_blocks_ = ceil_div(columns_.size, width_);
        }
        blocks_ = positions * column_blocks_;
        slices_ = 1;
        sliced_ = &rows_;
        for (Axis& axis : reduced_)
            if (axis.size > sliced_->size) sliced_ = &axis;
        // The division into slices depends only on the sizes, not on the number of threads, so that a sum always consists of the
        // same partial sums.
        if (blocks_ < 8)
            slices_ = std::clamp<std::int64_t>(x_.count() / (4 * kElementsPerTask), 1,
                                               std::min(kMaxSlices, std::max<std::int64_t>(1, sliced_->size / 8)));
        if (is_two_pass() || is_reproducible()) slices_ = 1;
    }

    bool is_two_pass() const { return mode_.reduction == Reduction::sum_exp; }
    static std::int64_t own_bytes() { return kTotals * static_cast<std::int64_t>(sizeof(Total) + sizeof(T)); }
    std::int64_t shared_bytes() const {
        return slices_ > 1 ? blocks_ * slices_ * kTotals * static_cast<std::int64_t>(sizeof(Total)) : 0;
    }

    Total* shared_totals(const Run& run, std::int64_t block, std::int64_t slice) const {
        return reinterpret_cast<Total*>(run.scratch_of(0) + round_up(own_bytes(), 64)) + (block * slices_ + slice) * kTotals;
    }

    void reduce_unit(const Run& run, std::int64_t unit, int worker) const {
        const std::int64_t block = unit / slices_;
        const std::int64_t slice = unit % slices_;
        auto* own = reinterpret_cast<Total*>(run.scratch_of(worker));
        auto* offsets = reinterpret_cast<T*>(own + kTotals);
        Total* totals = slices_ > 1 ? shared_totals(run, block, slice) : own;
        const BlockPosition block_position = position_of(block);
        if (is_two_pass()) {
            accumulate(run, block_position, slice, totals, Reduction::max, nullptr);
            for (std::int64_t i = 0; i < used_totals(block_position); ++i) {
                const bool is_finite = i < block_position.width && std::isfinite(static_cast<double>(totals[i]));
                offsets[i] = is_finite || is_nan(totals[i]) ? static_cast<T>(totals[i]) : T{};
            }
        }
        accumulate(run, block_position, slice, totals, mode_.reduction, is_two_pass() ? offsets : nullptr);
        if (slices_ == 1) finish(run, block_position, totals, is_two_pass() ? offsets : nullptr);
    }

    struct BlockPosition {
        std::int64_t x = 0;
        std::int64_t y = 0;
        std::int64_t width = 0;
    };

    // Returns the number of totals that a block uses: the last vector of totals extends beyond the columns.
    static std::int64_t used_totals(const BlockPosition& block_position) { return block_position.width + kTotals - kColumns; }

    BlockPosition position_of(std::int64_t block) const {
        const std::int64_t first = block % column_blocks_ * width_;
        BlockPosition block_position{first * columns_.x, first * columns_.y, std::min(width_, columns_.size - first)};
        std::int64_t rest = block / column_blocks_;
        for (std::size_t i = kept_.size(); i-- > 0; rest /= kept_[i].size) {
            block_position.x += rest % kept_[i].size * kept_[i].x;
            block_position.y += rest % kept_[i].size * kept_[i].y;
        }
        return block_position;
    }

    void accumulate(const Run& run, const BlockPosition& block_position, std::int64_t slice, Total* totals, Reduction reduction,
                    const T* offsets) const {
        std::fill_n(totals, used_totals(block_position), start_of(reduction));
        const auto function = functions_.by[static_cast<int>(reduction)];
        const std::int64_t first = slice * sliced_->size / slices_;
        const std::int64_t size = (slice + 1) * sliced_->size / slices_ - first;
        const std::byte* corner = run.at(x_) + block_position.x + first * sliced_->x;
        const std::int64_t rows = sliced_ == &rows_ ? size : rows_.size;
        std::int64_t outer = 1;
        for (const Axis& axis : reduced_) outer *= &axis == sliced_ ? size : axis.size;
        for (std::int64_t position = 0; position < outer; ++position) {
            std::int64_t offset = 0;
            std::int64_t rest = position;
            for (std::size_t i = reduced_.size(); i-- > 0;) {
                const std::int64_t length = &reduced_[i] == sliced_ ? size : reduced_[i].size;
                offset += rest % length * reduced_[i].x;
                rest /= length;
            }
            function({corner + offset, rows, rows_.x, block_position.width, columns_.x, totals, offsets});
        }
    }

    void finish(const Run& run, const BlockPosition& block_position, const Total* totals, const T* offsets) const {
        std::byte* y = run.at(y_) + block_position.y;
        for (std::int64_t i = 0; i < block_position.width; ++i)
            *reinterpret_cast<T*>(y + i * columns_.y) = result_of(totals[i], offsets ? offsets[i] : T{});
    }

    T result_of(Total total, T offset) const {
        if constexpr (std::is_floating_point_v<T>) {
            return static_cast<T>(mode_.finish(total, static_cast<double>(count_)) + static_cast<double>(offset));
        } else {
            const auto wrapped = static_cast<T>(total);
            return mode_.is_mean && count_ != 0 ? static_cast<T>(static_cast<Total>(wrapped) / static_cast<Total>(count_))
                                                : wrapped;
        }
    }

    void combine_slices(const Run& run, std::int64_t block) const {
        const BlockPosition block_position = position_of(block);
        Total* totals = shared_totals(run, block, 0);
        for (std::int64_t slice = 1; slice < slices_; ++slice) {
            const Total* partial = shared_totals(run, block, slice);
            for (std::int64_t i = 0; i < block_position.width; ++i) totals[i] = combine(totals[i], partial[i]);
        }
        finish(run, block_position, totals, nullptr);
    }

    static bool is_nan(Total x) { return x != x; }

    Total start_of(Reduction reduction) const {
        if (x_.element == Element::boolean) return reduction == Reduction::min;
        constexpr bool is_float = std::is_floating_point_v<T>;
        using Limits = std::numeric_limits<T>;
        switch (reduction) {
            case Reduction::max: return is_float ? -static_cast<Total>(Limits::infinity()) : static_cast<Total>(Limits::lowest());
            case Reduction::min: return is_float ? static_cast<Total>(Limits::infinity()) : static_cast<Total>(Limits::max());
            case Reduction::product: return 1;
            default: return 0;
        }
    }

    Total combine(Total total, Total partial) const {
        // Signed integers are combined as unsigned ones, since they wrap around.
        using Wrapping = std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>;
        const auto a = static_cast<Wrapping>(total), b = static_cast<Wrapping>(partial);
        switch (mode_.reduction) {
            case Reduction::max: return partial > total || is_nan(partial) ? partial : total;
            case Reduction::min: return partial < total || is_nan(partial) ? partial : total;
            case Reduction::product: return static_cast<Total>(a * b);
            default: return static_cast<Total>(a + b);
        }
    }

    Operand x_;
    Operand y_;
    const Mode& mode_;
    ReduceFunctions<T> functions_ = DOVETAIL_SELECT_ISA(reduce_functions<T>)();
    std::vector<Axis> kept_;
    std::vector<Axis> reduced_;
    Axis rows_{1, sizeof(T), 0};  // the innermost reduced axis
    Axis columns_{1, 0, 0};       // the innermost kept axis
    const Axis* sliced_ = nullptr;
    std::int64_t width_ = 1;
    std::int64_t column_blocks_ = 1;
    std::int64_t blocks_ = 1;
    std::int64_t slices_ = 1;
    std::int64_t count_ = 1;
    bool is_empty_ = false;
};

}  // namespace

std::unique_ptr<Kernel> make_reduce(const Spec& spec, WeightCache&) {
    const Element element = spec.inputs.at(0).element;
    if (spec.outputs.at(0).element != element) throw std::invalid_argument("reduce: operands must have equal element types");
    switch (element) {
        case Element::f32: return std::make_unique<Reduce<float>>(spec);
        case Element::f64: return std::make_unique<Reduce<double>>(spec);
        case Element::i8: return std::make_unique<Reduce<std::int8_t>>(spec);
        case Element::i16: return std::make_unique<Reduce<std::int16_t>>(spec);
        case Element::i32: return std::make_unique<Reduce<std::int32_t>>(spec);
        case Element::i64: return std::make_unique<Reduce<std::int64_t>>(spec);
        case Element::boolean:
        case Element::u8: return std::make_unique<Reduce<std::uint8_t>>(spec);
        case Element::u16: return std::make_unique<Reduce<std::uint16_t>>(spec);
        case Element::u32: return std::make_unique<Reduce<std::uint32_t>>(spec);
        case Element::u64: return std::make_unique<Reduce<std::uint64_t>>(spec);
        default: throw std::invalid_argument("reduce: element type must be f32, f64, an integer or boolean");
    }
}

}  // namespace dovetail
