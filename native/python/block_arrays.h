// Numpy arrays in blocks of an OutputPool, and growing arrays.
//
// A growing array consists of the first rows of a block; a longer growing array may share these rows. The block records the bytes
// of its longest array, so that only this array is extended in place.
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

// Returns a new array with uninitialized elements; null with an error set if memory is exhausted.
PyObject* new_array(const std::shared_ptr<OutputPool>& pool, PyArray_Descr* descr, const Shape& shape);

// Returns a new growing array in a block of at least `capacity` bytes; null with an error set if memory is exhausted.
PyObject* new_growing_array(const std::shared_ptr<OutputPool>& pool, PyArray_Descr* descr, const Shape& shape,
                            std::size_t capacity);

// If `array` is a growing array or a part of one, and is dense with its axes in `order`, returns a view with the axes in that
// order. Returns null, without an error, for any other array.
PyObject* rows_of(PyArrayObject* array, const std::vector<int>& order);

// True if `rows`, a result of rows_of(), is the longest array in its block, and the block has room for an array of `bytes`.
bool can_grow(PyArrayObject* rows, npy_intp bytes);

// Extends `rows`, for which can_grow() holds, and returns the array with the axes in their order before rows_of(): element i of
// `shape` is the size of axis order[i]. Returns null if another thread has extended `rows` first, and null with an error set if
// memory is exhausted.
PyObject* grown(PyArrayObject* rows, const Shape& shape, const std::vector<int>& order);

}  // namespace dovetail
