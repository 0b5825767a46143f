"""Conversion and checks of the inputs and outputs of a run."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence as Several
from typing import Any

import numpy as np

from dovetail.errors import EngineError, UnsupportedError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Graph, Model, Value
from dovetail.ir.op import bodies
from dovetail.ir.suggestions import closest
from dovetail.ir.types import Map, Optional, Sequence, Size, Tensor, Type, dtype_in


def named_inputs(model: Model, inputs: Mapping[str, Array] | Several[Array]) -> dict[str, Any]:
    """Return inputs by name. Raises EngineError [input.missing], [input.unknown], [input.count]."""
    names = [value.name for value in model.inputs]
    if isinstance(inputs, Mapping):
        aliases = {alias: value.name for value in model.inputs for alias in value.names}
        by_name = {aliases.get(name, name): array for name, array in inputs.items()}
        known = set(names)
        unknown = [name for name in by_name if name not in known]
        if unknown:
            raise unknown_input(unknown, names)
    else:
        if len(inputs) != len(names):
            raise EngineError(
                "input.count", f"the model takes {len(names)} inputs ({', '.join(map(repr, names))}), got {len(inputs)}"
            )
        by_name = dict(zip(names, inputs, strict=True))
    missing = [name for name in names if name not in by_name]
    if missing:
        raise EngineError("input.missing", f"no value for the input {', '.join(map(repr, missing))}")
    return by_name


def unknown_input(unknown: Several[str], names: Several[str], optional: Several[str] = ()) -> EngineError:
    """Return the error [input.unknown] of inputs that a model lacks; ``optional`` are names of inputs with default values."""
    more = f", and the optional inputs {', '.join(map(repr, optional))}" if optional else ""
    message = f"the model has no input {', '.join(map(repr, unknown))}; it has {', '.join(map(repr, names))}{more}"
    return EngineError("input.unknown", message + closest(unknown[0], [*names, *optional]))


def to_array(item: Array, value: Value) -> Any:
    """Convert an argument to numpy in the type of the input ``value``.

    An array must already have that element type; Python integers must be exactly representable in it.

    Raises EngineError [input.dtype], [input.type].
    """
    return fit_input(item, value.type, value.name, to_numpy_input)


def fit_input(data: Array, type: Type, name: str, fit: Callable[[Any, Tensor, str], Any]) -> Any:
    """Convert an input of any type. A sequence is passed as a list, a map as a dict, an absent optional as None.

    ``fit(array, type, name)`` converts an array to a tensor type.

    Raises EngineError [input.type].
    """
    if isinstance(type, Tensor):
        return fit(data, type, name)
    if isinstance(type, Optional):
        return None if data is None else fit_input(data, type.element, name, fit)
    if isinstance(type, Map):
        return _to_map(data, type, name)
    if not isinstance(data, list | tuple):
        raise EngineError("input.type", f"input {name!r} must be a {type}, got {_kind(data)}")
    return [fit_input(item, type.element, name, fit) for item in data]


def _to_map(data: Array, type: Map, name: str) -> dict[Any, Any]:
    if not isinstance(data, Mapping):
        raise EngineError("input.type", f"input {name!r} must be a {type}, got {_kind(data)}")
    wanted = str if type.key == "string" else int | np.integer
    wrong = [key for key in data if not isinstance(key, wanted) or isinstance(key, bool)]
    if wrong:
        raise EngineError("input.type", f"input {name!r} must be a {type}, got the key {wrong[0]!r}")
    if not isinstance(type.element, Tensor):
        return {key: fit_input(item, type.element, name, to_numpy_input) for key, item in data.items()}
    return {key: _to_number(item, type, name) for key, item in data.items()}


def _to_number(item: Array, type: Map, name: str) -> Any:
    array = fit_input(item, type.element, name, to_numpy_input)
    if array.size != 1:
        raise EngineError("input.type", f"input {name!r} must be a {type}, got an array of shape {list(array.shape)} as a value")
    return array.reshape(()).item()


def _kind(item: Array) -> str:
    return "nothing" if item is None else builtins.type(item).__name__


def to_numpy_input(item: Array, type: Tensor, name: str) -> Any:
    array = _as_numpy(item, name)
    if type.dtype is None or array.dtype == type.dtype.numpy:
        return array
    if array.dtype == type.dtype.numpy.newbyteorder("S"):
        return array.astype(type.dtype.numpy)
    if type.dtype == "string" and array.dtype.kind in "USOT":
        return array.astype(object)
    if isinstance(item, int | float | bool | list | tuple) and (exact := _exact(array, type.dtype)) is not None:
        return exact
    actual = "string" if array.dtype.kind in "OUST" else _type_name(array)
    raise EngineError("input.dtype", f"input {name!r} must be {type.dtype}, got {actual}")


def _as_numpy(data: Array, name: str) -> np.ndarray[Any, Any]:
    try:
        array = arrays.to_numpy(data)
    except UnsupportedError as error:
        raise EngineError("input.type", f"input {name!r}: {error.message}") from None
    except Exception as error:
        # The conversion method of the object may raise any exception.
        raise EngineError("input.type", f"input {name!r} must be convertible to an array, got {_kind(data)}: {error}") from error
    if array.dtype.kind == "O" and not all(isinstance(item, str | bytes) for item in array.flat):
        raise EngineError("input.type", f"input {name!r} must hold numbers or strings, got {_kind(data)}")
    return array  # type: ignore[no-any-return]


def _exact(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any] | None:
    """Convert Python numbers to an element type: integers exactly, floats rounded to a float type; None if impossible."""
    if array.dtype.kind not in "biuf" or (array.dtype.kind == "b") != (dtype.kind == "bool"):
        return None
    if array.dtype.kind == "f" and (dtype.is_float or dtype.kind == "complex"):
        return array.astype(dtype.numpy)
    if array.size and dtype.is_integer:
        low, high = dtype.range()
        if not low <= array.min().item() <= array.max().item() <= high:
            return None
    with np.errstate(all="ignore"):
        converted = array.astype(dtype.numpy)
    return converted if np.array_equal(converted.astype(array.dtype), array) else None


def _type_name(array: np.ndarray[Any, Any]) -> str:
    try:
        return str(dtypes.dtype(array.dtype))
    except UnsupportedError:
        return str(array.dtype)


def to_library(item: Array, value: Value, xp: Namespace) -> Any:
    """Convert an argument to an array of ``xp``; arrays of ``xp`` stay unchanged, other data is converted through numpy.

    Raises the errors of :func:`to_array`, and UnsupportedError [array.dtype].
    """

    def fit(item: Array, type: Tensor, name: str) -> Any:
        if arrays.is_chunked(item) and arrays.is_dask(xp):
            item = arrays.to_dask(item)
        if not _belongs(item, xp):
            return arrays.from_numpy(xp, to_numpy_input(item, type, name))
        actual = arrays.element(item)
        if type.dtype is not None and actual is not type.dtype:
            raise EngineError("input.dtype", f"input {name!r} must be {type.dtype}, got {actual}")
        return item

    return fit_input(item, value.type, value.name, fit)


def _belongs(item: Array, xp: Namespace) -> bool:
    if isinstance(item, np.ndarray) or not hasattr(item, "dtype"):
        return False
    try:
        return arrays.namespace(item) is xp
    except UnsupportedError:
        return False


def zeros_of(value: Value, shape: Several[int]) -> Any:
    """Return an array of ``shape`` with the element type of the input ``value``, filled with zeros or empty strings."""
    assert isinstance(value.type, Tensor) and value.type.dtype is not None
    dtype = value.type.dtype
    return np.full(shape, "", object) if dtype.name == "string" else np.zeros(shape, dtype.numpy)


def sizes_of_arrays(inputs: Iterable[Value], arrays: Mapping[str, Any]) -> dict[str, int]:
    """Return the values of symbols that are dimensions of inputs, read from the shapes of ``arrays`` without a check."""
    sizes: dict[str, int] = {}
    for value in inputs:
        array = arrays.get(value.name)
        if array is not None and isinstance(value.type, Tensor) and len(value.type.shape or ()) == np.ndim(array):
            names = map(symbolic.name_of, value.type.shape or ())
            sizes.update((name, size) for name, size in zip(names, np.shape(array), strict=True) if name is not None)
    return sizes


def check_inputs(model: Model, bound: Several[Array]) -> dict[str, int]:
    """Check the arrays' shapes against the model's input types. Returns the value of each symbol.

    Raises EngineError [input.shape] with the input's name.
    """
    return bind_sizes(model.inputs, bound)


def bind_sizes(inputs: Several[Value], bound: Several[Array]) -> dict[str, int]:
    """Check arrays for some inputs of a model by the rules of :func:`check_inputs`. Returns the value of each symbol."""
    sizes: dict[str, int] = {}
    for value, item in zip(inputs, bound, strict=True):
        for type, array in _with_types(value.type, item):
            _check_shape(value.name, type, tuple(array.shape), sizes)
        if isinstance(value.type, Sequence) and value.type.length is not None and not _binds(value.type.length, len(item), sizes):
            raise EngineError("input.type", f"input {value.name!r} must be {value.type}, got {len(item)} elements")
    return sizes


def _with_types(type: Type, item: Array) -> Iterator[tuple[Tensor, Any]]:
    """Yield every array of an argument with its tensor type, including the arrays in lists."""
    if isinstance(type, Sequence):
        for element in item:
            yield from _with_types(type.element, element)
    elif isinstance(type, Optional):
        if item is not None:
            yield from _with_types(type.element, item)
    elif isinstance(type, Map):
        # The values of a map are Python numbers and strings, not arrays.
        return
    else:
        yield type, item


def _check_shape(name: str, type: Tensor, shape: tuple[Any, ...], sizes: dict[str, int]) -> None:
    if type.shape is None:
        return
    if len(shape) != len(type.shape):
        raise EngineError("input.shape", f"input {name!r} must be {type}, got the shape {list(shape)}")
    for declared, size in zip(type.shape, shape, strict=True):
        if declared is not None and isinstance(size, int) and not _binds(declared, size, sizes):
            bound = None if isinstance(declared, int) else sizes.get(str(declared))
            where = "" if bound is None else f" where {declared} is {bound}"
            raise EngineError("input.shape", f"input {name!r} must be {type}{where}, got the shape {list(shape)}")


def _binds(declared: Size, size: int, sizes: dict[str, int]) -> bool:
    if isinstance(declared, int):
        return declared == size
    name = symbolic.name_of(declared)
    if name is not None and sizes.get(name) == size:
        return True
    low, high = symbolic.bounds(declared)
    if (low is not None and size < low) or (high is not None and size > high):
        return False
    if name is None:
        known = {str(symbol): sizes[str(symbol)] for symbol in symbolic.symbols(declared) if str(symbol) in sizes}
        expected = symbolic.substitute(declared, known)
        return not isinstance(expected, int) or expected == size
    return sizes.setdefault(name, size) == size


def _arrays(inputs: Iterable[Array]) -> Iterator[Any]:
    """Yield every array among the inputs, including the arrays in lists."""
    for item in inputs:
        yield from _arrays(item) if isinstance(item, list) else (item,)


def copy_shared_outputs(outputs: Mapping[str, Array], inputs: Iterable[Array]) -> dict[str, Any]:
    """Copy the outputs that share memory with an input, a constant or another output."""
    taken = {id(array) for array in _arrays(inputs)}
    return {name: _own(array, taken) for name, array in outputs.items()}


def _own(item: Array, taken: set[int]) -> Any:
    if isinstance(item, list):
        return [_own(element, taken) for element in item]
    if isinstance(item, dict):
        return dict(item)
    if not isinstance(item, np.ndarray):
        return item
    # A writable array that owns its memory is neither a view nor a constant.
    if not item.flags.owndata or not item.flags.writeable or id(item) in taken:
        item = np.array(item, order="C")
    taken.add(id(item))
    return item


def flatten_outputs(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten sequences and maps: elements of sequences are named ``name/index``, values of maps ``name/key``."""
    found: dict[str, Any] = {}
    for name, item in arrays.items():
        if isinstance(item, list):
            found.update(flatten_outputs({f"{name}/{place}": each for place, each in enumerate(item)}))
        elif isinstance(item, dict):
            found.update(flatten_outputs({f"{name}/{key}": np.asarray(each) for key, each in item.items()}))
        elif item is not None:
            found[name] = item
    return found


def copy_into(array: Array, result: Array, name: str) -> Any:
    """Copy ``result``, the output ``name``, into ``array`` and return ``array``.

    Raises EngineError [output.array] if type or shape differ or ``array`` is read-only.
    """
    if not isinstance(result, np.ndarray):
        kind = "nothing" if result is None else "a map" if isinstance(result, dict) else "a list"
        raise EngineError("output.array", f"out[{name!r}] must be None, because the output is {kind} instead of a tensor")
    suits = isinstance(array, np.ndarray) and array.dtype == result.dtype and array.shape == result.shape
    if not suits or not array.flags.writeable:
        raise EngineError("output.array", f"out[{name!r}] must be a writable {result.dtype} array of shape {list(result.shape)}")
    array[...] = result
    return array


def refuse_unusual(graph: Graph, xp: Namespace) -> None:
    """Raise UnsupportedError [array.dtype] if the graph has an element type that only numpy with ml_dtypes supports."""
    dtypes_used = (dtype_in(value.type) for value in graph.values())
    names = sorted({str(dtype) for dtype in dtypes_used if dtype is not None and not dtype.standard})
    if names:
        raise UnsupportedError("array.dtype", f"{', '.join(names)} can be interpreted in numpy only")
    for node in graph.nodes:
        for _, body in bodies(node.op):
            refuse_unusual(body, xp)
