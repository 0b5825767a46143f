"""Rows of a dataset as they are passed between the source, the model and the sink."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import EngineError
from dovetail.ir.host.extras import import_extra

RowValues: TypeAlias = Any
"""The values of a column: an array with a leading axis of rows, a list with one value for each row, or a pyarrow array."""


@dataclass(frozen=True, slots=True)
class RowFault:
    """RowFault is a row without a result: the row's number, the error's code and message, and the row's file, if known."""

    row: int
    code: str
    message: str
    file: str | None = None


@dataclass(frozen=True, slots=True)
class RowBlock:
    """RowBlock is a range of rows: ``columns`` and ``kept`` have one value for each of ``rows``; the other rows have faults."""

    rows: NDArray[np.int64]
    columns: dict[str, RowValues] = field(default_factory=dict)
    kept: dict[str, RowValues] = field(default_factory=dict)
    faults: list[RowFault] = field(default_factory=list)


def take_rows(values: RowValues, index: NDArray[np.int64]) -> RowValues:
    """Return the rows ``index`` of the values of a column, in the same representation."""
    if isinstance(values, list):
        return [values[position] for position in index]
    if isinstance(values, np.ndarray):
        return values[index]
    return values.take(index)


def join_rows(parts: Sequence[RowValues]) -> RowValues:
    """Concatenate the values of one column along the rows; arrays whose rows have different shapes become a list."""
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, np.ndarray) for part in parts):
        if len({part.shape[1:] for part in parts}) == 1:
            return np.concatenate(parts)
        parts = [list(part) for part in parts]
    if all(isinstance(part, (list, np.ndarray)) for part in parts):
        return [row for part in parts for row in part]
    chunks = [chunk for part in parts for chunk in (part.chunks if hasattr(part, "chunks") else [part])]
    return import_extra("pyarrow", "parquet", "joining columns").chunked_array(chunks, type=parts[0].type)


def join_blocks(blocks: Iterable[RowBlock], names: Sequence[str], keep: Sequence[str]) -> RowBlock:
    """Concatenate adjacent blocks; a block in which all rows are faults may lack columns."""
    every = list(blocks)
    faults = [fault for block in every for fault in block.faults]
    full = [block for block in every if len(block.rows)] or every[:1]
    rows = np.concatenate([block.rows for block in full]) if full else np.empty(0, np.int64)
    columns = {name: join_rows([block.columns[name] for block in full]) for name in names if full and name in full[0].columns}
    kept = {name: join_rows([block.kept[name] for block in full]) for name in keep if full and name in full[0].kept}
    return RowBlock(rows, columns, kept, faults)


def fault_rows(start: int, stop: int, code: str, message: str, file: str | None) -> list[RowFault]:
    """Return one fault for each row from ``start`` to ``stop``."""
    return [RowFault(row, code, message, file) for row in range(start, stop)]


def check_range(start: int, stop: int, rows: int) -> None:
    """Raise EngineError [argument.value] unless 0 <= start <= stop <= rows."""
    if not 0 <= start <= stop <= rows:
        raise EngineError("argument.value", f"the rows must be within 0:{rows}, got {start}:{stop}")


def plain_rows(values: RowValues) -> RowValues:
    """Convert an array of objects that are arrays, one for each row, to a list; return other values unchanged."""
    is_list = isinstance(values, np.ndarray) and values.dtype == object and values.ndim == 1
    return list(values) if is_list and any(isinstance(row, np.ndarray) for row in values) else values
