"""Files of numpy, .npy, as datasets: a file, a folder of files of one column, or a folder with a subfolder for each column.

The leading axis of an array is the axis of rows.
"""

from __future__ import annotations

import mmap
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import prod
from typing import IO, Any, BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.data.rows.arrow_columns import arrow_rows, widen
from dovetail.data.rows.dataset import FileSource, RowType, fingerprint_of
from dovetail.data.rows.dataset_files import DataFile, DataFolder
from dovetail.data.rows.part_files import Sink, column_of, file_name_of, part_name
from dovetail.data.rows.rows import RowBlock, RowValues
from dovetail.errors import DovetailError, EngineError, FormatError, UnsupportedError, raise_all
from dovetail.storage.files import StrPath
from dovetail.storage.npy_file import ArrayHeader, read_npy_header

SUFFIX = ".npy"
ARRAY = "array"
"""The name of the column of files that are not in a column's folder."""
_MAX_TEXT_BYTES = 1 << 30
"""The maximum bytes of a string column in one part; numpy stores every string with the length of the longest string."""


def check_elements(header: ArrayHeader, file: str) -> ArrayHeader:
    """Check the element type of an array and return its header. Raises UnsupportedError [dataset.type], also for objects."""
    if header.dtype.kind not in "biufcU":
        reason = "; pickled objects are never loaded" if header.dtype.hasobject else ""
        message = f"elements must be numbers, booleans or strings, got {header.dtype}{reason}"
        raise UnsupportedError("dataset.type", message, file=file)
    return header


def row_type_of(headers: Sequence[ArrayHeader]) -> RowType:
    """Return the row type of a column from the headers of its arrays; the shape is None if the arrays' row shapes differ."""
    shapes = {header.shape[1:] for header in headers}
    element = "string" if headers[0].dtype.kind == "U" else headers[0].dtype.newbyteorder("=").name
    return RowType(element, len(headers[0].shape) - 1, shapes.pop() if len(shapes) == 1 else None)


def native_array(values: NDArray[Any]) -> NDArray[Any]:
    """Convert an array to the byte order of this machine, and numpy strings to Python strings."""
    if values.dtype.kind == "U":
        return values.astype(object)
    return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))


def read_rows(stream: BinaryIO, header: ArrayHeader, start: int, stop: int, base: int = 0) -> NDArray[Any]:
    """Read the rows ``start`` to ``stop`` of an array whose .npy file starts at the byte ``base`` of ``stream``.

    Of an array in C order only these rows are read.
    """
    shape = (stop - start, *header.shape[1:])
    if not prod(shape) or not header.dtype.itemsize:
        return np.zeros(shape, header.dtype)
    first = base + header.offset
    if header.is_fortran and len(header.shape) > 1:
        aligned = first - first % mmap.ALLOCATIONGRANULARITY
        with mmap.mmap(stream.fileno(), base + header.size - aligned, access=mmap.ACCESS_READ, offset=aligned) as mapped:
            whole = np.ndarray(header.shape, header.dtype, mapped, first - aligned, order="F")
            values = np.ascontiguousarray(whole[start:stop])
            del whole
            return values
    values = np.empty(shape, header.dtype)
    remaining: memoryview = values.reshape(-1).view(np.uint8).data
    stream.seek(first + start * header.row_bytes)
    while remaining:
        count = stream.readinto(remaining)  # type: ignore[attr-defined]
        if not count:
            raise FormatError("dataset.unreadable", f"the file ends {len(remaining)} bytes before the end of row {stop - 1}")
        remaining = remaining[count:]
    return values


class NpySource(FileSource):
    """NpySource is a dataset of .npy files.

    A single file or a folder of files is the column ``array``. In a folder of folders each folder is a column; the folders must
    have files of the same names and numbers of rows.
    """

    kind: ClassVar[str] = "npy"

    def __init__(self, path: StrPath, columns: Sequence[str] | None, keep: Sequence[str]) -> None:
        folder = DataFolder.scan(path, (SUFFIX,))
        tables = _columns_of(folder)
        headers: dict[str, list[ArrayHeader]] = defaultdict(list)
        errors: list[DovetailError] = []
        for name, files in tables.items():
            for file in files:
                try:
                    with folder.open(file) as stream:
                        headers[name].append(_whole_header(stream, file))
                except DovetailError as error:
                    errors.append(error)
        raise_all(errors, "files of the dataset are unreadable")
        _check_columns(tables, headers)
        names = list(tables)
        super().__init__(folder, columns, keep, names, [header.rows for header in headers[names[0]]])
        self._tables = {name: tuple(tables[name]) for name in (*self.selected, *self.keep)}
        self._first = tuple(tables[names[0]])
        self.row_bytes = max(1, sum(headers[name][0].row_bytes for name in self._tables))
        self.row_types = {name: row_type_of(headers[name]) for name in self.selected}

    def read_file(self, index: int, start: int, stop: int, first: int) -> RowBlock:
        values = {}
        for name, files in self._tables.items():
            file = files[index]
            with self.folder.open(file) as stream:
                values[name] = native_array(read_rows(stream, _whole_header(stream, file), start, stop))
        rows = np.arange(first + start, first + stop)
        return RowBlock(rows, {name: values[name] for name in self.selected}, {name: values[name] for name in self.keep})

    def file_name(self, index: int) -> str:
        return self._first[index].name

    def files_at(self, index: int) -> Sequence[DataFile]:
        return [files[index] for files in self._tables.values()]

    def fingerprint(self) -> dict[str, Any]:
        counts = [stop - start for start, stop in zip(self._starts, self._starts[1:], strict=False)]
        return {**fingerprint_of(self.kind, self.columns, self.folder.files, None), "rows": counts}


def _columns_of(folder: DataFolder) -> dict[str, list[DataFile]]:
    """Return the files of each column. Raises FormatError [dataset.schema] for files at several levels."""
    tables: dict[str, list[DataFile]] = defaultdict(list)
    for file in folder.files:
        steps = file.name.split("/")
        if len(steps) > 2:
            message = "a file must be in the dataset's folder or in the folder of its column"
            raise FormatError("dataset.schema", message, file=file.name)
        tables[column_of(steps[0]) if len(steps) == 2 else ARRAY].append(file)
    if len({"/" in file.name for file in folder.files}) > 1:
        message = "the dataset must have either .npy files or folders of .npy files, got both"
        raise FormatError("dataset.schema", message, file=folder.root)
    return dict(tables)


def _whole_header(stream: BinaryIO, file: DataFile) -> ArrayHeader:
    header = check_elements(read_npy_header(stream, file.name), file.name)
    if not header.shape:
        raise FormatError("dataset.unreadable", "the array must have an axis of rows, got a scalar", file=file.name)
    if header.size > file.size:
        message = f"the file must have {header.size} bytes for {header.dtype}{list(header.shape)}, got {file.size}"
        raise FormatError("dataset.unreadable", message, file=file.name)
    return header


def _check_columns(tables: Mapping[str, Sequence[DataFile]], headers: Mapping[str, Sequence[ArrayHeader]]) -> None:
    """Raise FormatError [dataset.schema] if columns differ in rows per file, or if files of a column differ in element type."""
    first, *others = tables
    errors: list[DovetailError] = []
    expected = [(os.path.basename(file.name), header.rows) for file, header in zip(tables[first], headers[first], strict=True)]
    for name in others:
        actual = [(os.path.basename(file.name), header.rows) for file, header in zip(tables[name], headers[name], strict=True)]
        if actual != expected:
            different = next((pair for pair in zip(expected, actual, strict=False) if pair[0] != pair[1]), None)
            detail = f"{different[0]} and {different[1]}" if different else f"{len(expected)} and {len(actual)} files"
            message = f"the columns {first!r} and {name!r} must have files of equal names and rows, got {detail}"
            errors.append(FormatError("dataset.schema", message, file=tables[name][0].name))
    for name, files in tables.items():
        errors += check_types(name, [(file.name, header.dtype) for file, header in zip(files, headers[name], strict=True)])
    raise_all(errors, "files of the dataset differ")


def check_types(name: str, types: Sequence[tuple[str, np.dtype[Any]]]) -> list[DovetailError]:
    """Return an error for each file whose element type differs from the first file; all string types count as equal."""
    first = types[0][1]
    return [
        FormatError("dataset.schema", f"{name!r} must have elements of {first} as in {types[0][0]!r}, got {dtype}", file=file)
        for file, dtype in types[1:]
        if dtype.newbyteorder("=") != first.newbyteorder("=") and (dtype.kind, first.kind) != ("U", "U")
    ]


def plain_array(name: str, values: RowValues) -> NDArray[Any]:
    """Convert the values of a column to an array that numpy can store without pickle. Raises EngineError [dataset.output]."""
    values = arrow_rows(name, values)
    if isinstance(values, list):
        shapes = {np.shape(row) for row in values}
        if len(shapes) > 1:
            message = f"the rows of column {name!r} must have equal shapes, got {sorted(shapes)[:3]}; write parquet"
            raise EngineError("dataset.output", message)
        values = np.stack([np.asarray(row) for row in values])
    array: NDArray[Any] = widen(values)
    if array.dtype.kind == "O":
        longest = max((len(text) for text in array.flat if isinstance(text, str)), default=0)
        if longest * array.size * 4 > _MAX_TEXT_BYTES or not all(isinstance(text, str) for text in array.flat):
            message = f"the column {name!r} must not hold objects or long strings, which numpy stores only pickled; write parquet"
            raise EngineError("dataset.output", message)
        array = array.astype(f"U{max(longest, 1)}")
    return array


def write_array(stream: IO[bytes], values: NDArray[Any]) -> None:
    """Write a .npy file. numpy.save is not used, because with C's stdio its errors lack the reason, such as a full disk."""
    plain = np.ascontiguousarray(values)
    np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(plain))
    stream.write(plain.reshape(-1).view(np.uint8).data if plain.size and plain.itemsize else b"")


class NpySink(Sink):
    """NpySink writes one folder for each column, with one .npy file for each part.

    The files are ``row/part-00000.npy``, ``NAME/part-00000.npy``, ...
    """

    format: ClassVar[str] = "npy"

    def write_columns(self, part: int, rows: NDArray[np.int64], columns: Mapping[str, RowValues]) -> None:
        arrays = {name: plain_array(name, values) for name, values in columns.items()}
        # The row numbers are written last, because their file marks the part as complete.
        for name, values in {**arrays, "row": np.asarray(rows, np.int64)}.items():
            with self.open_file(os.path.join(file_name_of(name), f"{part_name(part)}{SUFFIX}")) as stream:
                write_array(stream, values)

    def _commit(self) -> tuple[str, str]:
        return "row", SUFFIX

    def result_folders(self) -> Sequence[str]:
        return (
            [name for name in os.listdir(self.folder) if _has_only_parts(self._path(name))] if os.path.isdir(self.folder) else ()
        )


def _has_only_parts(path: str) -> bool:
    if os.path.islink(path) or not os.path.isdir(path):
        return False
    names = [name for name in os.listdir(path) if not name.startswith(".")]
    return bool(names) and all(name.startswith("part-") and name.endswith(SUFFIX) for name in names)
