// A program: kernels in order over numbered buffers, and one call that runs them.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernel.h"

namespace dovetail {

// An Interrupt stopped the run; the outputs are partly written.
struct Interrupted : std::exception {
    const char* what() const noexcept override { return "interrupted"; }
};

// A kernel called Run::fail. `step` is the index of the kernel in the program.
struct StepFailed : std::exception {
    StepFailed(std::size_t step, const char* code) : step(step), code(code) {}
    const char* what() const noexcept override { return code; }

    std::size_t step;
    const char* code;
};

// The bytes [first, second) of a buffer, counted from the address that a run passes for it.
using ByteRange = std::pair<std::int64_t, std::int64_t>;

// A part of the arena that has a buffer index: its offset and its size in bytes.
struct ArenaPart {
    std::int64_t offset;
    std::int64_t bytes;
};

// The guarantee if an output shares the buffer of an input. none: they must not share it. extends: the elements of the input keep
// their values, and only the rest of the buffer is written. overwrites: a kernel overwrites elements of the input after the last
// read of them.
enum class Sharing { none, extends, overwrites };

// A program: a sequence of kernels over numbered buffers. Buffer 0 is the arena, which each run acquires from the arena pool. The
// next buffers are owned by the caller, and the last ones are parts of the arena. A finished program is immutable: several
// threads may run it, each with a separate arena.
class Program {
public:
    // `ranges` holds the valid bytes of each buffer after the arena.
    Program(std::shared_ptr<ThreadPool> pool, std::shared_ptr<WeightCache> weights, std::shared_ptr<ArenaPool> arenas,
            std::size_t arena_bytes, std::vector<ByteRange> ranges);
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    // Appends a kernel. Throws std::invalid_argument for an unknown kernel, for operands that the kernel does not support and
    // for an operand outside its buffer. `shared`: the constants live as long as the weight cache, which then keeps their
    // packed form under their address; otherwise only the kernel owns the packed form.
    void add(const Spec& spec, bool shared = true);
    // Appends the kernel of another program, whose operands are those of `spec`. Throws the exceptions of add(spec).
    void add(const Spec& spec, std::shared_ptr<Kernel> kernel);
    // Appends a kernel that runs other programs; a run is then not brief. Throws std::invalid_argument for an operand outside its
    // buffer.
    void add(std::shared_ptr<Kernel> kernel, const std::vector<Operand>& operands);
    // Assigns buffer indices to the parts of the arena, after the buffers of the caller. Must be called before any kernel is
    // appended.
    void divide_arena(std::size_t arena_bytes, const std::vector<ArenaPart>& parts);
    // Requests an analysis of whether a run may pass one address for the buffers of an input and of an output. Must be called
    // before any kernel is appended.
    void ask_sharing(std::size_t input, std::size_t output);
    // The result of the analysis for the kernels appended so far.
    Sharing sharing(std::size_t input, std::size_t output) const;
    // Keeps memory, such as the data of a constant, alive as long as the program.
    void keep(std::unique_ptr<std::byte[]> memory) { memory_.push_back(std::move(memory)); }
    // Throws std::invalid_argument for an operand outside its buffer, or whose items are shorter than its element type.
    void check(const Operand& operand, const std::string& kernel) const;
    std::size_t size() const { return kernels_.size(); }
    // The number of buffers that a run passes: the arena and the buffers of the caller.
    std::size_t buffers() const { return ranges_.size() - parts_.size(); }
    ByteRange range(std::size_t buffer) const { return ranges_[buffer]; }
    const std::shared_ptr<ArenaPool>& arenas() const { return arenas_; }
    Kernel& kernel(std::size_t index) { return *kernels_[index]; }
    const Kernel& kernel(std::size_t index) const { return *kernels_[index]; }
    std::shared_ptr<Kernel> shared_kernel(std::size_t index) const { return kernels_[index]; }

    // The memory of one run: arena and scratch.
    struct Workspace;
    Workspace* acquire();
    void release(Workspace* workspace);
    std::byte* arena(Workspace* workspace) const;

    // A workspace that is released at the end of the scope.
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

    // True if a run takes only a few microseconds, so that releasing a lock or polling an interrupt does not pay.
    bool is_brief() const { return operand_bytes_ <= kBriefBytes; }

    // Runs kernels first .. last - 1. `bases` has one pointer per buffer; this function sets the pointer of the arena. Adds the
    // nanoseconds of each kernel to `times`, unless it is null. Throws StepFailed after the first kernel that calls Run::fail;
    // the program stays usable.
    void run(Workspace* workspace, std::byte** bases, std::size_t first, std::size_t last, std::int64_t* times) const;

private:
    // Checks all operands, and returns the sum of their bytes, or any number above kBriefBytes if the sum is larger.
    std::int64_t check(const Spec& spec) const;
    void append(std::shared_ptr<Kernel> kernel, std::int64_t operand_bytes);

    // An input and an output that may share one buffer.
    struct Shared {
        std::size_t input;
        std::size_t output;
        Sharing sharing;
    };
    // Updates the analysis for a kernel with these operands. `writes` may also contain operands that are read.
    void restrict_sharing(const Kernel& kernel, const std::vector<Operand>& reads, const std::vector<Operand>& writes);

    // Operand bytes of all kernels above which a run is not brief.
    static constexpr std::int64_t kBriefBytes = 32 * 1024;

    std::shared_ptr<ThreadPool> pool_;
    std::shared_ptr<WeightCache> weights_;
    std::shared_ptr<ArenaPool> arenas_;
    std::size_t arena_bytes_;
    std::vector<ByteRange> ranges_;  // valid bytes of every buffer, the arena first
    std::vector<ArenaPart> parts_;   // parts of the arena, which are the last buffers
    std::vector<Shared> shared_;
    std::size_t scratch_bytes_ = 0;
    std::size_t shared_scratch_bytes_ = 0;
    std::int64_t operand_bytes_ = 0;
    std::vector<std::unique_ptr<std::byte[]>> memory_;
    std::vector<std::shared_ptr<Kernel>> kernels_;  // several programs may share a kernel
};

// An integer that depends on the sizes, as a polynomial in Newton's form: `base`, plus for each order the difference of this
// order times the factor of the order.
struct Polynomial {
    Polynomial(std::int64_t base, const std::vector<std::int64_t>& differences);
    std::int64_t at(const std::vector<std::int64_t>& factors) const;

    std::int64_t base;
    std::size_t orders;                                         // number of orders
    std::vector<std::pair<std::size_t, std::int64_t>> terms{};  // pairs of an order's index and its difference, if not 0
};

// A constant whose elements depend on the sizes. `step` is the index of the step that reads it, `input` the index among the
// step's inputs.
struct ParametricConstant {
    std::size_t step;
    std::size_t input;
    std::vector<Polynomial> elements;
};

// A part of the arena whose size follows from the sizes of the symbols, and its lifetime: steps `first` to `last`.
struct ParametricPart {
    Polynomial bytes;
    std::size_t first;
    std::size_t last;
};

// A program for ranges of sizes. Each size has a distance from the first size of its range; the distances are written in digits.
// The integers of the program (offsets, sizes, strides, integer attributes) and the elements of some constants are polynomials in
// these digits.
class ParametricProgram {
public:
    using Varying = std::pair<std::size_t, std::vector<std::int64_t>>;

    // `steps` are the kernels for the first size of each range. `orders` holds the orders of differences; an order has one
    // integer per digit. `varying` holds the indices of the integers that depend on the sizes, in increasing order, with the
    // differences of all orders. The integers of a step are indexed in this order: for each input and then each output, the
    // offset, sizes and strides; then the integers of the step's attributes, sorted by the attributes' names.
    ParametricProgram(std::vector<Spec> steps, std::vector<std::vector<std::int64_t>> orders, std::vector<Varying> varying,
                      std::vector<ParametricConstant> constants, std::vector<ParametricPart> parts);

    // Returns the factor of each order for these digits of the distances from the first sizes: a product of binomial
    // coefficients. Throws std::invalid_argument for a digit that is negative or larger than kMaxDistance.
    std::vector<std::int64_t> factors_at(const std::vector<std::int64_t>& distances) const;
    // The bytes of the arena at these factors.
    std::size_t arena_bytes(const std::vector<std::int64_t>& factors) const { return place(factors).second; }
    // Divides the arena of an empty program and appends the kernels for these factors. Throws as Program::add does, and
    // std::invalid_argument where an element of a constant is not exact in its type.
    void fill(Program& program, const std::vector<std::int64_t>& factors);
    std::size_t size() const { return steps_.size(); }
    std::size_t orders() const { return orders_.size(); }
    // True if the orders have this number of digits, or if there are no orders.
    bool takes(std::size_t distances) const { return orders_.empty() || orders_.front().size() == distances; }

    // The integers of an order have a sum of at most kMaxOrder, so that products of that many digits stay within 64 bits.
    static constexpr std::int64_t kMaxDistance = 1 << 20;
    static constexpr std::int64_t kMaxOrder = 3;
    static constexpr std::int64_t kMaxPartBytes = std::int64_t{1} << 40;

private:
    // An integer of a step that depends on the sizes, at the address `value`.
    struct Number {
        std::int64_t* value;
        Polynomial polynomial;
    };

    // Assigns offsets to the parts of the arena such that parts with intersecting lifetimes do not overlap. Returns the parts and
    // the bytes of the arena.
    std::pair<std::vector<ArenaPart>, std::size_t> place(const std::vector<std::int64_t>& factors) const;
    std::vector<Spec> steps_;  // specifications set by the last fill(); the next fill() changes their integers, which takes less
                               // time than copying all specifications
    std::vector<std::vector<std::int64_t>> orders_;
    std::vector<Number> numbers_;
    std::vector<ParametricConstant> constants_;
    std::vector<ParametricPart> parts_;
    // Per step: elements or the place of a constant depend on the sizes; the offset of a constant does; nothing does.
    std::vector<bool> has_constant_, moves_constant_, is_fixed_;
    std::vector<std::shared_ptr<Kernel>> fixed_;  // kernels of steps that do not depend on sizes, shared by all programs
    ForkLock mutex_;                              // guards steps_, which each fill() changes
};

}  // namespace dovetail
