// Calls of programs whose steps are all native, from numpy arrays to numpy arrays.
//
// A call is served if every input is a C-contiguous numpy array of the model's element type, and the shapes belong to an added
// program or to the ranges of a parametric program. Any other call, including one with an error, returns None:
// runtime/program.py and engine.py then run it.
#define DOVETAIL_IMPORTS_NUMPY
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <optional>
#include <unordered_map>

#include "control_flow.h"
#include "memory.h"
#include "program.h"
#include "python/block_arrays.h"
#include "python/gil.h"
#include "python/program_range.h"
#include "python/signals.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace dovetail {
namespace {

// An input or output of the model. Python passes the tuple (name, dtype, conversion, codes, takes_unknown).
struct Port {
    nb::object name;
    nb::object dtype;
    nb::object conversion;  // converts the array to the output; None: no conversion
    nb::object codes;       // dict of the codes (i64) of an input's strings; None: no codes
    bool takes_unknown;     // a string that is not in `codes` gets the code -1

    PyArray_Descr* descr() const { return reinterpret_cast<PyArray_Descr*>(dtype.ptr()); }
};

// True if the array may be a buffer of a program: dense, aligned, and of this element type.
bool is_dense(PyObject* object, const Port& port) {
    if (object == nullptr || !PyArray_CheckExact(object)) return false;
    PyArrayObject* array = as_array(object);
    constexpr int kDense = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED;
    if ((PyArray_FLAGS(array) & kDense) != kDense) return false;
    return PyArray_DESCR(array) == port.descr() || PyArray_EquivTypes(PyArray_DESCR(array), port.descr());
}

// Returns a new array with the codes of an array of strings; null for another array, or if a string has no code. An error may
// be set.
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

// Holds references to the arrays of one call, since another thread may drop the caller's references during the run.
class Arrays {
public:
    explicit Arrays(std::size_t count) : items_(count, nullptr) {}
    ~Arrays() {
        for (PyObject* item : items_) Py_XDECREF(item);
    }
    Arrays(const Arrays&) = delete;
    Arrays& operator=(const Arrays&) = delete;

    // Stores an array with a new reference to it; the caller keeps its reference.
    void borrow(std::size_t index, PyObject* item) {
        Py_INCREF(item);
        items_[index] = item;
    }
    // Stores an array and takes over the caller's reference to it.
    void steal(std::size_t index, PyObject* item) { items_[index] = item; }

    PyObject* operator[](std::size_t index) const { return items_[index]; }
    PyArrayObject* array(std::size_t index) const { return as_array(items_[index]); }

private:
    std::vector<PyObject*> items_;
};

class FastCalls {
    struct Entry;

public:
    // The default of `max_made_bytes`.
    static constexpr std::size_t kMaxMadeBytes = std::size_t{1} << 26;
    // Measured bytes per step of a program that a call makes from a parametric program.
    static constexpr std::size_t kStepBytes = 3 << 10;

    // `results` is a subclass of dict, the class of the result of a call. `max_trips` limits the total trips of all loops in a
    // call. `max_made_bytes` limits the bytes of all programs that calls make from parametric programs. `log_eviction` is called
    // for each evicted program, with the number of remaining programs, their bytes and the limit. `shared` holds pairs of an
    // input and an output that may share memory.
    FastCalls(const nb::tuple& inputs, const nb::tuple& outputs, nb::object results, std::int64_t max_trips,
              std::shared_ptr<OutputPool> output_pool, std::size_t max_made_bytes, nb::object log_eviction,
              const std::vector<std::tuple<std::size_t, std::size_t, std::vector<int>>>& shared)
        : inputs_(ports_of(inputs)), outputs_(ports_of(outputs)), results_(std::move(results)), max_trips_(max_trips),
          output_pool_(std::move(output_pool)), max_made_bytes_(max_made_bytes), log_eviction_(std::move(log_eviction)) {
        for (const auto& [input, output, order] : shared) shared_.push_back({input, output, order});
    }

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
        const Lock lock(*this);
        state_.entries.emplace(hash_of(entry->inputs), std::move(entry));
    }

    // Adds a parametric program. If the sizes of a call are in its ranges and the cache has no program for them, the call makes a
    // program from it.
    void add_range(ProgramRange range) {
        range.check(inputs_.size(), outputs_.size());
        auto added = std::make_shared<ProgramRange>(std::move(range));
        const Lock lock(*this);
        state_.ranges.push_back(std::move(added));
    }

    // Removes the cached entry of a program, so that no later call runs the program.
    void discard(const Program* program) {
        std::shared_ptr<Entry> dropped;
        const Lock lock(*this);
        const auto match = std::find_if(state_.entries.begin(), state_.entries.end(),
                                        [program](const auto& row) { return row.second->program.get() == program; });
        if (match != state_.entries.end()) dropped = take(match);
    }

    // Removes a parametric program, so that no later call makes a program from it. Programs that were already made from it stay
    // cached.
    void discard_range(const ParametricProgram* steps) {
        std::shared_ptr<ProgramRange> dropped;
        const Lock lock(*this);
        auto& ranges = state_.ranges;
        const auto match =
            std::find_if(ranges.begin(), ranges.end(), [steps](const auto& row) { return row->steps.get() == steps; });
        if (match == ranges.end()) return;
        dropped = std::move(*match);
        ranges.erase(match);
    }

    // True if the program was called since the last call of this function.
    bool pop_use(const Program* program) {
        const Lock lock(*this);
        for (const auto& [hash, entry] : state_.entries)
            if (entry->program.get() == program) return std::exchange(entry->is_used, false);
        return false;
    }

    // Statistics of the programs that calls made: the number of evicted programs, the number of cached programs, and the bytes
    // of the cached ones.
    nb::tuple counts() {
        const Lock lock(*this);
        return nb::make_tuple(state_.evictions, state_.cached, state_.bytes);
    }

    void clear() {
        State dropped;
        const Lock lock(*this);
        std::swap(dropped, state_);
        state_.evictions = dropped.evictions;
    }

    // Returns the results of a call; None if this class does not serve the call.
    nb::object call(nb::handle positional, nb::handle by_name, nb::handle out) {
        return call_with(positional, by_name, out, &FastCalls::collect_input, nullptr);
    }

    // Returns the results of a call whose caches are growing arrays. Each cache is given with the order of the caller's axes,
    // and its result is returned in that order.
    nb::object call_growing(nb::handle positional, nb::handle by_name, nb::handle out) {
        if (!out.is_none()) return nb::none();
        return call_with(positional, by_name, out, &FastCalls::collect_growing, &FastCalls::grow_outputs);
    }

private:
    using CollectInput = bool (FastCalls::*)(PyObject* item, std::size_t index, Arrays& arrays) const;

    nb::object call_with(nb::handle positional, nb::handle by_name, nb::handle out, CollectInput collect,
                         bool (FastCalls::*prepare)(const Entry& entry, Arrays& arrays) const) {
        Arrays arrays(inputs_.size() + outputs_.size());
        if (!collect_inputs(positional.ptr(), by_name.ptr(), arrays, collect)) return none();
        std::shared_ptr<Entry> entry = entry_for(arrays);
        if (entry == nullptr) entry = make_entry(arrays);
        if (entry == nullptr || (prepare != nullptr && !(this->*prepare)(*entry, arrays)) ||
            !collect_outputs(out.ptr(), *entry, arrays))
            return none();
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

    struct Entry {
        std::shared_ptr<Program> program;
        std::vector<Shape> inputs;
        std::vector<Shape> outputs;
        nb::object constants;
        std::size_t made_bytes = 0;  // an estimate of the bytes of a program that a call made
        std::uint64_t last_call = 0;
        bool is_used = false;
        std::atomic<int> unbound_runs{0};  // number of runs that reached a subgraph without a program
    };
    // Maximum number of runs that reached a subgraph without a program. Beyond it the program is discarded and the engine runs
    // it, since some of its subgraphs run in Python.
    static constexpr int kMaxUnboundRuns = 8;

    // Entries by the hash of the shapes of the inputs.
    using Entries = std::unordered_multimap<std::size_t, std::shared_ptr<Entry>>;

    // Entries lie in the heap between the arrays of the calls, and keep glibc from returning the memory of freed arrays. A
    // release takes about 15 ms, since the next arrays get new pages.
    static constexpr std::uint64_t kInsertionsPerRelease = 1024;

    struct State {
        Entries entries;
        std::vector<std::shared_ptr<ProgramRange>> ranges;
        std::uint64_t calls = 0, insertions = 0;
        std::size_t evictions = 0, cached = 0, bytes = 0;
    };

    // Guards the state in a Python without interpreter lock. If the parent was changing the cache during a fork, the child
    // starts with an empty cache.
    class Lock {
    public:
        explicit Lock(FastCalls& calls) : mutex_(calls.mutex_) {
            if (!mutex_.lock()) new (&calls.state_) State();
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

    bool collect_inputs(PyObject* positional, PyObject* by_name, Arrays& arrays, CollectInput collect) const {
        const Py_ssize_t count = PyTuple_Size(positional);
        if (PyDict_Size(by_name) != 0) return count == 0 && collect_named(by_name, arrays, collect);
        if (count != 1) return collect_ordered(positional, arrays, collect);
        PyObject* only = PyTuple_GetItem(positional, 0);
        if (PyDict_CheckExact(only)) return collect_named(only, arrays, collect);
        if (PyList_CheckExact(only) || PyTuple_CheckExact(only)) return collect_ordered(only, arrays, collect);
        return collect_ordered(positional, arrays, collect);
    }

    bool collect_named(PyObject* dict, Arrays& arrays, CollectInput collect) const {
        if (PyDict_Size(dict) != static_cast<Py_ssize_t>(inputs_.size())) return false;
        for (std::size_t i = 0; i < inputs_.size(); ++i) {
            if (!(this->*collect)(PyDict_GetItemWithError(dict, inputs_[i].name.ptr()), i, arrays)) return false;
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

    // Collects one input. An input that the call extends by rows must be a growing array or a part of one; any other input is
    // collected as in collect_input().
    bool collect_growing(PyObject* item, std::size_t index, Arrays& arrays) const {
        for (const SharedPorts& shared : shared_) {
            if (shared.input != index || shared.order.empty()) continue;
            if (item == nullptr || !PyArray_CheckExact(item)) return false;
            PyObject* const rows = rows_of(as_array(item), shared.order);
            if (rows != nullptr) arrays.steal(index, rows);
            return rows != nullptr && is_dense(rows, inputs_[index]);
        }
        return collect_input(item, index, arrays);
    }

    // Makes the outputs that extend growing arrays by the rows of this call; returns false if an array cannot be extended.
    bool grow_outputs(const Entry& entry, Arrays& arrays) const {
        for (const SharedPorts& shared : shared_) {
            if (shared.order.empty()) continue;
            npy_intp bytes = PyDataType_ELSIZE(outputs_[shared.output].descr());
            for (const npy_intp size : entry.outputs[shared.output]) bytes *= size;
            if (!extends(entry, shared.input, shared.output) || !can_grow(arrays.array(shared.input), bytes)) return false;
        }
        for (const SharedPorts& shared : shared_) {
            if (shared.order.empty()) continue;
            PyObject* const array = grown(arrays.array(shared.input), entry.outputs[shared.output], shared.order);
            if (array == nullptr) return false;
            arrays.steal(inputs_.size() + shared.output, array);
        }
        return true;
    }

    bool collect_ordered(PyObject* sequence, Arrays& arrays, CollectInput collect) const {
        const bool is_list = PyList_CheckExact(sequence);
        if ((is_list ? PyList_Size(sequence) : PyTuple_Size(sequence)) != static_cast<Py_ssize_t>(inputs_.size())) return false;
        for (std::size_t i = 0; i < inputs_.size(); ++i) {
            const auto at = static_cast<Py_ssize_t>(i);
            if (!(this->*collect)(is_list ? PyList_GetItem(sequence, at) : PyTuple_GetItem(sequence, at), i, arrays))
                return false;
        }
        return true;
    }

    static std::size_t hash_of(const std::vector<Shape>& shapes) {
        Hash hash;
        for (const Shape& shape : shapes) hash.add(shape.data(), shape.size());
        return hash.value();
    }

    // Removes an entry from the cache and returns it. The caller holds the lock, and destroys the entry only after releasing the
    // lock, since the entry owns Python objects.
    std::shared_ptr<Entry> take(Entries::iterator position) {
        std::shared_ptr<Entry> entry = std::move(position->second);
        state_.entries.erase(position);
        state_.bytes -= entry->made_bytes;
        state_.cached -= entry->made_bytes != 0;
        return entry;
    }

    // Makes the program for inputs of these shapes from a parametric program, and an entry for it; returns null if no
    // parametric program accepts the shapes.
    std::shared_ptr<Entry> make_entry(const Arrays& arrays) {
        std::vector<std::shared_ptr<ProgramRange>> ranges;
        {
            const Lock lock(*this);
            ranges = state_.ranges;
        }
        for (const auto& range : ranges) {
            const auto entry = entry_in(*range, arrays);
            if (entry == nullptr) continue;
            insert(entry);
            return entry;
        }
        return nullptr;
    }

    // Adds an entry that a call made to the cache. If the cached entries that calls made then exceed the byte limit, the least
    // recently used of them are evicted first.
    void insert(const std::shared_ptr<Entry>& entry) {
        std::vector<std::shared_ptr<Entry>> dropped;
        std::size_t cached, bytes;
        bool is_due;
        {
            const Lock lock(*this);
            while (state_.bytes + entry->made_bytes > max_made_bytes_ && state_.cached > 0) {
                auto oldest = state_.entries.end();
                for (auto row = state_.entries.begin(); row != state_.entries.end(); ++row)
                    if (row->second->made_bytes != 0 &&
                        (oldest == state_.entries.end() || row->second->last_call < oldest->second->last_call))
                        oldest = row;
                dropped.push_back(take(oldest));
                ++state_.evictions;
            }
            entry->last_call = ++state_.calls;
            state_.entries.emplace(hash_of(entry->inputs), entry);
            cached = ++state_.cached;
            bytes = state_.bytes += entry->made_bytes;
            is_due = ++state_.insertions % kInsertionsPerRelease == 0;
        }
        if (is_due) release_free_pages();
        for (std::size_t i = 0; i < dropped.size() && !log_eviction_.is_none(); ++i)
            log_eviction_(cached, bytes, max_made_bytes_);
    }

    // Returns the entry of a new program; null if the sizes are outside the ranges, or if a kernel does not support them.
    std::shared_ptr<Entry> entry_in(const ProgramRange& range, const Arrays& arrays) const {
        auto entry = std::make_shared<Entry>();
        std::vector<PyArrayObject*> inputs;
        std::vector<std::int64_t> itemsizes;
        for (std::size_t i = 0; i < inputs_.size(); ++i) inputs.push_back(arrays.array(i));
        for (const Port& port : outputs_) itemsizes.push_back(PyDataType_ELSIZE(port.descr()));
        entry->program = range.program_for(inputs, itemsizes, shared_, entry->inputs, entry->outputs);
        entry->constants = range.constants;
        entry->made_bytes = (1 + range.steps->size()) * kStepBytes;
        return entry->program == nullptr ? nullptr : entry;
    }

    // Returns the entry for inputs of these shapes; null if there is none.
    std::shared_ptr<Entry> entry_for(const Arrays& arrays) {
        Hash hash;
        for (std::size_t i = 0; i < inputs_.size(); ++i) {
            PyArrayObject* const array = arrays.array(i);
            hash.add(PyArray_DIMS(array), static_cast<std::size_t>(PyArray_NDIM(array)));
        }
        const Lock lock(*this);
        const auto [begin, end] = state_.entries.equal_range(hash.value());
        for (auto row = begin; row != end; ++row) {
            const std::shared_ptr<Entry>& entry = row->second;
            bool matches = true;
            for (std::size_t i = 0; matches && i < inputs_.size(); ++i) matches = has_shape(arrays.array(i), entry->inputs[i]);
            if (!matches) continue;
            entry->is_used = true;
            entry->last_call = ++state_.calls;
            return entry;
        }
        return nullptr;
    }

    // Collects the arrays of the outputs: the arrays that the caller passes in `out`, and new arrays for all other outputs.
    // Returns false if an array of the caller does not fit or memory is exhausted.
    bool collect_outputs(PyObject* out, const Entry& entry, Arrays& arrays) const {
        const std::size_t first = inputs_.size();
        if (out != Py_None && !collect_targets(out, entry, arrays)) return false;
        output_pool_->begin_call();
        for (std::size_t i = 0; i < outputs_.size(); ++i) {
            if (arrays[first + i] != nullptr) continue;
            PyObject* array = new_array(output_pool_, outputs_[i].descr(), entry.outputs[i]);
            if (array == nullptr) return false;
            arrays.steal(first + i, array);
        }
        return true;
    }

    // True if a run may pass the memory of an input for an output. A run that overwrites the input could not be repeated.
    bool extends(const Entry& entry, std::size_t input, std::size_t output) const {
        return entry.program->sharing(1 + input, 1 + inputs_.size() + output) == Sharing::extends;
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
                if (arrays[other] != nullptr && may_share(as_array(item), arrays.array(other)) &&
                    !(PyArray_DATA(as_array(item)) == PyArray_DATA(arrays.array(other)) && extends(entry, other, i)))
                    return false;
            arrays.borrow(inputs_.size() + i, item);
            ++targets;
        }
        return !is_dict || targets == PyDict_Size(out);
    }

    // Runs the program. Returns false if a step failed or memory is exhausted: the engine then repeats the run and reports the
    // error.
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
    const std::shared_ptr<OutputPool> output_pool_;
    const std::size_t max_made_bytes_;
    const nb::object log_eviction_;
    std::vector<SharedPorts> shared_;
    ForkLock mutex_;
    State state_;
};

int import_numpy() {
    import_array1(-1);
    return 0;
}

}  // namespace

void bind_fast_calls(nb::module_& m) {
    if (import_numpy() != 0) throw nb::python_error();
    nb::class_<OutputPool>(m, "OutputPool")
        .def(nb::init<>())
        .def("begin_call", &OutputPool::begin_call)
        .def(
            "allocate",
            [](std::shared_ptr<OutputPool> pool, const Shape& shape, nb::handle dtype) {
                if (!PyArray_DescrCheck(dtype.ptr())) throw std::invalid_argument("needs a dtype");
                nb::object array = nb::steal(new_array(pool, reinterpret_cast<PyArray_Descr*>(dtype.ptr()), shape));
                if (!array.is_valid()) throw nb::python_error();
                return array;
            },
            "shape"_a, "dtype"_a)
        .def(
            "allocate_growing",
            [](std::shared_ptr<OutputPool> pool, const Shape& shape, nb::handle dtype, std::size_t capacity) {
                if (!PyArray_DescrCheck(dtype.ptr())) throw std::invalid_argument("needs a dtype");
                nb::object array =
                    nb::steal(new_growing_array(pool, reinterpret_cast<PyArray_Descr*>(dtype.ptr()), shape, capacity));
                if (!array.is_valid()) throw nb::python_error();
                return array;
            },
            "shape"_a, "dtype"_a, "capacity"_a)
        .def_prop_ro("free_blocks", &OutputPool::free_blocks);
    // Returns an array of `length` rows that begins with the rows of `array`, if no other array extends `array` in its block;
    // else None.
    m.def(
        "grow",
        [](nb::handle array, std::int64_t length) -> nb::object {
            if (!PyArray_CheckExact(array.ptr())) return nb::none();
            PyArrayObject* const before = as_array(array.ptr());
            std::vector<int> order;
            for (int axis = 0; axis < PyArray_NDIM(before); ++axis) order.push_back(axis);
            const nb::object rows = nb::steal(rows_of(before, order));
            if (!rows.is_valid()) return nb::none();
            Shape shape(PyArray_DIMS(before), PyArray_DIMS(before) + PyArray_NDIM(before));
            if (shape.empty() || length < shape[0]) return nb::none();
            shape[0] = static_cast<npy_intp>(length);
            npy_intp bytes = PyArray_ITEMSIZE(before);
            for (const npy_intp size : shape) bytes *= size;
            PyObject* const after = can_grow(as_array(rows.ptr()), bytes) ? grown(as_array(rows.ptr()), shape, order) : nullptr;
            if (after == nullptr && PyErr_Occurred()) throw nb::python_error();
            return after == nullptr ? nb::none() : nb::steal(after);
        },
        "array"_a, "length"_a);
    m.attr("MIN_POOLED_BYTES") = OutputPool::kMinBytes;
    m.attr("MAX_SIZE_BYTES") = FastCalls::kMaxMadeBytes;
    m.attr("SIZE_STEP_BYTES") = FastCalls::kStepBytes;
    using SymbolRow = std::tuple<std::size_t, std::size_t, std::int64_t, std::int64_t, std::int64_t, std::vector<std::int64_t>>;
    nb::class_<FastCalls>(m, "FastCalls")
        .def(nb::init<const nb::tuple&, const nb::tuple&, nb::object, std::int64_t, std::shared_ptr<OutputPool>, std::size_t,
                      nb::object, const std::vector<std::tuple<std::size_t, std::size_t, std::vector<int>>>&>(),
             "inputs"_a, "outputs"_a, "results"_a, "max_trips"_a, "output_pool"_a, "max_made_bytes"_a = FastCalls::kMaxMadeBytes,
             "log_eviction"_a = nb::none(), "shared"_a = nb::tuple())
        .def("add", &FastCalls::add, "program"_a, "inputs"_a, "outputs"_a, "constants"_a)
        .def(
            "add_range",
            [](FastCalls& calls, std::shared_ptr<ParametricProgram> steps, std::shared_ptr<ThreadPool> pool,
               std::shared_ptr<WeightCache> weights, std::shared_ptr<ArenaPool> arenas, const std::vector<SymbolRow>& symbols,
               const std::vector<std::vector<std::vector<std::int64_t>>>& inputs,
               const std::vector<std::vector<std::vector<std::int64_t>>>& outputs, std::int64_t max_bytes, nb::object constants) {
                ProgramRange range{std::move(steps),  std::move(pool),    std::move(weights), std::move(arenas),   {},
                                   shapes_of(inputs), shapes_of(outputs), max_bytes,          std::move(constants)};
                for (const auto& [input, axis, first, last, step, radices] : symbols)
                    range.symbols.push_back({input, axis, first, last, step, radices});
                calls.add_range(std::move(range));
            },
            "steps"_a, "pool"_a, "weights"_a, "arenas"_a, "symbols"_a, "inputs"_a, "outputs"_a, "max_bytes"_a, "constants"_a)
        .def("discard", &FastCalls::discard, "program"_a)
        .def("discard_range", &FastCalls::discard_range, "steps"_a)
        .def("counts", &FastCalls::counts)
        .def("pop_use", &FastCalls::pop_use, "program"_a)
        .def("clear", &FastCalls::clear)
        .def("call_growing", &FastCalls::call_growing, "inputs"_a, "by_name"_a, "out"_a.none())
        .def("__call__", &FastCalls::call, "inputs"_a, "by_name"_a, "out"_a.none());
}

}  // namespace dovetail
