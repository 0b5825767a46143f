// A list of bound steps, and one call that runs them.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernel.h"

namespace dovetail {

// A run that was stopped (Interrupt); its outputs are written in part.
struct Interrupted : std::exception {
    const char* what() const noexcept override { return "interrupted"; }
};

// A step found at run time that its data do not suit it (Run::fail).
struct StepFailed : std::exception {
    StepFailed(std::size_t step, const char* code) : step(step), code(code) {}
    const char* what() const noexcept override { return code; }

    std::size_t step;
    const char* code;
};

using Reach = std::pair<std::int64_t, std::int64_t>;

// Steps in order over numbered buffers. Buffer 0 is the arena, which each run borrows from the store; all others are the caller's. Once made it is constant: several threads may run it, each with an arena of its own.
class Program {
public:
    // `reaches`: of each buffer after the arena, the first byte that belongs to it and the one past its last, counted from the
    // address that runs give for it.
    Program(std::shared_ptr<Pool> pool, std::shared_ptr<Store> store, std::size_t arena_bytes, std::vector<Reach> reaches);
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    // Throws std::invalid_argument for a kernel that is not there or cannot be made, and for an operand beyond its buffer. `shared`: whether the constants live as long
    // as the store, which then keeps what is packed of them, by address; otherwise the step alone keeps it.
    void add(const Spec& spec, bool shared = true);
    std::size_t size() const { return steps_.size(); }
    std::size_t buffers() const { return reaches_.size(); }
    const Step& step(std::size_t index) const { return *steps_[index]; }

    // What one run works in: arena and scratch.
    struct Room;
    Room* enter();
    void leave(Room* room);
    std::byte* arena(Room* room) const;

    // Runs steps first .. last-1. `bases`: one pointer per buffer; the arena's is put in. `times`: nanoseconds per step are added,
    // unless null. Throws StepFailed after the first step that calls Run::fail; the program stays usable.
    void run(Room* room, std::byte** bases, std::size_t first, std::size_t last, std::int64_t* times) const;

private:
    std::shared_ptr<Pool> pool_;
    std::shared_ptr<Store> store_;
    std::size_t arena_bytes_;
    std::vector<Reach> reaches_;  // of every buffer, the arena first
    std::size_t scratch_bytes_ = 0;
    std::vector<std::unique_ptr<Step>> steps_;
};

// Steps all of whose numbers (offsets, sizes, strides, whole attributes) are straight lines in one number n.
class Template {
public:
    // What the steps are where n is 0, and what each number grows by with n; both say all that is no number alike.
    Template(std::vector<Spec> steps, std::vector<Spec> slopes) : steps_(std::move(steps)), slopes_(std::move(slopes)) {}

    // Adds the steps for this n to an empty program. Throws as Program::add.
    void fill(Program& program, std::int64_t n) const;

private:
    std::vector<Spec> steps_;
    std::vector<Spec> slopes_;
};

}  // namespace dovetail
