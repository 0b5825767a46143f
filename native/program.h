// A program: kernels in order over numbered buffers, and one call that runs them.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernel.h"

namespace dovetail {

// An Interrupt stopped the run; its outputs are written in part.
struct Interrupted : std::exception {
    const char* what() const noexcept override { return "interrupted"; }
};

// A kernel called Run::fail. `step` is its index in the program.
struct StepFailed : std::exception {
    StepFailed(std::size_t step, const char* code) : step(step), code(code) {}
    const char* what() const noexcept override { return code; }

    std::size_t step;
    const char* code;
};

// The bytes [first, second) of a buffer, counted from the address that a run passes for it.
using ByteRange = std::pair<std::int64_t, std::int64_t>;

// Kernels in order over numbered buffers. Buffer 0 is the arena, which each run acquires from the arena pool; the caller owns all
// other buffers. A finished program is immutable: several threads may run it, each with an arena of its own.
class Program {
public:
    // `ranges`: the valid bytes of each buffer after the arena.
    Program(std::shared_ptr<ThreadPool> pool, std::shared_ptr<WeightCache> weights, std::shared_ptr<ArenaPool> arenas,
            std::size_t arena_bytes, std::vector<ByteRange> ranges);
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    // Appends a kernel. Throws std::invalid_argument for an unknown kernel, for operands that it does not serve and for an
    // operand outside its buffer. `shared`: the constants live as long as the weight cache, which then keeps their packed form
    // under their address; otherwise the kernel alone owns it.
    void add(const Spec& spec, bool shared = true);
    // Appends a kernel that runs other programs; a run is then not brief. Throws std::invalid_argument for an operand outside its
    // buffer.
    void add(std::unique_ptr<Kernel> kernel, const std::vector<Operand>& operands);
    // Throws std::invalid_argument for an operand outside its buffer, or whose items are shorter than its element type.
    void check(const Operand& operand, const std::string& kernel) const;
    std::size_t size() const { return kernels_.size(); }
    std::size_t buffers() const { return ranges_.size(); }
    ByteRange range(std::size_t buffer) const { return ranges_[buffer]; }
    const std::shared_ptr<ArenaPool>& arenas() const { return arenas_; }
    Kernel& kernel(std::size_t index) { return *kernels_[index]; }
    const Kernel& kernel(std::size_t index) const { return *kernels_[index]; }

    // The memory of one run: arena and scratch.
    struct Workspace;
    Workspace* acquire();
    void release(Workspace* workspace);
    std::byte* arena(Workspace* workspace) const;

    // A workspace, released at the end of the scope.
    class Lease {
    public:
        explicit Lease(Program& program) : program_(program), workspace_(program.acquire()) {}
        ~Lease() { program_.release(workspace_); }
        Lease(const Lease&) = delete;
        Lease& operator=(const Lease&) = delete;
        Workspace* get() const { return workspace_; }

    private:
        Program& program_;
        Workspace* const workspace_;
    };

    // True if a run takes some microseconds: too few to release a lock or poll an interrupt.
    bool is_brief() const { return operand_bytes_ <= kBriefBytes; }

    // Runs kernels first .. last - 1. `bases` has one pointer for each buffer; the arena's is set here. `times`, unless null, has
    // nanoseconds added for each kernel. Throws StepFailed after the first kernel that calls Run::fail; the program stays usable.
    void run(Workspace* workspace, std::byte** bases, std::size_t first, std::size_t last, std::int64_t* times) const;

private:
    // Operand bytes of all kernels, beyond which a run is not brief.
    static constexpr std::int64_t kBriefBytes = 32 * 1024;

    std::shared_ptr<ThreadPool> pool_;
    std::shared_ptr<WeightCache> weights_;
    std::shared_ptr<ArenaPool> arenas_;
    std::size_t arena_bytes_;
    std::vector<ByteRange> ranges_;  // address range of every buffer, the arena first
    std::size_t scratch_bytes_ = 0;
    std::int64_t operand_bytes_ = 0;
    std::vector<std::unique_ptr<Kernel>> kernels_;
};

// A constant of some sizes: the step and the input that read it, its address and the extent of its memory from there.
struct ConstantPatch {
    std::size_t step;
    std::size_t input;
    const std::byte* address;
    std::int64_t low;
    std::int64_t high;
};

// A program whose numbers (offsets, sizes, strides, integer attributes) are sums of products of numbers with factors.
class ParametricProgram {
public:
    // `steps` are the kernels for factors of 0; `differences` hold what each number adds to that for each unit of a factor. All
    // have equal names.
    ParametricProgram(std::vector<Spec> steps, std::vector<std::vector<Spec>> differences);

    // Appends the kernels for these factors to an empty program; `patches` replace constants. Throws as Program::add does.
    // One call at a time.
    void fill(Program& program, const std::vector<std::int64_t>& factors, const std::vector<ConstantPatch>& patches);

private:
    // A number of a step that depends on the factors.
    struct Number {
        std::int64_t* value;
        std::int64_t base;
        std::vector<std::int64_t> differences;
    };

    void collect(std::int64_t& value, std::vector<std::int64_t> differences);

    std::vector<Spec> steps_;  // of the last call: copies of all their parts would take longer than their numbers
    std::size_t orders_;
    std::vector<Number> numbers_;
};

}  // namespace dovetail
