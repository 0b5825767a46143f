// What a kernel is to a program: a step bound to the places of its operands.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "isa.h"
#include "memory.h"
#include "thread_pool.h"

namespace dovetail {

// Element types by name ("f32", "i64", "boolean" ...), as in dovetail.dtypes. Types that no kernel computes in are moved by size.
enum class Element : std::uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, boolean, other };
Element element_of(const std::string& name);
const char* name_of(Element element);

// One tensor that a step reads or writes: base pointer of `buffer` + `offset`, `strides` per axis, all in bytes. Strides have any
// sign; zero repeats. Sub-byte elements lie one in a byte.
struct Operand {
    int buffer = 0;
    std::int64_t offset = 0;
    Element element = Element::other;
    std::int64_t itemsize = 0;
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
    // The elements themselves, where they are known when the step is made (a constant), at offset 0; else null. They outlive it.
    const std::byte* constant = nullptr;
    // Of a constant: the first byte of its memory and the one past its last, counted from `constant`.
    std::int64_t low = 0;
    std::int64_t high = 0;

    std::int64_t count() const;
    // Whether sizes are not negative, each has a stride, and all elements lie in bytes `first` to `last` of the buffer.
    bool lies_within(std::int64_t first, std::int64_t last) const;
    std::size_t rank() const { return sizes.size(); }
    bool is_constant() const { return constant != nullptr; }
};

using Attribute = std::variant<std::int64_t, double, std::vector<std::int64_t>, std::vector<double>, std::string>;

// What a step is made from. The getters give `otherwise` for an attribute that is not there.
struct Spec {
    std::string kernel;
    std::vector<Operand> inputs;
    std::vector<Operand> outputs;
    std::map<std::string, Attribute> attributes;

    bool has(const std::string& name) const { return attributes.count(name) != 0; }
    std::int64_t integer(const std::string& name, std::int64_t otherwise = 0) const;
    double real(const std::string& name, double otherwise = 0) const;
    std::vector<std::int64_t> integers(const std::string& name) const;
    std::vector<double> reals(const std::string& name) const;
    std::string text(const std::string& name, const std::string& otherwise = "") const;
};

// One run of a program.
struct Run {
    std::byte* const* bases;  // by buffer
    Pool* pool;
    std::byte* scratch;          // `scratch_bytes` of the program for each worker, aligned to 64
    std::size_t scratch_bytes;
    std::atomic<const char*>* fault;

    // What a step that finds its data unfit does instead of throwing, having written nothing: the program stops after it and says so.
    // `code` is one of docs/errors.md and lives for ever. Any thread may call it.
    void fail(const char* code) const { fault->store(code, std::memory_order_relaxed); }

    std::byte* at(const Operand& operand) const {
        return operand.constant ? const_cast<std::byte*>(operand.constant) : bases[operand.buffer] + operand.offset;
    }
    std::byte* scratch_of(int worker) const { return scratch + static_cast<std::size_t>(worker) * scratch_bytes; }
};

// A kernel bound to its operands. `run` must not throw, allocate or depend on which worker runs a task; the results for a given number
// of threads are always the same bits.
class Step {
public:
    virtual ~Step() = default;
    virtual void run(const Run& run) const = 0;
    // Memory that each worker needs while it runs; contents are not kept.
    virtual std::size_t scratch_bytes() const { return 0; }
    // What it is called in a plan: the kernel and the variant chosen ("conv nhwc avx512").
    virtual std::string name() const = 0;
};

// Makes a step, or throws std::invalid_argument where it cannot be made for these operands: the planner asks first.
using Factory = std::unique_ptr<Step> (*)(const Spec& spec, Store& store);

// The factory of a kernel by name, null where there is none (kernels/table.cpp).
Factory factory_of(const std::string& kernel);

}  // namespace dovetail
