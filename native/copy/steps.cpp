// Steps that only move data: copy, concat, split, fill.
#include <stdexcept>
#include <string>

#include "kernels/kernels.h"
#include "copy/strided_copy.h"

namespace dovetail {
namespace {

using namespace moving;

class Move : public Step {
public:
    Move(std::string kernel, std::vector<Piece> pieces) : movement_(std::move(pieces)), name_(std::move(kernel) + " " + movement_.name()) {}
    void run(const Run& run) const override { movement_.run(run.bases, run.pool); }
    std::string name() const override { return name_; }

private:
    Movement movement_;
    std::string name_;
};

void require(bool holds, const Spec& spec, const char* what) {
    if (!holds) throw std::invalid_argument(spec.kernel + ": " + what);
}

Place place_of(const Operand& operand, std::int64_t beyond = 0) {
    if (operand.is_constant()) return {0, beyond, operand.constant};
    return {operand.buffer, operand.offset + beyond, nullptr};
}

Piece piece_of(const std::vector<std::int64_t>& sizes, const Operand& to, Place dst, const Operand& from, Place src) {
    Piece piece{dst, src, {}, static_cast<std::size_t>(to.itemsize)};
    for (std::size_t i = 0; i < sizes.size(); ++i) piece.axes.push_back({sizes[i], to.strides[i], from.strides[i]});
    return piece;
}

void check_elements(const Spec& spec) {
    require(!spec.outputs.empty(), spec, "nothing is written");
    const std::int64_t itemsize = spec.outputs[0].itemsize;
    require(itemsize > 0, spec, "an element has at least one byte");
    for (const auto* operands : {&spec.inputs, &spec.outputs})
        for (const Operand& operand : *operands) require(operand.itemsize == itemsize, spec, "operands have elements of different sizes");
    for (const Operand& operand : spec.outputs) require(!operand.is_constant(), spec, "a constant is written");
}

// The axis along which `parts` lie end to end in `whole`.
std::size_t joint_axis(const Spec& spec, const Operand& whole, const std::vector<Operand>& parts) {
    const auto axis = static_cast<std::size_t>(spec.integer("axis", -1));
    require(axis < whole.rank(), spec, "there is no such axis");
    std::int64_t total = 0;
    for (const Operand& part : parts) {
        require(part.rank() == whole.rank(), spec, "ranks differ");
        for (std::size_t i = 0; i < whole.rank(); ++i) require(i == axis || part.sizes[i] == whole.sizes[i], spec, "sizes differ");
        total += part.sizes[axis];
    }
    require(total == whole.sizes[axis], spec, "the parts are not the whole");
    return axis;
}

}  // namespace

std::unique_ptr<Step> make_copy(const Spec& spec, Store&) {
    require(spec.inputs.size() == 1 && spec.outputs.size() == 1, spec, "one input, one output");
    check_elements(spec);
    const Operand &from = spec.inputs[0], &to = spec.outputs[0];
    require(from.sizes == to.sizes, spec, "sizes differ");
    return std::make_unique<Move>(spec.kernel, std::vector<Piece>{piece_of(to.sizes, to, place_of(to), from, place_of(from))});
}

std::unique_ptr<Step> make_concat(const Spec& spec, Store&) {
    require(spec.outputs.size() == 1, spec, "one output");
    check_elements(spec);
    const Operand& to = spec.outputs[0];
    const std::size_t axis = joint_axis(spec, to, spec.inputs);
    std::vector<Piece> pieces;
    std::int64_t start = 0;
    for (const Operand& from : spec.inputs) {
        pieces.push_back(piece_of(from.sizes, to, place_of(to, start * to.strides[axis]), from, place_of(from)));
        start += from.sizes[axis];
    }
    return std::make_unique<Move>(spec.kernel, std::move(pieces));
}

std::unique_ptr<Step> make_split(const Spec& spec, Store&) {
    require(spec.inputs.size() == 1, spec, "one input");
    check_elements(spec);
    const Operand& from = spec.inputs[0];
    const std::size_t axis = joint_axis(spec, from, spec.outputs);
    std::vector<Piece> pieces;
    std::int64_t start = 0;
    for (const Operand& to : spec.outputs) {
        pieces.push_back(piece_of(to.sizes, to, place_of(to), from, place_of(from, start * from.strides[axis])));
        start += to.sizes[axis];
    }
    return std::make_unique<Move>(spec.kernel, std::move(pieces));
}

namespace {

// One element everywhere: a copy whose source takes no steps.
class Fill : public Step {
public:
    Fill(const Operand& to, std::vector<std::byte> element) : element_(std::move(element)), movement_({piece(to)}) {}
    void run(const Run& run) const override { movement_.run(run.bases, run.pool); }
    std::string name() const override { return "fill"; }

private:
    Piece piece(const Operand& to) const {
        Piece piece{place_of(to), {0, 0, element_.data()}, {}, element_.size()};
        for (std::size_t i = 0; i < to.rank(); ++i) piece.axes.push_back({to.sizes[i], to.strides[i], 0});
        return piece;
    }

    std::vector<std::byte> element_;
    Movement movement_;
};

}  // namespace

std::unique_ptr<Step> make_fill(const Spec& spec, Store&) {
    require(spec.inputs.empty() && spec.outputs.size() == 1, spec, "no input, one output");
    check_elements(spec);
    std::vector<std::byte> element;
    for (const std::int64_t byte : spec.integers("bytes")) element.push_back(static_cast<std::byte>(byte));
    require(static_cast<std::int64_t>(element.size()) == spec.outputs[0].itemsize, spec, "bytes: not those of one element");
    return std::make_unique<Fill>(spec.outputs[0], std::move(element));
}

}  // namespace dovetail
