#include "program.h"

#include <chrono>
#include <new>
#include <stdexcept>

namespace dovetail {

struct Program::Room {
    std::byte* arena;
    std::byte* scratch;
};

namespace {

constexpr std::align_val_t kAlignment{64};

std::byte* take(std::size_t bytes) { return static_cast<std::byte*>(::operator new(bytes ? bytes : 1, kAlignment)); }

void give(std::byte* memory) { ::operator delete(memory, kAlignment); }

std::int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Program::Program(std::shared_ptr<Pool> pool, std::shared_ptr<Store> store, std::size_t arena_bytes, int buffers)
    : pool_(std::move(pool)), store_(std::move(store)), arena_bytes_(arena_bytes), buffers_(buffers) {}

Program::~Program() {
    for (Room* room : rooms_) {
        give(room->arena);
        give(room->scratch);
        delete room;
    }
}

void Program::add(const Spec& spec) {
    const Factory make = factory_of(spec.kernel);
    if (make == nullptr) throw std::invalid_argument("there is no kernel " + spec.kernel);
    for (const auto* operands : {&spec.inputs, &spec.outputs})
        for (const Operand& operand : *operands) {
            if (!operand.is_constant() && (operand.buffer < 0 || operand.buffer >= buffers_))
                throw std::invalid_argument(spec.kernel + ": no such buffer");
            if (operand.sizes.size() != operand.strides.size()) throw std::invalid_argument(spec.kernel + ": sizes and strides differ");
        }
    auto step = make(spec, *store_);
    const std::size_t bytes = (step->scratch_bytes() + 63) / 64 * 64;
    if (bytes > scratch_bytes_) scratch_bytes_ = bytes;
    steps_.push_back(std::move(step));
}

Program::Room* Program::enter() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!rooms_.empty()) {
            Room* room = rooms_.back();
            rooms_.pop_back();
            return room;
        }
    }
    std::unique_ptr<Room> room(new Room{nullptr, nullptr});
    room->arena = take(arena_bytes_);
    try {
        room->scratch = take(scratch_bytes_ * static_cast<std::size_t>(pool_->threads()));
    } catch (...) {
        give(room->arena);
        throw;
    }
    return room.release();
}

void Program::leave(Room* room) {
    const std::lock_guard<std::mutex> lock(mutex_);
    rooms_.push_back(room);
}

std::byte* Program::arena(Room* room) const { return room->arena; }

void Program::run(Room* room, std::byte** bases, std::size_t first, std::size_t last, std::int64_t* times) const {
    bases[0] = room->arena;
    std::atomic<const char*> fault{nullptr};
    const Run run{bases, pool_.get(), room->scratch, scratch_bytes_, &fault};
    for (std::size_t i = first; i < last; ++i) {
        const auto start = times ? now() : 0;
        steps_[i]->run(run);
        if (times) times[i] += now() - start;
        if (const char* code = fault.load(std::memory_order_relaxed)) throw StepFailed(i, code);
    }
}

}  // namespace dovetail
