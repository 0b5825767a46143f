#include "control_flow.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>

#include "kernels/strided_loop.h"

namespace dovetail {

const char* const kUnbound = "control.unbound";
const char* const kTooLate = "run.time";

namespace {

constexpr const char* kTooManyTrips = "loop.trips";
constexpr const char* kTooFewParts = "loop.parts";
constexpr const char* kNoMemory = "run.memory";
constexpr const char* kWrongShape = "run.shape";

// Loop trips between two polls of the interrupt.
constexpr std::int64_t kTripsPerPoll = 16;

std::size_t round_to_line(std::int64_t bytes) { return (static_cast<std::size_t>(bytes) + 63) / 64 * 64; }

// Maximum bytes of an operand of a subgraph; the kernel refuses a larger operand. Products of sizes up to this limit do not
// overflow.
constexpr std::int64_t kMaxOperandBytes = std::int64_t{1} << 40;

bool is_too_large(const Operand& operand) {
    if (std::find(operand.sizes.begin(), operand.sizes.end(), 0) != operand.sizes.end()) return false;
    std::int64_t bytes = std::max<std::int64_t>(operand.itemsize, 1);
    for (const auto size : operand.sizes) {
        if (size > kMaxOperandBytes / bytes) return true;
        bytes *= size;
    }
    return false;
}

bool is_row_major(const Operand& operand) {
    std::int64_t stride = operand.itemsize;
    for (std::size_t axis = operand.rank(); axis-- > 0; stride *= operand.sizes[axis])
        if (operand.sizes[axis] != 1 && operand.strides[axis] != stride) return operand.count() == 0;
    return true;
}

std::vector<std::int64_t> row_major_strides(const Operand& operand) {
    std::vector<std::int64_t> strides(operand.rank());
    std::int64_t stride = operand.itemsize;
    for (std::size_t axis = operand.rank(); axis-- > 0; stride *= operand.sizes[axis]) strides[axis] = stride;
    return strides;
}

// Copies all elements of a strided tensor to another one with the same sizes; strides are in bytes.
void copy_elements(std::byte* to, const std::int64_t* to_strides, const std::byte* from, const std::int64_t* from_strides,
                   const std::int64_t* sizes, std::size_t rank, std::int64_t itemsize) {
    if (rank > 2) {
        for (std::int64_t i = 0; i < sizes[0]; ++i)
            copy_elements(to + i * to_strides[0], to_strides + 1, from + i * from_strides[0], from_strides + 1, sizes + 1,
                          rank - 1, itemsize);
        return;
    }
    const std::int64_t rows = rank == 2 ? sizes[0] : 1, columns = rank == 0 ? 1 : sizes[rank - 1];
    copy_strided({to, rank == 2 ? to_strides[0] : 0, rank == 0 ? itemsize : to_strides[rank - 1]},
                 {const_cast<std::byte*>(from), rank == 2 ? from_strides[0] : 0, rank == 0 ? itemsize : from_strides[rank - 1]},
                 rows, columns, itemsize);
}

// Staging memory of one run, acquired from the arena pool and released at the end of the scope.
class Staging {
public:
    Staging(ArenaPool& arenas, std::size_t bytes) : arenas_(arenas), bytes_(bytes) {
        if (bytes_ != 0) block_ = arenas_.acquire(bytes_);
    }
    ~Staging() {
        if (bytes_ != 0) arenas_.release(block_);
    }
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;
    std::byte* begin() const { return block_.begin; }

private:
    ArenaPool& arenas_;
    const std::size_t bytes_;
    ArenaPool::Block block_{nullptr, 0};
};

bool is_true(const Run& run, const Operand& condition) { return *run.at(condition) != std::byte{0}; }

template <typename T>
std::int64_t read_as(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return static_cast<std::int64_t>(value);
}

std::int64_t read_integer(const Run& run, const Operand& operand) {
    const std::byte* at = run.at(operand);
    switch (operand.element) {
        case Element::i64: return read_as<std::int64_t>(at);
        case Element::i32: return read_as<std::int32_t>(at);
        default: return 0;  // refused by the constructor
    }
}

void check_scalar(const Operand& operand, std::initializer_list<Element> elements) {
    bool is_served = operand.count() == 1;
    bool is_known = false;
    for (const Element element : elements) is_known = is_known || operand.element == element;
    if (!is_served || !is_known) throw std::invalid_argument("a condition or trip count of another type");
}

void check_buffer(const Program& program, std::size_t buffer, std::int64_t bytes) {
    if (buffer >= program.buffers() || program.range(buffer) != ByteRange{0, bytes})
        throw std::invalid_argument("the subgraph has other sizes than its operator");
}

std::string name_of_subgraph(const std::shared_ptr<const Subgraph>& subgraph) {
    return subgraph ? std::to_string(subgraph->program->size()) + " native steps" : "a program not run yet";
}

// Calls `work`, which runs the subgraph. A failed step of the subgraph, or exhausted memory, becomes a failure of this kernel.
template <typename F>
void run_guarded(const Run& run, const F& work) {
    try {
        work();
    } catch (const StepFailed& failure) {
        run.fail(failure.code);
    } catch (const std::bad_alloc&) {
        run.fail(kNoMemory);
    }
}

// Bases holds the pointer to each buffer of a program during one run.
class Bases {
public:
    explicit Bases(const Program& program) {
        if (program.buffers() > kInline) {
            heap_.resize(program.buffers());
            bases_ = heap_.data();
        }
    }
    std::byte*& operator[](std::size_t index) { return bases_[index]; }
    std::byte** data() { return bases_; }

private:
    static constexpr std::size_t kInline = 24;
    std::byte* inline_[kInline];
    std::vector<std::byte*> heap_;
    std::byte** bases_ = inline_;
};

}  // namespace

// ---- Budget ----

Budget*& Budget::current() {
    static thread_local Budget* budget = nullptr;
    return budget;
}

bool Budget::count_trips(std::int64_t count) {
    trips_ =
        count > std::numeric_limits<std::int64_t>::max() - trips_ ? std::numeric_limits<std::int64_t>::max() : trips_ + count;
    return trips_ <= max_trips_;
}

bool Budget::is_late() const {
    return deadline_ != 0 && std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1) > deadline_;
}

// ---- SubgraphTimes ----

SubgraphTimes*& SubgraphTimes::current() {
    static thread_local SubgraphTimes* times = nullptr;
    return times;
}

std::int64_t* SubgraphTimes::count_run(const Program& program) {
    SubgraphTimes* const times = current();
    if (times == nullptr) return nullptr;
    Entry& entry = times->entries_[&program];
    ++entry.runs;
    entry.nanoseconds.resize(program.size());
    return entry.nanoseconds.data();
}

SubgraphTimes::Entry SubgraphTimes::of(const Program& program) const {
    const auto entry = entries_.find(&program);
    return entry == entries_.end() ? Entry{} : entry->second;
}

// ---- DenseOperand ----

DenseOperand::DenseOperand(const Operand& operand, std::size_t& staging_bytes)
    : operand_(operand), is_dense_(!is_too_large(operand) && is_row_major(operand)), offset_(staging_bytes) {
    if (is_too_large(operand)) throw std::invalid_argument("an operand of a subgraph is too large");
    if (is_dense_) return;
    const auto itemsize = operand.itemsize;
    if (itemsize != 1 && itemsize != 2 && itemsize != 4 && itemsize != 8)
        throw std::invalid_argument("a strided operand of elements of another size");
    staging_bytes += round_to_line(bytes());
}

std::byte* DenseOperand::buffer(const Run& run, std::byte* staging, bool is_read, std::int64_t shift) const {
    if (is_dense_) return run.at(operand_) + shift;
    std::byte* buffer = staging + offset_;
    if (is_read)
        copy_elements(buffer, row_major_strides(operand_).data(), run.at(operand_) + shift, operand_.strides.data(),
                      operand_.sizes.data(), operand_.rank(), operand_.itemsize);
    return buffer;
}

void DenseOperand::write_back(const Run& run, const std::byte* staging, std::int64_t shift) const {
    if (is_dense_) return;
    copy_elements(run.at(operand_) + shift, operand_.strides.data(), staging + offset_, row_major_strides(operand_).data(),
                  operand_.sizes.data(), operand_.rank(), operand_.itemsize);
}

// ---- If ----

If::If(const Operand& condition, const std::vector<Operand>& captures, const std::vector<Operand>& outputs,
       std::shared_ptr<ArenaPool> arenas)
    : condition_(condition), arenas_(std::move(arenas)) {
    check_scalar(condition, {Element::boolean});
    for (const Operand& operand : captures) captures_.emplace_back(operand, staging_bytes_);
    for (const Operand& operand : outputs) outputs_.emplace_back(operand, staging_bytes_);
}

void If::bind(std::size_t index, std::shared_ptr<Program> program, std::vector<std::size_t> inputs) {
    if (program->buffers() != 1 + inputs.size() + outputs_.size() || index >= branches_.size())
        throw std::invalid_argument("the subgraph has other inputs or outputs than its operator");
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i] >= captures_.size()) throw std::invalid_argument("the subgraph reads an input that its operator lacks");
        check_buffer(*program, 1 + i, captures_[inputs[i]].bytes());
    }
    for (std::size_t i = 0; i < outputs_.size(); ++i) check_buffer(*program, 1 + inputs.size() + i, outputs_[i].bytes());
    std::atomic_store(&branches_[index], std::shared_ptr<const Subgraph>(new Subgraph{std::move(program), std::move(inputs)}));
}

void If::run(const Run& run) const {
    const auto branch = std::atomic_load(&branches_[is_true(run, condition_) ? 0 : 1]);
    if (branch == nullptr) return run.fail(kUnbound);
    run_guarded(run, [&] {
        const Staging staging(*arenas_, staging_bytes_);
        Program& program = *branch->program;
        const Program::Lease lease(program);
        Bases bases(program);
        std::size_t buffer = 1;
        for (const std::size_t input : branch->inputs) bases[buffer++] = captures_[input].buffer(run, staging.begin(), true);
        for (const DenseOperand& output : outputs_) bases[buffer++] = output.buffer(run, staging.begin(), false);
        program.run(lease.get(), bases.data(), 0, program.size(), SubgraphTimes::count_run(program));
        for (const DenseOperand& output : outputs_) output.write_back(run, staging.begin());
    });
}

std::string If::name() const {
    return "if of " + name_of_subgraph(std::atomic_load(&branches_[0])) + " or " +
           name_of_subgraph(std::atomic_load(&branches_[1]));
}

// ---- Loop ----

Loop::Loop(const LoopSpec& spec, std::shared_ptr<ArenaPool> arenas)
    : trip_count_(spec.trip_count), condition_(spec.condition), is_endless_(spec.is_endless), arenas_(std::move(arenas)) {
    if (trip_count_) check_scalar(*trip_count_, {Element::i64, Element::i32});
    if (condition_) check_scalar(*condition_, {Element::boolean});
    if (spec.states.size() != spec.last_states.size()) throw std::invalid_argument("a loop needs a result for each state");
    for (std::size_t i = 0; i < spec.states.size(); ++i) {
        const DenseOperand initial(spec.states[i], staging_bytes_), last(spec.last_states[i], staging_bytes_);
        if (initial.bytes() != last.bytes()) throw std::invalid_argument("a state changes its size");
        states_.push_back({initial, last, staging_bytes_});
        staging_bytes_ += round_to_line(initial.bytes());
    }
    for (const Scan& scan : spec.scan_inputs) scan_inputs_.push_back(parts_of(scan, staging_bytes_));
    for (const Operand& operand : spec.captures) captures_.emplace_back(operand, staging_bytes_);
    for (const Scan& scan : spec.scan_outputs) scan_outputs_.push_back(parts_of(scan, staging_bytes_));
    if (!trip_count_)
        for (const Parts& parts : scan_inputs_)
            if (parts.count != scan_inputs_.front().count) throw std::invalid_argument("scan inputs of different lengths");
}

Loop::Parts Loop::parts_of(const Scan& scan, std::size_t& staging_bytes) {
    const Operand& operand = scan.operand;
    if (scan.axis >= operand.rank() || scan.size < 0 ||
        (scan.size == 0 ? operand.sizes[scan.axis] != 0 : operand.sizes[scan.axis] % scan.size != 0))
        throw std::invalid_argument("parts of another size");
    const std::int64_t count = scan.size == 0 ? 0 : operand.sizes[scan.axis] / scan.size,
                       step = scan.size * operand.strides[scan.axis];
    Operand part = operand;
    part.sizes[scan.axis] = scan.size;
    return {DenseOperand(part, staging_bytes), scan.is_reversed ? (count - 1) * step : 0, scan.is_reversed ? -step : step, count};
}

void Loop::bind(std::size_t index, std::shared_ptr<Program> program, std::vector<std::size_t> inputs) {
    const std::size_t outputs = (is_endless_ ? 0 : 1) + states_.size() + scan_outputs_.size();
    if (index != 0 || program->buffers() != 1 + inputs.size() + outputs)
        throw std::invalid_argument("the subgraph has other inputs or outputs than its operator");
    std::vector<std::int64_t> sizes{static_cast<std::int64_t>(sizeof(std::int64_t))};
    for (const State& state : states_) sizes.push_back(state.initial.bytes());
    for (const Parts& parts : scan_inputs_) sizes.push_back(parts.part.bytes());
    for (const DenseOperand& capture : captures_) sizes.push_back(capture.bytes());
    std::size_t buffer = 1;
    for (const std::size_t input : inputs) check_buffer(*program, buffer++, sizes.at(input));
    if (!is_endless_) check_buffer(*program, buffer++, 1);
    for (const State& state : states_) check_buffer(*program, buffer++, state.last.bytes());
    for (const Parts& parts : scan_outputs_) check_buffer(*program, buffer++, parts.part.bytes());
    std::atomic_store(&subgraph_, std::shared_ptr<const Subgraph>(new Subgraph{std::move(program), std::move(inputs)}));
}

std::int64_t Loop::max_trips(const Run& run) const {
    if (!trip_count_) return scan_inputs_.empty() ? std::numeric_limits<std::int64_t>::max() : scan_inputs_.front().count;
    const std::int64_t count = std::max<std::int64_t>(read_integer(run, *trip_count_), 0);
    for (const Parts& parts : scan_inputs_)
        if (parts.count < count) return -1;
    return count;
}

void Loop::run(const Run& run) const {
    const auto subgraph = std::atomic_load(&subgraph_);
    const bool is_entered = !condition_ || is_true(run, *condition_);
    const std::int64_t count = max_trips(run);
    if (count < 0) return run.fail(kTooFewParts);
    if (subgraph == nullptr && is_entered && count > 0) return run.fail(kUnbound);
    Budget* const budget = Budget::current();
    const bool is_counted = is_endless_ && count != std::numeric_limits<std::int64_t>::max();
    if (is_counted && is_entered && budget != nullptr && !budget->count_trips(count)) return run.fail(kTooManyTrips);
    run_guarded(run, [&] {
        const Staging staging(*arenas_, staging_bytes_);
        const std::int64_t trips = is_entered && count > 0 ? run_trips(run, *subgraph, count, is_counted, staging.begin()) : 0;
        if (trips < 0) return;
        for (const Parts& parts : scan_outputs_)
            if (parts.count != trips) return run.fail(kWrongShape);
        for (const State& state : states_) {
            std::byte* const last = state.last.buffer(run, staging.begin(), false);
            const std::byte* const from = trips == 0       ? state.initial.buffer(run, staging.begin(), true)
                                          : trips % 2 == 0 ? staging.begin() + state.second
                                                           : last;
            if (from != last && state.last.bytes() != 0) std::memcpy(last, from, static_cast<std::size_t>(state.last.bytes()));
            state.last.write_back(run, staging.begin());
        }
    });
}

// Returns the number of completed trips, or a negative number after a failure.
std::int64_t Loop::run_trips(const Run& run, const Subgraph& subgraph, std::int64_t count, bool is_counted,
                             std::byte* staging) const {
    Program& program = *subgraph.program;
    const Program::Lease lease(program);
    Bases bases(program);
    Budget* const budget = Budget::current();
    Interrupt* const interrupt = Interrupt::current();
    std::int64_t trip = 0;
    std::uint8_t going = 1;
    const std::size_t first_scan = 1 + states_.size(), first_capture = first_scan + scan_inputs_.size();
    const std::size_t first_output = 1 + subgraph.inputs.size(), first_state = first_output + (is_endless_ ? 0 : 1);
    for (std::size_t i = 0; i < subgraph.inputs.size(); ++i) {
        const std::size_t input = subgraph.inputs[i];
        if (input == 0) bases[1 + i] = reinterpret_cast<std::byte*>(&trip);
        if (input >= first_capture) bases[1 + i] = captures_[input - first_capture].buffer(run, staging, true);
    }
    if (!is_endless_) bases[first_output] = reinterpret_cast<std::byte*>(&going);
    for (; going != 0 && trip < count; ++trip) {
        if (!is_counted && budget != nullptr && !budget->count_trips(1)) return run.fail(kTooManyTrips), -1;
        if (budget != nullptr && budget->is_late()) return run.fail(kTooLate), -1;
        if (trip % kTripsPerPoll == 0 && interrupt != nullptr && interrupt->check()) throw Interrupted();
        for (const Parts& parts : scan_outputs_)
            if (trip >= parts.count) return run.fail(kWrongShape), -1;
        for (std::size_t i = 0; i < subgraph.inputs.size(); ++i) {
            const std::size_t input = subgraph.inputs[i];
            if (input >= 1 && input < first_scan) {
                const State& state = states_[input - 1];
                bases[1 + i] = trip == 0       ? state.initial.buffer(run, staging, true)
                               : trip % 2 == 0 ? staging + state.second
                                               : state.last.buffer(run, staging, false);
            } else if (input >= first_scan && input < first_capture) {
                const Parts& parts = scan_inputs_[input - first_scan];
                bases[1 + i] = parts.part.buffer(run, staging, true, parts.first + trip * parts.step);
            }
        }
        for (std::size_t i = 0; i < states_.size(); ++i)
            bases[first_state + i] = trip % 2 == 0 ? states_[i].last.buffer(run, staging, false) : staging + states_[i].second;
        for (std::size_t i = 0; i < scan_outputs_.size(); ++i) {
            const Parts& parts = scan_outputs_[i];
            bases[first_state + states_.size() + i] = parts.part.buffer(run, staging, false, parts.first + trip * parts.step);
        }
        program.run(lease.get(), bases.data(), 0, program.size(), SubgraphTimes::count_run(program));
        for (const Parts& parts : scan_outputs_) parts.part.write_back(run, staging, parts.first + trip * parts.step);
    }
    return trip;
}

std::string Loop::name() const { return "loop of " + name_of_subgraph(std::atomic_load(&subgraph_)); }

}  // namespace dovetail
