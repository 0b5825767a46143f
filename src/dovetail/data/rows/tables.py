"""Tables of rows in the kinds that engines pass: dicts of arrays, pandas, pyarrow, arrays, iterators of RecordBatches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dovetail.data.rows.arrow_columns import arrow_column, decode_rows, list_column, widen
from dovetail.data.rows.row_columns import UnfitRow
from dovetail.data.rows.row_signature import RowSignature
from dovetail.errors import EngineError

RowFunction = Callable[[Mapping[str, Any], int], dict[str, np.ndarray[Any, Any]]]
"""A function of columns and a number of rows, which returns one array for each output."""


def map_table(run: RowFunction, rows: object, signature: RowSignature, columns: Mapping[str, str], keep: Sequence[str]) -> Any:
    """Apply ``run`` to a table, and return a table of the same kind: the columns ``keep``, and one column for each output.

    Raises EngineError [batch.table] for an object that is no table, [batch.column] for an absent column.
    """
    table = _Mapped(run, signature, columns, keep)
    pandas, pyarrow = sys.modules.get("pandas"), sys.modules.get("pyarrow")
    if isinstance(rows, Mapping):
        return table.dict(rows)
    if isinstance(rows, np.ndarray):
        return table.array(rows)
    if pandas is not None and isinstance(rows, pandas.DataFrame):
        return table.frame(rows)
    if pyarrow is not None and isinstance(rows, pyarrow.Table | pyarrow.RecordBatch):
        return table.arrow(rows, is_plain=False)
    if isinstance(rows, Iterator):
        return table.record_batches(rows)
    kinds = "a dict of arrays, a pandas DataFrame, a pyarrow Table or RecordBatch, an array, or an iterator of RecordBatches"
    raise EngineError("batch.table", f"rows must be {kinds}, got {type(rows).__name__}")


class _Mapped:
    """_Mapped applies a RowFunction to tables, with one method for each kind of table."""

    def __init__(self, run: RowFunction, signature: RowSignature, columns: Mapping[str, str], keep: Sequence[str]) -> None:
        self._run = run
        self._signature = signature
        self._columns = columns
        self._keep = keep

    def _check_columns(self, names: Iterable[Any]) -> None:
        names = list(names)
        for name in (*self._columns.values(), *self._keep):
            if names.count(name) != 1:
                known = ", ".join(map(repr, names)) or "no columns"
                raise EngineError("batch.column", f"rows must have one column {name!r}, got {known}")

    def dict(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        self._check_columns(rows)
        name = next(iter(self._columns.values()))
        try:
            count = len(rows[name])
        except TypeError:
            raise EngineError("batch.table", f"column {name!r} must have rows, got {type(rows[name]).__name__}") from None
        return {**{name: rows[name] for name in self._keep}, **self._run(rows, count)}

    def array(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        inputs, outputs = self._signature.inputs, self._signature.outputs
        if len(inputs) != 1 or len(outputs) != 1 or rows.ndim == 0:
            message = "an array of rows needs a model of one input and one output, and at least one axis"
            raise EngineError("batch.table", f"{message}, got {len(inputs)} inputs, {len(outputs)} outputs and {rows.ndim} axes")
        return self._run({self._columns[inputs[0].name]: rows}, len(rows))[outputs[0].name]

    def frame(self, rows: Any) -> Any:
        self._check_columns(rows.columns)
        pandas = sys.modules["pandas"]
        outputs = self._run({name: _series_rows(rows[name]) for name in self._columns.values()}, len(rows))
        cells = {name: pandas.Series(_cells(array), index=rows.index) for name, array in outputs.items()}
        return pandas.DataFrame({**{name: rows[name] for name in self._keep}, **cells}, index=rows.index)

    def arrow(self, rows: Any, is_plain: bool) -> Any:
        self._check_columns(rows.schema.names)
        outputs = self._run({name: _arrow_rows(rows[name]) for name in self._columns.values()}, rows.num_rows)
        ports = {port.name: port for port in self._signature.outputs}
        arrays = {name: rows[name] for name in self._keep}
        for name, array in outputs.items():
            is_fixed = array.dtype != object and not is_plain and ports[name].sizes is not None
            arrays[name] = _arrow_output(name, array, is_fixed)
        return type(rows).from_arrays(list(arrays.values()), names=list(arrays))

    def record_batches(self, batches: Iterator[Any]) -> Iterator[Any]:
        for rows in batches:
            if not hasattr(rows, "schema"):
                raise EngineError("batch.table", f"an iterator of rows must yield RecordBatches, got {type(rows).__name__}")
            # Spark reads Arrow's type list, but neither fixed_size_list nor tensors.
            yield self.arrow(rows, is_plain=True)


def _arrow_rows(column: Any) -> Any:
    """Convert an Arrow column to an array of rows, or to a list in which a row at fault is None or an UnfitRow."""
    if str(getattr(column.type, "extension_name", "")).startswith("ray."):
        # Ray's tensor types implement the conversion to numpy.
        return column.to_numpy() if hasattr(column, "num_chunks") else column.to_numpy(zero_copy_only=False)
    decoded = decode_rows(column)
    if not decoded.faults:
        return decoded.values
    rows: list[Any] = [None] * len(column)
    for number, row in zip(decoded.index, decoded.values, strict=True):
        rows[number] = row
    for number, (code, message) in decoded.faults.items():
        if code != "batch.missing":
            rows[number] = UnfitRow("batch.shape", message)
    return rows


def _arrow_output(name: str, array: np.ndarray[Any, Any], is_fixed: bool) -> Any:
    is_text = array.dtype == object and (array.ndim > 1 or not len(array) or isinstance(array[0], str | bytes))
    if is_fixed or (is_text and array.ndim == 1):
        return arrow_column(name, array)
    return list_column(name, array) if array.dtype != object or is_text else arrow_column(name, list(array))


def _series_rows(series: Any) -> Any:
    """Return the rows of a pandas Series as an array, as a masked array for pandas' nullable types."""
    dtype = series.dtype
    if isinstance(dtype, np.dtype):
        return series.to_numpy()
    if hasattr(dtype, "pyarrow_dtype"):
        return _arrow_rows(series.array.__arrow_array__())
    target = getattr(dtype, "numpy_dtype", None)
    if isinstance(target, np.dtype) and target.kind in "biuf":
        missing = series.isna().to_numpy()
        return np.ma.MaskedArray(series.to_numpy(target, na_value=target.type(0)), missing)
    return series.to_numpy(object)


def _cells(array: np.ndarray[Any, Any]) -> Any:
    """Return an array as the cells of a pandas column; a row with axes becomes one array in an array of objects."""
    array = widen(array)
    if array.ndim == 1:
        return array
    cells = np.empty(len(array), object)
    for number, row in enumerate(array):
        cells[number] = row
    return cells
