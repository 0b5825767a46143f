"""Zarr datasets, versions 2 and 3: an array whose leading axis is the axis of rows, or a group of such arrays as columns."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.data.rows.dataset import MAX_ROWS, RowType, Source, fingerprint_of, refuse_rows
from dovetail.data.rows.dataset_files import DataFolder
from dovetail.data.rows.numpy_files import ARRAY, native_array, plain_array
from dovetail.data.rows.part_files import Sink, column_of, file_name_of, name_errors, part_name
from dovetail.data.rows.rows import RowBlock, RowValues, check_range, fault_rows, join_blocks
from dovetail.data.rows.zarr_codecs import codecs_of
from dovetail.errors import DovetailError, EngineError, FormatError, UnsupportedError, first_line, raise_all
from dovetail.ir.host.extras import import_extra
from dovetail.storage.files import StrPath

METADATA = ("zarr.json", ".zarray", ".zgroup")
MAX_CHUNK_BYTES = 1 << 30
"""The maximum bytes of a decoded chunk or shard."""
DONE = "_done"


def zarr(purpose: str = "reading zarr") -> Any:
    """Import zarr. Raises UnsupportedError [extra.missing]."""
    return import_extra("zarr", "zarr", purpose)


class ZarrSource(Source):
    """ZarrSource is a dataset in a zarr array or group. A chunk without a file has the fill value, as zarr defines."""

    kind: ClassVar[str] = "zarr"

    def __init__(self, path: StrPath, columns: Sequence[str] | None, keep: Sequence[str]) -> None:
        self.folder = DataFolder.scan(path, is_zarr=True)
        self._arrays: dict[str, Any] | None = None
        paths = _paths_of(self.folder)
        super().__init__(self.folder, columns, keep, list(paths))
        self._paths = {name: paths[name] for name in dict.fromkeys([*self.selected, *self.keep])}
        arrays = self._open()
        counts = {name: array.shape[0] for name, array in arrays.items()}
        if len(set(counts.values())) > 1:
            text = ", ".join(f"{name} {count}" for name, count in counts.items())
            message = f"the arrays of the group must have equal leading axes, got {text}; name the columns to read"
            raise FormatError("dataset.schema", message, file=os.fspath(path))
        self._rows = next(iter(counts.values()), 0)
        refuse_rows(self._rows, self.folder)
        for name in self.selected:
            array = arrays[name]
            is_text = array.dtype.kind not in "biufc"
            self.row_types[name] = RowType(
                "string" if is_text else array.dtype.newbyteorder("=").name, len(array.shape) - 1, tuple(array.shape[1:])
            )
        slabs = {_slab(array)[0] for array in arrays.values()}
        self.chunk_rows = max(slabs, default=1)
        self.row_bytes = max(1, sum(prod(array.shape[1:]) * _item_bytes(array) for array in arrays.values()))

    @property
    def rows(self) -> int:
        return self._rows

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_arrays": None}

    def _open(self) -> dict[str, Any]:
        """Open the arrays. Raises one FormatError for all arrays that cannot be read."""
        if self._arrays is None:
            zarr()
            from dovetail.data.rows.zarr_store import DatasetStore  # deferred: zarr is an extra

            store = DatasetStore(self.folder)
            arrays: dict[str, Any] = {}
            errors: list[DovetailError] = []
            for name, path in self._paths.items():
                try:
                    arrays[name] = _open_array(store, path)
                except DovetailError as error:
                    errors.append(error.at(file=path or os.path.basename(self.folder.root)))
            raise_all(errors, "arrays of the dataset are unreadable")
            self._arrays = arrays
        return self._arrays

    def read(self, start: int, stop: int) -> RowBlock:
        check_range(start, stop, self.rows)
        try:
            return self._read(start, stop)
        except EngineError:
            raise
        except Exception as error:  # codecs raise RuntimeError, ValueError, OSError and others for damaged chunks
            # The range is read again between chunk boundaries, so that only rows of damaged chunks become faults.
            ends = self._chunk_ends(start, stop)
            if not ends:
                file = os.path.basename(self.folder.root)
                code = error.code if isinstance(error, DovetailError) else "dataset.unreadable"
                message = first_line(error)
                return RowBlock(np.empty(0, np.int64), faults=fault_rows(start, stop, code, message, file))
        blocks = [self.read(low, high) for low, high in zip([start, *ends], [*ends, stop], strict=True)]
        return join_blocks(blocks, self.selected, self.keep)

    def _chunk_ends(self, start: int, stop: int) -> list[int]:
        """Return the row numbers between ``start`` and ``stop`` at which a chunk of any array begins."""
        steps = {_slab(array)[0] for array in self._open().values()}
        return sorted({end for step in steps for end in range((start // step + 1) * step, stop, step)})

    def _read(self, start: int, stop: int) -> RowBlock:
        values = {name: _decode(array[start:stop]) for name, array in self._open().items()}
        rows = np.arange(start, stop)
        return RowBlock(rows, {name: values[name] for name in self.selected}, {name: values[name] for name in self.keep})

    def file_of(self, row: int) -> str | None:
        return os.path.basename(self.folder.root) if 0 <= row < self.rows else None

    def fingerprint(self) -> dict[str, Any]:
        return {**fingerprint_of(self.kind, self.columns, self.folder.files, None), "rows": self.rows}


def is_zarr(path: StrPath) -> bool:
    """Return whether the folder at ``path`` is a zarr array or group."""
    return any(os.path.lexists(os.path.join(path, name)) for name in METADATA)


def _paths_of(folder: DataFolder) -> dict[str, str]:
    """Return the path of each array in the store, by column name."""
    names = [file.name for file in folder.files if file.name.rpartition("/")[2] in ("zarr.json", ".zarray")]
    nodes = {name.rpartition("/")[0] for name in names}
    # In version 3 the metadata files of arrays and groups have the same name; only groups have child nodes.
    groups = {parent for node in nodes for parent in _parents(node)}
    return {column_of(path) if path else ARRAY: path for path in sorted(nodes - groups)}


def _parents(path: str) -> list[str]:
    steps = path.split("/") if path else []
    return ["/".join(steps[:count]) for count in range(len(steps))]


def _open_array(store: Any, path: str) -> Any:
    try:
        array = zarr().open_array(store, path=path, mode="r")
        metadata = array.metadata.to_dict()
    except DovetailError:
        raise
    except Exception as error:  # damaged metadata raise ValueError, KeyError, TypeError, JSONDecodeError, ...
        message = first_line(error)
        raise FormatError("dataset.unreadable", f"the array must be a valid zarr array: {message}") from None
    codecs = codecs_of(metadata, _slab(array))
    is_text = array.dtype.kind not in "biufcU"
    if is_text and not codecs.has_text:
        message = f"elements must be numbers, booleans or strings, got {array.dtype}"
        raise UnsupportedError("dataset.type", message)
    if not array.shape:
        raise FormatError("dataset.unreadable", "the array must have an axis of rows, got a scalar")
    chunk_bytes = prod(_slab(array)) * _item_bytes(array)
    if min(array.shape) < 0 or array.shape[0] > MAX_ROWS or min(_slab(array)) < 1 or chunk_bytes > MAX_CHUNK_BYTES:
        limits = f"a chunk must have at most {MAX_CHUNK_BYTES} bytes, and an array at most {MAX_ROWS} rows"
        raise FormatError("file.size", f"{limits}, got chunks {_slab(array)} of an array {array.shape}")
    store.chunks[f"{path}/" if path else ""] = codecs, MAX_CHUNK_BYTES if is_text else chunk_bytes
    return array


def _slab(array: Any) -> tuple[int, ...]:
    """Return the shape of the elements in one file: a shard, or a chunk of an array without shards."""
    return tuple(array.shards or array.chunks)


def _item_bytes(array: Any) -> int:
    return int(array.dtype.itemsize) or 1


def _decode(values: Any) -> NDArray[Any]:
    array: NDArray[Any] = np.asarray(values)
    return array.astype(object) if array.dtype.kind == "T" else native_array(array)


class ZarrSink(Sink):
    """ZarrSink writes a zarr group of version 3 with one array for each column: index ``i`` holds row ``i``.

    A part is one chunk of each array. Rows without a result hold NaN, 0 or "", and -1 in the array ``row``.
    """

    format: ClassVar[str] = "zarr"
    markers: ClassVar[tuple[str, ...]] = (DONE,)

    def write_columns(self, part: int, rows: NDArray[np.int64], columns: Mapping[str, RowValues]) -> None:
        files = self._encode(part, rows, {"row": np.asarray(rows, np.int64), **columns})
        for name, data in files.items():
            if name == "zarr.json" and os.path.exists(self._path(name)):
                # The group's metadata are complete; after an earlier run they contain the consolidated metadata.
                continue
            if name.endswith("zarr.json") and not self._is_new(name, data):
                continue
            self.write_bytes(name, data)
        self.write_bytes(os.path.join(DONE, part_name(part)), b"")

    def _encode(self, part: int, rows: NDArray[np.int64], columns: Mapping[str, RowValues]) -> dict[str, bytes]:
        """Return the content of the files of one part by name, metadata files first."""
        library = zarr("writing zarr")
        memory: dict[str, Any] = {}
        group = library.open_group(library.storage.MemoryStore(memory), mode="w", zarr_format=3)
        start = part * self.part_rows
        stop = min(start + self.part_rows, self.rows)
        for name, values in columns.items():
            plain = plain_array(name, values)
            is_text = plain.dtype.kind == "U"
            fill = "" if is_text else -1 if name == "row" else np.nan if plain.dtype.kind in "fc" else plain.dtype.type(0)
            shape = plain.shape[1:]
            array = group.create_array(
                file_name_of(name),
                shape=(self.rows, *shape),
                chunks=(self.part_rows, *(max(size, 1) for size in shape)),
                dtype=str if is_text else plain.dtype,
                fill_value=fill,
            )
            whole = np.full((stop - start, *shape), fill, object if is_text else plain.dtype)
            whole[np.asarray(rows) - start] = plain
            array[start:stop] = whole
        names = sorted(memory, key=lambda name: (not name.endswith("zarr.json"), name))
        return {name: memory[name].to_bytes() for name in names}

    def _is_new(self, name: str, data: bytes) -> bool:
        """Return whether the metadata of an array must be written.

        Raises EngineError [dataset.output] if an earlier part had a different shape or type.
        """
        try:
            with open(self._path(name), "rb") as stream:
                old = stream.read()
        except FileNotFoundError:
            return True
        if old != data:
            message = "all parts must have results of the same shape and type; write parquet or npy"
            raise EngineError("dataset.output", message, file=self._path(name))
        return False

    def finish(self) -> None:
        """Complete the folder after all parts: consolidate the metadata, so that readers need not list the folder."""
        super().finish()
        if os.path.exists(self._path("zarr.json")):
            self.write_bytes("zarr.json", self._consolidate())

    def _consolidate(self) -> bytes:
        """Return the metadata of the group with the metadata of its arrays.

        zarr consolidates a copy of the metadata: a zarr that is killed leaves its temporary file, and flushes no file.
        """
        library = zarr("writing zarr")
        with name_errors(self.folder), tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            for name in ("", *self.result_folders()):
                os.makedirs(os.path.join(folder, name), exist_ok=True)
                shutil.copyfile(self._path(name, "zarr.json"), os.path.join(folder, name, "zarr.json"))
            # zarr warns because consolidated metadata are not yet part of the specification of version 3.
            warnings.simplefilter("ignore")
            library.consolidate_metadata(folder)
            with open(os.path.join(folder, "zarr.json"), "rb") as stream:
                return stream.read()

    def result_folders(self) -> Sequence[str]:
        names = os.listdir(self.folder) if os.path.isdir(self.folder) else []
        return [name for name in names if not name.startswith(("_", ".")) and os.path.exists(self._path(name, "zarr.json"))]

    def remove(self) -> None:
        super().remove()
        if os.path.exists(self._path("zarr.json")):
            os.unlink(self._path("zarr.json"))

    def _commit(self) -> tuple[str, str]:
        return DONE, ""
