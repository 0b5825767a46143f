"""Conversion of Arrow columns to arrays: nulls and lists of unequal lengths are faults of their rows.

The supported types are numbers, booleans and strings; lists of these, also nested and of fixed size; the extension type
arrow.fixed_shape_tensor; and dictionaries of these types. A column of another type can be kept, but not be a model's input.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from dovetail.data.rows.rows import RowValues, join_rows, plain_rows
from dovetail.errors import EngineError, FormatError
from dovetail.ir.host.extras import import_extra

MAX_DECODED_BYTES = 1 << 30
"""The maximum bytes of the decoded strings of a dictionary column, for one batch of rows."""
_NARROW = {
    np.dtype(ml_dtypes.bfloat16): np.float32,
    np.dtype(ml_dtypes.float8_e4m3fn): np.float32,
    np.dtype(ml_dtypes.float8_e4m3fnuz): np.float32,
    np.dtype(ml_dtypes.float8_e5m2): np.float32,
    np.dtype(ml_dtypes.float8_e5m2fnuz): np.float32,
    np.dtype(ml_dtypes.float8_e8m0fnu): np.float32,
    np.dtype(ml_dtypes.float4_e2m1fn): np.float32,
    np.dtype(ml_dtypes.float6_e2m3fn): np.float32,
    np.dtype(ml_dtypes.float6_e3m2fn): np.float32,
    np.dtype(ml_dtypes.int4): np.int8,
    np.dtype(ml_dtypes.int2): np.int8,
    np.dtype(ml_dtypes.uint4): np.uint8,
    np.dtype(ml_dtypes.uint2): np.uint8,
}
"""Map from each type that file formats lack to the narrowest standard type that represents all of its values."""

MAX_OFFSET = 2**31 - 1
"""The largest offset of Arrow's type list; larger offsets need the type large_list."""


def pyarrow(purpose: str = "reading parquet") -> Any:
    """Import pyarrow. Raises UnsupportedError [extra.missing]."""
    return import_extra("pyarrow", "parquet", purpose)


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """DecodedRows holds the rows of an Arrow array that were decoded, their positions, and the faults of the other rows.

    ``faults`` maps the position of a row to the error's code and message.
    """

    values: RowValues
    index: NDArray[np.int64]
    faults: dict[int, tuple[str, str]]


def widen(values: NDArray[Any]) -> NDArray[Any]:
    """Convert elements of a type that file formats lack, such as bf16, to the narrowest standard type without loss."""
    wide = _NARROW.get(values.dtype)
    return values if wide is None else values.astype(wide)


def plain_type(kind: Any) -> Any:
    """Return an Arrow type with dictionaries, views and extensions other than fixed_shape_tensor replaced by plain types."""
    pa = pyarrow()
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if is_tensor(kind):
        return kind
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if types.is_fixed_size_list(kind):
        return pa.list_(plain_type(kind.value_type), kind.list_size)
    if _is_list(kind):
        build = pa.large_list if str(kind).startswith("large") else pa.list_
        return build(plain_type(kind.value_type))
    if str(kind) == "string_view":
        return pa.large_string()
    return kind


def is_tensor(kind: Any) -> bool:
    return getattr(kind, "extension_name", None) == "arrow.fixed_shape_tensor"


def _is_list(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or _is_view(kind))


def _is_view(kind: Any) -> bool:
    """Return whether a type is, or contains, list_view or large_list_view."""
    fields = [kind.field(index).type for index in range(kind.num_fields)] if pyarrow().types.is_nested(kind) else []
    return "list_view" in str(kind).partition("<")[0] or any(map(_is_view, fields))


def element_of(kind: Any) -> tuple[str, int] | None:
    """Return the numpy element type and the number of axes of one row of an Arrow type; None if a row is no array.

    The element type of the type ``null`` is the empty string.
    """
    types = pyarrow().types
    kind = plain_type(kind)
    if is_tensor(kind):
        element = element_of(kind.value_type)
        return element and (element[0], len(kind.shape))
    if _is_list(kind):
        element = element_of(kind.value_type)
        return element and (element[0], element[1] + 1)
    if types.is_null(kind):
        return "", 0
    if types.is_string(kind) or types.is_large_string(kind):
        return "string", 0
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return str(np.dtype(kind.to_pandas_dtype())), 0
    return None


def decode_rows(array: Any) -> DecodedRows:
    """Convert an Arrow array, chunked or not, to an array with a leading axis of rows, or to a list if the shapes differ."""
    chunks = array.chunks if hasattr(array, "chunks") else [array]
    if not chunks:
        chunks = [pyarrow().array([], type=array.type)]
    parts = []
    start = 0
    for chunk in chunks:
        part = _decode_chunk(chunk)
        faults = {start + position: fault for position, fault in part.faults.items()}
        parts.append(DecodedRows(part.values, part.index + start, faults))
        start += len(chunk)
    full = [part for part in parts if len(part.index)] or parts[:1]
    faults = {position: fault for part in parts for position, fault in part.faults.items()}
    return DecodedRows(join_rows([part.values for part in full]), np.concatenate([part.index for part in full]), faults)


def _decode_chunk(array: Any) -> DecodedRows:
    array = plain_array(array)
    is_missing = _missing(array)
    index = np.flatnonzero(~is_missing)
    faults = {int(row): ("batch.missing", "a value is missing (null)") for row in np.flatnonzero(is_missing)}
    if len(index) < len(array):
        array = array.filter(pyarrow().array(~is_missing))
    values = _dense(array)
    if values is not None:
        return DecodedRows(values, index, faults)
    rows = _rows_of_unequal_lengths(array)
    for position, row in zip(index, rows, strict=True):
        if row is None:
            faults[int(position)] = ("batch.shape", "the nested lists of a row must have equal lengths")
    is_array = np.array([row is not None for row in rows], bool)
    return DecodedRows([row for row in rows if row is not None], index[is_array], faults)


def plain_array(array: Any) -> Any:
    """Decode the dictionaries and extensions of an Arrow array."""
    kind = plain_type(array.type)
    if kind == array.type:
        return array
    pa = pyarrow()
    if isinstance(array.type, pa.BaseExtensionType):
        return plain_array(array.storage)
    if pa.types.is_dictionary(array.type):
        _check_decoded_bytes(array)
        return plain_array(array.dictionary_decode())
    if _is_view(array.type):
        # pyarrow 26 casts a list_view to a list with wrong offsets.
        return pa.array(array.to_pylist(), type=kind)
    return array.cast(kind)


def _has_nulls(array: Any) -> bool:
    if array.null_count:
        return True
    array = array.storage if is_tensor(array.type) else array
    return _is_list(array.type) and _has_nulls(array.flatten())


def _check_decoded_bytes(array: Any) -> None:
    """Raise FormatError [file.size] if the decoded strings of a dictionary array exceed MAX_DECODED_BYTES."""
    types = pyarrow().types
    kind = array.type.value_type
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        compute = import_extra("pyarrow.compute", "parquet", "reading parquet")
        size = compute.sum(compute.binary_length(array.dictionary).take(array.indices)).as_py() or 0
        if size > MAX_DECODED_BYTES:
            raise FormatError("file.size", f"the strings of rows must have at most {MAX_DECODED_BYTES} bytes, got {size}")


def _missing(array: Any) -> NDArray[np.bool_]:
    """Return a boolean array that marks the rows that are null or contain a null at any depth."""
    if not _has_nulls(array):
        return np.zeros(len(array), bool)
    pa = pyarrow()
    missing: NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False).astype(bool)
    if is_tensor(array.type):
        array = array.storage
    if not _is_list(array.type):
        return missing
    present = np.flatnonzero(~missing)
    if len(present) < len(array):
        array = array.filter(pa.array(~missing))
    elements = _missing(array.flatten())
    if elements.any():
        lengths = _lengths(array)
        missing[present[np.repeat(np.arange(len(array)), lengths)[elements]]] = True
    return missing


def _lengths(array: Any) -> NDArray[np.int64]:
    pa = pyarrow()
    if pa.types.is_fixed_size_list(array.type):
        return np.full(len(array), array.type.list_size, np.int64)
    offsets: NDArray[Any] = array.offsets.to_numpy()
    return np.diff(offsets).astype(np.int64)


def _dense(array: Any) -> NDArray[Any] | None:
    """Convert an Arrow array without nulls to a numpy array; return None if lists have unequal lengths."""
    if is_tensor(array.type):
        kind = array.type
        values = _dense(array.storage)
        assert values is not None
        order = kind.permutation or range(len(kind.shape))
        return values.reshape(len(array), *kind.shape).transpose(0, *(axis + 1 for axis in order))
    if _is_list(array.type):
        lengths = _lengths(array)
        length = int(lengths[0]) if len(lengths) else getattr(array.type, "list_size", 0)
        elements = _dense(array.flatten()) if (lengths == length).all() else None
        return None if elements is None else elements.reshape(len(array), length, *elements.shape[1:])
    return _leaf(array)


def _leaf(array: Any) -> NDArray[Any]:
    types = pyarrow().types
    if types.is_null(array.type):
        return np.empty(len(array), np.float32)
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values.astype(object) if types.is_string(array.type) or types.is_large_string(array.type) else values


def _rows_of_unequal_lengths(array: Any) -> list[NDArray[Any] | None]:
    elements = array.flatten()
    if not _is_list(elements.type):
        ends = np.cumsum(_lengths(array))
        return list(np.split(_leaf(elements), ends[:-1])) if len(ends) else []
    rows = (_dense(array.slice(row, 1)) for row in range(len(array)))
    return [None if row is None else row[0] for row in rows]


def arrow_column(name: str, values: RowValues) -> Any:
    """Convert a column to Arrow: rows with one axis to fixed_size_list, rows with more axes to fixed_shape_tensor.

    Raises EngineError [dataset.output] for an element type that parquet lacks.
    """
    pa = pyarrow("writing parquet")
    values = plain_rows(values)
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    if isinstance(values, list):
        rows = [widen(np.asarray(row)).tolist() for row in values]
        element = widen(np.asarray(values[0])).dtype if values else np.dtype(np.float32)
        kind = pa.string() if element.kind in "OU" else _arrow_element(name, element)
        for _ in range(np.asarray(values[0]).ndim if values else 0):
            kind = pa.list_(kind)
        return pa.array(rows, type=kind)
    values = widen(values)
    flat = np.ascontiguousarray(values).reshape(-1)
    kind = pa.string() if values.dtype.kind in "OU" else _arrow_element(name, values.dtype)
    elements = pa.array(flat.tolist() if values.dtype.kind in "OU" else flat, type=kind)
    if values.ndim == 1:
        return elements
    if 0 in values.shape:
        for size in reversed(values.shape[1:]):
            # pyarrow 26 does not read a parquet column of fixed_size_list of size 0.
            kind = pa.list_(kind, size) if size else pa.list_(kind)
        return pa.array(values.tolist(), type=kind)
    if values.ndim > 2 and kind not in (pa.bool_(), pa.string()):
        array = pa.FixedSizeListArray.from_arrays(elements, flat.size // len(values))
        return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(kind, values.shape[1:]), array)
    # fixed_shape_tensor supports neither strings nor packed booleans.
    for size in reversed(values.shape[1:]):
        elements = pa.FixedSizeListArray.from_arrays(elements, size)
    return elements


def list_column(name: str, values: NDArray[Any]) -> Any:
    """Convert an array of rows to Arrow with nested lists for the axes of a row; Spark and rows of dynamic sizes need lists.

    Raises EngineError [dataset.output] for an element type that Arrow lacks.
    """
    pa = pyarrow("rows in Arrow")
    column = arrow_column(name, np.ascontiguousarray(values).reshape(-1))
    for axis in reversed(range(1, values.ndim)):
        offsets = np.arange(math.prod(values.shape[:axis]) + 1) * values.shape[axis]
        if offsets[-1] <= MAX_OFFSET:
            column = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), column)
        else:
            column = pa.LargeListArray.from_arrays(pa.array(offsets.astype(np.int64)), column)
    return column


def _arrow_element(name: str, dtype: np.dtype[Any]) -> Any:
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise EngineError("dataset.output", f"parquet has no element type {dtype} (column {name!r}); write npy or zarr")
    return pyarrow().from_numpy_dtype(dtype)


def arrow_table(columns: Mapping[str, RowValues]) -> Any:
    """Build an Arrow table of the columns."""
    pa = pyarrow("writing parquet")
    return pa.table({name: arrow_column(name, values) for name, values in columns.items()})


def arrow_rows(name: str, values: RowValues) -> RowValues:
    """Convert the values of a column, which may be an Arrow array, to an array or a list of arrays.

    Raises EngineError [dataset.output] for an Arrow type that cannot be decoded, and for nulls.
    """
    if isinstance(values, (list, np.ndarray)):
        return plain_rows(values)
    decoded = decode_rows(values) if element_of(values.type) is not None else None
    if decoded is None or decoded.faults:
        reason = "has nulls" if decoded is not None else f"is of type {values.type}"
        raise EngineError("dataset.output", f"the column {name!r} {reason}, which only parquet stores")
    return decoded.values
