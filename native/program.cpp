#include "program.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "control_flow.h"
#include "float_mode.h"

namespace dovetail {

struct Program::Workspace {
    ArenaPool::Block block;
    std::byte* scratch;
};

namespace {

std::size_t round_to_line(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// The bytes of an operand's elements, or `limit` if there are more.
std::int64_t bytes_up_to(const Operand& operand, std::int64_t limit) {
    std::int64_t bytes = operand.itemsize;
    for (const auto size : operand.sizes) {
        if (size == 0) return 0;
        bytes = size > limit / std::max<std::int64_t>(bytes, 1) ? limit : bytes * size;
    }
    return std::min(bytes, limit);
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

void Program::add(const Spec& spec, bool shared) {
    const Factory make = factory_of(spec.kernel);
    if (make == nullptr) throw std::invalid_argument("there is no kernel " + spec.kernel);
    std::int64_t operand_bytes = 0;
    for (const auto* operands : {&spec.inputs, &spec.outputs})
        for (const Operand& operand : *operands) {
            check(operand, spec.kernel);
            operand_bytes += bytes_up_to(operand, kBriefBytes + 1);
        }
    WeightCache own;
    auto kernel = make(spec, shared ? *weights_ : own);
    scratch_bytes_ = std::max(scratch_bytes_, round_to_line(kernel->scratch_bytes()));
    kernels_.push_back(std::move(kernel));
    operand_bytes_ = std::min(operand_bytes_ + operand_bytes, kBriefBytes + 1);
}

void Program::add(std::unique_ptr<Kernel> kernel, const std::vector<Operand>& operands) {
    for (const Operand& operand : operands) check(operand, kernel->name());
    kernels_.push_back(std::move(kernel));
    operand_bytes_ = kBriefBytes + 1;
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
    const std::size_t arena = round_to_line(arena_bytes_), scratch = scratch_bytes_ * static_cast<std::size_t>(pool_->threads());
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
    std::atomic<const char*> fault{nullptr};
    const Run run{bases, pool_.get(), workspace->scratch, scratch_bytes_, &fault};
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

ParametricProgram::ParametricProgram(std::vector<Spec> steps, std::vector<std::vector<Spec>> differences)
    : steps_(std::move(steps)), orders_(differences.size()) {
    for (const auto& each : differences)
        if (each.size() != steps_.size()) throw std::invalid_argument("needs a difference for each step");
    for (std::size_t i = 0; i < steps_.size(); ++i) {
        const auto of = [&](auto part) {
            std::vector<std::int64_t> found;
            for (const auto& each : differences) found.push_back(part(each[i]));
            return found;
        };
        for (const auto operands : {&Spec::inputs, &Spec::outputs})
            for (std::size_t j = 0; j < (steps_[i].*operands).size(); ++j) {
                Operand& operand = (steps_[i].*operands)[j];
                collect(operand.offset, of([&](const Spec& spec) { return (spec.*operands).at(j).offset; }));
                for (const auto axes : {&Operand::sizes, &Operand::strides})
                    for (std::size_t axis = 0; axis < (operand.*axes).size(); ++axis)
                        collect((operand.*axes)[axis],
                                of([&](const Spec& spec) { return ((spec.*operands).at(j).*axes).at(axis); }));
            }
        for (auto& item : steps_[i].attributes) {
            const std::string& name = item.first;
            if (auto* const number = std::get_if<std::int64_t>(&item.second))
                collect(*number, of([&](const Spec& spec) { return std::get<std::int64_t>(spec.attributes.at(name)); }));
            if (auto* const row = std::get_if<std::vector<std::int64_t>>(&item.second))
                for (std::size_t k = 0; k < row->size(); ++k)
                    collect((*row)[k], of([&](const Spec& spec) {
                                return std::get<std::vector<std::int64_t>>(spec.attributes.at(name)).at(k);
                            }));
        }
    }
}

void ParametricProgram::collect(std::int64_t& value, std::vector<std::int64_t> differences) {
    if (std::any_of(differences.begin(), differences.end(), [](std::int64_t each) { return each != 0; }))
        numbers_.push_back({&value, value, std::move(differences)});
}

void ParametricProgram::fill(Program& program, const std::vector<std::int64_t>& factors,
                             const std::vector<ConstantPatch>& patches) {
    if (factors.size() != orders_) throw std::invalid_argument("needs a factor for each difference");
    for (const Number& number : numbers_) {
        std::int64_t value = number.base;
        for (std::size_t order = 0; order < orders_; ++order) value += factors[order] * number.differences[order];
        *number.value = value;
    }
    for (const ConstantPatch& patch : patches) {
        Operand& input = steps_.at(patch.step).inputs.at(patch.input);
        input.constant = patch.address;
        input.low = patch.low;
        input.high = patch.high;
    }
    for (std::size_t i = 0; i < steps_.size(); ++i)
        program.add(steps_[i], std::none_of(patches.begin(), patches.end(), [i](const auto& patch) { return patch.step == i; }));
}

}  // namespace dovetail
