// Gather, GatherElements and GatherND: slices of the data at indices known at run time.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "copy/strategy.h"
#include "kernels/kernels.h"
#include "kernels/slices.h"

namespace dovetail {
namespace {

using namespace copying;

constexpr std::int64_t kIndexCost = 16;  // cost of resolving one index, in bytes copied

// The slices that a gather copies. `chosen` holds the output axes along which the indices vary, batch axes included. `shared`
// holds the data axes between the batch axes and the gathered axis; all slices along these axes use the same indices.
struct GatherPlan {
    std::vector<GatherAxis> shared;
    std::vector<GatherAxis> chosen;
    std::vector<Coordinate> coordinates;
    std::int64_t coordinate_stride = 0;  // stride between coordinates of the indices
    std::vector<CopyAxis> slice;
    bool wraps = true;   // negative indices count from the end
    bool zeros = false;  // an index out of range yields zeros instead of an error
};

#define DOVETAIL_GATHER_ROW gather_row<Index, Element>

template <typename Index, typename Element>
GatherRow<Index, Element> select_gather_row() {
    return DOVETAIL_SELECT_ISA(DOVETAIL_GATHER_ROW)();
}

class Gather : public Kernel {
public:
    Gather(const Spec& spec, GatherPlan plan)
        : name_(spec.kernel), data_(spec.inputs[0]), indices_(spec.inputs[1]), to_(spec.outputs[0]), is_empty_(to_.count() == 0),
          plan_(std::move(plan)), index_space_(plan_.chosen) {
        std::vector<GatherAxis> all = plan_.shared;
        all.insert(all.end(), plan_.chosen.begin(), plan_.chosen.end());
        if (is_empty_) return;
        slices_ = SliceSpace(all);
        slice_ = normalize(CopyRegion{{}, {}, plan_.slice, static_cast<std::size_t>(data_.itemsize)});
        if (slice_.axes.empty()) slice_.axes.push_back({1, 0, 0});
        row_ = slice_.axes.back();
        slice_.axes.pop_back();
        for (const CopyAxis& axis : slice_.axes) rows_ *= axis.size;
        is_element_ = rows_ == 1 && row_.size == 1;
    }

    void run(const Run& run) const override {
        with_index_type(indices_.element, [&](auto index) { run_with<decltype(index)>(run); });
    }

    std::string name() const override { return name_; }

private:
    template <typename Index>
    void run_with(const Run& run) const {
        const IndexReader<Index> reader(plan_.coordinates, plan_.coordinate_stride, plan_.wraps);
        if (!plan_.zeros && !are_in_range(run, index_space_, run.at(indices_), reader)) return run.fail("index.range");
        if (is_empty_) return;
        const std::int64_t count = slices_.count(), bytes = count * (rows_ * row_.size * slice_.run + kIndexCost);
        const std::int64_t slices_per_task = bytes < static_cast<std::int64_t>(kMinThreadedBytes) ? count : ceil_div(count, 16);
        std::byte* to = run.at(to_) + slice_.dst.offset;
        const std::byte* data = run.at(data_) + slice_.src.offset;
        const std::byte* indices = run.at(indices_);
        run.pool->parallel_for(ceil_div(count, slices_per_task), [&](std::int64_t task, int) {
            slices_.for_each_row(task * slices_per_task, min(count, (task + 1) * slices_per_task),
                                 [&](const Offsets& at, std::int64_t length) {
                                     copy_slices(to + at.to, data + at.data, indices + at.index, length, reader);
                                 });
        });
    }

    template <typename Index>
    void copy_slices(std::byte* to, const std::byte* data, const std::byte* index, std::int64_t length,
                     const IndexReader<Index>& reader) const {
        if (is_element_ && !plan_.zeros) switch (slice_.run) {
                case 1: return copy_elements<std::uint8_t>(to, data, index, length, reader);
                case 2: return copy_elements<std::uint16_t>(to, data, index, length, reader);
                case 4: return copy_elements<std::uint32_t>(to, data, index, length, reader);
                case 8: return copy_elements<std::uint64_t>(to, data, index, length, reader);
                default: break;
            }
        const GatherAxis row = slices_.row();
        for (std::int64_t i = 0; i < length; ++i, to += row.to, data += row.data, index += row.index) {
            std::int64_t source = 0;
            if (reader.read(index, source))
                copy_slice(to, data + source);
            else
                clear_slice(to);
        }
    }

    // Copies elements; all indices are in range.
    template <typename Element, typename Index>
    void copy_elements(std::byte* to, const std::byte* data, const std::byte* index, std::int64_t length,
                       const IndexReader<Index>& prototype) const {
        const IndexReader<Index> reader = prototype;
        const GatherAxis row = slices_.row();
        constexpr auto kSize = static_cast<std::int64_t>(sizeof(Element));
        const bool is_dense = row.to == kSize && row.index == static_cast<std::int64_t>(sizeof(Index)) && reader.count == 1;
        if (is_dense && row.data % kSize == 0 && reader.axes[0].stride % kSize == 0) {
            const GatherRow<Index, Element> gather = select_gather_row<Index, Element>();
            return gather(reinterpret_cast<Element*>(to), reinterpret_cast<const Element*>(data),
                          reinterpret_cast<const Index*>(index), length, row.data / kSize, reader.axes[0].stride / kSize,
                          reader.wraps ? reader.axes[0].size : 0);
        }
        const auto copy_all = [&](const auto& read) {
            for (std::int64_t i = 0; i < length; ++i, to += row.to, data += row.data, index += row.index) {
                std::int64_t source = 0;
                read(index, source);
                std::memcpy(to, data + source, sizeof(Element));
            }
        };
        if (reader.count == 1) {
            const Coordinate axis = reader.axes[0];
            copy_all([&](const std::byte* at, std::int64_t& source) { reader.read_one(axis, at, source); });
        } else {
            copy_all([&](const std::byte* at, std::int64_t& source) { reader.read(at, source); });
        }
    }

    void copy_slice(std::byte* to, const std::byte* from) const {
        each_row([&](std::int64_t dst, std::int64_t src) {
            copy_kernels().copy_rows(to + dst, row_.dst, from + src, row_.src, row_.size, static_cast<std::size_t>(slice_.run));
        });
    }

    void clear_slice(std::byte* to) const {
        each_row([&](std::int64_t dst, std::int64_t) {
            for (std::int64_t i = 0; i < row_.size; ++i)
                std::memset(to + dst + i * row_.dst, 0, static_cast<std::size_t>(slice_.run));
        });
    }

    template <typename F>
    void each_row(const F& visit) const {
        for (std::int64_t row = 0; row < rows_; ++row) {
            std::int64_t dst = 0, src = 0, rest = row;
            for (std::size_t i = slice_.axes.size(); i-- > 0; rest /= slice_.axes[i].size) {
                dst += rest % slice_.axes[i].size * slice_.axes[i].dst;
                src += rest % slice_.axes[i].size * slice_.axes[i].src;
            }
            visit(dst, src);
        }
    }

    std::string name_;
    Operand data_, indices_, to_;
    bool is_empty_;
    GatherPlan plan_;
    SliceSpace index_space_;
    SliceSpace slices_;
    NormalizedCopy slice_;
    CopyAxis row_{};
    std::int64_t rows_ = 1;
    bool is_element_ = false;
};

void require(const Spec& spec, bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(spec.kernel + ": " + what);
}

void check_operands(const Spec& spec) {
    require(spec, spec.inputs.size() == 2 && spec.outputs.size() == 1, "needs 2 inputs and 1 output");
    const Operand &data = spec.inputs[0], &indices = spec.inputs[1], &to = spec.outputs[0];
    require(spec, is_index_type(indices.element), "indices must be i32, i64, u32 or u64");
    require(spec, data.itemsize > 0 && data.itemsize == to.itemsize && !to.is_constant(),
            "data and output must have equal item sizes");
}

void append(std::vector<std::int64_t>& sizes, const Operand& operand, std::size_t first, std::size_t end) {
    for (std::size_t i = first; i < end; ++i) sizes.push_back(operand.sizes[i]);
}

}  // namespace

std::unique_ptr<Kernel> make_gather(const Spec& spec, WeightCache&) {
    check_operands(spec);
    const Operand &data = spec.inputs[0], &indices = spec.inputs[1], &to = spec.outputs[0];
    const auto axis = static_cast<std::size_t>(spec.integer("axis", -1)), batch = static_cast<std::size_t>(spec.integer("batch"));
    require(spec, axis < data.rank() && batch <= axis && batch <= indices.rank(), "axis is out of range");
    std::vector<std::int64_t> sizes;
    append(sizes, data, 0, axis);
    append(sizes, indices, batch, indices.rank());
    append(sizes, data, axis + 1, data.rank());
    require(spec, to.sizes == sizes, "the output has the wrong shape");
    GatherPlan plan;
    for (std::size_t i = 0; i < batch; ++i) {
        require(spec, indices.sizes[i] == data.sizes[i], "batch axes must be equal");
        plan.chosen.push_back({data.sizes[i], to.strides[i], data.strides[i], indices.strides[i]});
    }
    for (std::size_t i = batch; i < axis; ++i) plan.shared.push_back({data.sizes[i], to.strides[i], data.strides[i], 0});
    const std::size_t shift = axis - batch;
    for (std::size_t i = batch; i < indices.rank(); ++i)
        plan.chosen.push_back({indices.sizes[i], to.strides[shift + i], 0, indices.strides[i]});
    const std::size_t trailing = axis + indices.rank() - batch;
    for (std::size_t i = axis + 1; i < data.rank(); ++i)
        plan.slice.push_back({data.sizes[i], to.strides[trailing + i - axis - 1], data.strides[i]});
    plan.coordinates = {{data.sizes[axis], data.strides[axis]}};
    plan.wraps = spec.integer("wrap") != 0;
    plan.zeros = spec.integer("zero") != 0;
    return std::make_unique<Gather>(spec, std::move(plan));
}

std::unique_ptr<Kernel> make_gather_elements(const Spec& spec, WeightCache&) {
    check_operands(spec);
    const Operand &data = spec.inputs[0], &indices = spec.inputs[1], &to = spec.outputs[0];
    const auto axis = static_cast<std::size_t>(spec.integer("axis", -1));
    require(spec, axis < data.rank() && indices.rank() == data.rank(), "axis is out of range");
    require(spec, to.sizes == indices.sizes, "the output has the wrong shape");
    GatherPlan plan;
    for (std::size_t i = 0; i < data.rank(); ++i) {
        require(spec, i == axis || indices.sizes[i] <= data.sizes[i], "indices must not exceed the data on other axes");
        plan.chosen.push_back({to.sizes[i], to.strides[i], i == axis ? std::int64_t{0} : data.strides[i], indices.strides[i]});
    }
    plan.coordinates = {{data.sizes[axis], data.strides[axis]}};
    return std::make_unique<Gather>(spec, std::move(plan));
}

std::unique_ptr<Kernel> make_gather_nd(const Spec& spec, WeightCache&) {
    check_operands(spec);
    const Operand &data = spec.inputs[0], &indices = spec.inputs[1], &to = spec.outputs[0];
    const auto batch = static_cast<std::size_t>(spec.integer("batch"));
    require(spec, indices.rank() > batch, "indices must have more axes than batch_dims");
    const std::size_t last = indices.rank() - 1;
    const std::size_t depth = batch + static_cast<std::size_t>(indices.sizes[last]);
    require(spec, depth <= data.rank() && depth - batch <= kMaxCoordinates, "an index has too many coordinates");
    std::vector<std::int64_t> sizes;
    append(sizes, indices, 0, last);
    append(sizes, data, depth, data.rank());
    require(spec, to.sizes == sizes, "the output has the wrong shape");
    GatherPlan plan;
    for (std::size_t i = 0; i < last; ++i) {
        require(spec, i >= batch || indices.sizes[i] == data.sizes[i], "batch axes must be equal");
        plan.chosen.push_back(
            {indices.sizes[i], to.strides[i], i < batch ? data.strides[i] : std::int64_t{0}, indices.strides[i]});
    }
    for (std::size_t i = batch; i < depth; ++i) plan.coordinates.push_back({data.sizes[i], data.strides[i]});
    for (std::size_t i = depth; i < data.rank(); ++i)
        plan.slice.push_back({data.sizes[i], to.strides[last + i - depth], data.strides[i]});
    plan.coordinate_stride = indices.strides[last];
    return std::make_unique<Gather>(spec, std::move(plan));
}

}  // namespace dovetail
