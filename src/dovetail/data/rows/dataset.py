"""Sources: datasets as numbered rows, of which any process can read any range."""

from __future__ import annotations

import bisect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import accumulate
from threading import Lock
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dovetail.data.rows.dataset_files import DataFile, DataFolder
from dovetail.data.rows.rows import RowBlock, check_range, fault_rows, join_blocks
from dovetail.errors import DovetailError, EngineError, FormatError

MAX_ROWS = 1 << 40
"""The maximum number of rows of a dataset. A file with more rows has a damaged header."""
FREE_ROWS = 1 << 24
ROWS_PER_BYTE = 1 << 12
"""A dataset has at most FREE_ROWS rows plus ROWS_PER_BYTE rows for each byte of its files.

Rows can take no bytes in a file: if an axis has size 0, a chunk is missing, or all values are equal.
"""


class RowType(NamedTuple):
    """RowType is the type of one row of a column.

    ``element`` is the numpy name of the element type or ``string``. ``axes`` is the number of axes. ``shape`` is the shape; it is
    None if the shape is unknown or differs between rows.
    """

    element: str
    axes: int
    shape: tuple[int, ...] | None = None


class Source(ABC):
    """Source is a dataset: the rows of its files in sorted order of the file names, numbered from 0.

    A pickled source contains no open file; a process that unpickles it reads no file before ``read``.
    """

    kind: ClassVar[str]
    """The format: parquet, npy, npz, zarr or images."""

    def __init__(self, folder: DataFolder, columns: Sequence[str] | None, keep: Sequence[str], names: Sequence[str]) -> None:
        self.folder = folder
        self.columns: tuple[str, ...] = tuple(names)
        """The names of all columns of the dataset."""
        self.selected = tuple(self.columns if columns is None else dict.fromkeys(columns))
        """The columns that are read for the model."""
        self.keep = tuple(dict.fromkeys(keep))
        """The columns that are passed through."""
        missing = [name for name in (*self.selected, *self.keep) if name not in self.columns]
        if missing:
            available = ", ".join(self.columns[:20]) or "none"
            message = f"the dataset must have the columns {', '.join(missing)}; its columns are {available}"
            raise EngineError("dataset.column", message)
        self.row_types: dict[str, RowType] = {}
        """The row types of the columns for the model, if the headers of the files have them."""
        self.row_bytes = 1
        """The estimated bytes of one row, summed over the columns that are read."""
        self.chunk_rows: int | None = None
        """The number of rows that are stored together; None if parts of a job may have any size.

        Parts of a job should be multiples or divisors of this number.
        """

    @property
    @abstractmethod
    def rows(self) -> int:
        """The number of rows."""

    @abstractmethod
    def read(self, start: int, stop: int) -> RowBlock:
        """Read the rows from ``start`` to ``stop``; rows that cannot be read are returned as faults.

        Raises EngineError [argument.value], [file.changed].
        """

    def check_files(self, start: int, stop: int) -> None:
        """Raise EngineError [file.changed] if a file of these rows has changed since the start of the job."""
        for file in self.files_of(start, stop):
            self.folder.check(file)

    def files_of(self, start: int, stop: int) -> Iterable[DataFile]:
        """Return the files that ``read`` opens or keeps open for these rows."""
        return ()

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Return the kind, the columns, and for each file its name, size, modification time and rows, as JSON values."""

    def file_of(self, row: int) -> str | None:
        """Return the name of the file that contains a row; None if the dataset has no such file."""
        return None


class FileSource(Source):
    """FileSource is a dataset of files whose numbers of rows are known before their data is read."""

    def __init__(
        self, folder: DataFolder, columns: Sequence[str] | None, keep: Sequence[str], names: Sequence[str], counts: Sequence[int]
    ) -> None:
        super().__init__(folder, columns, keep, names)
        self._starts = [0, *accumulate(counts)]
        refuse_rows(self.rows, folder)

    @property
    def rows(self) -> int:
        return self._starts[-1]

    def read(self, start: int, stop: int) -> RowBlock:
        check_range(start, stop, self.rows)
        blocks: list[RowBlock] = []
        index = min(bisect.bisect_right(self._starts, start), len(self._starts) - 1) - 1
        while index < len(self._starts) - 1 and (self._starts[index] < stop or not blocks):
            first, end = self._starts[index : index + 2]
            blocks.append(self._read_or_fault(index, max(start, first), min(stop, end)))
            index += 1
        return join_blocks(blocks, self.selected, self.keep)

    def _read_or_fault(self, index: int, start: int, stop: int) -> RowBlock:
        first = self._starts[index]
        try:
            return self.read_file(index, start - first, stop - first, first)
        except EngineError:
            raise
        except DovetailError as error:
            return RowBlock(
                np.empty(0, np.int64), {}, {}, fault_rows(start, stop, error.code, error.message, self.file_name(index))
            )

    @abstractmethod
    def read_file(self, index: int, start: int, stop: int, first: int) -> RowBlock:
        """Read the rows ``start`` to ``stop`` of file ``index``; ``first`` is the number of the file's first row in the dataset.

        A FormatError becomes a fault of every row of the range.
        """

    def file_name(self, index: int) -> str:
        return self.folder.files[index].name

    def files_of(self, start: int, stop: int) -> Iterable[DataFile]:
        first = bisect.bisect_right(self._starts, start) - 1
        indices = range(max(first, 0), min(bisect.bisect_left(self._starts, stop), len(self._starts) - 1))
        return [file for index in indices for file in self.files_at(index)]

    def files_at(self, index: int) -> Sequence[DataFile]:
        """Return the files that hold the rows of file ``index``."""
        return self.folder.files[index : index + 1]

    def file_of(self, row: int) -> str | None:
        index = bisect.bisect_right(self._starts, row) - 1
        return self.file_name(index) if 0 <= row < self.rows else None

    def fingerprint(self) -> dict[str, Any]:
        counts = [stop - start for start, stop in zip(self._starts, self._starts[1:], strict=False)]
        return fingerprint_of(self.kind, self.columns, self.folder.files, counts)


class ReaderSource(FileSource):
    """ReaderSource is a dataset that keeps the reader of one file between reads, under a lock; both are left out of a pickle."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._reader: Any = None
        self._lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_reader", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _reader=None, _lock=Lock())


def refuse_rows(rows: int, folder: DataFolder) -> None:
    """Raise FormatError [file.size] if a dataset has more rows than files of its size can contain."""
    maximum = min(MAX_ROWS, FREE_ROWS + ROWS_PER_BYTE * sum(file.size for file in folder.files))
    if rows > maximum:
        raise FormatError("file.size", f"a dataset of these files must have at most {maximum} rows, got {rows}", file=folder.root)


def fingerprint_of(kind: str, columns: Sequence[str], files: Sequence[DataFile], counts: Sequence[int] | None) -> dict[str, Any]:
    """Return the fingerprint of a dataset from its files and, if known, the number of rows of each file."""
    rows: list[list[Any]] = [[file.name, file.size, file.modified] for file in files]
    if counts is not None:
        rows = [[*row, count] for row, count in zip(rows, counts, strict=True)]
    return {"kind": kind, "columns": list(columns), "files": rows}
