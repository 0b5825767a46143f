// Kernels of the operators If and Loop; each subgraph runs as a program.
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

// The limits of one run on this thread: the total number of trips of all loops, and a deadline.
class Budget {
public:
    // `deadline` is a time of the steady clock in nanoseconds; 0 means no deadline.
    Budget(std::int64_t max_trips, std::int64_t deadline) : previous_(current()), max_trips_(max_trips), deadline_(deadline) {
        current() = this;
    }
    ~Budget() { current() = previous_; }
    Budget(const Budget&) = delete;
    Budget& operator=(const Budget&) = delete;

    // The budget of this thread's runs; null if there is none.
    static Budget*& current();

    // Adds `count` to the trips of this run. Returns false if the total exceeds the limit.
    bool count_trips(std::int64_t count);
    std::int64_t trips() const { return trips_; }
    bool is_late() const;

private:
    Budget* const previous_;
    const std::int64_t max_trips_;
    const std::int64_t deadline_;
    std::int64_t trips_ = 0;
};

// Records the time of each step of each subgraph's program, summed over all runs of the program within a Scope on the Scope's
// thread.
class SubgraphTimes {
public:
    struct Entry {
        std::int64_t runs = 0;
        std::vector<std::int64_t> nanoseconds;  // time of each kernel, summed over the runs
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

    // Adds a run to the record of a subgraph's program. Returns the array that Program::run takes as `times`; null outside of a
    // Scope.
    static std::int64_t* count_run(const Program& program);
    Entry of(const Program& program) const;

private:
    static SubgraphTimes*& current();

    std::map<const Program*, Entry> entries_;
};

// A subgraph. `program` runs the subgraph, and is null until a program is bound. `inputs` holds, for each input of the program,
// the index of an input of the subgraph.
struct Subgraph {
    std::shared_ptr<Program> program;
    std::vector<std::size_t> inputs;
};

// An operand as a dense buffer: the memory of the operand if it is dense, otherwise a copy in staging memory.
class DenseOperand {
public:
    // If the operand needs a copy, reserves staging memory at offset `staging_bytes`, and adds the reserved bytes to
    // `staging_bytes`.
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
    // Binds a program to the subgraph with this index; `program` and `inputs` become the members of a Subgraph. Throws
    // std::invalid_argument if the sizes of the program's buffers differ from those of the operands. Another thread may run the
    // kernel during this call.
    virtual void bind(std::size_t index, std::shared_ptr<Program> program, std::vector<std::size_t> inputs) = 0;
};

// Runs the then-subgraph if the condition is true, otherwise the else-subgraph.
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

// A scan input or output: an operand cut along `axis` into parts of `size` elements, one part for each trip. If `is_reversed`,
// the trips traverse the parts from the last to the first.
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

// Runs a subgraph once for each trip. The inputs of the subgraph are the trip number, the states, one part of each scan input,
// and the captures. The outputs of the subgraph are the condition (unless it is always true), the next states, and one part of
// each scan output.
class Loop : public ControlFlow {
public:
    // Throws std::invalid_argument for operands that the kernel does not support.
    Loop(const LoopSpec& spec, std::shared_ptr<ArenaPool> arenas);

    void bind(std::size_t index, std::shared_ptr<Program> program, std::vector<std::size_t> inputs) override;
    void run(const Run& run) const override;
    std::string name() const override;

private:
    // A state alternates between two buffers: each trip reads one buffer and writes the other.
    struct State {
        DenseOperand initial;
        DenseOperand last;
        std::size_t second;  // offset of the second buffer in staging memory; the first buffer is the buffer of `last`
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
    // Returns the maximum number of trips: the trip count, or without one the number of parts of the scan inputs. Returns a
    // negative number if a scan input has fewer parts than the trip count.
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
