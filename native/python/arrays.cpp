// Whole numpy arrays joined, cut and copied, read through numpy's own C interface: an nb::ndarray argument costs more than a small copy.
//
// Each function does the plain case and returns None for every other one, errors included: array_ops.py has the rules and their words.
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

#include "copy/strided_copy.h"
#include "copy/copy_kernels.h"

namespace nb = nanobind;

namespace dovetail {
namespace {

using Objects = std::vector<PyArrayObject*>;

// Up to here a copy is done before other threads could be told of it.
constexpr std::size_t kAloneUpTo = 64 * 1024;
constexpr std::size_t kBlocksAloneUpTo = 160 * 1024;

// ---- the threads of array-level calls: as many as DOVETAIL_THREADS says, else as this process may use ----

int usable_cores() {
#if defined(__linux__)
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
#endif
    return static_cast<int>(std::thread::hardware_concurrency());
}

Pool& pool() {
    static Pool* const shared = [] {
        const char* said = std::getenv("DOVETAIL_THREADS");
        const int threads = said ? std::atoi(said) : 0;
        return new Pool(threads > 0 ? threads : usable_cores());
    }();
    return *shared;
}

// ---- what numpy says of an array ----

bool is_plain(PyObject* object) {
    if (!PyArray_CheckExact(object)) return false;
    const PyArray_Descr* descr = PyArray_DESCR(reinterpret_cast<PyArrayObject*>(object));
    // Elements that refer to something else are not moved as bytes.
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

// The bytes between which all elements lie.
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

// Each axis steps beyond all that the smaller ones reach.
bool is_written_once(PyArrayObject* array) {
    if (PyArray_IS_C_CONTIGUOUS(array) || PyArray_SIZE(array) == 0) return true;
    std::vector<std::pair<npy_intp, npy_intp>> axes;
    for (int i = 0; i < PyArray_NDIM(array); ++i)
        if (PyArray_DIM(array, i) > 1) axes.emplace_back(std::abs(PyArray_STRIDE(array, i)), PyArray_DIM(array, i) - 1);
    std::sort(axes.begin(), axes.end());
    npy_intp reached = PyArray_ITEMSIZE(array) - 1;
    for (const auto& [step, steps] : axes) {
        if (step <= reached) return false;
        reached += step * steps;
    }
    return true;
}

// Judged by their extents alone: arrays that only interleave are taken for sharing.
bool share_none(const Objects& arrays) {
    std::vector<Extent> extents;
    for (PyArrayObject* array : arrays)
        if (PyArray_SIZE(array) != 0) extents.push_back(extent_of(array));
    std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.first < b.first; });
    for (std::size_t i = 1; i < extents.size(); ++i)
        if (extents[i].first < extents[i - 1].last) return false;
    return true;
}

// Whether an array that was given may be written: of this type and shape, and apart from `others`.
bool may_write(PyObject* object, PyArrayObject* like, const npy_intp* sizes, PyArrayObject* const* others, std::size_t count) {
    if (!is_plain(object)) return false;
    auto* out = reinterpret_cast<PyArrayObject*>(object);
    if (!PyArray_ISWRITEABLE(out) || !same_type(out, like) || PyArray_NDIM(out) != PyArray_NDIM(like)) return false;
    if (!std::equal(sizes, sizes + PyArray_NDIM(out), PyArray_DIMS(out)) || !is_written_once(out)) return false;
    return std::none_of(others, others + count, [out](PyArrayObject* other) { return may_share(out, other); });
}

PyArrayObject* make(PyArrayObject* like, const npy_intp* sizes) {
    PyArray_Descr* descr = PyArray_DESCR(like);
    Py_INCREF(descr);
    return reinterpret_cast<PyArrayObject*>(
        PyArray_NewFromDescr(&PyArray_Type, descr, PyArray_NDIM(like), sizes, nullptr, nullptr, 0, nullptr));
}

PyArrayObject* keep(PyObject* object) {
    Py_INCREF(object);
    return reinterpret_cast<PyArrayObject*>(object);
}

// ---- the work ----

// A window of these sizes, `to_offset` and `from_offset` bytes from where the arrays begin.
moving::Piece piece_of(PyArrayObject* to, npy_intp to_offset, PyArrayObject* from, npy_intp from_offset, const npy_intp* sizes) {
    moving::Piece piece{{0, to_offset, data_of(to)}, {0, from_offset, data_of(from)}, {}, static_cast<std::size_t>(PyArray_ITEMSIZE(to))};
    for (int i = 0; i < PyArray_NDIM(to); ++i) piece.axes.push_back({sizes[i], PyArray_STRIDE(to, i), PyArray_STRIDE(from, i)});
    return piece;
}

// The arrays are held meanwhile: without the lock another thread may empty the list they came from.
void move(std::vector<moving::Piece> pieces, const Objects& held) {
    const moving::Movement movement(std::move(pieces));
    if (movement.bytes() < kAloneUpTo) return movement.run(nullptr, nullptr);
    for (PyArrayObject* array : held) Py_INCREF(array);
    PyThreadState* state = PyEval_SaveThread();
    movement.run(nullptr, &pool());
    PyEval_RestoreThread(state);
    for (PyArrayObject* array : held) Py_DECREF(array);
}

// Contiguous arrays in a contiguous one: in each of `outer` rows, a run of each. Small jobs only.
void join_small(PyArrayObject* out, PyArrayObject* const* arrays, std::size_t count, std::size_t outer) {
    std::byte* dst = data_of(out);
    const auto row = static_cast<std::ptrdiff_t>(bytes_of(out) / outer);
    for (std::size_t k = 0; k < count; ++k) {
        const std::size_t run = bytes_of(arrays[k]) / outer;
        if (outer == 1)
            std::memcpy(dst, data_of(arrays[k]), run);
        else if (run != 0)
            movers().copy_rows(dst, row, data_of(arrays[k]), static_cast<std::ptrdiff_t>(run), static_cast<std::int64_t>(outer), run);
        dst += run;
    }
}

std::size_t rows_before(PyArrayObject* array, int axis) {
    std::size_t rows = 1;
    for (int i = 0; i < axis; ++i) rows *= static_cast<std::size_t>(PyArray_DIM(array, i));
    return rows;
}

bool is_small(PyArrayObject* out, PyArrayObject* const* arrays, std::size_t count, std::size_t outer) {
    return bytes_of(out) < (outer == 1 && count > 16 ? kBlocksAloneUpTo : kAloneUpTo) && PyArray_IS_C_CONTIGUOUS(out) &&
           std::all_of(arrays, arrays + count, [](PyArrayObject* array) { return PyArray_IS_C_CONTIGUOUS(array); });
}

void join(PyArrayObject* out, PyArrayObject* const* arrays, std::size_t count, int axis) {
    if (PyArray_SIZE(out) == 0) return;
    const std::size_t outer = rows_before(out, axis);
    if (is_small(out, arrays, count, outer)) return join_small(out, arrays, count, outer);
    std::vector<moving::Piece> pieces;
    npy_intp start = 0;
    Objects held{out};
    for (std::size_t k = 0; k < count; ++k) {
        pieces.push_back(piece_of(out, start, arrays[k], 0, PyArray_DIMS(arrays[k])));
        start += PyArray_DIM(arrays[k], axis) * PyArray_STRIDE(out, axis);
        held.push_back(arrays[k]);
    }
    move(std::move(pieces), held);
}

// ---- the calls ----

// An index in range, counted from the front; -1 for anything else.
int axis_of(PyObject* object, int rank) {
    if (!PyLong_CheckExact(object)) return -1;
    int overflow = 0;
    const long long axis = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow != 0 || axis < -rank || axis >= rank) return -1;
    return static_cast<int>(axis < 0 ? axis + rank : axis);
}

// Whether these arrays can be joined; `sizes` becomes the shape of the result.
bool agree(PyObject* const* items, std::size_t count, int axis, npy_intp* sizes) {
    auto* first = reinterpret_cast<PyArrayObject*>(items[0]);
    const int rank = PyArray_NDIM(first);
    std::copy_n(PyArray_DIMS(first), rank, sizes);
    for (std::size_t k = 1; k < count; ++k) {
        auto* array = reinterpret_cast<PyArrayObject*>(items[k]);
        if (!is_plain(items[k]) || PyArray_NDIM(array) != rank || !same_type(array, first)) return false;
        for (int i = 0; i < rank; ++i)
            if (i != axis && PyArray_DIM(array, i) != sizes[i]) return false;
        if (__builtin_add_overflow(sizes[axis], PyArray_DIM(array, axis), &sizes[axis])) return false;
    }
    return true;
}

// Arguments by position or by name, absent ones null. False: something else was passed.
template <std::size_t Count>
bool take_arguments(PyObject* const* args, Py_ssize_t given, PyObject* names, PyObject* const (&wanted)[Count], PyObject* (&into)[Count]) {
    if (given > static_cast<Py_ssize_t>(Count)) return false;
    std::copy_n(args, given, into);
    const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < named; ++i) {
        PyObject* name = PyTuple_GetItem(names, i);
        const auto place = static_cast<std::size_t>(std::find(wanted, wanted + Count, name) - wanted);
        if (place == Count || into[place] != nullptr) return false;
        into[place] = args[given + i];
    }
    return true;
}

// Names as Python interns them, so that identity decides.
PyObject* interned(const char* name) { return PyUnicode_InternFromString(name); }

bool is_absent(PyObject* object) { return object == nullptr || object == Py_None; }

// The array, null where the case is not plain; an error may be set.
PyArrayObject* concat_plain(PyObject* list, PyObject* axis_object, PyObject* given) {
    const bool is_list = PyList_CheckExact(list);
    if (!is_list && !PyTuple_CheckExact(list)) return nullptr;
    const auto count = static_cast<std::size_t>(is_list ? PyList_Size(list) : PyTuple_Size(list));
    if (count == 0) return nullptr;
    constexpr std::size_t few = 16;
    PyObject* some[few];
    std::vector<PyObject*> many;
    PyObject** items = some;
    if (count > few) {
        many.resize(count);
        items = many.data();
    }
    for (std::size_t k = 0; k < count; ++k) {
        const auto at = static_cast<Py_ssize_t>(k);
        items[k] = is_list ? PyList_GetItem(list, at) : PyTuple_GetItem(list, at);
    }
    if (!is_plain(items[0])) return nullptr;
    auto* const* arrays = reinterpret_cast<PyArrayObject* const*>(items);
    const int axis = axis_of(axis_object, PyArray_NDIM(arrays[0]));
    npy_intp sizes[NPY_MAXDIMS];
    if (axis < 0 || !agree(items, count, axis, sizes)) return nullptr;
    if (!is_absent(given) && !may_write(given, arrays[0], sizes, arrays, count)) return nullptr;
    PyArrayObject* out = is_absent(given) ? make(arrays[0], sizes) : keep(given);
    if (out != nullptr) join(out, arrays, count, axis);
    return out;
}

PyArrayObject* copy_plain(PyObject* view, PyObject* given) {
    if (!is_plain(view)) return nullptr;
    auto* from = reinterpret_cast<PyArrayObject*>(view);
    if (!is_absent(given) && !may_write(given, from, PyArray_DIMS(from), &from, 1)) return nullptr;
    PyArrayObject* out = is_absent(given) ? make(from, PyArray_DIMS(from)) : keep(given);
    if (out == nullptr || PyArray_SIZE(out) == 0) return out;
    if (is_small(out, &from, 1, 1))
        std::memcpy(data_of(out), data_of(from), bytes_of(out));
    else
        move({piece_of(out, 0, from, 0, PyArray_DIMS(from))}, {out, from});
    return out;
}

// A quick function answers itself or asks the Python function that it was made for, which knows every rule.
PyObject* or_ask(PyObject* done, PyObject* rules, PyObject* const* args, Py_ssize_t given, PyObject* names) {
    if (done != nullptr) return done;
    if (PyErr_Occurred()) return nullptr;
    return PyObject_Vectorcall(rules, args, static_cast<std::size_t>(given), names);
}

PyObject* concat(PyObject* rules, PyObject* const* args, Py_ssize_t given, PyObject* names) {
    static PyObject* const wanted[] = {interned("arrays"), interned("axis"), interned("out")};
    PyObject* found[3] = {};
    PyArrayObject* done = nullptr;
    if (take_arguments(args, given, names, wanted, found) && found[0] && found[1]) done = concat_plain(found[0], found[1], found[2]);
    return or_ask(reinterpret_cast<PyObject*>(done), rules, args, given, names);
}

PyObject* copy(PyObject* rules, PyObject* const* args, Py_ssize_t given, PyObject* names) {
    static PyObject* const wanted[] = {interned("view"), interned("out")};
    PyObject* found[2] = {};
    PyArrayObject* done = nullptr;
    if (take_arguments(args, given, names, wanted, found) && found[0]) done = copy_plain(found[0], found[1]);
    return or_ask(reinterpret_cast<PyObject*>(done), rules, args, given, names);
}

// The pieces of a contiguous array into contiguous arrays. Small jobs only.
void cut_small(PyArrayObject* from, PyArrayObject* const* pieces, std::size_t count, std::size_t outer) {
    const std::byte* src = data_of(from);
    const auto row = static_cast<std::ptrdiff_t>(bytes_of(from) / outer);
    for (std::size_t k = 0; k < count; ++k) {
        const std::size_t run = bytes_of(pieces[k]) / outer;
        if (outer == 1)
            std::memcpy(data_of(pieces[k]), src, run);
        else if (run != 0)
            movers().copy_rows(data_of(pieces[k]), static_cast<std::ptrdiff_t>(run), src, row, static_cast<std::int64_t>(outer), run);
        src += run;
    }
}

void cut(PyArrayObject* from, PyArrayObject* const* into, std::size_t count, int axis) {
    if (PyArray_SIZE(from) == 0) return;
    const std::size_t outer = rows_before(from, axis);
    if (is_small(from, into, count, outer)) return cut_small(from, into, count, outer);
    std::vector<moving::Piece> pieces;
    npy_intp start = 0;
    Objects held{from};
    for (std::size_t k = 0; k < count; ++k) {
        pieces.push_back(piece_of(into[k], 0, from, start, PyArray_DIMS(into[k])));
        start += PyArray_DIM(into[k], axis) * PyArray_STRIDE(from, axis);
        held.push_back(into[k]);
    }
    move(std::move(pieces), held);
}

PyArrayObject* view_of(PyArrayObject* from, const npy_intp* sizes, std::byte* data) {
    PyArray_Descr* descr = PyArray_DESCR(from);
    Py_INCREF(descr);
    const int flags = PyArray_FLAGS(from) & NPY_ARRAY_WRITEABLE;
    PyObject* view = PyArray_NewFromDescr(&PyArray_Type, descr, PyArray_NDIM(from), sizes, PyArray_STRIDES(from), data, flags, nullptr);
    if (view == nullptr) return nullptr;
    Py_INCREF(from);
    auto* made = reinterpret_cast<PyArrayObject*>(view);
    return PyArray_SetBaseObject(made, reinterpret_cast<PyObject*>(from)) == 0 ? made : nullptr;
}

// The lengths as numbers, none where they are not plain: exact integers from 0 that add up to `whole`.
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

// A list of the pieces of an array that has been found plain, null where `out` or memory says no.
PyObject* pieces_of(PyArrayObject* from, const std::vector<npy_intp>& lengths, int axis, PyObject* given, bool copies) {
    nb::object list = nb::steal(PyList_New(static_cast<Py_ssize_t>(lengths.size())));
    if (!list.is_valid()) return nullptr;
    Objects pieces;
    npy_intp sizes[NPY_MAXDIMS];
    std::copy_n(PyArray_DIMS(from), PyArray_NDIM(from), sizes);
    std::byte* data = data_of(from);
    for (std::size_t k = 0; k < lengths.size(); ++k) {
        sizes[axis] = lengths[k];
        PyArrayObject* piece = nullptr;
        if (given != nullptr) {
            PyObject* item = PyList_GetItem(given, static_cast<Py_ssize_t>(k));
            if (may_write(item, from, sizes, &from, 1)) piece = keep(item);
        } else {
            piece = copies ? make(from, sizes) : view_of(from, sizes, data);
        }
        if (piece == nullptr) return nullptr;
        PyList_SetItem(list.ptr(), static_cast<Py_ssize_t>(k), reinterpret_cast<PyObject*>(piece));
        pieces.push_back(piece);
        data += lengths[k] * PyArray_STRIDE(from, axis);
    }
    if (given != nullptr && !share_none(pieces)) return nullptr;
    if (copies) cut(from, pieces.data(), pieces.size(), axis);
    return list.release().ptr();
}

PyObject* split_plain(PyObject* array, PyObject* sequence, PyObject* axis_object, PyObject* given, PyObject* copies) {
    if (!is_plain(array)) return nullptr;
    auto* from = reinterpret_cast<PyArrayObject*>(array);
    const int axis = axis_of(axis_object, PyArray_NDIM(from));
    if (axis < 0 || (copies != nullptr && !PyBool_Check(copies))) return nullptr;
    const std::vector<npy_intp> lengths = lengths_of(sequence, PyArray_DIM(from, axis));
    if (lengths.empty()) return nullptr;
    if (is_absent(given)) return pieces_of(from, lengths, axis, nullptr, copies == Py_True);
    const bool fits = PyList_CheckExact(given) && PyList_Size(given) == static_cast<Py_ssize_t>(lengths.size());
    return fits ? pieces_of(from, lengths, axis, given, true) : nullptr;
}

PyObject* split(PyObject* rules, PyObject* const* args, Py_ssize_t given, PyObject* names) {
    static PyObject* const wanted[] = {interned("array"), interned("lengths"), interned("axis"), interned("out"), interned("copy")};
    PyObject* found[5] = {};
    PyObject* done = nullptr;
    if (take_arguments(args, given, names, wanted, found) && found[0] && found[1] && found[2])
        done = split_plain(found[0], found[1], found[2], found[3], found[4]);
    return or_ask(done, rules, args, given, names);
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

nb::object or_none(PyObject* done) {
    if (done == nullptr && PyErr_Occurred()) throw nb::python_error();
    return done ? nb::steal(done) : nb::none();
}

// One of the functions above, asking `rules` where a case is not plain, and documented by it.
nb::object quick(PyMethodDef& method, const nb::object& rules, const char* signature) {
    static std::vector<std::unique_ptr<std::string>> texts;
    texts.push_back(std::make_unique<std::string>(std::string(method.ml_name) + signature + "\n--\n\n" + nb::cast<std::string>(rules.attr("__doc__"))));
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
    m.def("quick_concat", [](const nb::object& rules) { return quick(methods[0], rules, "(arrays, axis, out=None)"); });
    m.def("quick_copy", [](const nb::object& rules) { return quick(methods[1], rules, "(view, out=None)"); });
    m.def("quick_split", [](const nb::object& rules) { return quick(methods[2], rules, "(array, lengths, axis, out=None, copy=False)"); });
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
        nb::list found;
        for (const nb::handle item : items) {
            const bool is_array = PyArray_Check(item.ptr());
            found.append(is_array ? reinterpret_cast<std::uintptr_t>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(item.ptr()))) : 0);
        }
        return found;
    });
    m.def("past_cache_from", &moving::past_cache_from);
    m.def("array_threads", [] { return pool().threads(); });
}

}  // namespace dovetail
