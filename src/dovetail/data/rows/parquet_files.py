"""Parquet datasets: a file or a folder of files, read in batches of row groups, and written as one file for each part."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, BinaryIO, ClassVar

import numpy as np

from dovetail.data.rows.arrow_columns import (
    MAX_DECODED_BYTES,
    arrow_table,
    decode_rows,
    element_of,
    plain_array,
    plain_type,
    pyarrow,
)
from dovetail.data.rows.dataset import MAX_ROWS, ReaderSource, RowType
from dovetail.data.rows.dataset_files import DataFile, DataFolder
from dovetail.data.rows.part_files import OneFileSink
from dovetail.data.rows.rows import RowBlock, RowFault, RowValues, fault_rows, take_rows
from dovetail.errors import DovetailError, FormatError, UnsupportedError, first_line, raise_all
from dovetail.ir.host.extras import import_extra
from dovetail.storage.files import StrPath

SUFFIXES = (".parquet", ".pq")
_BATCH_BYTES = 8 << 20
_MAX_BATCH_ROWS = 1 << 16
_WIDTHS = {"INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}
"""The bytes of a value by physical type."""
_MAX_GROUP_BYTES = 1 << 36
"""The maximum bytes of a row group's column after decompression, as declared in the footer."""
MAX_LIST_BYTES = 1 << 33
"""The maximum decoded bytes of a list column in one row group."""


class ParquetSource(ReaderSource):
    """ParquetSource is a dataset of parquet files. Files in partition folders (``year=2024/``) are read without extra columns."""

    kind: ClassVar[str] = "parquet"

    _reader: _FileReader | None

    def __init__(self, path: StrPath, columns: Sequence[str] | None, keep: Sequence[str]) -> None:
        folder = DataFolder.scan(path, SUFFIXES)
        footers, errors = [], []
        for file in folder.files:
            try:
                footers.append(_read_footer(folder, file))
            except DovetailError as error:
                errors.append(error)
        raise_all(errors, "files of the dataset are unreadable")
        schema = footers[0].schema
        super().__init__(folder, columns, keep, schema.names, [footer.rows for footer in footers])
        if columns is None:
            self.selected = tuple(name for name in self.columns if element_of(schema.field(name).type) is not None)
        _check_types(folder.files, [footer.schema for footer in footers], self.selected, self.keep)
        self._kept_types = {name: plain_type(schema.field(name).type) for name in self.keep}
        self.row_bytes = footers[0].row_bytes([*self.selected, *self.keep])
        for name in self.selected:
            element, axes = element_of(schema.field(name).type) or ("", 0)
            if element:
                self.row_types[name] = RowType(element, axes)
        sizes = {size for footer in footers for size in footer.group_rows[:-1]}
        largest = {max(footer.group_rows, default=0) for footer in footers}
        self.chunk_rows = max(largest) if len(sizes | largest) == 1 and max(largest) else None

    def read_file(self, index: int, start: int, stop: int, first: int) -> RowBlock:
        with self._lock:
            if self._reader is None or self._reader.index != index:
                names = list(dict.fromkeys([*self.selected, *self.keep]))
                self.close()
                self._reader = _FileReader(self.folder, index, names)
            tables, faults = self._reader.read(start, stop)
        name = self.file_name(index)
        rows = [np.arange(first + offset, first + offset + table.num_rows) for offset, table in tables]
        block = RowBlock(np.empty(0, np.int64), faults=[RowFault(first + row, *fault, name) for row, fault in faults.items()])
        if tables:
            try:
                table = pyarrow().concat_tables([table for _, table in tables])
                block = self._decode(table, np.concatenate(rows), block.faults, name)
            except DovetailError:
                raise
            except Exception as error:  # a type that contradicts its data raises ArrowException, ValueError and others
                raise FormatError("dataset.unreadable", f"the rows cannot be decoded: {first_line(error)}") from None
        return block

    def _decode(self, table: Any, rows: Any, faults: list[RowFault], file: str) -> RowBlock:
        decoded = {}
        is_right = np.ones(len(rows), bool)
        for name in self.selected:
            decoded[name] = column = decode_rows(table.column(name))
            for position, (code, message) in column.faults.items():
                if is_right[position]:
                    faults.append(RowFault(int(rows[position]), code, f"column {name!r}: {message}", file))
                is_right[position] = False
        columns = {}
        for name, column in decoded.items():
            positions = np.flatnonzero(is_right[column.index])
            columns[name] = column.values if len(positions) == len(column.index) else take_rows(column.values, positions)
        index = np.flatnonzero(is_right)
        kept = {name: self._keep_values(name, table.column(name)) for name in self.keep}
        if len(index) < len(rows):
            kept = {name: take_rows(values, index) for name, values in kept.items()}
        return RowBlock(rows[index], columns, kept, sorted(faults, key=lambda fault: fault.row))

    def _keep_values(self, name: str, values: Any) -> Any:
        pa = pyarrow()
        kind = self._kept_types[name]
        chunks = [plain_array(chunk) for chunk in values.chunks]
        return pa.chunked_array([chunk if chunk.type == kind else chunk.cast(kind) for chunk in chunks], type=kind)

    def close(self) -> None:
        """Close the file that the last read left open."""
        if self._reader is not None:
            self._reader.stream.close()
            self._reader = None


class _Footer:
    """_Footer holds the schema and the row groups of one file, checked for plausible sizes."""

    def __init__(self, data: Any, schema: Any) -> None:
        self.schema = schema
        self.rows: int = data.num_rows
        groups = [data.row_group(index) for index in range(data.num_row_groups)]
        self.group_rows: list[int] = [group.num_rows for group in groups]
        if min([self.rows, *self.group_rows]) < 0 or sum(self.group_rows) != self.rows:
            message = f"the sum of the rows of the row groups ({sum(self.group_rows)}) must equal the file's rows ({self.rows})"
            raise FormatError("dataset.unreadable", message)
        if self.rows > MAX_ROWS:
            raise FormatError("file.size", f"a file must have at most {MAX_ROWS} rows, got {self.rows}")
        self._bytes: dict[str, int] = {}
        self._longest_text: dict[str, int] = {}
        for group in groups:
            for index in range(group.num_columns):
                self._add(group.column(index), group.num_rows, has_lists=data.schema.column(index).max_repetition_level > 0)

    def _add(self, chunk: Any, rows: int, *, has_lists: bool) -> None:
        name = chunk.path_in_schema
        size = chunk.total_uncompressed_size
        if size < 0 or size > _MAX_GROUP_BYTES:
            raise FormatError("file.size", f"a column of a row group must have at most {_MAX_GROUP_BYTES} bytes, got {size}")
        if chunk.num_values < rows or chunk.num_values > _MAX_GROUP_BYTES:
            message = f"the column {name} must have a value for each of {rows} rows of a row group, got {chunk.num_values}"
            raise FormatError("dataset.unreadable", message)
        # Dictionary and run-length encoding can encode any number of values in a few bytes.
        decoded = max(size, chunk.num_values * _WIDTHS.get(chunk.physical_type, 1))
        if has_lists and decoded > MAX_LIST_BYTES:
            # All values may be in the list of a single row.
            message = f"a column of lists must decode to at most {MAX_LIST_BYTES} bytes in a row group, got {decoded}"
            raise FormatError("file.size", message)
        self._bytes[name] = self._bytes.get(name, 0) + decoded
        if chunk.physical_type == "BYTE_ARRAY" and chunk.has_dictionary_page:
            self._longest_text[name] = max(self._longest_text.get(name, 0), size)

    def texts_longer_than(self, size: int) -> list[str]:
        """Return the dictionary-encoded string columns whose longest string may exceed ``size`` bytes."""
        return [name for name, longest in self._longest_text.items() if longest > size]

    def row_bytes(self, names: Sequence[str]) -> int:
        """Estimate the bytes of a row of the columns ``names``."""
        parts = tuple(f"{name}." for name in names)
        size = sum(size for path, size in self._bytes.items() if path in names or path.startswith(parts))
        return max(1, size // max(1, self.rows))


def _open(stream: BinaryIO, dictionaries: Sequence[str] = ()) -> Any:
    parquet = import_extra("pyarrow.parquet", "parquet", "reading parquet")
    return parquet.ParquetFile(
        stream, read_dictionary=list(dictionaries), page_checksum_verification=True, pre_buffer=False, buffer_size=1 << 20
    )


def _read_footer(folder: DataFolder, file: DataFile) -> _Footer:
    with folder.open(file) as stream:
        try:
            parquet = _open(stream)
            return _Footer(parquet.metadata, parquet.schema_arrow)
        except DovetailError as error:
            raise error.at(file=file.name) from None
        except Exception as error:  # pyarrow raises ArrowException, OSError, ValueError, KeyError and others for a damaged footer
            message = f"the file must be a valid Parquet file: {first_line(error)}"
            raise FormatError("dataset.unreadable", message, file=file.name) from None


def _check_types(files: Sequence[DataFile], schemas: Sequence[Any], selected: Sequence[str], keep: Sequence[str]) -> None:
    """Raise UnsupportedError [dataset.type] for columns that no model can read.

    Raises FormatError [dataset.schema] for files whose columns differ from the columns of the first file.
    """
    for name in selected:
        kind = schemas[0].field(name).type
        if element_of(kind) is None:
            message = f"the column {name!r} must hold numbers, booleans, strings or lists of these, got the type {kind}"
            raise UnsupportedError("dataset.type", message, file=files[0].name)
    errors: list[DovetailError] = []
    for file, schema in zip(files[1:], schemas[1:], strict=True):
        for name in dict.fromkeys([*selected, *keep]):
            expected = plain_type(schemas[0].field(name).type)
            index = schema.get_field_index(name)
            actual = plain_type(schema.field(index).type) if index >= 0 else None
            if actual is None:
                errors.append(FormatError("dataset.schema", f"the file must have the column {name!r}", file=file.name))
            elif not _is_alike(expected, actual, is_kept=name in keep):
                message = f"the column {name!r} must have the type {expected} as in {files[0].name!r}, got {actual}"
                errors.append(FormatError("dataset.schema", message, file=file.name))
    raise_all(errors, "files of the dataset differ from its first file")


def _is_alike(first: Any, second: Any, *, is_kept: bool) -> bool:
    if first == second or "" in ((element_of(first) or " ")[0], (element_of(second) or " ")[0]):
        return True
    return not is_kept and element_of(first) == element_of(second)


class _FileReader:
    """_FileReader holds one open file, which is read forward in batches of a fixed number of rows.

    Batches start at the beginning of their row group and are decoded completely. Whether a row after damaged pages is readable
    therefore does not depend on the ranges that were read earlier.
    """

    def __init__(self, folder: DataFolder, index: int, names: Sequence[str]) -> None:
        self.index = index
        self.names = list(names)
        file = folder.files[index]
        self.stream = folder.open(file)
        # The file is closed when the reader is garbage-collected.
        weakref.finalize(self, self.stream.close)
        try:
            self._file = _open(self.stream)
            footer = _Footer(self._file.metadata, self._file.schema_arrow)
        except Exception as error:
            self.stream.close()
            message = error.message if isinstance(error, DovetailError) else first_line(error)
            raise FormatError("dataset.unreadable", message, file=file.name) from None
        self._ends = [0, *accumulate(footer.group_rows)]
        self._batch_rows = min(max(_BATCH_BYTES // footer.row_bytes(names), 1), _MAX_BATCH_ROWS)
        if texts := footer.texts_longer_than(MAX_DECODED_BYTES // self._batch_rows):
            # These columns are read as dictionaries, whose decoded size is checked before decoding.
            self._file = _open(self.stream, texts)
        self._group = -1
        self._batches: Iterator[Any] = iter(())
        self._batch: Any = None
        self._batch_start = 0

    def read(self, start: int, stop: int) -> tuple[list[tuple[int, Any]], dict[int, tuple[str, str]]]:
        """Read rows of the file. Returns tables, each with the number of its first row in the file, and the faults by row."""
        tables: list[tuple[int, Any]] = []
        faults: dict[int, tuple[str, str]] = {}
        for group, (first, end) in enumerate(zip(self._ends, self._ends[1:], strict=False)):
            low, high = max(start, first), min(stop, end)
            if low < high:
                reached = low
                try:
                    for offset, batch in self._read_group(group, low - first, high - first):
                        tables.append((first + offset, batch))
                        reached = first + offset + batch.num_rows
                    message = f"the row group {group} ends after {reached - first} of {end - first} rows"
                except Exception as error:  # pyarrow raises ArrowException, OSError, ValueError and others for damaged pages
                    self._group = -1
                    message = first_line(error)
                for fault in fault_rows(reached, high, "dataset.unreadable", message, None):
                    faults[fault.row] = (fault.code, fault.message)
        return tables, faults

    def _read_group(self, group: int, start: int, stop: int) -> Iterator[tuple[int, Any]]:
        """Yield tables of the rows ``start`` to ``stop`` of a row group, each with the number of its first row in the group."""
        if group != self._group or start < self._batch_start:
            self._batches = self._file.iter_batches(self._batch_rows, row_groups=[group], columns=self.names, use_threads=False)
            self._group, self._batch, self._batch_start = group, None, 0
        while True:
            size = 0 if self._batch is None else self._batch.num_rows
            low, high = max(start, self._batch_start), min(stop, self._batch_start + size)
            if low < high:
                table = pyarrow().Table.from_batches([self._batch.slice(low - self._batch_start, high - low)])
                yield low, table
            if self._batch_start + size >= stop:
                return
            batch = next(self._batches, None)
            if batch is None:
                return
            self._batch, self._batch_start = batch, self._batch_start + size


def _is_numeric(kind: Any) -> bool:
    element = element_of(kind)
    return element is not None and element[0] not in ("", "string")


class ParquetSink(OneFileSink):
    """ParquetSink writes one parquet file for each part; ``pyarrow.parquet.read_table(folder)`` reads all parts."""

    format: ClassVar[str] = "parquet"
    suffix: ClassVar[str] = ".parquet"

    def write_file(self, stream: BinaryIO, columns: Mapping[str, RowValues]) -> None:
        table = arrow_table(columns)
        parquet = import_extra("pyarrow.parquet", "parquet", "writing parquet")
        # Numbers get no dictionary: if all floats differ, building the dictionary quadruples the time, and it is discarded.
        texts = [name for name, values in zip(table.column_names, table.columns, strict=True) if not _is_numeric(values.type)]
        parquet.write_table(table, stream, compression="snappy", use_dictionary=texts, write_page_checksum=True)
