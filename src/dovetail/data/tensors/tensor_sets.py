"""Sets of tensors in safetensors and .npy files: the offset and strides of each tensor in its file.

A *parallel set* is a set of files that hold the same tensor names, such as the files of the ranks of a tensor-parallel model. The
tensors of the set are named ``NAME@RANK``; ranks number the files in the order of the file names.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from dovetail.errors import DovetailError, EngineError, FormatError, raise_all
from dovetail.ir import dtypes
from dovetail.ir.dtypes import DType
from dovetail.ops.tensor.transpose_expand_tile import strides_of
from dovetail.storage.files import StrPath, open_beside
from dovetail.storage.npy_file import read_npy_header
from dovetail.storage.safetensors_file import read_header

INDEX = "model.safetensors.index.json"
"""The name of the index that Hugging Face's libraries write for several files."""
_MAX_INDEX = 100 << 20


@dataclass(eq=False)
class TensorFile:
    """TensorFile is an open file of a set. ``status`` is its status when it was opened, by which later changes are detected."""

    path: str
    descriptor: int
    status: os.stat_result
    metadata: Mapping[str, str] = field(default_factory=dict)

    def fingerprint(self) -> tuple[str, int, int]:
        return os.path.basename(self.path), self.status.st_size, self.status.st_mtime_ns

    def refuse_changes(self) -> None:
        """Raise EngineError [file.changed] if the file's size or modification time has changed since it was opened."""
        now = os.fstat(self.descriptor)
        if (now.st_size, now.st_mtime_ns) != (self.status.st_size, self.status.st_mtime_ns):
            raise EngineError("file.changed", f"{os.path.basename(self.path)!r} was changed while it was read", file=self.path)


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """StoredTensor is a tensor in a file, from byte ``offset`` on; ``stored_strides`` are in elements."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    file: TensorFile
    offset: int
    stored_strides: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.numpy.itemsize


@dataclass(eq=False)
class TensorSet:
    """TensorSet holds the tensors of one or several files by name. ``ranks``: the number of files of a parallel set, else 0."""

    path: str
    format: str
    files: list[TensorFile]
    tensors: dict[str, StoredTensor]
    ranks: int = 0

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata entries that all files have in common."""
        rows = [file.metadata.items() for file in self.files]
        return dict(sorted(set(rows[0]).intersection(*rows[1:]))) if rows else {}

    def __enter__(self) -> TensorSet:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.files:
            os.close(file.descriptor)


def open_tensors(path: StrPath) -> TensorSet:
    """Open a .safetensors or .npy file, or a folder of such files of one kind; the caller closes the set.

    If a folder has a file INDEX, the set consists of the files that INDEX names. Raises FormatError: [dataset.kind] if the path
    has no such files or files of both kinds, [array.file] for an index that contradicts its files, and the errors of open_beside
    and of the readers of the formats.
    """
    folder, names, index = _files_at(os.fspath(path))
    suffix = os.path.splitext(names[0])[1]
    opened: list[TensorFile] = []
    errors: list[DovetailError] = []
    rows: list[tuple[int, list[StoredTensor]]] = []
    try:
        for name in names:
            try:
                file = _open(folder, name)
                opened.append(file)
                rows.append((len(rows), list(_READERS[suffix](file, os.path.splitext(name)[0]))))
            except DovetailError as error:
                errors.append(error)
        raise_all(errors, "files that cannot be read")
        tensors, ranks = _by_name([row for _, row in rows], is_indexed=index is not None, path=os.fspath(path))
        if index is not None:
            _check_index(index, tensors, os.path.join(folder, INDEX))
    except BaseException:
        for file in opened:
            os.close(file.descriptor)
        raise
    return TensorSet(os.fspath(path), suffix[1:], opened, tensors, ranks)


def is_tensor_path(path: StrPath) -> bool:
    """Return whether a path is a .safetensors file, or a folder with such files."""
    path = os.fspath(path)
    if os.path.isdir(path):
        return any(name.endswith(".safetensors") for name in os.listdir(path))
    return path.endswith(".safetensors")


def _files_at(path: str) -> tuple[str, list[str], dict[str, str] | None]:
    """Return the folder, the names of the files, and the index (None without an index)."""
    if not os.path.isdir(path):
        name = os.path.basename(path)
        if os.path.splitext(name)[1] not in _READERS:
            raise FormatError("dataset.kind", f"the file must be a .safetensors or .npy file, got {name!r}", file=path)
        return os.path.dirname(path) or os.curdir, [name], None
    try:
        found = sorted(os.listdir(path), key=natural_key)
    except OSError as error:
        raise FormatError("path.unreadable", f"the folder {path!r} cannot be listed: {error.strerror}", file=path) from None
    if INDEX in found:
        index = _read_index(path)
        return path, sorted(set(index.values()), key=natural_key), index
    names = [name for name in found if os.path.splitext(name)[1] in _READERS and not name.startswith(".")]
    suffixes = sorted({os.path.splitext(name)[1] for name in names})
    if len(suffixes) != 1:
        kinds = " and ".join(suffixes) or "none"
        message = f"the folder must hold either .safetensors or .npy files, got {kinds}"
        raise FormatError("dataset.kind", message, file=path)
    return path, names, None


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key for names that compares numbers within names by value."""
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split(r"([0-9]+)", name)]


def _read_index(folder: str) -> dict[str, str]:
    path = os.path.join(folder, INDEX)
    with os.fdopen(open_beside(path, INDEX, allow_symlinks_within=_link_root(folder)), "rb") as stream:
        data = stream.read(_MAX_INDEX + 1)
    if len(data) > _MAX_INDEX:
        raise FormatError("array.file", f"the index file must have at most {_MAX_INDEX} bytes, got more", file=path)
    try:
        names = json.loads(data)["weight_map"]
        is_right = bool(names) and all(isinstance(item, str) for pair in names.items() for item in pair)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_right = False
    if not is_right:
        raise FormatError("array.file", "the index must hold a weight_map of tensor names to file names", file=path)
    wrong = sorted(
        {name for name in names.values() if os.path.splitext(name)[1] != ".safetensors" or os.path.basename(name) != name}
    )
    if wrong:
        raise FormatError("array.file", f"the index must name .safetensors files of its folder, got {wrong[0]!r}", file=path)
    return dict(names)


def _check_index(index: Mapping[str, str], tensors: Mapping[str, StoredTensor], path: str) -> None:
    wrong = [name for name, file in index.items() if name not in tensors or os.path.basename(tensors[name].file.path) != file]
    if wrong:
        raise FormatError(
            "array.file", f"{index[wrong[0]]!r} must hold the tensor {wrong[0]!r}, which the index assigns to it", file=path
        )


def _link_root(folder: str) -> str | None:
    """Return the folder that links may lead to: the model's folder in a download cache of Hugging Face; None elsewhere.

    In such a cache ``folder`` is snapshots/REVISION, with links into the folder blobs.
    """
    real = Path(os.path.realpath(folder))
    return str(real.parent.parent) if real.parent.name == "snapshots" and (real.parent.parent / "blobs").is_dir() else None


def _open(folder: str, name: str) -> TensorFile:
    path = os.path.join(folder, name)
    descriptor = open_beside(path, name, allow_symlinks_within=_link_root(folder))
    return TensorFile(path, descriptor, os.fstat(descriptor))


def _read_safetensors(file: TensorFile, stem: str) -> Iterator[StoredTensor]:
    rows, file.metadata = read_header(file.descriptor, file.path)
    for name, dtype, shape, offset in rows:
        yield StoredTensor(name, dtype, shape, file, offset, strides_of(shape))


def _read_npy(file: TensorFile, stem: str) -> Iterator[StoredTensor]:
    with os.fdopen(os.dup(file.descriptor), "rb") as stream:
        stream.seek(0)
        header = read_npy_header(stream, file.path)
    numpy_dtype, shape = header.dtype, header.shape
    if numpy_dtype.hasobject or numpy_dtype.names or numpy_dtype != numpy_dtype.newbyteorder("="):
        raise FormatError("array.file", f"elements must be plain numbers of native byte order, got {numpy_dtype}", file=file.path)
    element = dtypes.dtype(numpy_dtype)
    size = file.status.st_size - header.offset
    if element.numpy != numpy_dtype or size != prod(shape) * element.numpy.itemsize:
        message = f"the elements of {numpy_dtype}{list(shape)} must take the {size} bytes after the header of the file"
        raise FormatError("array.file", message, file=file.path)
    strides = tuple(prod(shape[:axis]) for axis in range(len(shape))) if header.is_fortran else strides_of(shape)
    yield StoredTensor(stem, element, shape, file, header.offset, strides)


_READERS: dict[str, Callable[[TensorFile, str], Iterator[StoredTensor]]] = {
    ".safetensors": _read_safetensors,
    ".npy": _read_npy,
}


def _by_name(rows: list[list[StoredTensor]], *, is_indexed: bool, path: str) -> tuple[dict[str, StoredTensor], int]:
    """Return the tensors by name, and the number of ranks (0 if the set is not parallel)."""
    counts = Counter(tensor.name for row in rows for tensor in row)
    if all(count == 1 for count in counts.values()):
        return {tensor.name: tensor for row in rows for tensor in row}, 0
    if is_indexed:
        name = next(name for name, count in counts.items() if count > 1)
        raise FormatError("array.file", f"two files of the index hold the tensor {name!r}", file=path)
    return {f"{tensor.name}@{rank}": tensor for rank, row in enumerate(rows) for tensor in row}, len(rows)


def describe_set(tensors: TensorSet) -> dict[str, Any]:
    """Return data that identify the content of a set without reading its elements: path, file names, sizes and times."""
    return {"path": os.path.abspath(tensors.path), "files": [list(file.fingerprint()) for file in tensors.files]}
