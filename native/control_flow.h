// If and Loop as kernels whose subgraphs are programs.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "program.h"

namespace dovetail {

// The error code of a kernel whose subgraph has no program. The engine then binds a program and runs the kernel again, or runs
// the operator in Python.
extern const char* const kUnbound;
// The error code of a run that exceeds its deadline.
extern const char* const kTooLate;

// The limits of one run on this thread: trips of all loops, and a deadline.
class Budget {
public:
    // `deadline`: nanoseconds of the steady clock; 0: none.
    Budget(std::int64_t max_trips, std::int64_t deadline) : previous_(current()), max_trips_(max_trips), deadline_(deadline) {
        current() = this;
    }
    ~Budget() { current() = previous_; }
    Budget(const Budget&) = delete;
    Budget& operator=(const Budget&) = delete;

    // The budget of this thread's runs; null if there is none.
    static Budget*& current();

    // False if `count` trips exceed the limit.
    bool count_trips(std::int64_t count);
    std::int64_t trips() const { return trips_; }
    bool is_late() const;

private:
    Budget* const previous_;
    const std::int64_t max_trips_;
    const std::int64_t deadline_;
    std::int64_t trips_ = 0;
};

// Times of the steps of subgraphs, by program, summed over the runs within a Scope on the thread of the Scope.
class SubgraphTimes {
public:
    struct Entry {
        std::int64_t runs = 0;
        std::vector<std::int64_t> nanoseconds;  // of each kernel, summed over the runs
    };

    class Scope {
    public:
        explicit Scope(SubgraphTimes& times) : previous_(current()) { current() = &times; }
        ~Scope() { current() = previous_; }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;

    private:
        SubgraphTimes* const previous_;
    };

    // Counts a run of a subgraph's program. Returns the array of times that Program::run takes, null outside of a Scope.
    static std::int64_t* count_run(const Program& program);
    Entry of(const Program& program) const;

private:
    static SubgraphTimes*& current();

    std::map<const Program*, Entry> entries_;
};

// A subgraph: its program, and for each input of the program the index of the subgraph's input. `program` is null until a
// program is bound.
struct Subgraph {
    std::shared_ptr<Program> program;
    std::vector<std::size_t> inputs;
};

// An operand as a dense buffer: the memory of the operand if it is dense, otherwise a copy in staging memory.
class DenseOperand {
public:
    // Reserves staging memory after the first `staging_bytes` bytes, if the operand needs a copy.
    DenseOperand(const Operand& operand, std::size_t& staging_bytes);

    // The buffer of the operand at its address plus `shift` bytes. The buffer holds the elements if `is_read`.
    std::byte* buffer(const Run& run, std::byte* staging, bool is_read, std::int64_t shift = 0) const;
    // Writes the elements of the buffer to the operand at its address plus `shift` bytes.
    void write_back(const Run& run, const std::byte* staging, std::int64_t shift = 0) const;

    bool is_dense() const { return is_dense_; }
    std::int64_t bytes() const { return operand_.count() * operand_.itemsize; }
    const Operand& operand() const { return operand_; }

private:
    Operand operand_;
    bool is_dense_;
    std::size_t offset_ = 0;
};

class ControlFlow : public Kernel {
public:
    // Binds subgraph number `index`; `program` and `inputs` are those of a Subgraph. Throws std::invalid_argument if the sizes of
    // the program's buffers differ from those of the operands. Another thread may run the kernel meanwhile.
    virtual void bind(std::size_t index, std::shared_ptr<Program> program, std::vector<std::size_t> inputs) = 0;
};

// Runs one of two subgraphs.
class If : public ControlFlow {
public:
    If(const Operand& condition, const std::vector<Operand>& captures, const std::vector<Operand>& outputs,
       std::shared_ptr<ArenaPool> arenas);

    void bind(std::size_t index, std::shared_ptr<Program> program, std::vector<std::size_t> inputs) override;
    void run(const Run& run) const override;
    std::string name() const override;

private:
    Operand condition_;
    std::size_t staging_bytes_ = 0;
    std::vector<DenseOperand> captures_;
    std::vector<DenseOperand> outputs_;
    std::shared_ptr<ArenaPool> arenas_;
    std::array<std::shared_ptr<const Subgraph>, 2> branches_;  // then, else; accessed atomically
};

// A scan input or output: parts of `size` elements along `axis`, traversed from the last part to the first if reversed.
struct Scan {
    Operand operand;
    std::size_t axis;
    std::int64_t size;
    bool is_reversed;
};

struct LoopSpec {
    std::optional<Operand> trip_count;
    std::optional<Operand> condition;
    std::vector<Operand> states;  // initial states
    std::vector<Scan> scan_inputs;
    std::vector<Operand> captures;
    std::vector<Operand> last_states;
    std::vector<Scan> scan_outputs;
    bool is_endless;  // the subgraph has no output for the condition, which is always true
};

// Runs a subgraph once for each trip. The inputs of the subgraph: the trip number, the states, parts of the scan inputs, the
// captures. Its outputs: the condition unless it is always true, the next states, parts of the scan outputs.
class Loop : public ControlFlow {
public:
    // Throws std::invalid_argument for operands that it does not serve.
    Loop(const LoopSpec& spec, std::shared_ptr<ArenaPool> arenas);

    void bind(std::size_t index, std::shared_ptr<Program> program, std::vector<std::size_t> inputs) override;
    void run(const Run& run) const override;
    std::string name() const override;

private:
    // A state alternates between two buffers: each trip reads one and writes the other.
    struct State {
        DenseOperand initial;
        DenseOperand last;
        std::size_t second;  // offset of the second buffer in staging memory; the first is that of `last`
    };
    // The part of a scan operand that a trip accesses, as a dense operand. Its distance from the operand's address depends on
    // the trip.
    struct Parts {
        DenseOperand part;
        std::int64_t first;  // distance of the first trip's part, bytes
        std::int64_t step;
        std::int64_t count;
    };

    static Parts parts_of(const Scan& scan, std::size_t& staging_bytes);
    // The number of trips that the operands allow; negative where scan inputs have fewer parts.
    std::int64_t max_trips(const Run& run) const;
    std::int64_t run_trips(const Run& run, const Subgraph& subgraph, std::int64_t count, bool is_counted,
                           std::byte* staging) const;

    std::optional<Operand> trip_count_;
    std::optional<Operand> condition_;
    bool is_endless_;
    std::size_t staging_bytes_ = 0;
    std::vector<State> states_;
    std::vector<Parts> scan_inputs_;
    std::vector<DenseOperand> captures_;
    std::vector<Parts> scan_outputs_;
    std::shared_ptr<ArenaPool> arenas_;
    std::shared_ptr<const Subgraph> subgraph_;  // accessed atomically
};

}  // namespace dovetail
