// ScatterElements, ScatterND and ScatterUpdate: updates are combined into a copy of the data, at indices known at run time.
#include <algorithm>
#include <optional>
#include <stdexcept>
#include <type_traits>

#include "copy/strategy.h"
#include "kernels/kernels.h"
#include "kernels/slices.h"

namespace dovetail {
namespace {

using namespace copying;

enum class Combination { replace, add, mul, min, max };

Combination combination_of(const std::string& name) {
    static const std::pair<const char*, Combination> names[] = {{"replace", Combination::replace},
                                                                {"add", Combination::add},
                                                                {"mul", Combination::mul},
                                                                {"min", Combination::min},
                                                                {"max", Combination::max}};
    for (const auto& [candidate, combination] : names)
        if (name == candidate) return combination;
    throw std::invalid_argument("scatter: there is no reduction " + name);
}

// Integers wrap around; of booleans the sum is the disjunction and the product the conjunction.
template <Combination kCombination, typename T>
T combine(T element, T update) {
    using Wrapping = std::conditional_t<std::is_floating_point_v<T>, T, std::uint64_t>;
    if constexpr (kCombination == Combination::replace) return update;
    if constexpr (std::is_same_v<T, bool>) {
        constexpr bool is_or = kCombination == Combination::add || kCombination == Combination::max;
        return is_or ? element || update : element && update;
    }
    if constexpr (kCombination == Combination::add)
        return static_cast<T>(static_cast<Wrapping>(element) + static_cast<Wrapping>(update));
    if constexpr (kCombination == Combination::mul)
        return static_cast<T>(static_cast<Wrapping>(element) * static_cast<Wrapping>(update));
    // The minimum and the maximum are NaN if either operand is NaN.
    if constexpr (kCombination == Combination::min) return update < element || update != update ? update : element;
    return update > element || update != update ? update : element;
}

// One axis of the elements of a slice: its strides in the output and in the updates.
struct SliceAxis {
    std::int64_t size;
    std::int64_t to;
    std::int64_t update;
};

// A part of the updates; no two parts write to the same output element.
struct Part {
    SliceSpace space;              // `to` in the output, `data` in the updates
    std::vector<SliceAxis> outer;  // axes of one slice, outermost first
    SliceAxis row{1, 0, 0};        // last axis of a slice
    std::int64_t to = 0;           // offsets of the part in bytes
    std::int64_t update = 0;
    std::int64_t index = 0;
};

struct ScatterPlan {
    std::vector<GatherAxis> chosen;  // axes of the indices
    std::vector<SliceAxis> slice;
    std::vector<Coordinate> coordinates;
    std::int64_t coordinate_stride = 0;
    bool wraps = true;
    // The longest axis of `chosen` whose positions write to disjoint elements, if there is one; the axes of `slice` are not
    // considered.
    std::optional<std::size_t> disjoint{};
};

constexpr std::int64_t kMinParallelElements = 32 * 1024;
constexpr std::int64_t kMaxParts = 16;

class Scatter : public Kernel {
public:
    Scatter(const Spec& spec, ScatterPlan plan)
        : name_(spec.kernel), data_(spec.inputs[0]), indices_(spec.inputs[1]), updates_(spec.inputs[2]), to_(spec.outputs[0]),
          combination_(combination_of(spec.text("reduction", "replace"))), plan_(std::move(plan)), index_space_(plan_.chosen),
          copy_(copy_of_data()) {
        apply_ = function_of(combination_, to_.element, to_.itemsize);
        choose_parts();
    }

    void run(const Run& run) const override {
        with_index_type(indices_.element, [&](auto index) { run_with<decltype(index)>(run); });
    }

    bool runs_in_place() const override { return true; }
    std::string name() const override { return name_; }

private:
    template <typename Index>
    void run_with(const Run& run) const {
        const IndexReader<Index> reader(plan_.coordinates, plan_.coordinate_stride, plan_.wraps);
        if (!are_in_range(run, index_space_, run.at(indices_), reader)) return run.fail("index.range");
        if (!is_in_place(run)) copy_.run(run.bases, run.pool);
        std::byte* to = run.at(to_);
        const std::byte* updates = run.at(updates_);
        const std::byte* indices = run.at(indices_);
        run.pool->parallel_for(static_cast<std::int64_t>(parts_.size()), [&](std::int64_t task, int) {
            const Part& part = parts_[static_cast<std::size_t>(task)];
            const GatherAxis row = part.space.row();
            part.space.for_each_row(0, part.space.count(), [&](const Offsets& at, std::int64_t length) {
                std::byte* target = to + part.to + at.to;
                const std::byte* update = updates + part.update + at.data;
                const std::byte* index = indices + part.index + at.index;
                for (std::int64_t i = 0; i < length; ++i, target += row.to, update += row.data, index += row.index) {
                    std::int64_t offset = 0;
                    reader.read(index, offset);
                    combine_slice(part, target + offset, update);
                }
            });
        });
    }

    bool is_in_place(const Run& run) const { return run.at(data_) == run.at(to_) && data_.strides == to_.strides; }

    void combine_slice(const Part& part, std::byte* to, const std::byte* update) const {
        if (part.outer.empty()) return apply_(to, update, part.row);
        std::int64_t rows = 1;
        for (const SliceAxis& axis : part.outer) rows *= axis.size;
        for (std::int64_t position = 0; position < rows; ++position) {
            std::int64_t to_offset = 0, update_offset = 0, rest = position;
            for (std::size_t i = part.outer.size(); i-- > 0; rest /= part.outer[i].size) {
                to_offset += rest % part.outer[i].size * part.outer[i].to;
                update_offset += rest % part.outer[i].size * part.outer[i].update;
            }
            apply_(to + to_offset, update + update_offset, part.row);
        }
    }

    using Function = void (*)(std::byte* to, const std::byte* update, const SliceAxis& row);

    template <Combination kCombination, typename T>
    static void combine_row(std::byte* to, const std::byte* update, const SliceAxis& row) {
        constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
        if (row.to == kSize && row.update == kSize) {
            auto* elements = reinterpret_cast<T*>(to);
            const auto* values = reinterpret_cast<const T*>(update);
            for (std::int64_t i = 0; i < row.size; ++i) elements[i] = combine<kCombination, T>(elements[i], values[i]);
            return;
        }
        for (std::int64_t i = 0; i < row.size; ++i, to += row.to, update += row.update) {
            auto* element = reinterpret_cast<T*>(to);
            *element = combine<kCombination, T>(*element, *reinterpret_cast<const T*>(update));
        }
    }

    template <typename T>
    static Function function_of_type(Combination combination) {
        switch (combination) {
            case Combination::replace: return combine_row<Combination::replace, T>;
            case Combination::add: return combine_row<Combination::add, T>;
            case Combination::mul: return combine_row<Combination::mul, T>;
            case Combination::min: return combine_row<Combination::min, T>;
            default: return combine_row<Combination::max, T>;
        }
    }

    static Function function_of(Combination combination, Element element, std::int64_t itemsize) {
        if (combination == Combination::replace) switch (itemsize) {
                case 1: return combine_row<Combination::replace, std::uint8_t>;
                case 2: return combine_row<Combination::replace, std::uint16_t>;
                case 4: return combine_row<Combination::replace, std::uint32_t>;
                case 8: return combine_row<Combination::replace, std::uint64_t>;
                default: throw std::invalid_argument("scatter: item size must be 1, 2, 4 or 8");
            }
        switch (element) {
            case Element::f32: return function_of_type<float>(combination);
            case Element::f64: return function_of_type<double>(combination);
            case Element::i8: return function_of_type<std::int8_t>(combination);
            case Element::i16: return function_of_type<std::int16_t>(combination);
            case Element::i32: return function_of_type<std::int32_t>(combination);
            case Element::i64: return function_of_type<std::int64_t>(combination);
            case Element::u8: return function_of_type<std::uint8_t>(combination);
            case Element::u16: return function_of_type<std::uint16_t>(combination);
            case Element::u32: return function_of_type<std::uint32_t>(combination);
            case Element::u64: return function_of_type<std::uint64_t>(combination);
            case Element::boolean: return function_of_type<bool>(combination);
            default: throw std::invalid_argument("scatter: a reduction needs f32, f64, integers or booleans");
        }
    }

    CopyPlan copy_of_data() const {
        const auto location = [](const Operand& operand) {
            return operand.is_constant() ? Location{0, 0, operand.constant} : Location{operand.buffer, operand.offset, nullptr};
        };
        CopyRegion region{location(to_), location(data_), {}, static_cast<std::size_t>(to_.itemsize)};
        for (std::size_t i = 0; i < to_.rank(); ++i) region.axes.push_back({to_.sizes[i], to_.strides[i], data_.strides[i]});
        return CopyPlan({region});
    }

    // Updates are divided into parts with disjoint targets, so that all updates of one element are applied in order by one
    // part.
    void choose_parts() {
        if (updates_.count() == 0) return;
        SliceAxis whole{1, 0, 0};
        std::size_t longest = 0;
        for (std::size_t i = 0; i < plan_.slice.size(); ++i)
            if (plan_.slice[i].size > plan_.slice[longest].size) longest = i;
        if (!plan_.slice.empty()) whole = plan_.slice[longest];
        const bool by_index = plan_.disjoint && plan_.chosen[*plan_.disjoint].size > whole.size;
        const std::int64_t size = by_index ? plan_.chosen[*plan_.disjoint].size : whole.size;
        const bool is_large = updates_.count() >= kMinParallelElements;
        const std::int64_t length = is_large ? max(ceil_div(size, kMaxParts), by_index ? 1 : min(size, 16)) : size;
        for (std::int64_t first = 0; first < size; first += length) {
            const std::int64_t own = min(length, size - first);
            std::vector<GatherAxis> chosen = plan_.chosen;
            std::vector<SliceAxis> slice = plan_.slice;
            Part part;
            if (by_index) {
                GatherAxis& axis = chosen[*plan_.disjoint];
                part.to = first * axis.to;
                part.update = first * axis.data;
                part.index = first * axis.index;
                axis.size = own;
            } else if (!slice.empty()) {
                part.to = first * slice[longest].to;
                part.update = first * slice[longest].update;
                slice[longest].size = own;
            }
            part.space = SliceSpace(chosen);
            merge(slice, part);
            parts_.push_back(part);
        }
    }

    static void merge(const std::vector<SliceAxis>& slice, Part& part) {
        for (const SliceAxis& axis : slice) {
            if (axis.size == 1) continue;
            SliceAxis* last = part.outer.empty() ? nullptr : &part.outer.back();
            if (last && last->to == axis.to * axis.size && last->update == axis.update * axis.size)
                *last = {last->size * axis.size, axis.to, axis.update};
            else
                part.outer.push_back(axis);
        }
        if (part.outer.empty()) return;
        part.row = part.outer.back();
        part.outer.pop_back();
    }

    std::string name_;
    Operand data_, indices_, updates_, to_;
    Combination combination_;
    ScatterPlan plan_;
    SliceSpace index_space_;
    CopyPlan copy_;
    Function apply_ = nullptr;
    std::vector<Part> parts_;
};

void require(const Spec& spec, bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(spec.kernel + ": " + what);
}

void check_operands(const Spec& spec) {
    require(spec, spec.inputs.size() == 3 && spec.outputs.size() == 1, "needs 3 inputs and 1 output");
    const Operand &data = spec.inputs[0], &indices = spec.inputs[1], &updates = spec.inputs[2], &to = spec.outputs[0];
    require(spec, is_index_type(indices.element), "indices must be i32, i64, u32 or u64");
    require(spec, data.itemsize == to.itemsize && updates.itemsize == to.itemsize && !to.is_constant(),
            "data, updates and output must have equal item sizes");
    require(spec, data.element == to.element && updates.element == to.element,
            "data, updates and output must have equal element types");
    require(spec, data.sizes == to.sizes, "data and output must have equal sizes");
}

void append(std::vector<std::int64_t>& sizes, const Operand& operand, std::size_t first, std::size_t end) {
    for (std::size_t i = first; i < end; ++i) sizes.push_back(operand.sizes[i]);
}

}  // namespace

std::unique_ptr<Kernel> make_scatter_elements(const Spec& spec, WeightCache&) {
    check_operands(spec);
    const Operand &indices = spec.inputs[1], &updates = spec.inputs[2], &to = spec.outputs[0];
    const auto axis = static_cast<std::size_t>(spec.integer("axis", -1));
    require(spec, axis < to.rank() && indices.rank() == to.rank(), "axis is out of range");
    require(spec, updates.sizes == indices.sizes, "updates must have the shape of the indices");
    ScatterPlan plan;
    for (std::size_t i = 0; i < to.rank(); ++i) {
        require(spec, i == axis || indices.sizes[i] <= to.sizes[i], "indices must not exceed the data on other axes");
        plan.chosen.push_back(
            {indices.sizes[i], i == axis ? std::int64_t{0} : to.strides[i], updates.strides[i], indices.strides[i]});
        const bool is_longer = !plan.disjoint || indices.sizes[i] > indices.sizes[*plan.disjoint];
        if (i != axis && is_longer) plan.disjoint = i;
    }
    plan.coordinates = {{to.sizes[axis], to.strides[axis]}};
    return std::make_unique<Scatter>(spec, std::move(plan));
}

std::unique_ptr<Kernel> make_scatter_nd(const Spec& spec, WeightCache&) {
    check_operands(spec);
    const Operand &indices = spec.inputs[1], &updates = spec.inputs[2], &to = spec.outputs[0];
    require(spec, indices.rank() > 0, "indices must have at least 1 axis");
    const std::size_t last = indices.rank() - 1, depth = static_cast<std::size_t>(indices.sizes[last]);
    require(spec, depth <= to.rank() && depth <= kMaxCoordinates, "an index has too many coordinates");
    std::vector<std::int64_t> sizes;
    append(sizes, indices, 0, last);
    append(sizes, to, depth, to.rank());
    require(spec, updates.sizes == sizes, "updates have the wrong shape");
    ScatterPlan plan;
    for (std::size_t i = 0; i < last; ++i) plan.chosen.push_back({indices.sizes[i], 0, updates.strides[i], indices.strides[i]});
    for (std::size_t i = 0; i < depth; ++i) plan.coordinates.push_back({to.sizes[i], to.strides[i]});
    for (std::size_t i = depth; i < to.rank(); ++i)
        plan.slice.push_back({to.sizes[i], to.strides[i], updates.strides[last + i - depth]});
    plan.coordinate_stride = indices.strides[last];
    return std::make_unique<Scatter>(spec, std::move(plan));
}

std::unique_ptr<Kernel> make_scatter_update(const Spec& spec, WeightCache&) {
    check_operands(spec);
    const Operand &indices = spec.inputs[1], &updates = spec.inputs[2], &to = spec.outputs[0];
    const auto axis = static_cast<std::size_t>(spec.integer("axis", -1));
    require(spec, axis < to.rank(), "axis is out of range");
    std::vector<std::int64_t> sizes;
    append(sizes, to, 0, axis);
    append(sizes, indices, 0, indices.rank());
    append(sizes, to, axis + 1, to.rank());
    require(spec, updates.sizes == sizes, "updates have the wrong shape");
    ScatterPlan plan;
    for (std::size_t i = 0; i < axis; ++i) plan.slice.push_back({to.sizes[i], to.strides[i], updates.strides[i]});
    for (std::size_t i = 0; i < indices.rank(); ++i)
        plan.chosen.push_back({indices.sizes[i], 0, updates.strides[axis + i], indices.strides[i]});
    for (std::size_t i = axis + 1; i < to.rank(); ++i)
        plan.slice.push_back({to.sizes[i], to.strides[i], updates.strides[i + indices.rank() - 1]});
    plan.coordinates = {{to.sizes[axis], to.strides[axis]}};
    plan.wraps = false;
    return std::make_unique<Scatter>(spec, std::move(plan));
}

}  // namespace dovetail
