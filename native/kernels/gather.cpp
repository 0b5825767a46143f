// gather: slices of the data, chosen along an axis by indices that are known at run time.
#include <atomic>
#include <cstring>
#include <stdexcept>

#include "kernels/kernels.h"
#include "kernels/walks.h"

namespace dovetail {
namespace {

using namespace moving;

// Some axes of both sides, walked by one number in row-major order.
struct Walked {
    std::vector<Stride> axes;

    std::int64_t count() const {
        std::int64_t count = 1;
        for (const Stride& axis : axes) count *= axis.size;
        return count;
    }

    void move_to(std::int64_t number, std::ptrdiff_t& dst, std::ptrdiff_t& src) const {
        for (std::size_t i = axes.size(); i-- > 0; number /= axes[i].size) {
            const std::int64_t at = number % axes[i].size;
            dst += at * axes[i].dst;
            src += at * axes[i].src;
        }
    }
};

std::int64_t index_at(const std::byte* at, std::int64_t bytes) {
    if (bytes == 4) {
        std::int32_t index;
        std::memcpy(&index, at, 4);
        return index;
    }
    std::int64_t index;
    std::memcpy(&index, at, 8);
    return index;
}

constexpr std::int64_t kIndicesTogether = 4096;

class Gather : public Step {
public:
    Gather(const Spec& spec, std::size_t axis)
        : data_(spec.inputs[0]), indices_(spec.inputs[1]), to_(spec.outputs[0]), size_(data_.sizes[axis]), stride_(data_.strides[axis]),
          wraps_(spec.integer("wrap") != 0) {
        const std::size_t rank = indices_.rank();
        for (std::size_t i = 0; i < axis; ++i) outer_.axes.push_back({data_.sizes[i], to_.strides[i], data_.strides[i]});
        for (std::size_t i = 0; i < rank; ++i) chosen_.axes.push_back({indices_.sizes[i], to_.strides[axis + i], indices_.strides[i]});
        Piece slice{{}, {}, {}, static_cast<std::size_t>(data_.itemsize)};
        for (std::size_t i = axis + 1; i < data_.rank(); ++i)
            slice.axes.push_back({data_.sizes[i], to_.strides[i + rank - 1], data_.strides[i]});
        is_empty_ = to_.count() == 0;
        if (is_empty_) return;
        slice_ = shape_of(slice);
        if (slice_.axes.empty()) slice_.axes.push_back({1, 0, 0});
        inner_ = slice_.axes.back();
        slice_.axes.pop_back();
        rows_ = {slice_.axes};
    }

    void run(const Run& run) const override {
        if (is_empty_) return;
        const std::int64_t count = chosen_.count();
        std::atomic<bool> fits{true};
        run.pool->each(parts(count, kIndicesTogether), [&](std::int64_t task, int) {
            const std::int64_t end = least(count, (task + 1) * kIndicesTogether);
            for (std::int64_t i = task * kIndicesTogether; i < end; ++i)
                if (!fits_at(run, i)) fits.store(false, std::memory_order_relaxed);
        });
        if (!fits.load()) return run.fail("array.index-range");
        const std::int64_t slices = outer_.count() * count, bytes = slices * rows_.count() * inner_.size * slice_.run;
        const std::int64_t together = bytes < static_cast<std::int64_t>(kThreadsFrom) ? slices : parts(slices, 16);
        run.pool->each(parts(slices, together), [&](std::int64_t task, int) {
            const std::int64_t end = least(slices, (task + 1) * together);
            for (std::int64_t i = task * together; i < end; ++i) copy_slice(run, i / count, i % count);
        });
    }

    std::string name() const override { return "gather"; }

private:
    std::int64_t index(const Run& run, std::int64_t number, std::ptrdiff_t& dst) const {
        std::ptrdiff_t at = 0;
        chosen_.move_to(number, dst, at);
        const std::int64_t index = index_at(run.at(indices_) + at, indices_.itemsize);
        return wraps_ && index < 0 ? index + size_ : index;
    }

    bool fits_at(const Run& run, std::int64_t number) const {
        std::ptrdiff_t unused = 0;
        const std::int64_t at = index(run, number, unused);
        return at >= 0 && at < size_;
    }

    void copy_slice(const Run& run, std::int64_t outer, std::int64_t number) const {
        std::ptrdiff_t dst = slice_.dst.offset, src = slice_.src.offset;
        outer_.move_to(outer, dst, src);
        src += index(run, number, dst) * stride_;
        const std::int64_t rows = rows_.count();
        for (std::int64_t row = 0; row < rows; ++row) {
            std::ptrdiff_t to = dst, from = src;
            rows_.move_to(row, to, from);
            movers().copy_rows(run.at(to_) + to, inner_.dst, run.at(data_) + from, inner_.src, inner_.size, static_cast<std::size_t>(slice_.run));
        }
    }

    Operand data_, indices_, to_;
    std::int64_t size_;
    std::int64_t stride_;
    bool wraps_;
    bool is_empty_ = false;
    Walked outer_;
    Walked chosen_;  // "src" is the indices' side
    Shape slice_;
    Stride inner_{};
    Walked rows_;
};

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("gather: ") + what);
}

}  // namespace

std::unique_ptr<Step> make_gather(const Spec& spec, Store&) {
    require(spec.inputs.size() == 2 && spec.outputs.size() == 1, "two inputs, one output");
    const Operand &data = spec.inputs[0], &indices = spec.inputs[1], &to = spec.outputs[0];
    const auto axis = static_cast<std::size_t>(spec.integer("axis", -1));
    require(axis < data.rank(), "there is no such axis");
    require(indices.element == Element::i32 || indices.element == Element::i64, "indices are i32 or i64");
    require(data.itemsize > 0 && data.itemsize == to.itemsize && !to.is_constant(), "data and output differ");
    std::vector<std::int64_t> sizes(data.sizes.begin(), data.sizes.begin() + static_cast<std::ptrdiff_t>(axis));
    sizes.insert(sizes.end(), indices.sizes.begin(), indices.sizes.end());
    sizes.insert(sizes.end(), data.sizes.begin() + static_cast<std::ptrdiff_t>(axis) + 1, data.sizes.end());
    require(sizes == to.sizes, "the output has another shape");
    return std::make_unique<Gather>(spec, axis);
}

}  // namespace dovetail
