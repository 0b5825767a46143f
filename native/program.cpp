#include "program.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace dovetail {

struct Program::Room {
    Store::Memory memory;
    std::byte* scratch;
};

namespace {

std::size_t to_line(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

std::int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Program::Program(std::shared_ptr<Pool> pool, std::shared_ptr<Store> store, std::size_t arena_bytes,
                 std::vector<Reach> reaches)
    : pool_(std::move(pool)), store_(std::move(store)), arena_bytes_(arena_bytes), reaches_(std::move(reaches)) {
    reaches_.insert(reaches_.begin(), {0, static_cast<std::int64_t>(arena_bytes)});
}

void Program::add(const Spec& spec, bool shared) {
    const Factory make = factory_of(spec.kernel);
    if (make == nullptr) throw std::invalid_argument("there is no kernel " + spec.kernel);
    for (const auto* operands : {&spec.inputs, &spec.outputs})
        for (const Operand& operand : *operands) {
            if (!operand.is_constant() && (operand.buffer < 0 || static_cast<std::size_t>(operand.buffer) >= reaches_.size()))
                throw std::invalid_argument(spec.kernel + ": no such buffer");
            const Reach reach =
                operand.is_constant() ? Reach{operand.low, operand.high} : reaches_[static_cast<std::size_t>(operand.buffer)];
            if (!operand.lies_within(reach.first, reach.second))
                throw std::invalid_argument(spec.kernel + ": an operand reaches beyond its buffer");
        }
    Store own;
    auto step = make(spec, shared ? *store_ : own);
    scratch_bytes_ = std::max(scratch_bytes_, to_line(step->scratch_bytes()));
    steps_.push_back(std::move(step));
}

Program::Room* Program::enter() {
    const std::size_t arena = to_line(arena_bytes_), scratch = scratch_bytes_ * static_cast<std::size_t>(pool_->threads());
    std::unique_ptr<Room> room(new Room{});
    room->memory = store_->lend(arena + scratch);
    room->scratch = room->memory.begin + arena;
    return room.release();
}

void Program::leave(Room* room) {
    store_->give_back(room->memory);
    delete room;
}

std::byte* Program::arena(Room* room) const { return room->memory.begin; }

void Program::run(Room* room, std::byte** bases, std::size_t first, std::size_t last, std::int64_t* times) const {
    bases[0] = room->memory.begin;
    std::atomic<const char*> fault{nullptr};
    const Run run{bases, pool_.get(), room->scratch, scratch_bytes_, &fault};
    for (std::size_t i = first; i < last; ++i) {
        const auto start = times ? now() : 0;
        steps_[i]->run(run);
        if (times) times[i] += now() - start;
        if (Interrupt* const interrupt = Interrupt::of_thread(); interrupt != nullptr && interrupt->check()) throw Interrupted();
        if (const char* code = fault.load(std::memory_order_relaxed)) throw StepFailed(i, code);
    }
}

namespace {

void grow(std::vector<std::int64_t>& numbers, const std::vector<std::int64_t>& slopes, std::int64_t n) {
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] += slopes.at(i) * n;
}

void grow(std::vector<Operand>& operands, const std::vector<Operand>& slopes, std::int64_t n) {
    for (std::size_t i = 0; i < operands.size(); ++i) {
        const Operand& slope = slopes.at(i);
        operands[i].offset += slope.offset * n;
        grow(operands[i].sizes, slope.sizes, n);
        grow(operands[i].strides, slope.strides, n);
    }
}

}  // namespace

void Template::fill(Program& program, std::int64_t n) const {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
        Spec spec = steps_[i];
        const Spec& slope = slopes_.at(i);
        grow(spec.inputs, slope.inputs, n);
        grow(spec.outputs, slope.outputs, n);
        for (auto& [name, value] : spec.attributes) {
            const Attribute& by = slope.attributes.at(name);
            if (auto* const number = std::get_if<std::int64_t>(&value)) *number += std::get<std::int64_t>(by) * n;
            if (auto* const all = std::get_if<std::vector<std::int64_t>>(&value)) grow(*all, std::get<std::vector<std::int64_t>>(by), n);
        }
        program.add(spec);
    }
}

}  // namespace dovetail
