"""Archives of numpy, .npz: each array is a column, whose leading axis is the axis of rows.

An array of an uncompressed archive (``numpy.savez``) is read like a .npy file: only the rows of the range are read. An array of
a compressed archive (``numpy.savez_compressed``) is checked in one pass in each process. It is then decompressed as a stream,
which the read of the next range continues.
"""

from __future__ import annotations

import struct
import weakref
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from math import prod
from typing import IO, Any, BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.data.rows.dataset import ReaderSource
from dovetail.data.rows.dataset_files import DataFile, DataFolder
from dovetail.data.rows.numpy_files import (
    check_elements,
    check_types,
    native_array,
    plain_array,
    read_rows,
    row_type_of,
    write_array,
)
from dovetail.data.rows.part_files import OneFileSink
from dovetail.data.rows.rows import RowBlock, RowValues
from dovetail.errors import DovetailError, EngineError, FormatError, raise_all
from dovetail.storage.files import StrPath
from dovetail.storage.npy_file import ArrayHeader, read_npy_header

SUFFIX = ".npz"
_MEMBER = ".npy"
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_SKIPPED = 1 << 20
"""The number of bytes that are decompressed at a time while rows are skipped."""
_MAX_RATIO = 1100
"""The maximum accepted compression ratio; deflate reaches at most 1032."""
_MAX_FORTRAN_BYTES = 1 << 28
"""The maximum bytes of a compressed array in Fortran order, which is read as a whole because its rows are scattered."""
_MAX_MEMBERS = 10_000


class NpzSource(ReaderSource):
    """NpzSource is a dataset of .npz files. Scalar arrays are not columns."""

    kind: ClassVar[str] = "npz"

    _reader: _NpzReader | None

    def __init__(self, path: StrPath, columns: Sequence[str] | None, keep: Sequence[str]) -> None:
        folder = DataFolder.scan(path, (SUFFIX,))
        wanted = None if columns is None else [*columns, *keep]
        counts: list[int] = []
        headers: list[dict[str, ArrayHeader]] = []
        errors: list[DovetailError] = []
        names: list[str] = []
        for file in folder.files:
            try:
                with folder.open(file) as stream:
                    archive = _Archive(stream, file)
                    names = names or archive.names()
                    headers.append(archive.headers([name for name in wanted or names if name in names]))
                    counts.append(_count_rows(headers[-1], file))
            except DovetailError as error:
                errors.append(error)
        raise_all(errors, "files of the dataset are unreadable")
        for name in headers[0]:
            types = [(file.name, header[name].dtype) for file, header in zip(folder.files, headers, strict=True)]
            errors += check_types(name, types)
        raise_all(errors, "files of the dataset differ from its first file")
        selected = tuple(headers[0]) if columns is None else columns
        super().__init__(folder, selected, keep, names, counts)
        self.row_bytes = max(1, sum(header.row_bytes for header in headers[0].values()))
        self.row_types = {name: row_type_of([header[name] for header in headers]) for name in self.selected}

    def read_file(self, index: int, start: int, stop: int, first: int) -> RowBlock:
        with self._lock:
            if self._reader is None or self._reader.index != index:
                self._reader = _NpzReader(self.folder, index)
            reader = self._reader
            try:
                names = dict.fromkeys([*self.selected, *self.keep])
                values = {name: native_array(reader.read(name, start, stop)) for name in names}
            except EngineError:
                self._reader = None
                raise
        rows = np.arange(first + start, first + stop)
        return RowBlock(rows, {name: values[name] for name in self.selected}, {name: values[name] for name in self.keep})


def _count_rows(headers: Mapping[str, ArrayHeader], file: DataFile) -> int:
    counts = {name: header.rows for name, header in headers.items()}
    if len(set(counts.values())) > 1:
        text = ", ".join(f"{name} {count}" for name, count in counts.items())
        message = f"the arrays of the file must have equal leading axes, got {text}; name the columns to read"
        raise FormatError("dataset.schema", message, file=file.name)
    return next(iter(counts.values()), 0)


class _Archive:
    """_Archive gives access to the arrays of an open .npz file."""

    def __init__(self, stream: BinaryIO, file: DataFile) -> None:
        self._stream = stream
        self._file = file
        try:
            self._zip = zipfile.ZipFile(stream)
        except Exception as error:  # a damaged directory raises BadZipFile, ValueError, NotImplementedError, struct.error, ...
            raise self._unreadable(str(error)) from None
        members = [info for info in self._zip.infolist() if info.filename.endswith(_MEMBER)]
        self._members = {info.filename.removesuffix(_MEMBER): info for info in members}
        if len(self._members) < len(members) or len(members) > _MAX_MEMBERS:
            raise self._unreadable(f"an archive must have at most {_MAX_MEMBERS} arrays of different names, got {len(members)}")

    def _unreadable(self, message: str) -> FormatError:
        return FormatError("dataset.unreadable", f"the file must be a valid .npz file: {message}", file=self._file.name)

    def names(self) -> list[str]:
        """Return the names of all arrays with an axis of rows."""
        return [name for name in self._members if self._has_rows(name)]

    def _has_rows(self, name: str) -> bool:
        try:
            return bool(self._any_header(name).shape)
        except DovetailError:
            # The error is reported when the column is read.
            return True

    def headers(self, names: Sequence[str]) -> dict[str, ArrayHeader]:
        return {name: self.header(name) for name in names}

    def header(self, name: str) -> ArrayHeader:
        """Return the header of an array. Raises FormatError [dataset.schema], [dataset.unreadable], [file.size]."""
        header = self._any_header(name)
        if not header.shape:
            raise self._unreadable(f"the array {name!r} must have an axis of rows, got a scalar")
        return header

    def _any_header(self, name: str) -> ArrayHeader:
        with self.open(name) as member:
            file = f"{self._file.name}/{name}"
            header = check_elements(read_npy_header(member, file), file)
        size = self._info(name).file_size
        if header.size > size:
            message = f"the array {name!r} must have {header.size} bytes for {header.dtype}{list(header.shape)}, got {size}"
            raise self._unreadable(message)
        return header

    def _info(self, name: str) -> zipfile.ZipInfo:
        if name not in self._members:
            raise FormatError("dataset.schema", f"the file must have the array {name!r}", file=self._file.name)
        info = self._members[name]
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
            raise self._unreadable("an array must be stored or deflated, without encryption")
        limit = info.compress_size * _MAX_RATIO if info.compress_type == zipfile.ZIP_DEFLATED else info.compress_size
        if info.file_size > limit or info.compress_size > self._file.size:
            message = (
                f"the array {name!r} must have at most {limit} bytes, because its {info.compress_size} bytes in the file cannot "
                f"decompress to more, got {info.file_size}"
            )
            raise FormatError("file.size", message, file=self._file.name)
        return info

    def is_compressed(self, name: str) -> bool:
        return self._info(name).compress_type != zipfile.ZIP_STORED

    def open(self, name: str) -> Any:
        """Open an array as a stream."""
        info = self._info(name)
        try:
            return self._zip.open(info)
        except Exception as error:  # BadZipFile, NotImplementedError, struct.error, OSError, ...
            raise self._unreadable(str(error)) from None

    def offset(self, name: str) -> int:
        """Return the offset in bytes of an uncompressed array in the file."""
        info = self._info(name)
        self._stream.seek(info.header_offset)
        data = self._stream.read(_LOCAL_HEADER.size)
        magic, name_size, extra_size = _LOCAL_HEADER.unpack(data) if len(data) == _LOCAL_HEADER.size else (b"", 0, 0)
        start: int = info.header_offset + _LOCAL_HEADER.size + name_size + extra_size
        if magic != b"PK\x03\x04" or start + info.file_size > self._file.size:
            raise self._unreadable(f"the array {name!r} must end before the end of the file")
        return start


class _NpzReader:
    """_NpzReader holds one open file, with a stream for each compressed array."""

    def __init__(self, folder: DataFolder, index: int) -> None:
        self.index = index
        file = folder.files[index]
        stream = folder.open(file)
        # The file is closed when the reader is garbage-collected.
        weakref.finalize(self, stream.close)
        self._stream = stream
        self._archive = _Archive(stream, file)
        self._headers: dict[str, ArrayHeader] = {}
        self._streams: dict[str, tuple[Any, int]] = {}
        self._damages: dict[str, str] = {}

    def read(self, name: str, start: int, stop: int) -> NDArray[Any]:
        if name not in self._headers:
            self._headers[name] = self._archive.header(name)
        header = self._headers[name]
        if stop > header.rows:
            raise FormatError("dataset.unreadable", f"the array {name!r} must have {stop} rows, got {header.rows}")
        if not self._archive.is_compressed(name):
            return read_rows(self._stream, header, start, stop, self._archive.offset(name))
        if name not in self._damages:
            self._damages[name] = self._find_damage(name)
        if self._damages[name]:
            raise FormatError("dataset.unreadable", f"the array {name!r} cannot be decompressed: {self._damages[name]}")
        return self._decompress(name, header, start, stop)

    def _find_damage(self, name: str) -> str:
        """Decompress an array completely to verify its checksum. Returns the error text, or "" for an intact array.

        Without this check, rows before a damage would be valid in a short part and faulty in a part that includes the damage.
        """
        try:
            with self._archive.open(name) as stream:
                while stream.read(_SKIPPED):
                    pass
        except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            return str(error) or type(error).__name__
        return ""

    def _decompress(self, name: str, header: ArrayHeader, start: int, stop: int) -> NDArray[Any]:
        if header.is_fortran and len(header.shape) > 1:
            return self._decompress_whole(name, header)[start:stop]
        stream, row = self._streams.pop(name, (None, 0))
        if stream is None or row > start:
            stream, row = self._archive.open(name), 0
            _skip(stream, header.offset)
        _skip(stream, (start - row) * header.row_bytes)
        values = np.empty((stop - start, *header.shape[1:]), header.dtype)
        _fill(stream, values)
        self._streams[name] = stream, stop
        return values

    def _decompress_whole(self, name: str, header: ArrayHeader) -> NDArray[Any]:
        if header.size > _MAX_FORTRAN_BYTES:
            message = f"a compressed array in Fortran order must have at most {_MAX_FORTRAN_BYTES} bytes, got {header.size}"
            raise FormatError("file.size", message)
        values = np.empty(header.shape[::-1], header.dtype)
        with self._archive.open(name) as stream:
            _skip(stream, header.offset)
            _fill(stream, values)
        return values.T


def _skip(stream: IO[bytes], count: int) -> None:
    while count > 0:
        data = stream.read(min(count, _SKIPPED))
        if not data:
            raise EOFError("the data ends early")
        count -= len(data)


def _fill(stream: IO[bytes], values: NDArray[Any]) -> None:
    if not prod(values.shape) or not values.dtype.itemsize:
        return
    remaining: memoryview = values.reshape(-1).view(np.uint8).data
    while remaining:
        data = stream.read(min(len(remaining), _SKIPPED))
        if not data:
            raise EOFError("the data ends early")
        remaining[: len(data)] = data
        remaining = remaining[len(data) :]


class NpzSink(OneFileSink):
    """NpzSink writes one uncompressed .npz file for each part."""

    format: ClassVar[str] = "npz"
    suffix: ClassVar[str] = SUFFIX

    def write_file(self, stream: BinaryIO, columns: Mapping[str, RowValues]) -> None:
        # numpy.savez supports no array named `file`, and stores the time of writing in each file.
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
            for name, values in columns.items():
                with archive.open(zipfile.ZipInfo(name + _MEMBER), "w", force_zip64=True) as member:
                    write_array(member, plain_array(name, values))
