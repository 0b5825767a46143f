// The interface between a program and its kernels: operands, attributes, and a kernel bound to both.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "isa.h"
#include "memory.h"
#include "sizes.h"
#include "thread_pool.h"

namespace dovetail {

// Element types by name ("f32", "i64", "boolean" ...), as in dovetail.ir.dtypes. Kernels copy elements of type `other` by their
// size alone.
enum class Element : std::uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, boolean, other };
Element element_of(const std::string& name);
const char* name_of(Element element);
// Bytes of an element; 1 for `other`.
std::int64_t size_of(Element element);

// One tensor that a kernel reads or writes: the base pointer of `buffer` plus `offset`, with a stride for each axis, all in
// bytes. Strides have any sign; a stride of zero repeats elements. Elements of less than a byte take one byte each.
struct Operand {
    int buffer = 0;
    std::int64_t offset = 0;
    Element element = Element::other;
    std::int64_t itemsize = 0;
    Sizes sizes;
    Sizes strides;
    // The elements of a constant; null for any other operand. The caller keeps them alive as long as the kernel. The offset of a
    // constant is 0 in each operand of a kernel; it counts from here in the specifications of a ParametricProgram.
    const std::byte* constant = nullptr;
    // The memory of a constant: its first byte and the byte past its last one, counted from `constant`.
    std::int64_t low = 0;
    std::int64_t high = 0;

    std::int64_t count() const;
    // True if no size is negative, each size has a stride, and all elements lie in bytes `first` to `last` of the buffer.
    bool is_within(std::int64_t first, std::int64_t last) const;
    std::size_t rank() const { return sizes.size(); }
    bool is_constant() const { return constant != nullptr; }
    // Moves `constant` by the offset, which becomes 0. Does nothing for an operand that is no constant. Throws
    // std::invalid_argument for an offset outside the memory of the constant.
    void rebase_constant();
};

using Attribute = std::variant<std::int64_t, double, std::vector<std::int64_t>, std::vector<double>, std::string>;
// std::less<> permits the lookup of a name without a copy of it.
using Attributes = std::map<std::string, Attribute, std::less<>>;

// Spec holds the name, operands and attributes from which a factory makes a kernel. The getters return `fallback` for an absent
// attribute.
struct Spec {
    std::string kernel;
    std::vector<Operand> inputs;
    std::vector<Operand> outputs;
    Attributes attributes;

    // Calls Operand::rebase_constant for all operands.
    void rebase_constants();
    bool has(std::string_view name) const { return attributes.find(name) != attributes.end(); }
    std::int64_t integer(std::string_view name, std::int64_t fallback = 0) const;
    double real(std::string_view name, double fallback = 0) const;
    std::vector<std::int64_t> integers(std::string_view name) const;
    std::vector<double> reals(std::string_view name) const;
    std::string text(std::string_view name, std::string_view fallback = "") const;
};

// One run of a program: its buffers, its threads and its scratch memory.
struct Run {
    std::byte* const* bases;  // by buffer
    ThreadPool* pool;
    std::byte* scratch;  // `scratch_bytes` bytes for each worker, aligned to 64 bytes
    std::size_t scratch_bytes;
    std::byte* shared_scratch;  // memory of all workers together, aligned to 64 bytes
    std::atomic<const char*>* fault;

    // Reports data that the kernel cannot process; the kernel must not have written anything. The program stops after this kernel
    // and throws StepFailed. `code` is an error code of docs/errors.md with static storage duration. Any thread may call this
    // function.
    void fail(const char* code) const { fault->store(code, std::memory_order_relaxed); }

    std::byte* at(const Operand& operand) const {
        return operand.constant ? const_cast<std::byte*>(operand.constant) : bases[operand.buffer] + operand.offset;
    }
    std::byte* scratch_of(int worker) const { return scratch + static_cast<std::size_t>(worker) * scratch_bytes; }
};

// A kernel bound to its operands. `run` must not throw, allocate or depend on which worker runs a task. For a given number of
// threads its results are always the same bits.
class Kernel {
public:
    virtual ~Kernel() = default;
    virtual void run(const Run& run) const = 0;
    // Scratch bytes of each worker during a run. Their contents are undefined at the start of a run.
    virtual std::size_t scratch_bytes() const { return 0; }
    // Scratch bytes of all workers together during a run. Their contents are undefined at the start of a run.
    virtual std::size_t shared_scratch_bytes() const { return 0; }
    // True if the kernel treats subnormal operands and results as zero, as kernels of sums of products do.
    virtual bool flushes_subnormals() const { return false; }
    // True if the only output may share the memory and strides of the first input: element i of the input is read before
    // element i of the output is written, and is not read again.
    virtual bool runs_in_place() const { return false; }
    // True if the kernel copies the first input to the only output.
    virtual bool is_copy() const { return false; }
    // The name in a plan: kernel and variant ("conv in place avx512").
    virtual std::string name() const = 0;
    // The multiply-adds of a run if the algorithm performs another number of them than the definition of the operator; else -1.
    virtual std::int64_t multiply_adds() const { return -1; }
};

// Makes a kernel. Throws std::invalid_argument for operands that the kernel does not support.
using Factory = std::unique_ptr<Kernel> (*)(const Spec& spec, WeightCache& cache);

// Returns the factory of the kernel with this name; null if there is no such kernel (kernels/registry.cpp).
Factory factory_of(const std::string& kernel);

}  // namespace dovetail
