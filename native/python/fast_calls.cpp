// Calls of programs whose steps are all native, from numpy arrays to numpy arrays.
//
// A call is served where every input is a C-contiguous numpy array of the model's element type and the shapes are those of a
// program that was added. Any other call, errors included, returns None: program.py and engine.py then run it.
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>
#include <numpy/arrayobject.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <optional>
#include <unordered_map>

#include "control_flow.h"
#include "program.h"
#include "python/gil.h"
#include "python/signals.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace dovetail {
namespace {

using Shape = std::vector<npy_intp>;

// An input or output of the model: a row of Python's (name, dtype, conversion, codes, takes_unknown).
struct Port {
    nb::object name;
    nb::object dtype;
    nb::object conversion;  // makes an output of its array; None: the array itself
    nb::object codes;       // the codes (i64) of the strings that an input may hold, a dict; None: the array itself
    bool takes_unknown;     // a string without a code has the code -1

    PyArray_Descr* descr() const { return reinterpret_cast<PyArray_Descr*>(dtype.ptr()); }
};

PyArrayObject* as_array(PyObject* object) { return reinterpret_cast<PyArrayObject*>(object); }

// True if the array may be a buffer of a program: dense, aligned, and of this element type.
bool is_dense(PyObject* object, const Port& port) {
    if (object == nullptr || !PyArray_CheckExact(object)) return false;
    PyArrayObject* array = as_array(object);
    constexpr int kDense = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED;
    if ((PyArray_FLAGS(array) & kDense) != kDense) return false;
    return PyArray_DESCR(array) == port.descr() || PyArray_EquivTypes(PyArray_DESCR(array), port.descr());
}

// A new array with the codes of an array of strings; null for other arrays, and for a string without a code. An error may be set.
PyObject* encoded(PyObject* object, const Port& port) {
    if (object == nullptr || !PyArray_CheckExact(object)) return nullptr;
    PyArrayObject* strings = as_array(object);
    if (PyArray_TYPE(strings) != NPY_OBJECT || !PyArray_IS_C_CONTIGUOUS(strings)) return nullptr;
    PyArray_Descr* descr = port.descr();
    Py_INCREF(reinterpret_cast<PyObject*>(descr));
    PyObject* codes =
        PyArray_NewFromDescr(&PyArray_Type, descr, PyArray_NDIM(strings), PyArray_DIMS(strings), nullptr, nullptr, 0, nullptr);
    if (codes == nullptr) return nullptr;
    PyObject* const* const items = static_cast<PyObject* const*>(PyArray_DATA(strings));
    auto* const to = static_cast<std::int64_t*>(PyArray_DATA(as_array(codes)));
    for (npy_intp i = 0; i < PyArray_SIZE(strings); ++i) {
        PyObject* code =
            items[i] != nullptr && PyUnicode_CheckExact(items[i]) ? PyDict_GetItemWithError(port.codes.ptr(), items[i]) : nullptr;
        const bool is_string = items[i] != nullptr && PyUnicode_CheckExact(items[i]);
        if (!is_string || (code == nullptr && !port.takes_unknown)) {
            Py_DECREF(codes);
            return nullptr;
        }
        to[i] = code == nullptr ? -1 : PyLong_AsLongLong(code);
    }
    return codes;
}

bool has_shape(PyArrayObject* array, const Shape& shape) {
    return static_cast<std::size_t>(PyArray_NDIM(array)) == shape.size() &&
           std::equal(shape.begin(), shape.end(), PyArray_DIMS(array));
}

// A hash of the sizes of several arrays, in order.
class Hash {
public:
    void add(const npy_intp* sizes, std::size_t rank) {
        mix(rank);
        for (std::size_t axis = 0; axis < rank; ++axis) mix(static_cast<std::uint64_t>(sizes[axis]));
    }
    std::size_t value() const { return static_cast<std::size_t>(state_ ^ (state_ >> 32)); }

private:
    // A step of FNV-1a over words.
    void mix(std::uint64_t word) { state_ = (state_ ^ word) * 0x100000001b3u; }

    std::uint64_t state_ = 0xcbf29ce484222325u;
};

bool may_share(PyArrayObject* a, PyArrayObject* b) {
    const char *first = PyArray_BYTES(a), *second = PyArray_BYTES(b);
    return first < second + PyArray_NBYTES(b) && second < first + PyArray_NBYTES(a);
}

// References to the arrays of one call: another thread may drop its own during the run.
class Arrays {
public:
    explicit Arrays(std::size_t count) : items_(count, nullptr) {}
    ~Arrays() {
        for (PyObject* item : items_) Py_XDECREF(item);
    }
    Arrays(const Arrays&) = delete;
    Arrays& operator=(const Arrays&) = delete;

    // Takes a new reference.
    void borrow(std::size_t index, PyObject* item) {
        Py_INCREF(item);
        items_[index] = item;
    }
    // Takes over a reference.
    void steal(std::size_t index, PyObject* item) { items_[index] = item; }

    PyObject* operator[](std::size_t index) const { return items_[index]; }
    PyArrayObject* array(std::size_t index) const { return as_array(items_[index]); }

private:
    std::vector<PyObject*> items_;
};

class FastCalls {
public:
    // `results`: the class of a call's result, a dict. `max_trips`: the limit of trips of all loops in a call.
    FastCalls(const nb::tuple& inputs, const nb::tuple& outputs, nb::object results, std::int64_t max_trips)
        : inputs_(ports_of(inputs)), outputs_(ports_of(outputs)), results_(std::move(results)), max_trips_(max_trips) {}

    // Adds a program for inputs of these shapes. `constants` are the arrays that its steps read.
    void add(std::shared_ptr<Program> program, std::vector<Shape> inputs, std::vector<Shape> outputs, nb::object constants) {
        if (inputs.size() != inputs_.size() || outputs.size() != outputs_.size() ||
            program->buffers() != 1 + inputs.size() + outputs.size())
            throw std::invalid_argument("needs a shape for each input and output of the program");
        auto entry = std::make_shared<Entry>();
        entry->program = std::move(program);
        entry->inputs = std::move(inputs);
        entry->outputs = std::move(outputs);
        entry->constants = std::move(constants);
        Hash hash;
        for (const Shape& shape : entry->inputs) hash.add(shape.data(), shape.size());
        const Lock lock(*this);
        entries_.emplace(hash.value(), std::move(entry));
    }

    // Forgets a program.
    void discard(const Program* program) {
        std::shared_ptr<Entry> dropped;
        const Lock lock(*this);
        const auto match = std::find_if(entries_.begin(), entries_.end(),
                                        [program](const auto& row) { return row.second->program.get() == program; });
        if (match == entries_.end()) return;
        dropped = std::move(match->second);
        entries_.erase(match);
    }

    // True if the program was called since this was asked last.
    bool pop_use(const Program* program) {
        const Lock lock(*this);
        for (const auto& [hash, entry] : entries_)
            if (entry->program.get() == program) return std::exchange(entry->is_used, false);
        return false;
    }

    void clear() {
        Entries dropped;
        const Lock lock(*this);
        dropped.swap(entries_);
    }

    // The results of a call; None for a call that is not served.
    nb::object call(nb::handle positional, nb::handle by_name, nb::handle out) {
        Arrays arrays(inputs_.size() + outputs_.size());
        if (!collect_inputs(positional.ptr(), by_name.ptr(), arrays)) return none();
        const std::shared_ptr<Entry> entry = entry_for(arrays);
        if (entry == nullptr || !collect_outputs(out.ptr(), *entry, arrays)) return none();
        if (!run(*entry, arrays)) {
            if (entry->unbound_runs > kMaxUnboundRuns) discard(entry->program.get());
            return none();
        }
        nb::object results = nb::steal(PyObject_CallNoArgs(results_.ptr()));
        if (!results.is_valid()) throw nb::python_error();
        for (std::size_t i = 0; i < outputs_.size(); ++i) {
            nb::object result = nb::borrow(arrays[inputs_.size() + i]);
            if (!outputs_[i].conversion.is_none()) {
                PyObject* const argument = result.ptr();
                result = nb::steal(PyObject_Vectorcall(outputs_[i].conversion.ptr(), &argument, 1, nullptr));
                if (!result.is_valid()) return none();
            }
            if (PyDict_SetItem(results.ptr(), outputs_[i].name.ptr(), result.ptr()) != 0) throw nb::python_error();
        }
        return results;
    }

private:
    struct Entry {
        std::shared_ptr<Program> program;
        std::vector<Shape> inputs;
        std::vector<Shape> outputs;
        nb::object constants;
        bool is_used = false;
        std::atomic<int> unbound_runs{0};  // runs that came to a subgraph without a program
    };
    // The number of such runs beyond which a program is left to the engine: some of its subgraphs run in Python.
    static constexpr int kMaxUnboundRuns = 8;

    // By the hash of the inputs' shapes.
    using Entries = std::unordered_multimap<std::size_t, std::shared_ptr<Entry>>;

    // Guards the entries where Python has no interpreter lock. After a fork the child has an empty cache, if its parent was
    // changing it.
    class Lock {
    public:
        explicit Lock(FastCalls& calls) : mutex_(calls.mutex_) {
            if (!mutex_.lock()) new (&calls.entries_) Entries();
        }
        ~Lock() { mutex_.unlock(); }
        Lock(const Lock&) = delete;
        Lock& operator=(const Lock&) = delete;

    private:
        ForkLock& mutex_;
    };

    static nb::object none() {
        PyErr_Clear();
        return nb::none();
    }

    static std::vector<Port> ports_of(const nb::tuple& rows) {
        std::vector<Port> ports;
        for (const nb::handle row : rows) ports.push_back({row[0], row[1], row[2], row[3], nb::cast<bool>(row[4])});
        return ports;
    }

    bool collect_inputs(PyObject* positional, PyObject* by_name, Arrays& arrays) const {
        const Py_ssize_t count = PyTuple_Size(positional);
        if (PyDict_Size(by_name) != 0) return count == 0 && collect_named(by_name, arrays);
        if (count != 1) return collect_ordered(positional, arrays);
        PyObject* only = PyTuple_GetItem(positional, 0);
        if (PyDict_CheckExact(only)) return collect_named(only, arrays);
        if (PyList_CheckExact(only) || PyTuple_CheckExact(only)) return collect_ordered(only, arrays);
        return collect_ordered(positional, arrays);
    }

    bool collect_named(PyObject* dict, Arrays& arrays) const {
        if (PyDict_Size(dict) != static_cast<Py_ssize_t>(inputs_.size())) return false;
        for (std::size_t i = 0; i < inputs_.size(); ++i) {
            if (!collect_input(PyDict_GetItemWithError(dict, inputs_[i].name.ptr()), i, arrays)) return false;
        }
        return true;
    }

    bool collect_input(PyObject* item, std::size_t index, Arrays& arrays) const {
        const Port& port = inputs_[index];
        if (!port.codes.is_none()) {
            PyObject* codes = encoded(item, port);
            if (codes != nullptr) arrays.steal(index, codes);
            return codes != nullptr;
        }
        if (!is_dense(item, port)) return false;
        arrays.borrow(index, item);
        return true;
    }

    bool collect_ordered(PyObject* sequence, Arrays& arrays) const {
        const bool is_list = PyList_CheckExact(sequence);
        if ((is_list ? PyList_Size(sequence) : PyTuple_Size(sequence)) != static_cast<Py_ssize_t>(inputs_.size())) return false;
        for (std::size_t i = 0; i < inputs_.size(); ++i) {
            const auto at = static_cast<Py_ssize_t>(i);
            if (!collect_input(is_list ? PyList_GetItem(sequence, at) : PyTuple_GetItem(sequence, at), i, arrays)) return false;
        }
        return true;
    }

    // The entry for inputs of these shapes; null if there is none.
    std::shared_ptr<Entry> entry_for(const Arrays& arrays) {
        Hash hash;
        for (std::size_t i = 0; i < inputs_.size(); ++i) {
            PyArrayObject* const array = arrays.array(i);
            hash.add(PyArray_DIMS(array), static_cast<std::size_t>(PyArray_NDIM(array)));
        }
        const Lock lock(*this);
        const auto [begin, end] = entries_.equal_range(hash.value());
        for (auto row = begin; row != end; ++row) {
            const std::shared_ptr<Entry>& entry = row->second;
            bool matches = true;
            for (std::size_t i = 0; matches && i < inputs_.size(); ++i) matches = has_shape(arrays.array(i), entry->inputs[i]);
            if (!matches) continue;
            entry->is_used = true;
            return entry;
        }
        return nullptr;
    }

    // The caller's arrays, and new ones for all other outputs.
    bool collect_outputs(PyObject* out, const Entry& entry, Arrays& arrays) const {
        const std::size_t first = inputs_.size();
        if (out != Py_None && !collect_targets(out, entry, arrays)) return false;
        for (std::size_t i = 0; i < outputs_.size(); ++i) {
            if (arrays[first + i] != nullptr) continue;
            const Shape& shape = entry.outputs[i];
            PyArray_Descr* descr = outputs_[i].descr();
            Py_INCREF(reinterpret_cast<PyObject*>(descr));
            PyObject* array = PyArray_NewFromDescr(&PyArray_Type, descr, static_cast<int>(shape.size()), shape.data(), nullptr,
                                                   nullptr, 0, nullptr);
            if (array == nullptr) return false;
            arrays.steal(first + i, array);
        }
        return true;
    }

    bool collect_targets(PyObject* out, const Entry& entry, Arrays& arrays) const {
        const bool is_dict = PyDict_CheckExact(out);
        const auto count = static_cast<Py_ssize_t>(outputs_.size());
        if (!is_dict &&
            !(PyList_CheckExact(out) ? PyList_Size(out) == count : PyTuple_CheckExact(out) && PyTuple_Size(out) == count))
            return false;
        Py_ssize_t targets = 0;
        for (std::size_t i = 0; i < outputs_.size(); ++i) {
            const auto at = static_cast<Py_ssize_t>(i);
            PyObject* item = is_dict                  ? PyDict_GetItemWithError(out, outputs_[i].name.ptr())
                             : PyList_CheckExact(out) ? PyList_GetItem(out, at)
                                                      : PyTuple_GetItem(out, at);
            if (item == nullptr || (item == Py_None && !is_dict)) continue;
            if (!outputs_[i].conversion.is_none()) return false;
            if (!is_dense(item, outputs_[i]) || !has_shape(as_array(item), entry.outputs[i]) ||
                !PyArray_ISWRITEABLE(as_array(item)))
                return false;
            for (std::size_t other = 0; other < inputs_.size() + i; ++other)
                if (arrays[other] != nullptr && may_share(as_array(item), arrays.array(other))) return false;
            arrays.borrow(inputs_.size() + i, item);
            ++targets;
        }
        return !is_dict || targets == PyDict_Size(out);
    }

    // Runs the program. False if a step failed or memory is lacking: the engine then runs it anew and reports the error.
    bool run(Entry& entry, const Arrays& arrays) const {
        const Program& program = *entry.program;
        constexpr std::size_t kInlineBuffers = 16;
        std::byte* inline_bases[kInlineBuffers];
        std::vector<std::byte*> heap_bases;
        std::byte** bases = inline_bases;
        if (program.buffers() > kInlineBuffers) {
            heap_bases.resize(program.buffers());
            bases = heap_bases.data();
        }
        for (std::size_t i = 1; i < program.buffers(); ++i) bases[i] = static_cast<std::byte*>(PyArray_DATA(arrays.array(i - 1)));
        try {
            const Program::Lease lease(*entry.program);
            if (program.is_brief()) {
                program.run(lease.get(), bases, 0, program.size(), nullptr);
            } else {
                const Signals signals;
                const Budget budget(max_trips_, 0);
                const dovetail::GilRelease released;
                program.run(lease.get(), bases, 0, program.size(), nullptr);
            }
        } catch (const Interrupted&) {
            throw nb::python_error();
        } catch (const StepFailed& failure) {
            if (failure.code == kUnbound) ++entry.unbound_runs;
            return false;
        } catch (const std::bad_alloc&) {
            return false;
        }
        return true;
    }

    const std::vector<Port> inputs_;
    const std::vector<Port> outputs_;
    const nb::object results_;
    const std::int64_t max_trips_;
    ForkLock mutex_;
    Entries entries_;
};

int import_numpy() {
    import_array1(-1);
    return 0;
}

}  // namespace

void bind_fast_calls(nb::module_& m) {
    if (import_numpy() != 0) throw nb::python_error();
    nb::class_<FastCalls>(m, "FastCalls")
        .def(nb::init<const nb::tuple&, const nb::tuple&, nb::object, std::int64_t>(), "inputs"_a, "outputs"_a, "results"_a,
             "max_trips"_a)
        .def("add", &FastCalls::add, "program"_a, "inputs"_a, "outputs"_a, "constants"_a)
        .def("discard", &FastCalls::discard, "program"_a)
        .def("pop_use", &FastCalls::pop_use, "program"_a)
        .def("clear", &FastCalls::clear)
        .def("__call__", &FastCalls::call, "inputs"_a, "by_name"_a, "out"_a.none());
}

}  // namespace dovetail
