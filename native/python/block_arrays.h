// Numpy arrays in blocks of an OutputPool, and those that grow in their block.
//
// An array that grows is the first rows of a block; a longer one may begin with it. The block counts the bytes that arrays use,
// so that only the longest of them is extended in place.
#pragma once

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#ifndef DOVETAIL_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#define PY_ARRAY_UNIQUE_SYMBOL DOVETAIL_NUMPY
#include <Python.h>
#include <numpy/arrayobject.h>

#include <memory>
#include <vector>

#include "memory.h"

namespace dovetail {

using Shape = std::vector<npy_intp>;

inline PyArrayObject* as_array(PyObject* object) { return reinterpret_cast<PyArrayObject*>(object); }

// A new array whose elements are not initialized; null with an error set if memory is lacking.
PyObject* new_array(const std::shared_ptr<OutputPool>& pool, PyArray_Descr* descr, const Shape& shape);

// A new array that grows, in a block of at least `capacity` bytes; null with an error set if memory is lacking.
PyObject* new_growing_array(const std::shared_ptr<OutputPool>& pool, PyArray_Descr* descr, const Shape& shape,
                            std::size_t capacity);

// A view of an array that grows with its axes in `order`, in which it is dense, or a part of one; null, without an error, for any
// other array.
PyObject* rows_of(PyArrayObject* array, const std::vector<int>& order);

// True if `rows`, of rows_of(), are the longest array in their block, and it has room for one of `bytes`.
bool can_grow(PyArrayObject* rows, npy_intp bytes);

// An array that begins with `rows`, which can grow, and has its axes in the order before rows_of(): element i of `shape` is the
// size of axis order[i]. Null where another thread was first, and with an error set if memory is lacking.
PyObject* grown(PyArrayObject* rows, const Shape& shape, const std::vector<int>& order);

}  // namespace dovetail
