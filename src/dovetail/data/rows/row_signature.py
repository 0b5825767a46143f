"""RowSignature: the inputs and outputs of a model whose leading axis is the batch axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.data.rows.map_outputs import MapKeys
from dovetail.ir.dtypes import DType

RowSize = int | str
"""A size of a row: a number, or the text of a symbolic size, which must be equal in all inputs of a row."""

REMEDY = '"dovetail rebatch" gives a model one batch axis'
INPUT_REMEDY = f"{REMEDY}; --constant (constants in Python) is for an input that is the same for all rows"
OUTPUT_REMEDY = f'{REMEDY}; "dovetail extract --to" writes a model of other outputs'


@dataclass(frozen=True, slots=True)
class RowPort:
    """RowPort is an input or output: name, element type, and shape without the leading axis (None: unknown rank)."""

    name: str
    dtype: DType
    shape: tuple[RowSize, ...] | None

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """The shape if all of its sizes are fixed, else None."""
        return self.shape if self.shape is not None and all(isinstance(size, int) for size in self.shape) else None  # type: ignore[return-value]

    def empty(self, rows: int) -> np.ndarray[Any, Any]:
        """Return an uninitialized array for ``rows`` rows; symbolic sizes are 0."""
        sizes = [size if isinstance(size, int) else 0 for size in self.shape or ()]
        return np.empty((rows, *sizes), self.dtype.numpy)

    def zeros(self, rows: int) -> np.ndarray[Any, Any]:
        """Return ``rows`` rows of zeros or empty strings; symbolic sizes are 0."""
        array = self.empty(rows)
        array[...] = "" if self.dtype == "string" else np.zeros((), self.dtype.numpy)
        return array

    def __str__(self) -> str:
        return f"{self.dtype}[{'...' if self.shape is None else ', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class RowSignature:
    """RowSignature holds the inputs and outputs of one row, the fixed batch size (None: any), and the names of random outputs.

    ``has_batch_scales``: operators compute one scale for a whole batch (dynamic quantization), so that rows depend on each other.
    """

    inputs: tuple[RowPort, ...]
    outputs: tuple[RowPort, ...]
    batch: int | None
    random: tuple[str, ...] = ()
    has_batch_scales: bool = False
    maps: tuple[MapKeys, ...] = ()
    """The outputs with a map for each row; ``outputs`` has one column for each key of the maps instead."""
