#include "python/block_arrays.h"

#include <algorithm>
#include <atomic>
#include <new>

namespace dovetail {
namespace {

constexpr const char* kName = "dovetail.block";
constexpr std::int64_t kDoesNotGrow = -1;

// A block of a pool; a numpy array and its views keep the block allocated.
struct HeldBlock {
    std::shared_ptr<OutputPool> pool;
    OutputPool::Block block;
    std::atomic<std::int64_t> used;  // bytes of the longest growing array in the block
};

void release_block(PyObject* capsule) {
    auto* const held = static_cast<HeldBlock*>(PyCapsule_GetPointer(capsule, kName));
    held->pool->release(held->block);
    delete held;
}

// Returns the capsule of the block that contains an array; null for other memory.
PyObject* capsule_of(PyArrayObject* array) {
    PyObject* base = PyArray_BASE(array);
    while (base != nullptr && PyArray_Check(base)) base = PyArray_BASE(as_array(base));
    return base != nullptr && PyCapsule_IsValid(base, kName) ? base : nullptr;
}

HeldBlock* block_of(PyObject* capsule) { return static_cast<HeldBlock*>(PyCapsule_GetPointer(capsule, kName)); }

// Returns a view of memory that `base` owns. Takes over the reference to `base`, even if an error occurs.
PyObject* view_of(std::byte* data, PyArray_Descr* descr, const Shape& shape, const npy_intp* strides, PyObject* base) {
    Py_INCREF(reinterpret_cast<PyObject*>(descr));
    auto* const sizes = const_cast<npy_intp*>(shape.data());
    PyObject* const array = PyArray_NewFromDescr(&PyArray_Type, descr, static_cast<int>(shape.size()), sizes,
                                                 const_cast<npy_intp*>(strides), data, NPY_ARRAY_CARRAY, nullptr);
    if (array == nullptr) {
        Py_DECREF(base);
        return nullptr;
    }
    if (PyArray_SetBaseObject(as_array(array), base) != 0) {
        Py_DECREF(array);
        return nullptr;
    }
    PyArray_UpdateFlags(as_array(array), NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS | NPY_ARRAY_ALIGNED);
    return array;
}

std::size_t bytes_of(PyArray_Descr* descr, const Shape& shape) {
    std::size_t bytes = static_cast<std::size_t>(PyDataType_ELSIZE(descr));
    for (const npy_intp size : shape) bytes *= static_cast<std::size_t>(size);
    return bytes;
}

// Returns an array at the start of a new block of at least `capacity` bytes.
PyObject* array_in_block(const std::shared_ptr<OutputPool>& pool, PyArray_Descr* descr, const Shape& shape, std::size_t capacity,
                         std::int64_t used) {
    std::unique_ptr<HeldBlock> held;
    try {
        held.reset(new HeldBlock{pool, pool->acquire(capacity), {used}});
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
    std::byte* const begin = held->block.begin;
    PyObject* const capsule = PyCapsule_New(held.get(), kName, &release_block);
    if (capsule == nullptr) {
        pool->release(held->block);
        return nullptr;
    }
    held.release();
    return view_of(begin, descr, shape, nullptr, capsule);
}

}  // namespace

PyObject* new_array(const std::shared_ptr<OutputPool>& pool, PyArray_Descr* descr, const Shape& shape) {
    const std::size_t bytes = bytes_of(descr, shape);
    if (bytes >= OutputPool::kMinBytes) return array_in_block(pool, descr, shape, bytes, kDoesNotGrow);
    Py_INCREF(reinterpret_cast<PyObject*>(descr));
    return PyArray_NewFromDescr(&PyArray_Type, descr, static_cast<int>(shape.size()), const_cast<npy_intp*>(shape.data()),
                                nullptr, nullptr, 0, nullptr);
}

PyObject* new_growing_array(const std::shared_ptr<OutputPool>& pool, PyArray_Descr* descr, const Shape& shape,
                            std::size_t capacity) {
    const std::size_t bytes = bytes_of(descr, shape);
    return array_in_block(pool, descr, shape, std::max(capacity, bytes), static_cast<std::int64_t>(bytes));
}

PyObject* rows_of(PyArrayObject* array, const std::vector<int>& order) {
    const auto rank = static_cast<std::size_t>(PyArray_NDIM(array));
    PyObject* const capsule = capsule_of(array);
    if (capsule == nullptr || rank != order.size()) return nullptr;
    HeldBlock* const held = block_of(capsule);
    if (held->used == kDoesNotGrow || PyArray_DATA(array) != static_cast<void*>(held->block.begin)) return nullptr;
    Shape shape(rank);
    npy_intp stride = PyArray_ITEMSIZE(array);
    for (std::size_t i = rank; i-- > 0;) {
        const npy_intp size = PyArray_DIMS(array)[order[i]];
        if (size != 1 && PyArray_STRIDES(array)[order[i]] != stride) return nullptr;
        shape[i] = size;
        stride *= size;
    }
    Py_INCREF(capsule);
    PyObject* const rows = view_of(held->block.begin, PyArray_DESCR(array), shape, nullptr, capsule);
    if (rows == nullptr) PyErr_Clear();
    return rows;
}

bool can_grow(PyArrayObject* rows, npy_intp bytes) {
    PyObject* const capsule = capsule_of(rows);
    if (capsule == nullptr) return false;
    const HeldBlock& held = *block_of(capsule);
    const npy_intp used = PyArray_NBYTES(rows);
    return held.used == used && bytes >= used && static_cast<std::size_t>(bytes) <= held.block.bytes;
}

PyObject* grown(PyArrayObject* rows, const Shape& shape, const std::vector<int>& order) {
    PyArray_Descr* const descr = PyArray_DESCR(rows);
    PyObject* const capsule = capsule_of(rows);
    HeldBlock& held = *block_of(capsule);
    std::int64_t used = PyArray_NBYTES(rows);
    if (!held.used.compare_exchange_strong(used, static_cast<std::int64_t>(bytes_of(descr, shape)))) return nullptr;
    Shape sizes(shape.size()), strides(shape.size());
    npy_intp stride = PyDataType_ELSIZE(descr);
    for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) {
        sizes[static_cast<std::size_t>(order[i])] = shape[i];
        strides[static_cast<std::size_t>(order[i])] = stride;
    }
    Py_INCREF(capsule);
    return view_of(held.block.begin, descr, sizes, strides.data(), capsule);
}

}  // namespace dovetail
