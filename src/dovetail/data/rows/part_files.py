"""Sinks: writers of the results of a job's parts. A part is written atomically.

A part is written under a temporary name, flushed to the disk and renamed. The faults of a part are written before the part, so
that an existing part is complete. Names that start with ``_`` are not results:

- ``_errors/part-00000.jsonl``: the faults of a part, one JSON object per line (row, file, code, message).
- ``_empty/part-00000``: marks a part in which no row has a result.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO, ClassVar
from urllib.parse import quote, unquote

import numpy as np
from numpy.typing import NDArray

from dovetail.data.rows.rows import RowFault, RowValues
from dovetail.errors import DovetailError, EngineError, FormatError
from dovetail.storage.atomic_write import remove_abandoned_drafts, replace_file
from dovetail.storage.files import StrPath

ERRORS = "_errors"
EMPTY = "_empty"
_PART = re.compile(r"part-(\d{5,})")


def part_name(part: int) -> str:
    return f"part-{part:05}"


def part_of(name: str, suffix: str) -> int | None:
    """Return the number of a part from the name of its file; None for other files."""
    match = _PART.fullmatch(name.removesuffix(suffix)) if name.endswith(suffix) else None
    return int(match[1]) if match else None


def file_name_of(column: str) -> str:
    """Encode the name of a column as the name of a file or folder, which ``column_of`` decodes."""
    name = quote(column, safe=" ()[],=+@~", errors="surrogatepass")
    if name.startswith(("_", ".")) or not name:
        name = "%" + f"{ord(name[0]):02X}{name[1:]}" if name else "%00"
    return name


def column_of(file_name: str) -> str:
    return unquote(file_name, errors="surrogatepass")


class Sink(ABC):
    """Sink writes a folder of results. Any process may write parts; the driver calls ``prepare`` first and ``finish`` last."""

    format: ClassVar[str]
    markers: ClassVar[tuple[str, ...]] = ()
    """Folders of the format whose names start with ``_``."""

    def __init__(self, folder: StrPath, rows: int, part_rows: int) -> None:
        self.folder = os.path.abspath(os.fspath(folder))
        self.rows = rows
        self.part_rows = part_rows

    def prepare(self) -> None:
        """Create the folder and remove temporary files of killed processes. Raises EngineError [folder.unwritable]."""
        with name_errors(self.folder):
            os.makedirs(self.folder, exist_ok=True)
            for root, _, _ in os.walk(self.folder):
                remove_abandoned_drafts(root)

    def parts(self) -> set[int]:
        """Return the numbers of the complete parts."""
        return self._numbers(EMPTY, "") | self._numbers(*self._commit())

    def write(self, part: int, rows: NDArray[np.int64], columns: Mapping[str, RowValues], faults: Sequence[RowFault]) -> None:
        """Write a part: the column ``row``, the values of ``columns`` for ``rows``, and the faults of the other rows.

        An existing part is replaced. Raises EngineError [folder.unwritable] for errors of the operating system, such as a full
        disk, and [dataset.output] for values that the format cannot store.
        """
        if "row" in columns:
            raise EngineError("dataset.output", "a result or kept column must not be named row, the column of row numbers")
        self._write_faults(part, faults)
        if len(rows):
            self.write_columns(part, rows, columns)
        else:
            self.write_bytes(os.path.join(EMPTY, part_name(part)), b"")

    def finish(self) -> None:
        """Complete the folder after all parts: remove temporary files."""
        self.prepare()

    def faults(self) -> Iterator[RowFault]:
        """Yield the faults of all parts, by row."""
        for part in sorted(self._numbers(ERRORS, ".jsonl")):
            with name_errors(self.folder), open(self._path(ERRORS, f"{part_name(part)}.jsonl"), encoding="utf-8") as lines:
                for line in lines:
                    yield _fault_of(line, lines.name)

    def remove(self) -> None:
        """Remove the files that the sink wrote, and no other file."""
        with name_errors(self.folder):
            for folder in (*self.result_folders(), ERRORS, EMPTY, *self.markers):
                path = self._path(folder)
                if os.path.isdir(path) and not os.path.islink(path):
                    shutil.rmtree(path)

    def result_folders(self) -> Sequence[str]:
        """Return the folders inside the sink's folder that hold only results."""
        return ()

    @abstractmethod
    def write_columns(self, part: int, rows: NDArray[np.int64], columns: Mapping[str, RowValues]) -> None:
        """Write a part of at least one row; the file that marks the part as complete is written last."""

    @abstractmethod
    def _commit(self) -> tuple[str, str]:
        """Return the relative folder and the suffix of the files that mark parts as complete."""

    def _path(self, *names: str) -> str:
        return os.path.join(self.folder, *names)

    def _numbers(self, folder: str, suffix: str) -> set[int]:
        with suppress(FileNotFoundError), name_errors(self.folder, may_be_missing=True):
            numbers = (part_of(name, suffix) for name in os.listdir(self._path(folder)))
            return {number for number in numbers if number is not None}
        return set()

    def _write_faults(self, part: int, faults: Sequence[RowFault]) -> None:
        name = os.path.join(ERRORS, f"{part_name(part)}.jsonl")
        lines = (
            {"row": int(fault.row), "file": fault.file, "code": fault.code, "message": fault.message}
            for fault in sorted(faults, key=lambda fault: fault.row)
        )
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        if text:
            self.write_bytes(name, text.encode())
        else:
            with name_errors(self._path(name)), suppress(FileNotFoundError):
                os.unlink(self._path(name))

    def write_bytes(self, name: str, data: bytes | memoryview) -> None:
        with self.open_file(name) as stream:
            stream.write(data)

    @contextmanager
    def open_file(self, name: str) -> Iterator[BinaryIO]:
        """Open a new file that replaces ``name`` (relative) when the block ends normally.

        Raises EngineError [folder.unwritable].
        """
        path = self._path(name)
        with name_errors(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with replace_file(path, keep_drafts=True) as stream:
                yield stream


def _fault_of(line: str, file: str) -> RowFault:
    """Decode a fault from a line of a file in ``_errors``. Raises FormatError [folder.resume]."""
    try:
        entries = json.loads(line)
        row, code, message = int(entries["row"]), str(entries["code"]), str(entries["message"])
        return RowFault(row, code, message, entries["file"] and str(entries["file"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise FormatError(
            "folder.resume", f"a fault must be an object of row, file, code and message, got {line[:80]!r}", file=file
        ) from None


class OneFileSink(Sink):
    """OneFileSink is a sink that writes one file for each part, directly in its folder."""

    suffix: ClassVar[str]

    def _commit(self) -> tuple[str, str]:
        return "", self.suffix

    def write_columns(self, part: int, rows: NDArray[np.int64], columns: Mapping[str, RowValues]) -> None:
        with self.open_file(f"{part_name(part)}{self.suffix}") as stream:
            self.write_file(stream, {"row": np.asarray(rows, np.int64), **columns})

    @abstractmethod
    def write_file(self, stream: BinaryIO, columns: Mapping[str, RowValues]) -> None:
        """Write the columns of one part to ``stream``."""

    def remove(self) -> None:
        with name_errors(self.folder):
            for part in self._numbers("", self.suffix):
                os.unlink(self._path(f"{part_name(part)}{self.suffix}"))
        super().remove()


@contextmanager
def name_errors(path: str, *, may_be_missing: bool = False) -> Iterator[None]:
    """Convert errors of the operating system inside the block to EngineError [folder.unwritable] with the path.

    ``may_be_missing``: a FileNotFoundError is not converted.
    """
    try:
        yield
    except OSError as error:
        if may_be_missing and isinstance(error, FileNotFoundError):
            raise
        raise EngineError("folder.unwritable", f"cannot write: {error.strerror or error}", file=error.filename or path) from None
    except DovetailError as error:
        if not error.code.startswith("path."):
            raise
        raise EngineError("folder.unwritable", f"cannot write: {error.message}", file=path) from None
