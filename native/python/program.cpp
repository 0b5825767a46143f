// Bindings of the pool, the store and the program. The planner is the only caller: what it passes is checked by engine/plan_verifier.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "kernels/elementwise.h"
#include "kernels/quantized.h"
#include "program.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace dovetail {
namespace {

// buffer, offset, element, itemsize, sizes, strides, address of the constant (0: none), its reach
using Row = std::tuple<int, std::int64_t, std::string, std::int64_t, std::vector<std::int64_t>, std::vector<std::int64_t>,
                       std::uintptr_t, std::int64_t, std::int64_t>;

Operand operand_of(const Row& row) {
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

Spec spec_of(const std::string& kernel, const std::vector<Row>& inputs, const std::vector<Row>& outputs,
             const std::map<std::string, Attribute>& attributes) {
    Spec spec;
    spec.kernel = kernel;
    for (const Row& row : inputs) spec.inputs.push_back(operand_of(row));
    for (const Row& row : outputs) spec.outputs.push_back(operand_of(row));
    spec.attributes = attributes;
    return spec;
}

// One step as Program.add takes it.
using SpecRow = std::tuple<std::string, std::vector<Row>, std::vector<Row>, std::map<std::string, Attribute>>;

std::vector<Spec> specs_of(const std::vector<SpecRow>& rows) {
    std::vector<Spec> specs;
    for (const auto& [kernel, inputs, outputs, attributes] : rows) specs.push_back(spec_of(kernel, inputs, outputs, attributes));
    return specs;
}

// Number, operand types and result type of each chain instruction.
std::map<std::string, std::tuple<int, std::vector<std::string>, std::string>> opcodes() {
    std::map<std::string, std::tuple<int, std::vector<std::string>, std::string>> found;
    int number = 0;
    for (const Opcode& opcode : chain_opcodes()) {
        std::vector<std::string> operands;
        for (int i = 0; i < opcode.arity; ++i) operands.push_back(name_of(opcode.operands[i]));
        found[opcode.name] = {number++, operands, name_of(opcode.result)};
    }
    return found;
}

// Asks whether a signal came whose handler raises, as that of Ctrl-C does. In other threads than the main one none ever does.
class Signals : public Interrupt {
public:
    Signals() : before_(of_thread()) { of_thread() = this; }
    ~Signals() override { of_thread() = before_; }

    bool asked() override {
        const nb::gil_scoped_acquire held;
        return PyErr_CheckSignals() != 0;
    }

private:
    Interrupt* const before_;
};

// A room for one call, given back when Python lets it go.
class Visit {
public:
    explicit Visit(std::shared_ptr<Program> program) : program_(std::move(program)), room_(program_->enter()) {}
    ~Visit() { program_->leave(room_); }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

    std::uintptr_t arena() const { return reinterpret_cast<std::uintptr_t>(program_->arena(room_)); }

    void run(const std::vector<std::uintptr_t>& addresses, std::size_t first, std::size_t last) { walk(addresses, first, last, nullptr); }

    std::vector<std::int64_t> profile(const std::vector<std::uintptr_t>& addresses, std::size_t first, std::size_t last) {
        std::vector<std::int64_t> times(program_->size());
        walk(addresses, first, last, times.data());
        return times;
    }

private:
    void walk(const std::vector<std::uintptr_t>& addresses, std::size_t first, std::size_t last, std::int64_t* times) {
        if (last > program_->size() || first > last) throw std::invalid_argument("there are no such steps");
        if (addresses.size() != program_->buffers()) throw std::invalid_argument("one address per buffer");
        std::vector<std::byte*> bases;
        for (const auto address : addresses) bases.push_back(reinterpret_cast<std::byte*>(address));
        Signals signals;
        try {
            const nb::gil_scoped_release released;
            program_->run(room_, bases.data(), first, last, times);
        } catch (const Interrupted&) {
            throw nb::python_error();
        }
    }

    std::shared_ptr<Program> program_;
    Program::Room* room_;
};

}  // namespace

void bind_program(nb::module_& m) {
    // Its arguments are the step's number and the error's code.
    static PyObject* step_failed = PyErr_NewException("dovetail._native.StepFailed", PyExc_RuntimeError, nullptr);
    m.attr("StepFailed") = nb::borrow(step_failed);
    nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
        try {
            std::rethrow_exception(thrown);
        } catch (const StepFailed& failed) {
            PyErr_SetObject(step_failed, nb::make_tuple(failed.step, failed.code).ptr());
        }
    });
    m.def("isa", [] { return name_of(isa()); });
    m.def("has_matrix_unit", [] { return matrix_unit() != nullptr; });
    m.def("has_kernel", [](const std::string& kernel) { return factory_of(kernel) != nullptr; });
    m.def("chain_opcodes", &opcodes);
    nb::class_<Pool>(m, "Pool").def(nb::init<int>(), "threads"_a).def_prop_ro("threads", &Pool::threads);
    nb::class_<Store>(m, "Store").def(nb::init<>()).def_prop_ro("bytes", &Store::bytes);
    nb::class_<Program>(m, "Program")
        .def(nb::init<std::shared_ptr<Pool>, std::shared_ptr<Store>, std::size_t, std::vector<Reach>>(), "pool"_a, "store"_a,
             "arena_bytes"_a, "reaches"_a)
        .def("add",
             [](Program& program, const std::string& kernel, const std::vector<Row>& inputs, const std::vector<Row>& outputs,
                const std::map<std::string, Attribute>& attributes, bool shared) {
                 const Spec spec = spec_of(kernel, inputs, outputs, attributes);
                 const nb::gil_scoped_release released;
                 program.add(spec, shared);
             },
             "kernel"_a, "inputs"_a, "outputs"_a, "attributes"_a, "shared"_a = true)
        .def("names",
             [](const Program& program) {
                 std::vector<std::string> names;
                 for (std::size_t i = 0; i < program.size(); ++i) names.push_back(program.step(i).name());
                 return names;
             });
    nb::class_<Template>(m, "Template")
        .def("__init__",
             [](Template* made, const std::vector<SpecRow>& steps, const std::vector<SpecRow>& slopes) {
                 new (made) Template(specs_of(steps), specs_of(slopes));
             },
             "steps"_a, "slopes"_a)
        .def("fill", &Template::fill, "program"_a, "n"_a, nb::call_guard<nb::gil_scoped_release>());
    nb::class_<Visit>(m, "Visit")
        .def(nb::init<std::shared_ptr<Program>>())
        .def_prop_ro("arena", &Visit::arena)
        .def("run", &Visit::run)
        .def("profile", &Visit::profile);
}

}  // namespace dovetail
