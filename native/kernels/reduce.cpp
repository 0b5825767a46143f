// Reductions over any axes of f32.
#include "kernels/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "kernels/kernels.h"
#include "kernel.h"

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

// By falling strides, neighbours that are walked as one joined.
std::vector<Axis> in_order(std::vector<Axis> axes) {
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
    double start;
    double (*finish)(double total, double count);
};

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const Mode& mode_of(const std::string& name) {
    const auto same = [](double total, double) { return total; };
    static const Mode modes[] = {
        {"sum", Reduction::sum, 0, same},
        {"mean", Reduction::sum, 0, [](double total, double count) { return total / count; }},
        {"max", Reduction::max, -kInfinity, same},
        {"min", Reduction::min, kInfinity, same},
        {"prod", Reduction::product, 1, same},
        {"l1", Reduction::sum_abs, 0, same},
        {"l2", Reduction::sum_square, 0, [](double total, double) { return std::sqrt(total); }},
        {"sumsquare", Reduction::sum_square, 0, same},
        {"logsum", Reduction::sum, 0, [](double total, double) { return std::log(total); }},
        {"logsumexp", Reduction::sum_exp, 0, [](double total, double) { return std::log(total); }},
    };
    for (const Mode& mode : modes)
        if (name == mode.name) return mode;
    throw std::invalid_argument("reduce: there is no mode " + name);
}

class Reduce : public Step {
public:
    explicit Reduce(const Spec& spec) : x_(spec.inputs.at(0)), y_(spec.outputs.at(0)), mode_(mode_of(spec.text("mode"))) {
        if (x_.element != Element::f32 || y_.element != Element::f32) throw std::invalid_argument("reduce: f32 alone");
        read_axes(spec.integers("axes"));
        count_ = count_of(reduced_);
        is_empty_ = y_.count() == 0;
        choose_columns();
        cut();
    }

    std::string name() const override { return std::string("reduce ") + mode_.name + " " + name_of(isa()); }

    // A worker's own: totals and offsets of one block. Behind them, in the first worker's, the totals of all slices.
    std::size_t scratch_bytes() const override { return static_cast<std::size_t>((own_floats() + shared_floats()) * 4); }

    void run(const Run& run) const override {
        if (is_empty_) return;
        const std::int64_t units = blocks_ * slices_;
        const std::int64_t tasks = std::clamp<std::int64_t>(x_.count() / kElementsPerTask, 1, units);
        const auto part = [&](std::int64_t task, int worker) {
            for (std::int64_t unit = task * units / tasks; unit < (task + 1) * units / tasks; ++unit)
                reduce_unit(run, unit, worker);
        };
        run.pool->each(tasks, part);
        if (slices_ > 1)
            for (std::int64_t block = 0; block < blocks_; ++block) join_slices(run, block);
    }

private:
    void read_axes(const std::vector<std::int64_t>& axes) {
        std::size_t next = 0;
        const bool keeps = y_.rank() == x_.rank();
        for (std::size_t i = 0; i < x_.rank(); ++i) {
            const bool is_reduced = std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(i)) != axes.end();
            if (is_reduced) {
                reduced_.push_back({x_.sizes[i], x_.strides[i], 0});
                next += keeps;
                continue;
            }
            if (next >= y_.rank() || y_.sizes[next] != x_.sizes[i]) throw std::invalid_argument("reduce: sizes of the result");
            kept_.push_back({x_.sizes[i], x_.strides[i], y_.strides[next++]});
        }
        if (next != y_.rank()) throw std::invalid_argument("reduce: rank of the result");
        reduced_ = in_order(reduced_);
        kept_ = in_order(kept_);
    }

    // The innermost kept axis becomes columns, whether elements lie dense along it or along what is reduced.
    void choose_columns() {
        rows_ = {1, 4, 0};
        if (!reduced_.empty()) {
            rows_ = reduced_.back();
            reduced_.pop_back();
        }
        if (kept_.empty()) return;
        columns_ = kept_.back();
        kept_.pop_back();
    }

    void cut() {
        column_blocks_ = (columns_.size + kColumns - 1) / kColumns;
        // Narrower blocks where there would be too few of them to share out.
        width_ = std::min(columns_.size, kColumns);
        const std::int64_t positions = count_of(kept_);
        while (width_ > 64 && positions * column_blocks_ < 8 && x_.count() > 2 * kElementsPerTask) {
            width_ = (width_ / 2 + 63) / 64 * 64;
            column_blocks_ = (columns_.size + width_ - 1) / width_;
        }
        blocks_ = positions * column_blocks_;
        slices_ = 1;
        sliced_ = &rows_;
        for (Axis& axis : reduced_)
            if (axis.size > sliced_->size) sliced_ = &axis;
        // By the sizes alone, not by the threads at hand: so a sum is always made of the same parts.
        if (blocks_ < 8)
            slices_ = std::clamp<std::int64_t>(x_.count() / (4 * kElementsPerTask), 1,
                                               std::min(kMaxSlices, std::max<std::int64_t>(1, sliced_->size / 8)));
        if (is_two_pass()) slices_ = 1;
    }

    bool is_two_pass() const { return mode_.reduction == Reduction::sum_exp; }
    static std::int64_t own_floats() { return kTotals * 3; }
    std::int64_t shared_floats() const { return slices_ > 1 ? blocks_ * slices_ * kTotals * 2 : 0; }

    double* shared_totals(const Run& run, std::int64_t block, std::int64_t slice) const {
        return reinterpret_cast<double*>(run.scratch_of(0) + own_floats() * 4) + (block * slices_ + slice) * kTotals;
    }

    void reduce_unit(const Run& run, std::int64_t unit, int worker) const {
        const std::int64_t block = unit / slices_;
        const std::int64_t slice = unit % slices_;
        auto* own = reinterpret_cast<double*>(run.scratch_of(worker));
        auto* offsets = reinterpret_cast<float*>(own + kTotals);
        double* totals = slices_ > 1 ? shared_totals(run, block, slice) : own;
        const Place place = place_of(block);
        if (is_two_pass()) {
            total_up(run, place, slice, totals, Reduction::max, -kInfinity, nullptr);
            for (std::int64_t i = 0; i < kTotals; ++i)
                offsets[i] = i < place.width && !std::isinf(totals[i]) ? static_cast<float>(totals[i]) : 0.0f;
        }
        total_up(run, place, slice, totals, mode_.reduction, mode_.start, is_two_pass() ? offsets : nullptr);
        if (slices_ == 1) finish(run, place, totals, is_two_pass() ? offsets : nullptr);
    }

    struct Place {
        std::int64_t x = 0;
        std::int64_t y = 0;
        std::int64_t width = 0;
    };

    Place place_of(std::int64_t block) const {
        const std::int64_t first = block % column_blocks_ * width_;
        Place place{first * columns_.x, first * columns_.y, std::min(width_, columns_.size - first)};
        std::int64_t rest = block / column_blocks_;
        for (std::size_t i = kept_.size(); i-- > 0; rest /= kept_[i].size) {
            place.x += rest % kept_[i].size * kept_[i].x;
            place.y += rest % kept_[i].size * kept_[i].y;
        }
        return place;
    }

    void total_up(const Run& run, const Place& place, std::int64_t slice, double* totals, Reduction reduction, double start,
                  const float* offsets) const {
        std::fill(totals, totals + kTotals, start);
        const auto function = functions_.by[static_cast<int>(reduction)];
        const std::int64_t first = slice * sliced_->size / slices_;
        const std::int64_t size = (slice + 1) * sliced_->size / slices_ - first;
        const std::byte* corner = run.at(x_) + place.x + first * sliced_->x;
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
            function({corner + offset, rows, rows_.x, place.width, columns_.x, totals, offsets});
        }
    }

    void finish(const Run& run, const Place& place, const double* totals, const float* offsets) const {
        std::byte* y = run.at(y_) + place.y;
        for (std::int64_t i = 0; i < place.width; ++i) {
            const double value =
                mode_.finish(totals[i], static_cast<double>(count_)) + (offsets ? static_cast<double>(offsets[i]) : 0);
            *reinterpret_cast<float*>(y + i * columns_.y) = static_cast<float>(value);
        }
    }

    void join_slices(const Run& run, std::int64_t block) const {
        const Place place = place_of(block);
        double* totals = shared_totals(run, block, 0);
        for (std::int64_t slice = 1; slice < slices_; ++slice) {
            const double* more = shared_totals(run, block, slice);
            for (std::int64_t i = 0; i < place.width; ++i) totals[i] = joined(totals[i], more[i]);
        }
        finish(run, place, totals, nullptr);
    }

    double joined(double total, double more) const {
        switch (mode_.reduction) {
            case Reduction::max: return more > total || std::isnan(more) ? more : total;
            case Reduction::min: return more < total || std::isnan(more) ? more : total;
            case Reduction::product: return total * more;
            default: return total + more;
        }
    }

    Operand x_;
    Operand y_;
    const Mode& mode_;
    ReduceFunctions functions_ = DOVETAIL_CHOSEN(reduce_functions)();
    std::vector<Axis> kept_;
    std::vector<Axis> reduced_;
    Axis rows_{1, 4, 0};     // the innermost reduced axis
    Axis columns_{1, 0, 0};  // the innermost kept axis
    const Axis* sliced_ = nullptr;
    std::int64_t width_ = 1;
    std::int64_t column_blocks_ = 1;
    std::int64_t blocks_ = 1;
    std::int64_t slices_ = 1;
    std::int64_t count_ = 1;
    bool is_empty_ = false;
};

}  // namespace

std::unique_ptr<Step> make_reduce(const Spec& spec, Store&) { return std::make_unique<Reduce>(spec); }

}  // namespace dovetail
