// Fast paths of concat, split and copy for whole numpy arrays.
//
// Arrays are read through numpy's C interface: an nb::ndarray argument costs more than a small copy. Each function serves the
// common case and returns None for all others, errors included. runtime/array_ops.py has the rules and the error messages.
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <numpy/arrayobject.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>
#if defined(__linux__)
#include <sched.h>
#endif

#include "copy/copy_kernels.h"
#include "copy/strided_copy.h"
#include "python/gil.h"

namespace nb = nanobind;

namespace dovetail {
namespace {

using Objects = std::vector<PyArrayObject*>;

// Bytes below which a copy takes less time than waking other threads.
constexpr std::size_t kMinThreadedBytes = 64 * 1024;
constexpr std::size_t kMinThreadedBytesManyArrays = 160 * 1024;
// Minimum bytes of the runs that are copied without a plan; shorter runs may be those of a transpose.
constexpr npy_intp kMinSmallRun = 64;

// ---- threads of array-level calls: DOVETAIL_THREADS, else all cores of this process ----

int usable_cores() {
#if defined(__linux__)
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
#endif
    return static_cast<int>(std::thread::hardware_concurrency());
}

ThreadPool& pool() {
    static ThreadPool* const shared = [] {
        const char* requested = std::getenv("DOVETAIL_THREADS");
        const int threads = requested ? std::atoi(requested) : 0;
        return new ThreadPool(threads > 0 ? threads : usable_cores());
    }();
    return *shared;
}

// ---- properties of arrays ----

bool has_long_runs(PyObject* object) {
    if (!PyArray_CheckExact(object)) return false;
    const PyArray_Descr* descr = PyArray_DESCR(reinterpret_cast<PyArrayObject*>(object));
    // Elements that hold references must not be copied as bytes.
    return !PyDataType_FLAGCHK(descr, NPY_ITEM_REFCOUNT | NPY_NEEDS_INIT | NPY_LIST_PICKLE) && PyDataType_ELSIZE(descr) > 0;
}

std::byte* data_of(PyArrayObject* array) { return static_cast<std::byte*>(PyArray_DATA(array)); }
std::size_t bytes_of(PyArrayObject* array) { return static_cast<std::size_t>(PyArray_NBYTES(array)); }

bool same_type(PyArrayObject* a, PyArrayObject* b) {
    return PyArray_DESCR(a) == PyArray_DESCR(b) || PyArray_EquivTypes(PyArray_DESCR(a), PyArray_DESCR(b));
}

struct Extent {
    const std::byte* first;
    const std::byte* last;
};

// The address range of all elements.
Extent extent_of(PyArrayObject* array) {
    Extent extent{data_of(array), data_of(array) + PyArray_ITEMSIZE(array)};
    for (int i = 0; i < PyArray_NDIM(array); ++i) {
        const npy_intp reach = (PyArray_DIM(array, i) - 1) * PyArray_STRIDE(array, i);
        if (reach < 0) extent.first += reach;
        if (reach > 0) extent.last += reach;
    }
    return extent;
}

bool may_share(PyArrayObject* a, PyArrayObject* b) {
    if (PyArray_SIZE(a) == 0 || PyArray_SIZE(b) == 0) return false;
    const Extent one = extent_of(a), other = extent_of(b);
    return one.first < other.last && other.first < one.last;
}

// True if each axis steps beyond the reach of all axes with smaller strides, so that no element is written twice.
bool is_written_once(PyArrayObject* array) {
    if (PyArray_IS_C_CONTIGUOUS(array) || PyArray_SIZE(array) == 0) return true;
    std::vector<std::pair<npy_intp, npy_intp>> axes;
    for (int i = 0; i < PyArray_NDIM(array); ++i)
        if (PyArray_DIM(array, i) > 1) axes.emplace_back(std::abs(PyArray_STRIDE(array, i)), PyArray_DIM(array, i) - 1);
    std::sort(axes.begin(), axes.end());
    npy_intp reach_end = PyArray_ITEMSIZE(array) - 1;
    for (const auto& [step, steps] : axes) {
        if (step <= reach_end) return false;
        reach_end += step * steps;
    }
    return true;
}

// Compares only the address ranges of arrays: arrays whose elements merely interleave are taken to share memory.
bool are_disjoint(const Objects& arrays) {
    std::vector<Extent> extents;
    for (PyArrayObject* array : arrays)
        if (PyArray_SIZE(array) != 0) extents.push_back(extent_of(array));
    std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.first < b.first; });
    for (std::size_t i = 1; i < extents.size(); ++i)
        if (extents[i].first < extents[i - 1].last) return false;
    return true;
}

// True if `object` is a writable array of this type and shape, disjoint from `others`.
bool may_write(PyObject* object, PyArrayObject* like, const npy_intp* sizes, PyArrayObject* const* others, std::size_t count) {
    if (!has_long_runs(object)) return false;
    auto* out = reinterpret_cast<PyArrayObject*>(object);
    if (!PyArray_ISWRITEABLE(out) || !same_type(out, like) || PyArray_NDIM(out) != PyArray_NDIM(like)) return false;
    if (!std::equal(sizes, sizes + PyArray_NDIM(out), PyArray_DIMS(out)) || !is_written_once(out)) return false;
    return std::none_of(others, others + count, [out](PyArrayObject* other) { return may_share(out, other); });
}

PyArrayObject* new_array(PyArrayObject* like, const npy_intp* sizes) {
    PyArray_Descr* descr = PyArray_DESCR(like);
    Py_INCREF(reinterpret_cast<PyObject*>(descr));
    return reinterpret_cast<PyArrayObject*>(
        PyArray_NewFromDescr(&PyArray_Type, descr, PyArray_NDIM(like), sizes, nullptr, nullptr, 0, nullptr));
}

PyArrayObject* new_reference(PyObject* object) {
    Py_INCREF(object);
    return reinterpret_cast<PyArrayObject*>(object);
}

// ---- the operations ----

// Returns the copy region of these sizes that begins `to_offset` and `from_offset` bytes after the starts of the arrays.
copying::CopyRegion region_of(PyArrayObject* to, npy_intp to_offset, PyArrayObject* from, npy_intp from_offset,
                              const npy_intp* sizes) {
    copying::CopyRegion region{
        {0, to_offset, data_of(to)}, {0, from_offset, data_of(from)}, {}, static_cast<std::size_t>(PyArray_ITEMSIZE(to))};
    for (int i = 0; i < PyArray_NDIM(to); ++i) region.axes.push_back({sizes[i], PyArray_STRIDE(to, i), PyArray_STRIDE(from, i)});
    return region;
}

// The references keep the arrays alive: without the interpreter lock, another thread may empty the list that held them.
void run_copy(std::vector<copying::CopyRegion> regions, const Objects& references) {
    const copying::CopyPlan plan(std::move(regions));
    if (plan.bytes() < kMinThreadedBytes) return plan.run(nullptr, nullptr);
    for (PyArrayObject* array : references) Py_INCREF(reinterpret_cast<PyObject*>(array));
    {
        const dovetail::GilRelease released;
        plan.run(nullptr, &pool());
    }
    for (PyArrayObject* array : references) Py_DECREF(reinterpret_cast<PyObject*>(array));
}

// Copies contiguous arrays into a contiguous one, single-threaded: in each of `outer` rows, one run of each array.
void copy_into_small(PyArrayObject* out, PyArrayObject* const* arrays, std::size_t count, std::size_t outer) {
    std::byte* dst = data_of(out);
    const auto row = static_cast<std::ptrdiff_t>(bytes_of(out) / outer);
    for (std::size_t k = 0; k < count; ++k) {
        const std::size_t run = bytes_of(arrays[k]) / outer;
        if (outer == 1)
            std::memcpy(dst, data_of(arrays[k]), run);
        else if (run != 0)
            copy_kernels().copy_rows(dst, row, data_of(arrays[k]), static_cast<std::ptrdiff_t>(run),
                                     static_cast<std::int64_t>(outer), run);
        dst += run;
    }
}

std::size_t rows_before(PyArrayObject* array, int axis) {
    std::size_t rows = 1;
    for (int i = 0; i < axis; ++i) rows *= static_cast<std::size_t>(PyArray_DIM(array, i));
    return rows;
}

bool is_small(PyArrayObject* out, PyArrayObject* const* arrays, std::size_t count, std::size_t outer) {
    return bytes_of(out) < (outer == 1 && count > 16 ? kMinThreadedBytesManyArrays : kMinThreadedBytes) &&
           PyArray_IS_C_CONTIGUOUS(out) &&
           std::all_of(arrays, arrays + count, [](PyArrayObject* array) { return PyArray_IS_C_CONTIGUOUS(array); });
}

void copy_into(PyArrayObject* out, PyArrayObject* const* arrays, std::size_t count, int axis) {
    if (PyArray_SIZE(out) == 0) return;
    const std::size_t outer = rows_before(out, axis);
    if (is_small(out, arrays, count, outer)) return copy_into_small(out, arrays, count, outer);
    std::vector<copying::CopyRegion> regions;
    npy_intp start = 0;
    Objects references{out};
    for (std::size_t k = 0; k < count; ++k) {
        regions.push_back(region_of(out, start, arrays[k], 0, PyArray_DIMS(arrays[k])));
        start += PyArray_DIM(arrays[k], axis) * PyArray_STRIDE(out, axis);
        references.push_back(arrays[k]);
    }
    run_copy(std::move(regions), references);
}

// ---- the entry points ----

// Converts an axis in range to an index from the front; returns -1 for any other object.
int axis_of(PyObject* object, int rank) {
    if (!PyLong_CheckExact(object)) return -1;
    int overflow = 0;
    const long long axis = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow != 0 || axis < -rank || axis >= rank) return -1;
    return static_cast<int>(axis < 0 ? axis + rank : axis);
}

// True if these arrays can be concatenated; `sizes` becomes the shape of the result.
bool can_concatenate(PyObject* const* items, std::size_t count, int axis, npy_intp* sizes) {
    auto* first = reinterpret_cast<PyArrayObject*>(items[0]);
    const int rank = PyArray_NDIM(first);
    std::copy_n(PyArray_DIMS(first), rank, sizes);
    for (std::size_t k = 1; k < count; ++k) {
        auto* array = reinterpret_cast<PyArrayObject*>(items[k]);
        if (!has_long_runs(items[k]) || PyArray_NDIM(array) != rank || !same_type(array, first)) return false;
        for (int i = 0; i < rank; ++i)
            if (i != axis && PyArray_DIM(array, i) != sizes[i]) return false;
        if (__builtin_add_overflow(sizes[axis], PyArray_DIM(array, axis), &sizes[axis])) return false;
    }
    return true;
}

// Reads arguments by position or by name; absent ones are null. Returns false for any other argument.
template <std::size_t Count>
bool parse_arguments(PyObject* const* args, Py_ssize_t out_object, PyObject* names, PyObject* const (&keywords)[Count],
                     PyObject* (&arguments)[Count]) {
    if (out_object > static_cast<Py_ssize_t>(Count)) return false;
    std::copy_n(args, out_object, arguments);
    const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < named; ++i) {
        PyObject* name = PyTuple_GetItem(names, i);
        const auto index = static_cast<std::size_t>(std::find(keywords, keywords + Count, name) - keywords);
        if (index == Count || arguments[index] != nullptr) return false;
        arguments[index] = args[out_object + i];
    }
    return true;
}

// Interned names can be compared by identity.
PyObject* interned(const char* name) { return PyUnicode_InternFromString(name); }

bool is_absent(PyObject* object) { return object == nullptr || object == Py_None; }

// Returns the concatenated array, or null for a case that runtime/array_ops.py must handle. A Python error may be set.
PyArrayObject* concat_plain(PyObject* list, PyObject* axis_object, PyObject* out_object) {
    const bool is_list = PyList_CheckExact(list);
    if (!is_list && !PyTuple_CheckExact(list)) return nullptr;
    const auto count = static_cast<std::size_t>(is_list ? PyList_Size(list) : PyTuple_Size(list));
    if (count == 0) return nullptr;
    constexpr std::size_t kInlineItems = 16;
    PyObject* inline_items[kInlineItems];
    std::vector<PyObject*> heap_items;
    PyObject** items = inline_items;
    if (count > kInlineItems) {
        heap_items.resize(count);
        items = heap_items.data();
    }
    for (std::size_t k = 0; k < count; ++k) {
        const auto at = static_cast<Py_ssize_t>(k);
        items[k] = is_list ? PyList_GetItem(list, at) : PyTuple_GetItem(list, at);
    }
    if (!has_long_runs(items[0])) return nullptr;
    auto* const* arrays = reinterpret_cast<PyArrayObject* const*>(items);
    const int axis = axis_of(axis_object, PyArray_NDIM(arrays[0]));
    npy_intp sizes[NPY_MAXDIMS];
    if (axis < 0 || !can_concatenate(items, count, axis, sizes)) return nullptr;
    if (!is_absent(out_object) && !may_write(out_object, arrays[0], sizes, arrays, count)) return nullptr;
    PyArrayObject* out = is_absent(out_object) ? new_array(arrays[0], sizes) : new_reference(out_object);
    if (out != nullptr) copy_into(out, arrays, count, axis);
    return out;
}

// Copies a small array without a plan, if its elements form equally distant runs in both arrays; returns false for any other
// array.
bool copy_small_rows(PyArrayObject* out, PyArrayObject* from) {
    if (bytes_of(out) >= kMinThreadedBytes) return false;
    npy_intp run = PyArray_ITEMSIZE(out), rows = 1, to_step = 0, from_step = 0;
    for (int i = PyArray_NDIM(out); i-- > 0;) {
        const npy_intp size = PyArray_DIM(out, i), to = PyArray_STRIDE(out, i), step = PyArray_STRIDE(from, i);
        if (size == 1) continue;
        if (rows == 1 && to == run && step == run) {
            run *= size;
        } else if (rows == 1) {
            rows = size;
            to_step = to;
            from_step = step;
        } else {
            if (to != to_step * rows || step != from_step * rows) return false;
            rows *= size;
        }
    }
    if (run < kMinSmallRun) return false;
    copy_kernels().copy_rows(data_of(out), to_step, data_of(from), from_step, rows, static_cast<std::size_t>(run));
    return true;
}

PyArrayObject* copy_plain(PyObject* view, PyObject* out_object) {
    if (!has_long_runs(view)) return nullptr;
    auto* from = reinterpret_cast<PyArrayObject*>(view);
    if (!is_absent(out_object) && !may_write(out_object, from, PyArray_DIMS(from), &from, 1)) return nullptr;
    PyArrayObject* out = is_absent(out_object) ? new_array(from, PyArray_DIMS(from)) : new_reference(out_object);
    if (out == nullptr || PyArray_SIZE(out) == 0) return out;
    if (is_small(out, &from, 1, 1))
        std::memcpy(data_of(out), data_of(from), bytes_of(out));
    else if (!copy_small_rows(out, from))
        run_copy({region_of(out, 0, from, 0, PyArray_DIMS(from))}, {out, from});
    return out;
}

// Returns the result of the fast path if there is one, otherwise the result of the Python function `rules`, which handles every
// case.
PyObject* or_delegate(PyObject* result, PyObject* rules, PyObject* const* args, Py_ssize_t out_object, PyObject* names) {
    if (result != nullptr) return result;
    if (PyErr_Occurred()) return nullptr;
    return PyObject_Vectorcall(rules, args, static_cast<std::size_t>(out_object), names);
}

PyObject* concat(PyObject* rules, PyObject* const* args, Py_ssize_t out_object, PyObject* names) {
    static PyObject* const keywords[] = {interned("arrays"), interned("axis"), interned("out")};
    PyObject* arguments[3] = {};
    PyArrayObject* result = nullptr;
    if (parse_arguments(args, out_object, names, keywords, arguments) && arguments[0] && arguments[1])
        result = concat_plain(arguments[0], arguments[1], arguments[2]);
    return or_delegate(reinterpret_cast<PyObject*>(result), rules, args, out_object, names);
}

PyObject* copy(PyObject* rules, PyObject* const* args, Py_ssize_t out_object, PyObject* names) {
    static PyObject* const keywords[] = {interned("view"), interned("out")};
    PyObject* arguments[2] = {};
    PyArrayObject* result = nullptr;
    if (parse_arguments(args, out_object, names, keywords, arguments) && arguments[0])
        result = copy_plain(arguments[0], arguments[1]);
    return or_delegate(reinterpret_cast<PyObject*>(result), rules, args, out_object, names);
}

// Copies parts of a contiguous array into contiguous arrays, single-threaded.
void copy_out_small(PyArrayObject* from, PyArrayObject* const* regions, std::size_t count, std::size_t outer) {
    const std::byte* src = data_of(from);
    const auto row = static_cast<std::ptrdiff_t>(bytes_of(from) / outer);
    for (std::size_t k = 0; k < count; ++k) {
        const std::size_t run = bytes_of(regions[k]) / outer;
        if (outer == 1)
            std::memcpy(data_of(regions[k]), src, run);
        else if (run != 0)
            copy_kernels().copy_rows(data_of(regions[k]), static_cast<std::ptrdiff_t>(run), src, row,
                                     static_cast<std::int64_t>(outer), run);
        src += run;
    }
}

void copy_out(PyArrayObject* from, PyArrayObject* const* arguments, std::size_t count, int axis) {
    if (PyArray_SIZE(from) == 0) return;
    const std::size_t outer = rows_before(from, axis);
    if (is_small(from, arguments, count, outer)) return copy_out_small(from, arguments, count, outer);
    std::vector<copying::CopyRegion> regions;
    npy_intp start = 0;
    Objects references{from};
    for (std::size_t k = 0; k < count; ++k) {
        regions.push_back(region_of(arguments[k], 0, from, start, PyArray_DIMS(arguments[k])));
        start += PyArray_DIM(arguments[k], axis) * PyArray_STRIDE(from, axis);
        references.push_back(arguments[k]);
    }
    run_copy(std::move(regions), references);
}

PyArrayObject* view_of(PyArrayObject* from, const npy_intp* sizes, std::byte* data) {
    PyArray_Descr* descr = PyArray_DESCR(from);
    Py_INCREF(reinterpret_cast<PyObject*>(descr));
    const int flags = PyArray_FLAGS(from) & NPY_ARRAY_WRITEABLE;
    PyObject* view =
        PyArray_NewFromDescr(&PyArray_Type, descr, PyArray_NDIM(from), sizes, PyArray_STRIDES(from), data, flags, nullptr);
    if (view == nullptr) return nullptr;
    Py_INCREF(reinterpret_cast<PyObject*>(from));
    auto* made = reinterpret_cast<PyArrayObject*>(view);
    return PyArray_SetBaseObject(made, reinterpret_cast<PyObject*>(from)) == 0 ? made : nullptr;
}

// Returns the lengths as integers; empty unless they are exact integers >= 0 whose sum is `whole`.
std::vector<npy_intp> lengths_of(PyObject* sequence, npy_intp whole) {
    const bool is_list = PyList_CheckExact(sequence);
    if (!is_list && !PyTuple_CheckExact(sequence)) return {};
    const Py_ssize_t count = is_list ? PyList_Size(sequence) : PyTuple_Size(sequence);
    std::vector<npy_intp> lengths;
    for (Py_ssize_t k = 0; k < count; ++k) {
        PyObject* item = is_list ? PyList_GetItem(sequence, k) : PyTuple_GetItem(sequence, k);
        int overflow = 0;
        const long long length = PyLong_CheckExact(item) ? PyLong_AsLongLongAndOverflow(item, &overflow) : -1;
        if (overflow != 0 || length < 0 || length > whole) return {};
        lengths.push_back(length);
        whole -= length;
    }
    return whole == 0 ? lengths : std::vector<npy_intp>();
}

// Returns a list of the parts of an array, or null if `out` does not fit or memory is exhausted.
PyObject* split_into(PyArrayObject* from, const std::vector<npy_intp>& lengths, int axis, PyObject* out_object, bool copies) {
    nb::object list = nb::steal(PyList_New(static_cast<Py_ssize_t>(lengths.size())));
    if (!list.is_valid()) return nullptr;
    Objects regions;
    npy_intp sizes[NPY_MAXDIMS];
    std::copy_n(PyArray_DIMS(from), PyArray_NDIM(from), sizes);
    std::byte* data = data_of(from);
    for (std::size_t k = 0; k < lengths.size(); ++k) {
        sizes[axis] = lengths[k];
        PyArrayObject* region = nullptr;
        if (out_object != nullptr) {
            PyObject* item = PyList_GetItem(out_object, static_cast<Py_ssize_t>(k));
            if (may_write(item, from, sizes, &from, 1)) region = new_reference(item);
        } else {
            region = copies ? new_array(from, sizes) : view_of(from, sizes, data);
        }
        if (region == nullptr) return nullptr;
        PyList_SetItem(list.ptr(), static_cast<Py_ssize_t>(k), reinterpret_cast<PyObject*>(region));
        regions.push_back(region);
        data += lengths[k] * PyArray_STRIDE(from, axis);
    }
    if (out_object != nullptr && !are_disjoint(regions)) return nullptr;
    if (copies) copy_out(from, regions.data(), regions.size(), axis);
    return list.release().ptr();
}

PyObject* split_plain(PyObject* array, PyObject* sequence, PyObject* axis_object, PyObject* out_object, PyObject* copies) {
    if (!has_long_runs(array)) return nullptr;
    auto* from = reinterpret_cast<PyArrayObject*>(array);
    const int axis = axis_of(axis_object, PyArray_NDIM(from));
    if (axis < 0 || (copies != nullptr && !PyBool_Check(copies))) return nullptr;
    const std::vector<npy_intp> lengths = lengths_of(sequence, PyArray_DIM(from, axis));
    if (lengths.empty()) return nullptr;
    if (is_absent(out_object)) return split_into(from, lengths, axis, nullptr, copies == Py_True);
    const bool fits = PyList_CheckExact(out_object) && PyList_Size(out_object) == static_cast<Py_ssize_t>(lengths.size());
    return fits ? split_into(from, lengths, axis, out_object, true) : nullptr;
}

PyObject* split(PyObject* rules, PyObject* const* args, Py_ssize_t out_object, PyObject* names) {
    static PyObject* const keywords[] = {interned("array"), interned("lengths"), interned("axis"), interned("out"),
                                         interned("copy")};
    PyObject* arguments[5] = {};
    PyObject* result = nullptr;
    if (parse_arguments(args, out_object, names, keywords, arguments) && arguments[0] && arguments[1] && arguments[2])
        result = split_plain(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]);
    return or_delegate(result, rules, args, out_object, names);
}

template <typename F>
PyCFunction function(F* call) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call));
}

PyMethodDef methods[] = {
    {"concat", function(concat), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"copy", function(copy), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"split", function(split), METH_FASTCALL | METH_KEYWORDS, nullptr},
};

nb::object or_none(PyObject* result) {
    if (result == nullptr && PyErr_Occurred()) throw nb::python_error();
    return result ? nb::steal(result) : nb::none();
}

// Returns the Python function of a fast path. It delegates all other cases to the Python function `rules`, and has the docstring
// of `rules`.
nb::object fast_path(PyMethodDef& method, const nb::object& rules, const char* signature) {
    static std::vector<std::unique_ptr<std::string>> texts;
    texts.push_back(std::make_unique<std::string>(std::string(method.ml_name) + signature + "\n--\n\n" +
                                                  nb::cast<std::string>(rules.attr("__doc__"))));
    method.ml_doc = texts.back()->c_str();
    return nb::steal(PyCFunction_NewEx(&method, rules.ptr(), nb::object(rules.attr("__module__")).ptr()));
}

int import_numpy() {
    import_array1(-1);
    return 0;
}

}  // namespace

void bind_arrays(nb::module_& m) {
    if (import_numpy() != 0) throw nb::python_error();
    m.def("quick_concat", [](const nb::object& rules) { return fast_path(methods[0], rules, "(arrays, axis, out=None)"); });
    m.def("quick_copy", [](const nb::object& rules) { return fast_path(methods[1], rules, "(view, out=None)"); });
    m.def("quick_split",
          [](const nb::object& rules) { return fast_path(methods[2], rules, "(array, lengths, axis, out=None, copy=False)"); });
    m.def("try_concat", [](nb::handle arrays, nb::handle axis, nb::handle out) {
        return or_none(reinterpret_cast<PyObject*>(concat_plain(arrays.ptr(), axis.ptr(), out.ptr())));
    });
    m.def("try_copy", [](nb::handle view, nb::handle out) {
        return or_none(reinterpret_cast<PyObject*>(copy_plain(view.ptr(), out.ptr())));
    });
    m.def("try_split", [](nb::handle array, nb::handle lengths, nb::handle axis, nb::handle out) {
        return or_none(split_plain(array.ptr(), lengths.ptr(), axis.ptr(), out.ptr(), nullptr));
    });
    m.def("addresses", [](const nb::list& items) {
        nb::list arguments;
        for (const nb::handle item : items) {
            const bool is_array = PyArray_Check(item.ptr());
            arguments.append(
                is_array ? reinterpret_cast<std::uintptr_t>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(item.ptr()))) : 0);
        }
        return arguments;
    });
    m.def("non_temporal_threshold", &copying::non_temporal_threshold);
    m.def("array_threads", [] { return pool().threads(); });
}

}  // namespace dovetail
