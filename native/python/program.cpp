// Bindings of the thread pool, the weight cache, the arena pool and the program. The planner is the only caller;
// engine/plan_verifier.py checks its plans.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <optional>

#include "control_flow.h"
#include "kernels/bf16_products.h"
#include "kernels/compressed_weights.h"
#include "kernels/elementwise.h"
#include "kernels/quantized.h"
#include "program.h"
#include "python/gil.h"
#include "python/signals.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace dovetail {
namespace {

// buffer, offset, element, itemsize, sizes, strides, address of the constant (0: none), first and last byte of its memory; the
// offset of a constant is that of its first element from the address
using Row = std::tuple<int, std::int64_t, std::string, std::int64_t, std::vector<std::int64_t>, std::vector<std::int64_t>,
                       std::uintptr_t, std::int64_t, std::int64_t>;

Operand parametric_operand_of(const Row& row) {
    Operand operand;
    operand.buffer = std::get<0>(row);
    operand.offset = std::get<1>(row);
    operand.element = element_of(std::get<2>(row));
    operand.itemsize = std::get<3>(row);
    operand.sizes = std::get<4>(row);
    operand.strides = std::get<5>(row);
    operand.constant = reinterpret_cast<const std::byte*>(std::get<6>(row));
    operand.low = std::get<7>(row);
    operand.high = std::get<8>(row);
    return operand;
}

Operand operand_of(const Row& row) {
    Operand operand = parametric_operand_of(row);
    operand.rebase_constant();
    return operand;
}

Spec parametric_spec_of(const std::string& kernel, const std::vector<Row>& inputs, const std::vector<Row>& outputs,
                        const Attributes& attributes) {
    Spec spec;
    spec.kernel = kernel;
    for (const Row& row : inputs) spec.inputs.push_back(parametric_operand_of(row));
    for (const Row& row : outputs) spec.outputs.push_back(parametric_operand_of(row));
    spec.attributes = attributes;
    return spec;
}

Spec spec_of(const std::string& kernel, const std::vector<Row>& inputs, const std::vector<Row>& outputs,
             const Attributes& attributes) {
    Spec spec = parametric_spec_of(kernel, inputs, outputs, attributes);
    spec.rebase_constants();
    return spec;
}

// Converts an integer that depends on the sizes, as Python passes it: the base and the differences.
Polynomial polynomial_of(const std::vector<std::int64_t>& numbers) {
    return {numbers.at(0), std::vector<std::int64_t>(numbers.begin() + 1, numbers.end())};
}

// The arguments of Program.add.
using SpecRow = std::tuple<std::string, std::vector<Row>, std::vector<Row>, Attributes>;

std::vector<Spec> parametric_specs_of(const std::vector<SpecRow>& rows) {
    std::vector<Spec> specs;
    for (const auto& [kernel, inputs, outputs, attributes] : rows)
        specs.push_back(parametric_spec_of(kernel, inputs, outputs, attributes));
    return specs;
}

std::vector<Operand> operands_of(const std::vector<Row>& rows) {
    std::vector<Operand> operands;
    for (const Row& row : rows) operands.push_back(operand_of(row));
    return operands;
}

// operand, axis, size of a part, is reversed
using ScanRow = std::tuple<Row, std::size_t, std::int64_t, bool>;

std::vector<Scan> scans_of(const std::vector<ScanRow>& rows) {
    std::vector<Scan> scans;
    for (const auto& [row, axis, size, is_reversed] : rows) scans.push_back({operand_of(row), axis, size, is_reversed});
    return scans;
}

void add_loop(Program& program, const std::optional<Row>& trip_count, const std::optional<Row>& condition,
              const std::vector<Row>& states, const std::vector<ScanRow>& scan_inputs, const std::vector<Row>& captures,
              const std::vector<Row>& last_states, const std::vector<ScanRow>& scan_outputs, bool is_endless) {
    LoopSpec spec;
    if (trip_count) spec.trip_count = operand_of(*trip_count);
    if (condition) spec.condition = operand_of(*condition);
    spec.states = operands_of(states);
    spec.scan_inputs = scans_of(scan_inputs);
    spec.captures = operands_of(captures);
    spec.last_states = operands_of(last_states);
    spec.scan_outputs = scans_of(scan_outputs);
    spec.is_endless = is_endless;
    std::vector<Operand> operands = spec.states;
    operands.insert(operands.end(), spec.captures.begin(), spec.captures.end());
    operands.insert(operands.end(), spec.last_states.begin(), spec.last_states.end());
    for (const auto* scans : {&spec.scan_inputs, &spec.scan_outputs})
        for (const Scan& scan : *scans) operands.push_back(scan.operand);
    for (const auto& operand : {spec.trip_count, spec.condition})
        if (operand) operands.push_back(*operand);
    for (const Operand& operand : operands) program.check(operand, "loop");
    program.add(std::make_unique<Loop>(spec, program.arenas()), operands);
}

// Returns, by name, the opcode, the operand types and the result type of each instruction of the elementwise bytecode.
std::map<std::string, std::tuple<int, std::vector<std::string>, std::string>> opcodes() {
    std::map<std::string, std::tuple<int, std::vector<std::string>, std::string>> opcodes_by_name;
    int number = 0;
    for (const Opcode& opcode : elementwise_opcodes()) {
        std::vector<std::string> operands;
        for (int i = 0; i < opcode.arity; ++i) operands.push_back(name_of(opcode.operands[i]));
        opcodes_by_name[opcode.name] = {number++, operands, name_of(opcode.result)};
    }
    return opcodes_by_name;
}

// The workspace of one call, released when Python frees this object.
class Execution {
public:
    explicit Execution(std::shared_ptr<Program> program) : program_(std::move(program)), workspace_(program_->acquire()) {}
    ~Execution() { program_->release(workspace_); }
    Execution(const Execution&) = delete;
    Execution& operator=(const Execution&) = delete;

    std::uintptr_t arena() const { return reinterpret_cast<std::uintptr_t>(program_->arena(workspace_)); }

    // Runs kernels first .. last - 1. Returns the total number of trips of all loops.
    std::int64_t run(const std::vector<std::uintptr_t>& addresses, std::size_t first, std::size_t last, std::int64_t max_trips,
                     std::int64_t deadline) {
        const Budget budget(max_trips, deadline);
        execute(addresses, first, last, nullptr);
        return budget.trips();
    }

    std::vector<std::int64_t> profile(const std::vector<std::uintptr_t>& addresses, std::size_t first, std::size_t last) {
        const Budget budget(std::numeric_limits<std::int64_t>::max(), 0);
        const SubgraphTimes::Scope scope(subgraph_times_);
        std::vector<std::int64_t> times(program_->size());
        execute(addresses, first, last, times.data());
        return times;
    }

    // The runs of a subgraph's program in all calls of `profile`, and the nanoseconds of each of its steps.
    std::pair<std::int64_t, std::vector<std::int64_t>> subgraph_times(const Program& program) const {
        SubgraphTimes::Entry entry = subgraph_times_.of(program);
        return {entry.runs, std::move(entry.nanoseconds)};
    }

private:
    void execute(const std::vector<std::uintptr_t>& addresses, std::size_t first, std::size_t last, std::int64_t* times) {
        if (last > program_->size() || first > last)
            throw std::invalid_argument("steps " + std::to_string(first) + " to " + std::to_string(last) + " of a program of " +
                                        std::to_string(program_->size()));
        if (addresses.size() != program_->buffers())
            throw std::invalid_argument("needs " + std::to_string(program_->buffers()) + " addresses, got " +
                                        std::to_string(addresses.size()));
        std::vector<std::byte*> bases;
        for (const auto address : addresses) bases.push_back(reinterpret_cast<std::byte*>(address));
        Signals signals;
        try {
            const dovetail::GilRelease released;
            program_->run(workspace_, bases.data(), first, last, times);
        } catch (const Interrupted&) {
            throw nb::python_error();
        }
    }

    std::shared_ptr<Program> program_;
    Program::Workspace* workspace_;
    SubgraphTimes subgraph_times_;
};

}  // namespace

void bind_program(nb::module_& m) {
    // The arguments of the exception are the index of the step and the error code.
    static PyObject* step_failed = PyErr_NewException("dovetail._native.StepFailed", PyExc_RuntimeError, nullptr);
    m.attr("StepFailed") = nb::borrow(step_failed);
    nb::register_exception_translator([](const std::exception_ptr& exception, void*) {
        try {
            std::rethrow_exception(exception);
        } catch (const StepFailed& failure) {
            PyErr_SetObject(step_failed, nb::make_tuple(failure.step, failure.code).ptr());
        }
    });
    m.attr("UNBOUND") = kUnbound;
    m.def("isa", [] { return name_of(isa()); });
    m.def("has_amx", [] { return amx_unit() != nullptr; });
    m.def("has_bf16", [] { return avx512_bf16_kernels() != nullptr; });
    m.def("has_kernel", [](const std::string& kernel) { return factory_of(kernel) != nullptr; });
    m.def("elementwise_opcodes", &opcodes);
    nb::class_<ThreadPool>(m, "ThreadPool").def(nb::init<int>(), "threads"_a).def_prop_ro("threads", &ThreadPool::threads);
    nb::class_<WeightCache>(m, "WeightCache")
        .def(nb::init<>())
        .def_prop_ro("bytes", &WeightCache::bytes)
        .def("set_base", &WeightCache::set_base, "base"_a, "size"_a)
        .def(
            "import_floats",
            [](WeightCache& cache, const nb::bytes& key, std::uintptr_t address, std::size_t count) {
                cache.import_floats({{key.c_str(), key.size()}, reinterpret_cast<const float*>(address), count});
            },
            "key"_a, "address"_a, "count"_a)
        .def("export_floats", [](const WeightCache& cache) {
            nb::list rows;
            for (const WeightCache::Floats& floats : cache.export_floats())
                rows.append(nb::make_tuple(nb::bytes(floats.key.data(), floats.key.size()),
                                           reinterpret_cast<std::uintptr_t>(floats.data), floats.count));
            return rows;
        });
    nb::class_<ArenaPool>(m, "ArenaPool").def(nb::init<>());
    nb::class_<Program>(m, "Program")
        .def(nb::init<std::shared_ptr<ThreadPool>, std::shared_ptr<WeightCache>, std::shared_ptr<ArenaPool>, std::size_t,
                      std::vector<ByteRange>>(),
             "pool"_a, "weights"_a, "arenas"_a, "arena_bytes"_a, "ranges"_a)
        .def(
            "add",
            [](Program& program, const std::string& kernel, const std::vector<Row>& inputs, const std::vector<Row>& outputs,
               const Attributes& attributes, bool shared) {
                const Spec spec = spec_of(kernel, inputs, outputs, attributes);
                const dovetail::GilRelease released;
                program.add(spec, shared);
            },
            "kernel"_a, "inputs"_a, "outputs"_a, "attributes"_a, "shared"_a = true)
        .def("ask_sharing", &Program::ask_sharing, "input"_a, "output"_a)
        .def(
            "sharing",
            [](const Program& program, std::size_t input, std::size_t output) {
                const Sharing sharing = program.sharing(input, output);
                return sharing == Sharing::none ? "none" : sharing == Sharing::extends ? "extends" : "overwrites";
            },
            "input"_a, "output"_a)
        .def("add_if",
             [](Program& program, const Row& condition, const std::vector<Row>& captures, const std::vector<Row>& outputs) {
                 std::vector<Operand> operands = operands_of(captures);
                 const std::vector<Operand> inputs = operands, results = operands_of(outputs);
                 operands.push_back(operand_of(condition));
                 operands.insert(operands.end(), results.begin(), results.end());
                 for (const Operand& operand : operands) program.check(operand, "if");
                 program.add(std::make_unique<If>(operand_of(condition), inputs, results, program.arenas()), operands);
             })
        .def("add_loop", &add_loop, "trip_count"_a.none(), "condition"_a.none(), "states"_a, "scan_inputs"_a, "captures"_a,
             "last_states"_a, "scan_outputs"_a, "is_endless"_a)
        .def("bind_subgraph",
             [](Program& program, std::size_t step, std::size_t index, std::shared_ptr<Program> subgraph,
                std::vector<std::size_t> inputs) {
                 auto* const kernel = step < program.size() ? dynamic_cast<ControlFlow*>(&program.kernel(step)) : nullptr;
                 if (kernel == nullptr) throw std::invalid_argument("the step has no subgraph");
                 kernel->bind(index, std::move(subgraph), std::move(inputs));
             })
        .def("names",
             [](const Program& program) {
                 std::vector<std::string> names;
                 for (std::size_t i = 0; i < program.size(); ++i) names.push_back(program.kernel(i).name());
                 return names;
             })
        .def("multiply_adds", [](const Program& program) {
            std::vector<std::int64_t> numbers;
            for (std::size_t i = 0; i < program.size(); ++i) numbers.push_back(program.kernel(i).multiply_adds());
            return numbers;
        });
    using ConstantRow = std::tuple<std::size_t, std::size_t, std::vector<std::vector<std::int64_t>>>;
    nb::class_<ParametricProgram>(m, "ParametricProgram")
        .def(
            "__init__",
            [](ParametricProgram* self, const std::vector<SpecRow>& steps, std::vector<std::vector<std::int64_t>> orders,
               std::vector<ParametricProgram::Varying> varying, const std::vector<ConstantRow>& rows,
               const std::vector<std::tuple<std::vector<std::int64_t>, std::size_t, std::size_t>>& part_rows) {
                std::vector<ParametricConstant> constants;
                for (const auto& [step, input, elements] : rows) {
                    ParametricConstant& constant = constants.emplace_back(ParametricConstant{step, input, {}});
                    for (const auto& numbers : elements) constant.elements.push_back(polynomial_of(numbers));
                }
                std::vector<ParametricPart> parts;
                for (const auto& [bytes, first, last] : part_rows) parts.push_back({polynomial_of(bytes), first, last});
                new (self) ParametricProgram(parametric_specs_of(steps), std::move(orders), std::move(varying),
                                             std::move(constants), std::move(parts));
            },
            "steps"_a, "orders"_a, "varying"_a, "constants"_a, "parts"_a)
        .def(
            "arena_bytes",
            [](const ParametricProgram& steps, const std::vector<std::int64_t>& distances) {
                return steps.arena_bytes(steps.factors_at(distances));
            },
            "distances"_a)
        .def(
            "fill",
            [](ParametricProgram& steps, Program& program, const std::vector<std::int64_t>& distances) {
                steps.fill(program, steps.factors_at(distances));
            },
            "program"_a, "distances"_a, nb::call_guard<dovetail::GilRelease>());
    nb::class_<Execution>(m, "Execution")
        .def(nb::init<std::shared_ptr<Program>>())
        .def_prop_ro("arena", &Execution::arena)
        .def("run", &Execution::run, "addresses"_a, "first"_a, "last"_a, "max_trips"_a = std::numeric_limits<std::int64_t>::max(),
             "deadline"_a = 0)
        .def("profile", &Execution::profile)
        .def("subgraph_times", &Execution::subgraph_times);
}

}  // namespace dovetail
