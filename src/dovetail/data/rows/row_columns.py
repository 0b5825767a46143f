"""Conversion of columns to arrays for a model's inputs without loss, with a fault for each row that does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.data.rows.row_signature import RowPort
from dovetail.data.rows.rows import RowFault
from dovetail.errors import EngineError
from dovetail.ir.dtypes import DType

if TYPE_CHECKING:
    from dovetail.data.rows.dataset import RowType

MISSING_NAMES = frozenset({"NAType", "NaTType"})
"""The classes of pandas' missing values."""


class UnfitRow(Exception):
    """UnfitRow is raised if a row cannot be converted; it has the code and the message of the row's fault."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


RowFaults = dict[int, UnfitRow]
Rows = np.ndarray[Any, Any] | list[Any]
"""An array of rows; or a list of arrays of different shapes, with None for rows at fault."""


def fit_columns(
    columns: Mapping[str, Any], ports: Sequence[RowPort], names: Mapping[str, str], count: int, cast: bool
) -> tuple[dict[str, Rows], list[RowFault]]:
    """Convert columns to the rows of each input; return these and a fault for each row that does not fit.

    ``names`` maps inputs to columns.

    Raises EngineError [batch.column], [batch.table].
    """
    rows: dict[str, Rows] = {}
    faults: RowFaults = {}
    for port in ports:
        column = names[port.name]
        if column not in columns:
            known = ", ".join(map(repr, columns)) or "no columns"
            raise EngineError("batch.column", f"input {port.name!r} needs the column {column!r}, got {known}")
        rows[port.name], unfit = fit_column(columns[column], port, column, count, cast)
        faults = {**unfit, **faults}
    if any(port.sizes is None for port in ports) and len(ports) > 1:
        faults = {**_open_size_faults(rows, ports, count, faults), **faults}
    return rows, [RowFault(row, fault.code, fault.message) for row, fault in sorted(faults.items())]


def fit_column(data: object, port: RowPort, name: str, count: int, cast: bool) -> tuple[Rows, RowFaults]:
    """Convert a column to the rows of the input ``port``; return the rows, and the faults by row number."""
    column = _as_column(data, name, count)
    if count == 0:
        return port.empty(0), {}
    faults: RowFaults = {}
    if isinstance(column, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(column).reshape(count, -1).any(1)
        faults = {int(row): _missing(name) for row in np.flatnonzero(mask)}
        column = np.ma.getdata(column)
    if isinstance(column, list) or (column.dtype.hasobject and (port.dtype != "string" or column.ndim == 1)):
        return _fit_objects(column, port, name, cast, faults)
    return _fit_array(column, port, name, cast, faults)


def _as_column(data: object, name: str, count: int) -> Any:
    if not isinstance(data, np.ndarray | list):
        data = list(data) if isinstance(data, tuple) else np.asarray(data)
    length = len(data) if isinstance(data, list) or data.ndim else None
    if length != count:
        actual = "a scalar" if length is None else f"{length}"
        raise EngineError("batch.table", f"column {name!r} must have {count} rows, got {actual}")
    return data


def _fit_array(array: np.ndarray[Any, Any], port: RowPort, name: str, cast: bool, faults: RowFaults) -> tuple[Rows, RowFaults]:
    """Convert an array with a leading axis of rows to the input ``port``, all rows at once."""
    count = len(array)
    shape = _fit_shape(array.shape[1:], port)
    if shape is None:
        return _all_unfit(port, count, _wrong_shape(array.shape[1:], port, name))
    array = array.reshape(count, *shape)
    converted, exact = _convert(array, port.dtype, cast)
    if converted is None:
        return _all_unfit(port, count, _wrong_type(array.dtype, port, name))
    if exact is not True:
        inexact = np.flatnonzero(~exact.reshape(count, -1).all(1))
        faults = {**{int(row): _not_exact(array.dtype, port, name) for row in inexact}, **faults}
    return converted, faults


def _fit_objects(items: Any, port: RowPort, name: str, cast: bool, faults: RowFaults) -> tuple[Rows, RowFaults]:
    """Convert a list or an array of Python objects to the input ``port``.

    Rows are converted one by one, or at once if all rows are arrays of equal type and shape.
    """
    first = items[0]
    if not faults and type(first) is np.ndarray and not first.dtype.hasobject:
        kind = first.dtype, first.shape
        if all(type(item) is np.ndarray and (item.dtype, item.shape) == kind for item in items):
            return _fit_array(np.stack(items), port, name, cast, faults)
    rows: list[Any] = []
    for number, item in enumerate(items):
        row = None
        if number not in faults:
            try:
                row = fit_row(item, port, name, cast)
            except UnfitRow as fault:
                faults[number] = fault
        rows.append(row)
    shapes = {row.shape for row in rows if row is not None}
    if len(shapes) > 1:
        return rows, faults
    shape = next(iter(shapes), port.empty(1).shape[1:])
    array = np.empty((len(rows), *shape), port.dtype.numpy)
    for number, row in enumerate(rows):
        array[number] = _filler(port) if row is None else row[()]
    return array, faults


def refuse_type(kind: RowType, port: RowPort, name: str) -> None:
    """Raise EngineError [batch.dtype], [batch.shape] if no row of the type ``kind`` can fit the input ``port``."""
    if (kind.element == "string") != (port.dtype == "string"):
        raise EngineError("batch.dtype", f"column {name!r} must be {port.dtype}, got {kind.element}")
    is_scalar = kind.axes == 0 and port.shape is not None and all(size == 1 for size in port.shape)
    if kind.shape is not None:
        if _fit_shape(kind.shape, port) is None:
            raise EngineError("batch.shape", _wrong_shape(kind.shape, port, name).message)
    elif port.shape is not None and len(port.shape) != kind.axes and not is_scalar:
        raise EngineError("batch.shape", f"column {name!r} must have rows of {port}, got rows of rank {kind.axes}")


def fit_row(item: object, port: RowPort, name: str, cast: bool) -> np.ndarray[Any, Any]:
    """Convert one row to the shape and type of ``port``. Raises UnfitRow."""
    if isinstance(item, UnfitRow):
        raise item
    if item is None or type(item).__name__ in MISSING_NAMES:
        raise _missing(name)
    try:
        # numpy's fixed-width string types drop NUL characters at the end of strings.
        is_text = port.dtype == "string" and not hasattr(item, "dtype")
        row = np.array(item, object) if is_text else np.asanyarray(item)
    except Exception as error:
        # The conversion method of the object may raise any exception.
        raise UnfitRow("batch.value", f"column {name!r} must hold arrays, got {type(item).__name__}: {error}") from None
    if isinstance(row, np.ma.MaskedArray):
        if np.ma.is_masked(row):
            raise _missing(name)
        row = np.ma.getdata(row)
    if row.dtype.hasobject:
        row = _nested_row(row, port, name)
    shape = _fit_shape(row.shape, port)
    if shape is None:
        raise _wrong_shape(row.shape, port, name)
    is_python = isinstance(item, int | float | bool | list | tuple)
    converted, exact = _convert(
        row.reshape(shape), port.dtype, cast or (is_python and row.dtype == float and port.dtype.is_float)
    )
    if converted is None:
        raise _wrong_type(row.dtype, port, name)
    if exact is not True and not exact.all():
        raise _not_exact(row.dtype, port, name)
    return converted


def _nested_row(row: np.ndarray[Any, Any], port: RowPort, name: str) -> np.ndarray[Any, Any]:
    """Convert an array of objects to strings or numbers; nested arrays, which occur in tables, become axes."""
    if any(item is None or type(item).__name__ in MISSING_NAMES for item in row.flat):
        raise _missing(name)
    if all(isinstance(item, str | bytes) for item in row.flat):
        return row
    try:
        # numpy raises ValueError for nested lists of different lengths.
        nested = np.array(_lists_of(row))
    except ValueError:
        raise UnfitRow(
            "batch.shape", f"column {name!r} must have rows of {port}, got nested lists of different lengths"
        ) from None
    if nested.dtype.hasobject and not all(isinstance(item, str | bytes) for item in nested.flat):
        if any(item is None or type(item).__name__ in MISSING_NAMES for item in nested.flat):
            raise _missing(name)
        raise UnfitRow("batch.value", f"column {name!r} must hold {port}, got {type(nested.flat[0]).__name__}")
    return nested


def _lists_of(item: object) -> Any:
    if isinstance(item, np.ndarray) and item.dtype.hasobject:
        if item.ndim == 0:
            return item[()]
        return [_lists_of(element) for element in item]
    return item


def _fit_shape(actual: tuple[int, ...], port: RowPort) -> tuple[int, ...] | None:
    """Return the shape to use for a row: ``actual``, or axes of size 1 for a scalar; None if the row does not fit."""
    declared = port.shape
    if declared is None:
        return actual
    if not actual and all(size == 1 for size in declared):
        return (1,) * len(declared)
    if len(actual) != len(declared):
        return None
    sizes: dict[str, int] = {}
    fits = all(
        size == (expected if isinstance(expected, int) else sizes.setdefault(expected, size))
        for size, expected in zip(actual, declared, strict=True)
    )
    return actual if fits else None


def _convert(array: np.ndarray[Any, Any], dtype: DType, cast: bool) -> tuple[np.ndarray[Any, Any] | None, Any]:
    """Convert an array to ``dtype``. Return the result, and True or a boolean array that marks the exact elements.

    The result is None if the types are of different kinds, which are never converted.
    """
    target = dtype.numpy
    if array.dtype == target and not array.dtype.hasobject:
        return array, True
    if dtype == "string" or array.dtype.kind in "OUSTmM":
        is_text = array.dtype.kind in "UST" or (array.dtype.hasobject and all(isinstance(x, str | bytes) for x in array.flat))
        return (array.astype(object), True) if dtype == "string" and is_text else (None, True)
    if array.dtype == target.newbyteorder("S"):
        return array.astype(target), True
    if not cast and (array.dtype.kind == "b") != (dtype.kind == "bool"):
        return None, True
    if array.dtype.kind == "c" and dtype.kind != "complex":
        return None, True
    try:
        is_safe = np.can_cast(array.dtype, target, "safe")
        with np.errstate(all="ignore"):
            converted = array.astype(target)
            if cast or is_safe:
                return converted, True
            return converted, _are_same(array, converted)
    except TypeError:
        return None, True


def _are_same(array: np.ndarray[Any, Any], converted: np.ndarray[Any, Any]) -> Any:
    """Return a boolean array that marks the elements with the same value after a conversion; NaN equals NaN."""
    same = converted.astype(array.dtype) == array
    if array.dtype.kind in "iu":
        same &= (array < 0) == (converted < 0)
    if array.dtype.kind in "iu" and converted.dtype.kind not in "iu":
        # A float beyond the range of the integer type wraps or saturates, depending on the processor.
        same &= converted.astype(np.float64) < 2.0 ** (8 * array.itemsize - (array.dtype.kind == "i"))
    if array.dtype.kind == "f" and converted.dtype.kind not in "iu":
        same |= np.isnan(array) & np.isnan(converted)
    return same


def _filler(port: RowPort) -> Any:
    return "" if port.dtype == "string" else np.zeros((), port.dtype.numpy)


def _all_unfit(port: RowPort, count: int, fault: UnfitRow) -> tuple[Rows, RowFaults]:
    array = np.empty((count, *port.empty(0).shape[1:]), port.dtype.numpy)
    array[...] = _filler(port)
    return array, dict.fromkeys(range(count), fault)


def _missing(name: str) -> UnfitRow:
    return UnfitRow("batch.missing", f"column {name!r} has no value")


def _wrong_shape(shape: Sequence[int], port: RowPort, name: str) -> UnfitRow:
    return UnfitRow("batch.shape", f"column {name!r} must have rows of {port}, got the shape {list(shape)}")


def _wrong_type(dtype: np.dtype[Any], port: RowPort, name: str) -> UnfitRow:
    return UnfitRow("batch.dtype", f"column {name!r} must be {port.dtype}, got {dtype}")


def _not_exact(dtype: np.dtype[Any], port: RowPort, name: str) -> UnfitRow:
    message = f"column {name!r} has a value in {dtype} that {port.dtype} does not represent; cast=True rounds it"
    return UnfitRow("batch.dtype", message)


def _open_size_faults(rows: Mapping[str, Rows], ports: Sequence[RowPort], count: int, faults: RowFaults) -> RowFaults:
    """Return a fault for each row in which two inputs have different sizes for the same symbol, by row number."""
    if all(isinstance(rows[port.name], np.ndarray) for port in ports):
        fault = _open_sizes_differ([(port, rows[port.name].shape[1:]) for port in ports])  # type: ignore[union-attr]
        return dict.fromkeys(range(count), fault) if fault else {}
    found = {}
    for number in range(count):
        if number not in faults:
            fault = _open_sizes_differ([(port, rows[port.name][number].shape) for port in ports])
            if fault is not None:
                found[number] = fault
    return found


def _open_sizes_differ(shapes: Sequence[tuple[RowPort, Sequence[int]]]) -> UnfitRow | None:
    sizes: dict[str, tuple[int, str]] = {}
    for port, shape in shapes:
        for declared, size in zip(port.shape or (), shape, strict=False):
            if isinstance(declared, str):
                known, first = sizes.setdefault(declared, (size, port.name))
                if known != size:
                    message = f"{declared} must be the same in all inputs, got {known} in {first!r} and {size} in {port.name!r}"
                    return UnfitRow("batch.shape", message)
    return None
