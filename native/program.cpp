#include "program.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "control_flow.h"
#include "float_mode.h"

namespace dovetail {

struct Program::Workspace {
    ArenaPool::Block block;
    std::byte* scratch;
    std::vector<std::byte*> bases;  // addresses of all buffers, if the arena has parts
};

namespace {

std::size_t round_to_line(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// The bytes of the elements of an operand, at most `limit`.
std::int64_t bytes_up_to(const Operand& operand, std::int64_t limit) {
    std::int64_t bytes = operand.itemsize;
    for (const auto size : operand.sizes) {
        if (size == 0) return 0;
        bytes = size > limit / std::max<std::int64_t>(bytes, 1) ? limit : bytes * size;
    }
    return std::min(bytes, limit);
}

template <typename T>
bool write_as(std::int64_t number, std::byte* to) {
    const auto value = static_cast<T>(number);
    std::memcpy(to, &value, sizeof value);
    // Beyond 2^53 the double may differ from the integer, and converting it back may be undefined.
    if (std::is_floating_point_v<T>) return std::abs(number) <= std::int64_t{1} << std::numeric_limits<T>::digits;
    return static_cast<std::int64_t>(value) == number && (number >= 0 || std::is_signed_v<T>);
}

bool write_as_half(std::int64_t number, std::byte* to) {
    std::uint64_t magnitude = static_cast<std::uint64_t>(std::abs(number));
    if (magnitude > 2048) return false;
    std::uint64_t exponent = 0, bits = number < 0 ? 0x8000u : 0u;
    while (magnitude >> (exponent + 1)) ++exponent;
    if (magnitude != 0) bits |= (exponent + 15) << 10 | ((magnitude << 10 >> exponent) & 0x3ff);
    const auto half = static_cast<std::uint16_t>(bits);
    std::memcpy(to, &half, sizeof half);
    return true;
}

// Writes an integer as an element. Throws std::invalid_argument if the element type cannot represent the integer exactly.
void write_exactly(std::int64_t number, Element element, std::byte* to) {
    const bool is_exact = [&] {
        switch (element) {
            case Element::f64: return write_as<double>(number, to);
            case Element::f32: return write_as<float>(number, to);
            case Element::f16: return write_as_half(number, to);
            case Element::i64: return write_as<std::int64_t>(number, to);
            case Element::i32: return write_as<std::int32_t>(number, to);
            case Element::i16: return write_as<std::int16_t>(number, to);
            case Element::i8: return write_as<std::int8_t>(number, to);
            case Element::u64: return write_as<std::uint64_t>(number, to);
            case Element::u32: return write_as<std::uint32_t>(number, to);
            case Element::u16: return write_as<std::uint16_t>(number, to);
            case Element::u8: return write_as<std::uint8_t>(number, to);
            case Element::bf16:
            case Element::boolean:
            case Element::other: break;
        }
        return false;
    }();
    if (!is_exact) throw std::invalid_argument("an element of a constant is not exact");
}

std::int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Program::Program(std::shared_ptr<ThreadPool> pool, std::shared_ptr<WeightCache> weights, std::shared_ptr<ArenaPool> arenas,
                 std::size_t arena_bytes, std::vector<ByteRange> ranges)
    : pool_(std::move(pool)), weights_(std::move(weights)), arenas_(std::move(arenas)), arena_bytes_(arena_bytes),
      ranges_(std::move(ranges)) {
    ranges_.insert(ranges_.begin(), {0, static_cast<std::int64_t>(arena_bytes)});
}

void Program::divide_arena(std::size_t arena_bytes, const std::vector<ArenaPart>& parts) {
    if (!kernels_.empty() || !parts_.empty()) throw std::invalid_argument("the arena is divided before any kernel is added");
    arena_bytes_ = arena_bytes;
    ranges_.front() = {0, static_cast<std::int64_t>(arena_bytes)};
    for (const ArenaPart& part : parts) {
        if (part.offset < 0 || part.bytes < 0 || part.offset > ranges_.front().second ||
            part.bytes > ranges_.front().second - part.offset)
            throw std::invalid_argument("a part outside of the arena");
        ranges_.emplace_back(0, part.bytes);
    }
    parts_ = parts;
}

void Program::add(const Spec& spec, bool shared) {
    const Factory make = factory_of(spec.kernel);
    if (make == nullptr) throw std::invalid_argument("there is no kernel " + spec.kernel);
    // This precedes the construction of the kernel, which may read constants.
    const std::int64_t operand_bytes = check(spec);
    const ReproducibleScope scope(spec.integer("reproducible") != 0);
    if (shared) {
        append(make(spec, *weights_), operand_bytes);
    } else {
        WeightCache own;
        append(make(spec, own), operand_bytes);
    }
    restrict_sharing(*kernels_.back(), spec.inputs, spec.outputs);
}

void Program::add(const Spec& spec, std::shared_ptr<Kernel> kernel) {
    append(std::move(kernel), check(spec));
    restrict_sharing(*kernels_.back(), spec.inputs, spec.outputs);
}

void Program::add(std::shared_ptr<Kernel> kernel, const std::vector<Operand>& operands) {
    for (const Operand& operand : operands) check(operand, kernel->name());
    append(std::move(kernel), kBriefBytes + 1);
    restrict_sharing(*kernels_.back(), operands, operands);
}

void Program::ask_sharing(std::size_t input, std::size_t output) {
    if (!kernels_.empty() || input == 0 || input >= buffers() || output == 0 || output >= buffers() || input == output)
        throw std::invalid_argument("needs two buffers of the caller, before any kernel is added");
    shared_.push_back({input, output, ranges_[output].second < ranges_[input].second ? Sharing::none : Sharing::extends});
}

Sharing Program::sharing(std::size_t input, std::size_t output) const {
    for (const Shared& shared : shared_)
        if (shared.input == input && shared.output == output) return shared.sharing;
    return Sharing::none;
}

void Program::restrict_sharing(const Kernel& kernel, const std::vector<Operand>& reads, const std::vector<Operand>& writes) {
    const auto is_in = [](const Operand& operand, std::size_t buffer) {
        return !operand.is_constant() && static_cast<std::size_t>(operand.buffer) == buffer && operand.count() != 0;
    };
    for (Shared& shared : shared_) {
        if (shared.sharing == Sharing::none) continue;
        const bool is_read = std::any_of(reads.begin(), reads.end(), [&](const Operand& x) { return is_in(x, shared.input); });
        if (is_read && shared.sharing == Sharing::overwrites) shared.sharing = Sharing::none;
        for (const Operand& to : writes) {
            if (!is_in(to, shared.output) || to.is_within(ranges_[shared.input].second, ranges_[shared.output].second)) continue;
            const Operand* const from = reads.empty() ? nullptr : &reads.front();
            const bool has_same_place = from != nullptr && writes.size() == 1 && kernel.runs_in_place() &&
                                        is_in(*from, shared.input) && from->offset == to.offset && from->sizes == to.sizes &&
                                        from->strides == to.strides && from->itemsize == to.itemsize;
            const bool is_read_again = std::any_of(reads.begin() + (reads.empty() ? 0 : 1), reads.end(), [&](const Operand& x) {
                return is_in(x, shared.input) || is_in(x, shared.output);
            });
            if (!has_same_place || is_read_again || shared.sharing != Sharing::extends)
                shared.sharing = Sharing::none;
            else if (!kernel.is_copy())
                shared.sharing = Sharing::overwrites;
        }
    }
}

void Program::append(std::shared_ptr<Kernel> kernel, std::int64_t operand_bytes) {
    scratch_bytes_ = std::max(scratch_bytes_, round_to_line(kernel->scratch_bytes()));
    shared_scratch_bytes_ = std::max(shared_scratch_bytes_, round_to_line(kernel->shared_scratch_bytes()));
    kernels_.push_back(std::move(kernel));
    operand_bytes_ = std::min(operand_bytes_ + operand_bytes, kBriefBytes + 1);
}

std::int64_t Program::check(const Spec& spec) const {
    std::int64_t operand_bytes = 0;
    for (const auto* operands : {&spec.inputs, &spec.outputs})
        for (const Operand& operand : *operands) {
            check(operand, spec.kernel);
            operand_bytes += bytes_up_to(operand, kBriefBytes + 1);
        }
    return operand_bytes;
}

void Program::check(const Operand& operand, const std::string& kernel) const {
    if (!operand.is_constant() && (operand.buffer < 0 || static_cast<std::size_t>(operand.buffer) >= ranges_.size()))
        throw std::invalid_argument(kernel + ": there is no buffer " + std::to_string(operand.buffer));
    if (operand.itemsize < size_of(operand.element))
        throw std::invalid_argument(kernel + ": items shorter than their element type");
    const ByteRange range =
        operand.is_constant() ? ByteRange{operand.low, operand.high} : ranges_[static_cast<std::size_t>(operand.buffer)];
    if (!operand.is_within(range.first, range.second))
        throw std::invalid_argument(kernel + ": an operand reaches beyond its buffer");
}

Program::Workspace* Program::acquire() {
    const std::size_t arena = round_to_line(arena_bytes_);
    const std::size_t scratch = scratch_bytes_ * static_cast<std::size_t>(pool_->threads()) + shared_scratch_bytes_;
    std::unique_ptr<Workspace> workspace(new Workspace{});
    workspace->block = arenas_->acquire(arena + scratch);
    workspace->scratch = workspace->block.begin + arena;
    return workspace.release();
}

void Program::release(Workspace* workspace) {
    arenas_->release(workspace->block);
    delete workspace;
}

std::byte* Program::arena(Workspace* workspace) const { return workspace->block.begin; }

void Program::run(Workspace* workspace, std::byte** bases, std::size_t first, std::size_t last, std::int64_t* times) const {
    bases[0] = workspace->block.begin;
    if (!parts_.empty()) {
        workspace->bases.assign(bases, bases + buffers());
        for (const ArenaPart& part : parts_) workspace->bases.push_back(workspace->block.begin + part.offset);
        bases = workspace->bases.data();
    }
    std::atomic<const char*> fault{nullptr};
    std::byte* const shared_scratch = workspace->scratch + scratch_bytes_ * static_cast<std::size_t>(pool_->threads());
    const Run run{bases, pool_.get(), workspace->scratch, scratch_bytes_, shared_scratch, &fault};
    Interrupt* const interrupt = is_brief() ? nullptr : Interrupt::current();
    const Budget* const budget = Budget::current();
    for (std::size_t i = first; i < last; ++i) {
        if (budget != nullptr && budget->is_late()) throw StepFailed(i, kTooLate);
        const auto start = times ? now() : 0;
        {
            const FlushSubnormals flush(kernels_[i]->flushes_subnormals());
            kernels_[i]->run(run);
        }
        if (times) times[i] += now() - start;
        if (interrupt != nullptr && interrupt->check()) throw Interrupted();
        if (const char* code = fault.load(std::memory_order_relaxed)) throw StepFailed(i, code);
    }
}

Polynomial::Polynomial(std::int64_t base, const std::vector<std::int64_t>& differences) : base(base), orders(differences.size()) {
    for (std::size_t order = 0; order < orders; ++order)
        if (differences[order] != 0) terms.emplace_back(order, differences[order]);
}

std::int64_t Polynomial::at(const std::vector<std::int64_t>& factors) const {
    // The sum is modulo 2^64, since terms may be larger than their sum.
    auto value = static_cast<std::uint64_t>(base);
    for (const auto& [order, difference] : terms)
        value += static_cast<std::uint64_t>(factors[order]) * static_cast<std::uint64_t>(difference);
    return static_cast<std::int64_t>(value);
}

ParametricProgram::ParametricProgram(std::vector<Spec> steps, std::vector<std::vector<std::int64_t>> orders,
                                     std::vector<Varying> varying, std::vector<ParametricConstant> constants,
                                     std::vector<ParametricPart> parts)
    : steps_(std::move(steps)), orders_(std::move(orders)), constants_(std::move(constants)), parts_(std::move(parts)),
      has_constant_(steps_.size()), moves_constant_(steps_.size()), is_fixed_(steps_.size(), true), fixed_(steps_.size()) {
    for (const auto& order : orders_) {
        std::int64_t total = 0;
        for (const std::int64_t power : order) total = power < 0 || power > kMaxOrder ? kMaxOrder + 1 : total + power;
        if (order.size() != orders_.front().size() || total > kMaxOrder)
            throw std::invalid_argument("needs a small order for each symbol");
    }
    for (const Varying& each : varying)
        if (each.second.size() != orders_.size()) throw std::invalid_argument("needs a difference for each order");
    for (const ParametricPart& part : parts_)
        if (part.bytes.orders != orders_.size()) throw std::invalid_argument("needs a difference for each order");
    for (const ParametricConstant& constant : constants_) {
        if (constant.step >= steps_.size() || constant.input >= steps_[constant.step].inputs.size())
            throw std::invalid_argument("needs an input for each constant");
        for (const Polynomial& element : constant.elements)
            if (element.orders != orders_.size()) throw std::invalid_argument("needs a difference for each order");
        has_constant_[constant.step] = true;
    }
    std::size_t number = 0;
    auto next = varying.begin();
    for (std::size_t i = 0; i < steps_.size(); ++i) {
        const auto visit = [&](std::int64_t& value) {
            if (next == varying.end() || next->first != number++) return;
            numbers_.push_back({&value, {value, next->second}});
            is_fixed_[i] = false;
            ++next;
        };
        for (auto* operands : {&steps_[i].inputs, &steps_[i].outputs})
            for (Operand& operand : *operands) {
                const std::size_t before = numbers_.size();
                visit(operand.offset);
                if (numbers_.size() == before)
                    operand.rebase_constant();
                else if (operand.is_constant())
                    moves_constant_[i] = true;
                std::for_each(operand.sizes.begin(), operand.sizes.end(), visit);
                std::for_each(operand.strides.begin(), operand.strides.end(), visit);
                if (operand.is_constant() && numbers_.size() != before) has_constant_[i] = true;
            }
        for (auto& item : steps_[i].attributes) {
            if (auto* const value = std::get_if<std::int64_t>(&item.second)) visit(*value);
            if (auto* const row = std::get_if<std::vector<std::int64_t>>(&item.second))
                std::for_each(row->begin(), row->end(), visit);
        }
        if (has_constant_[i]) is_fixed_[i] = false;
    }
    if (next != varying.end()) throw std::invalid_argument("needs the numbers of the steps in increasing order");
}

std::vector<std::int64_t> ParametricProgram::factors_at(const std::vector<std::int64_t>& distances) const {
    for (const std::int64_t distance : distances)
        if (distance < 0 || distance > kMaxDistance) throw std::invalid_argument("a size outside of the ranges");
    std::vector<std::int64_t> factors;
    for (const auto& order : orders_) {
        std::int64_t factor = 1;
        for (std::size_t i = 0; i < order.size(); ++i) {
            std::int64_t binomial = 1;
            for (std::int64_t k = 0; k < order[i]; ++k) binomial = binomial * (distances.at(i) - k) / (k + 1);
            factor *= binomial;
        }
        factors.push_back(factor);
    }
    return factors;
}

std::pair<std::vector<ArenaPart>, std::size_t> ParametricProgram::place(const std::vector<std::int64_t>& factors) const {
    std::vector<ArenaPart> parts;
    std::vector<std::size_t> by_size, by_lifetime;
    for (const ParametricPart& part : parts_) {
        by_size.push_back(parts.size());
        parts.push_back({0, part.bytes.at(factors)});
        // The sum of the sizes stays within 64 bits.
        if (parts.back().bytes < 0 || parts.back().bytes > kMaxPartBytes) throw std::invalid_argument("the size of a part");
    }
    by_lifetime = by_size;
    std::stable_sort(by_size.begin(), by_size.end(), [&](auto a, auto b) { return parts[a].bytes > parts[b].bytes; });
    const auto length = [&](std::size_t index) { return parts_[index].last - parts_[index].first; };
    std::stable_sort(by_lifetime.begin(), by_lifetime.end(), [&](auto a, auto b) {
        return length(a) != length(b) ? length(a) > length(b) : parts[a].bytes > parts[b].bytes;
    });
    // Greedy by size: each part is placed in the smallest gap that holds it (Pisarchyk and Lee, arXiv 2001.03288).
    const auto assign = [&](const std::vector<std::size_t>& order) {
        std::int64_t bytes = 0;
        std::vector<std::size_t> placed;  // placed parts, in the order of their offsets
        for (const std::size_t index : order) {
            const auto size = static_cast<std::int64_t>(round_to_line(static_cast<std::size_t>(parts[index].bytes)));
            std::int64_t end = 0, offset = -1, smallest = std::numeric_limits<std::int64_t>::max();
            for (const std::size_t other : placed) {
                if (parts_[other].first > parts_[index].last || parts_[other].last < parts_[index].first) continue;
                const std::int64_t gap = parts[other].offset - end;
                if (gap >= size && gap < smallest) {
                    smallest = gap;
                    offset = end;
                }
                end = std::max(end, parts[other].offset +
                                        static_cast<std::int64_t>(round_to_line(static_cast<std::size_t>(parts[other].bytes))));
            }
            parts[index].offset = offset < 0 ? end : offset;
            bytes = std::max(bytes, parts[index].offset + size);
            placed.insert(std::upper_bound(placed.begin(), placed.end(), index,
                                           [&](auto a, auto b) { return parts[a].offset < parts[b].offset; }),
                          index);
        }
        return bytes;
    };
    const std::int64_t bytes = assign(by_size);
    const std::vector<ArenaPart> first = parts;
    const std::int64_t other_bytes = assign(by_lifetime);
    if (other_bytes < bytes) return {std::move(parts), static_cast<std::size_t>(other_bytes)};
    return {first, static_cast<std::size_t>(bytes)};
}

void ParametricProgram::fill(Program& program, const std::vector<std::int64_t>& factors) {
    if (factors.size() != orders_.size()) throw std::invalid_argument("needs a factor for each order");
    const auto [parts, arena_bytes] = place(factors);
    program.divide_arena(arena_bytes, parts);
    struct Guard {
        explicit Guard(ForkLock& mutex) : mutex(mutex) { (void)mutex.lock(); }
        ~Guard() { mutex.unlock(); }
        ForkLock& mutex;
    } const guard(mutex_);
    for (const Number& number : numbers_) *number.value = number.polynomial.at(factors);
    for (const ParametricConstant& constant : constants_) {
        Operand& input = steps_[constant.step].inputs[constant.input];
        const auto bytes = constant.elements.size() * static_cast<std::size_t>(size_of(input.element));
        std::unique_ptr<std::byte[]> memory(new std::byte[bytes]);
        input.constant = memory.get();
        input.low = 0;
        input.high = static_cast<std::int64_t>(bytes);
        std::byte* to = memory.get();
        for (const Polynomial& element : constant.elements) {
            write_exactly(element.at(factors), input.element, to);
            to += size_of(input.element);
        }
        program.keep(std::move(memory));
    }
    for (std::size_t i = 0; i < steps_.size(); ++i) {
        if (fixed_[i] != nullptr) {
            program.add(steps_[i], fixed_[i]);
            continue;
        }
        if (moves_constant_[i]) {
            Spec step = steps_[i];
            step.rebase_constants();
            program.add(step, false);
            continue;
        }
        program.add(steps_[i], !has_constant_[i]);
        if (is_fixed_[i]) fixed_[i] = program.shared_kernel(program.size() - 1);
    }
}

}  // namespace dovetail
