"""Array libraries, their element types, and conversion from and to numpy."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.ir import dtypes
from dovetail.ir.dtypes import DType

Array: TypeAlias = Any
Namespace: TypeAlias = Any
Ints: TypeAlias = Sequence[int]


def is_numpy(xp: Namespace) -> bool:
    """Return whether ``xp`` is numpy or array_api_compat's wrapper of numpy."""
    return xp is np or getattr(xp, "__name__", "") == "array_api_compat.numpy"


def namespace(array: Array) -> Namespace:
    """Return the array API namespace of an array; for numpy's arrays and scalars the module ``numpy``.

    Raises UnsupportedError [array.library] for an object without such a namespace.
    """
    if isinstance(array, (np.ndarray, np.generic)):
        return np
    import array_api_compat

    try:
        return array_api_compat.array_namespace(array)
    except TypeError:
        raise UnsupportedError(
            "array.library", f"{type(array).__name__} belongs to no array library that dovetail knows"
        ) from None


def standard(xp: Namespace) -> Namespace:
    """Return the array API namespace of a library module.

    torch, cupy and dask.array are wrapped by array_api_compat; numpy and other modules (jax.numpy, array_api_strict) are
    returned unchanged. ``jax`` stands for jax.numpy, ``dask`` for dask.array.

    Raises UnsupportedError [array.library] for a module that lacks functions of the standard.
    """
    name = str(getattr(xp, "__name__", type(xp).__name__))
    if name in ("numpy", "array_api_compat.numpy"):
        return np
    wrapped_name = {"dask": "dask.array"}.get(name, name)
    if wrapped_name in ("torch", "cupy", "dask.array"):
        return importlib.import_module(f"array_api_compat.{wrapped_name}")
    if name == "jax":
        return importlib.import_module("jax.numpy")
    if not all(hasattr(xp, function) for function in ("asarray", "concat", "reshape", "permute_dims", "astype")):
        raise UnsupportedError("array.library", f"{name} is no namespace of the array API standard")
    return xp


def element(array: Array) -> DType:
    """Return the element type of an array of any library; u8 for arrays of u1, u3, u6 and nf4, which are stored as codes."""
    kind = array.dtype
    return dtypes.dtype(kind if isinstance(kind, np.dtype) else str(kind).rsplit(".", 1)[-1])


def dtype_in(xp: Namespace, dtype: DType) -> Any:
    """Return the dtype object of ``xp`` for an element type.

    Raises UnsupportedError [array.dtype] for a type that the library lacks, and for a 64-bit type in JAX without x64, which
    would silently use a narrower type.
    """
    if is_numpy(xp) or (is_rounding(xp) and dtype.kind != "string"):
        return dtype.numpy
    if not dtype.standard or not hasattr(xp, dtype.numpy.name):
        raise UnsupportedError("array.dtype", f"{library_name(xp)} cannot hold {dtype} exactly; numpy can")
    if is_narrow(xp) and dtype in ("f64", "i64", "u64", "complex128"):
        raise UnsupportedError("array.dtype", f"{library_name(xp)} without x64 would narrow {dtype}; enable jax_enable_x64")
    return getattr(xp, dtype.numpy.name)


def to_numpy(array: Array) -> Array:
    """Convert an array of any library, or an object with ``__array__`` or ``__dlpack__``, to numpy; strings become objects."""
    if hasattr(array, "detach"):
        return _torch_to_numpy(array.detach().cpu())
    if hasattr(array, "__cuda_array_interface__") and hasattr(array, "get"):
        # CuPy copies from the device only in get(); JAX copies in np.asarray.
        array = array.get()
    if not hasattr(array, "__array__") and hasattr(array, "__dlpack__"):
        array = np.from_dlpack(array)
    result = np.asarray(array)
    return result.astype(object) if result.dtype.kind in "UT" else result


def from_numpy(xp: Namespace, array: Array, like: Array = None) -> Array:
    """Convert a numpy array to ``xp``, on the device of ``like``. Raises the errors of :func:`dtype_in`."""
    if is_numpy(xp):
        return array
    dtype_in(xp, element(array))
    return to_namespace(xp, array, like)


def is_rounding(xp: Namespace) -> bool:
    """Return whether ``xp`` computes bounds of rounding errors (:mod:`dovetail.compare.rounding`)."""
    return library_name(xp) == "rounding"


def is_dask(xp: Namespace) -> bool:
    return library_name(xp) == "dask"


def is_chunked(item: object) -> bool:
    """Return whether an object is a chunked stored array that is read by slices (zarr, h5py); dask arrays do not count."""
    return all(hasattr(item, name) for name in ("chunks", "shape", "dtype", "__getitem__")) and not hasattr(item, "dask")


def to_dask(item: Array) -> Array:
    """Return a dask array over a stored array, with the chunks of the stored array; no data is read."""
    return importlib.import_module("dask.array").from_array(item, chunks=item.chunks or "auto")


def library_name(xp: Namespace) -> str:
    return str(getattr(xp, "__name__", xp)).removeprefix("array_api_compat.").split(".")[0]


def is_narrow(xp: Namespace) -> bool:
    return library_name(xp) == "jax" and not sys.modules["jax"].config.jax_enable_x64


def _torch_to_numpy(array: Array) -> Array:
    kind = element(array)
    if kind.standard or kind == "f16":
        return array.numpy()
    integer = getattr(sys.modules["torch"], f"uint{kind.bits}")
    return array.view(integer).numpy().view(kind.numpy)


def to_namespace(xp: Namespace, array: Array, like: Array = None) -> Array:
    """Convert a numpy array to ``xp`` without checking its type.

    Index arrays need no check: JAX without x64 converts them to int32, which represents every index.
    """
    if is_numpy(xp):
        return array
    # torch shares the memory of a numpy array, warns where the array is read-only, and supports no negative strides.
    array = np.ascontiguousarray(array).reshape(array.shape) if array.flags.writeable else array.copy()
    device = getattr(like, "device", None)
    return xp.asarray(array) if device is None else xp.asarray(array, device=device)


def index_type(xp: Namespace) -> Any:
    return xp.int32 if is_narrow(xp) else xp.int64


def convert_dtype(xp: Namespace, x: Array, kind: Any) -> Array:
    """Convert ``x`` to the library's type ``kind``; numpy scalars, which ``numpy.astype`` refuses, become arrays."""
    return np.asarray(x).astype(kind, copy=False) if is_numpy(xp) else xp.astype(x, kind, copy=False)


def full(xp: Namespace, shape: Ints, value: complex | Array, like: Array) -> Array:
    """Return an array of the type and device of ``like`` filled with ``value``, a number or a scalar array."""
    if not hasattr(value, "dtype"):
        value = to_namespace(xp, np.asarray(value, dtype=element(like).numpy), like)
    return xp.broadcast_to(convert_dtype(xp, value, like.dtype), tuple(shape))


def widen(xp: Namespace, x: Array) -> Array:
    """Convert ``x`` to its accumulator type: f32 for floats of fewer than 32 bits, otherwise the type of ``x``."""
    kind = element(x)
    return convert_dtype(xp, x, xp.float32) if kind.is_float and kind.bits < 32 else x
