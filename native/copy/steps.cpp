// The kernels `copy` and `fill`.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "copy/strided_copy.h"
#include "kernels/kernels.h"

namespace dovetail {
namespace {

using namespace copying;

class Copy : public Kernel {
public:
    Copy(std::string kernel, const CopyRegion& region)
        : plan_({region}), dst_(region.dst), src_(region.src),
          has_same_strides_(std::all_of(region.axes.begin(), region.axes.end(),
                                        [](const CopyAxis& axis) { return axis.size == 1 || axis.dst == axis.src; })),
          name_(std::move(kernel) + " " + plan_.name()) {}
    void run(const Run& run) const override {
        if (has_same_strides_ && dst_.resolve(run.bases) == src_.resolve(run.bases)) return;
        plan_.run(run.bases, run.pool);
    }
    bool runs_in_place() const override { return true; }
    bool is_copy() const override { return true; }
    std::string name() const override { return name_; }

private:
    CopyPlan plan_;
    Location dst_, src_;
    bool has_same_strides_;
    std::string name_;
};

void require(bool holds, const Spec& spec, const char* what) {
    if (!holds) throw std::invalid_argument(spec.kernel + ": " + what);
}

Location location_of(const Operand& operand) {
    if (operand.is_constant()) return {0, 0, operand.constant};
    return {operand.buffer, operand.offset, nullptr};
}

CopyRegion region_of(const std::vector<std::int64_t>& sizes, const Operand& to, Location dst, const Operand& from, Location src) {
    CopyRegion region{dst, src, {}, static_cast<std::size_t>(to.itemsize)};
    for (std::size_t i = 0; i < sizes.size(); ++i) region.axes.push_back({sizes[i], to.strides[i], from.strides[i]});
    return region;
}

void check_elements(const Spec& spec) {
    require(!spec.outputs.empty(), spec, "needs at least 1 output");
    const std::int64_t itemsize = spec.outputs[0].itemsize;
    require(itemsize > 0, spec, "itemsize must be at least 1");
    for (const auto* operands : {&spec.inputs, &spec.outputs})
        for (const Operand& operand : *operands)
            require(operand.itemsize == itemsize, spec, "operands must have equal item sizes");
    for (const Operand& operand : spec.outputs) require(!operand.is_constant(), spec, "an output must not be a constant");
}

}  // namespace

std::unique_ptr<Kernel> make_copy(const Spec& spec, WeightCache&) {
    require(spec.inputs.size() == 1 && spec.outputs.size() == 1, spec, "needs 1 input and 1 output");
    check_elements(spec);
    const Operand &from = spec.inputs[0], &to = spec.outputs[0];
    require(from.sizes == to.sizes, spec, "input and output must have equal sizes");
    return std::make_unique<Copy>(spec.kernel, region_of(to.sizes, to, location_of(to), from, location_of(from)));
}

namespace {

// Writes one element everywhere: a copy with source strides of zero.
class Fill : public Kernel {
public:
    Fill(const Operand& to, std::vector<std::byte> element) : element_(std::move(element)), plan_({region(to)}) {}
    void run(const Run& run) const override { plan_.run(run.bases, run.pool); }
    std::string name() const override { return "fill"; }

private:
    CopyRegion region(const Operand& to) const {
        CopyRegion region{location_of(to), {0, 0, element_.data()}, {}, element_.size()};
        for (std::size_t i = 0; i < to.rank(); ++i) region.axes.push_back({to.sizes[i], to.strides[i], 0});
        return region;
    }

    std::vector<std::byte> element_;
    CopyPlan plan_;
};

}  // namespace

std::unique_ptr<Kernel> make_fill(const Spec& spec, WeightCache&) {
    require(spec.inputs.empty() && spec.outputs.size() == 1, spec, "needs 0 inputs and 1 output");
    check_elements(spec);
    std::vector<std::byte> element;
    for (const std::int64_t byte : spec.integers("bytes")) element.push_back(static_cast<std::byte>(byte));
    require(static_cast<std::int64_t>(element.size()) == spec.outputs[0].itemsize, spec, "bytes must be those of one element");
    return std::make_unique<Fill>(spec.outputs[0], std::move(element));
}

}  // namespace dovetail
