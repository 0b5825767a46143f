// DynamicQuantizeLinear: computes the range of all elements, then their quantized values.
#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "int_math.h"
#include "kernels/kernels.h"
#include "kernels/quantized.h"
#include "kernels/strided_loop.h"

namespace dovetail {

QuantizationGrid grid_of(ValueRange range) {
    const float low = range.low > 0 ? 0 : range.low, high = range.high < 0 ? 0 : range.high;
    const float span = high - low, scale = span == 0 ? 1 : span / 255;
    const float zero = 0 - low / scale;
    return {scale, zero < 0 ? 0 : zero > 255 ? 255 : std::nearbyint(zero)};
}

namespace {

constexpr std::int64_t kPiece = 8192;     // elements read at once
constexpr std::int64_t kStridedRun = 64;  // strided elements that are copied to a buffer at once

class DynamicQuantize : public Kernel {
public:
    explicit DynamicQuantize(const Spec& spec)
        : x_(spec.inputs.at(0)), y_(spec.outputs.at(0)), scale_(spec.outputs.at(1)), zero_(spec.outputs.at(2)),
          kernels_(DOVETAIL_SELECT_ISA(dynamic_quantization)()) {
        if (x_.element != Element::f32 || y_.element != Element::u8 || scale_.element != Element::f32 ||
            zero_.element != Element::u8)
            throw std::invalid_argument("dynamic_quantize: needs f32, and u8 codes with a scale of f32 and a zero point of u8");
        if (x_.sizes != y_.sizes || scale_.count() != 1 || zero_.count() != 1)
            throw std::invalid_argument("dynamic_quantize: the codes must have the sizes of the input, the others one element");
        axes_ = common_axes({&x_}, {&y_});
        length_ = axes_.back().size;
        x_step_ = axes_.back().strides[0];
        y_step_ = axes_.back().strides[1];
        axes_.pop_back();
        rows_ = 1;
        for (const CommonAxis& axis : axes_) rows_ *= axis.size;
        pieces_ = ceil_div(length_, kPiece);
    }

    std::string name() const override { return std::string("dynamic_quantize ") + name_of(isa()); }

    std::size_t scratch_bytes() const override { return 64; }

    void run(const Run& run) const override {
        if (x_.count() == 0) return run.fail("shape.empty");
        const int threads = run.pool->threads();
        for (int worker = 0; worker < threads; ++worker) range_of(run, worker) = {kInfinity, -kInfinity};
        for_each_task(run, [&](const std::byte* from, std::byte*, std::int64_t count, int worker) {
            ValueRange& range = range_of(run, worker);
            visit(from, nullptr, count, [&](const float* x, std::byte*, std::int64_t n) { kernels_.extend_range(range, x, n); });
        });
        ValueRange range = {kInfinity, -kInfinity};
        for (int worker = 0; worker < threads; ++worker) {
            const ValueRange& part = range_of(run, worker);
            if (std::isnan(part.low)) range = part;
            range.low = part.low < range.low ? part.low : range.low;
            range.high = part.high > range.high ? part.high : range.high;
        }
        const QuantizationGrid grid = grid_of(range);
        for_each_task(run, [&](const std::byte* from, std::byte* to, std::int64_t count, int) {
            visit(from, to, count,
                  [&](const float* x, std::byte* y, std::int64_t n) { kernels_.quantize(y, x, n, grid.scale, grid.zero); });
        });
        *reinterpret_cast<float*>(run.at(scale_)) = grid.scale;
        *reinterpret_cast<std::uint8_t*>(run.at(zero_)) = std::isnan(grid.zero) ? 0 : static_cast<std::uint8_t>(grid.zero);
    }

private:
    static constexpr float kInfinity = std::numeric_limits<float>::infinity();

    static ValueRange& range_of(const Run& run, int worker) { return *reinterpret_cast<ValueRange*>(run.scratch_of(worker)); }

    // Divides all rows into pieces, and calls work(from, to, count, worker) for each piece.
    template <typename F>
    void for_each_task(const Run& run, const F& work) const {
        const std::int64_t pieces = rows_ * pieces_;
        const std::int64_t tasks = x_.count() < 2 * kPiece ? 1 : std::min<std::int64_t>(pieces, 4 * run.pool->threads());
        const std::byte* x = run.at(x_);
        std::byte* y = run.at(y_);
        const auto task = [&](std::int64_t index, int worker) {
            for (std::int64_t piece = index * pieces / tasks; piece < (index + 1) * pieces / tasks; ++piece) {
                const std::int64_t first = piece % pieces_ * kPiece;
                std::int64_t row = piece / pieces_, from = first * x_step_, to = first * y_step_;
                for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
                    from += row % axis->size * axis->strides[0];
                    to += row % axis->size * axis->strides[1];
                    row /= axis->size;
                }
                work(x + from, y + to, std::min(kPiece, length_ - first), worker);
            }
        };
        if (tasks == 1) return task(0, 0);
        run.pool->parallel_for(tasks, task);
    }

    // Calls compute(x, y, count) for contiguous elements. Strided elements are copied to a buffer before the call, and the
    // codes from a buffer after it. `to` may be null.
    template <typename F>
    void visit(const std::byte* from, std::byte* to, std::int64_t count, const F& compute) const {
        if (x_step_ == 4 && y_step_ == 1) return compute(reinterpret_cast<const float*>(from), to, count);
        float x[kStridedRun];
        std::byte y[kStridedRun]{};
        for (std::int64_t i = 0; i < count; i += kStridedRun) {
            const std::int64_t n = std::min(kStridedRun, count - i);
            for (std::int64_t k = 0; k < n; ++k) x[k] = *reinterpret_cast<const float*>(from + (i + k) * x_step_);
            compute(x, y, n);
            for (std::int64_t k = 0; to && k < n; ++k) to[(i + k) * y_step_] = y[k];
        }
    }

    Operand x_, y_, scale_, zero_;
    DynamicQuantization kernels_;
    std::vector<CommonAxis> axes_;  // all but the innermost
    std::int64_t length_ = 1, x_step_ = 4, y_step_ = 1, rows_ = 1, pieces_ = 1;
};

}  // namespace

std::unique_ptr<Kernel> make_dynamic_quantize(const Spec& spec, WeightCache&) { return std::make_unique<DynamicQuantize>(spec); }

}  // namespace dovetail
