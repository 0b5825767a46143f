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

// A part of the arena with a buffer number of its own: its offset, and its bytes.
struct ArenaPart {
    std::int64_t offset;
    std::int64_t bytes;
};

// What holds if an output has the buffer of an input: nothing; the elements of the input keep their values, and the rest of the
// buffer is written; or a kernel overwrites elements of the input after the last read of it.
enum class Sharing { none, extends, overwrites };

// Kernels in order over numbered buffers. Buffer 0 is the arena, which each run acquires from the arena pool. The caller owns the
// buffers after it; those after them are parts of the arena. A finished program is immutable: several threads may run it, each
// with an arena of its own.
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
    // Appends the kernel of another program, whose operands are those of `spec`. Throws as the function above.
    void add(const Spec& spec, std::shared_ptr<Kernel> kernel);
    // Appends a kernel that runs other programs; a run is then not brief. Throws std::invalid_argument for an operand outside its
    // buffer.
    void add(std::shared_ptr<Kernel> kernel, const std::vector<Operand>& operands);
    // Numbers parts of the arena as buffers, after those of the caller. Before any kernel is appended.
    void divide_arena(std::size_t arena_bytes, const std::vector<ArenaPart>& parts);
    // Asks whether a run may pass one address for the buffers of an input and of an output. Before any kernel is appended.
    void ask_sharing(std::size_t input, std::size_t output);
    // The answer for the kernels that the program has.
    Sharing sharing(std::size_t input, std::size_t output) const;
    // Keeps memory, such as that of a constant, as long as the program.
    void keep(std::unique_ptr<std::byte[]> memory) { memory_.push_back(std::move(memory)); }
    // Throws std::invalid_argument for an operand outside its buffer, or whose items are shorter than its element type.
    void check(const Operand& operand, const std::string& kernel) const;
    std::size_t size() const { return kernels_.size(); }
    // The buffers that a run passes: the arena and those of the caller.
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
    // Checks all operands, and returns their bytes, or a larger number than kBriefBytes if there are more.
    std::int64_t check(const Spec& spec) const;
    void append(std::shared_ptr<Kernel> kernel, std::int64_t operand_bytes);

    // An input and an output that may have one buffer.
    struct Shared {
        std::size_t input;
        std::size_t output;
        Sharing sharing;
    };
    // Brings the answers up to date for a kernel with these operands. `writes` may hold reads too.
    void restrict_sharing(const Kernel& kernel, const std::vector<Operand>& reads, const std::vector<Operand>& writes);

    // Operand bytes of all kernels, beyond which a run is not brief.
    static constexpr std::int64_t kBriefBytes = 32 * 1024;

    std::shared_ptr<ThreadPool> pool_;
    std::shared_ptr<WeightCache> weights_;
    std::shared_ptr<ArenaPool> arenas_;
    std::size_t arena_bytes_;
    std::vector<ByteRange> ranges_;  // address range of every buffer, the arena first
    std::vector<ArenaPart> parts_;   // the last buffers
    std::vector<Shared> shared_;
    std::size_t scratch_bytes_ = 0;
    std::int64_t operand_bytes_ = 0;
    std::vector<std::unique_ptr<std::byte[]>> memory_;
    std::vector<std::shared_ptr<Kernel>> kernels_;  // a kernel may be a part of several programs
};

// A whole number that sizes decide, in Newton's form: `base`, and what each order adds.
struct Polynomial {
    Polynomial(std::int64_t base, const std::vector<std::int64_t>& differences);
    std::int64_t at(const std::vector<std::int64_t>& factors) const;

    std::int64_t base;
    std::size_t orders;                                         // of the program
    std::vector<std::pair<std::size_t, std::int64_t>> terms{};  // the differences that are not 0, by their orders
};

// A constant whose elements sizes decide: the step and the input that read it.
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

// A program for ranges of sizes, whose numbers (offsets, sizes, strides, integer attributes) and some of whose constants are
// polynomials in the digits of the distances of the sizes from the first ones.
class ParametricProgram {
public:
    using Varying = std::pair<std::size_t, std::vector<std::int64_t>>;

    // `steps` are the kernels for the first sizes. `orders`: for each digit the order of a difference. `varying`: the numbers
    // that depend on the sizes, in increasing order, with what each of the orders adds. The numbers of a step are, for each input
    // and then each output, the offset, sizes and strides; then the integers of its attributes in the order of their names.
    ParametricProgram(std::vector<Spec> steps, std::vector<std::vector<std::int64_t>> orders, std::vector<Varying> varying,
                      std::vector<ParametricConstant> constants, std::vector<ParametricPart> parts);

    // The factors of the orders at these digits of the distances from the first sizes: products of binomial coefficients. Throws
    // std::invalid_argument for a digit that is negative or larger than kMaxDistance.
    std::vector<std::int64_t> factors_at(const std::vector<std::int64_t>& distances) const;
    // The bytes of the arena at these factors.
    std::size_t arena_bytes(const std::vector<std::int64_t>& factors) const { return place(factors).second; }
    // Divides the arena of an empty program and appends the kernels for these factors. Throws as Program::add does, and
    // std::invalid_argument where an element of a constant is not exact in its type.
    void fill(Program& program, const std::vector<std::int64_t>& factors);
    std::size_t size() const { return steps_.size(); }
    std::size_t orders() const { return orders_.size(); }
    // True if the orders have as many digits.
    bool takes(std::size_t distances) const { return orders_.empty() || orders_.front().size() == distances; }

    // Products of as many distances as the total of an order stay in 64 bits.
    static constexpr std::int64_t kMaxDistance = 1 << 20;
    static constexpr std::int64_t kMaxOrder = 3;
    static constexpr std::int64_t kMaxPartBytes = std::int64_t{1} << 40;

private:
    // A number of a step that depends on the sizes.
    struct Number {
        std::int64_t* value;
        Polynomial polynomial;
    };

    // The parts of the arena, such that those whose lifetimes intersect do not overlap, and the bytes of the arena.
    std::pair<std::vector<ArenaPart>, std::size_t> place(const std::vector<std::int64_t>& factors) const;
    std::vector<Spec> steps_;  // of the last call: copies of all their parts would take longer than their numbers
    std::vector<std::vector<std::int64_t>> orders_;
    std::vector<Number> numbers_;
    std::vector<ParametricConstant> constants_;
    std::vector<ParametricPart> parts_;
    std::vector<bool> has_constant_, is_fixed_;   // by step: has a constant, or nothing, that depends on the sizes
    std::vector<std::shared_ptr<Kernel>> fixed_;  // the kernels of fixed steps, once they are made: all programs share them
    ForkLock mutex_;                              // guards steps_, of which each call sets all numbers
};

}  // namespace dovetail
