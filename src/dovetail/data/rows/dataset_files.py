"""Files of a dataset: the sorted list of files, and opening them without leaving the dataset's folder.

The path of the dataset may contain links. Inside the folder, names that start with ``_`` or ``.`` are skipped (pyarrow's rule),
and a symbolic link must lead to a regular file of the same folder.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

from dovetail.errors import DovetailError, EngineError, FormatError, MissingFileError, raise_all
from dovetail.storage.files import NO_FOLLOW, Folder, StrPath

_READ = os.O_RDONLY | NO_FOLLOW | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
_LOST = (errno.ENOENT, errno.ENOTDIR, errno.EIO, getattr(errno, "ESTALE", errno.EIO))
_SHOWN = 5
"""The maximum number of file names that a message lists for one kind of change."""


class DataFile(NamedTuple):
    """DataFile is a file: name relative to the dataset's folder with ``/``, size in bytes and modification time in ns.

    ``changed`` is the status change time in ns (ctime), which programs cannot set; ``identity`` is the device and inode.
    """

    name: str
    size: int
    modified: int
    changed: int
    identity: tuple[int, int]


@dataclass(frozen=True, slots=True)
class DataFolder:
    """DataFolder holds the absolute path of a folder, with links resolved, and the folder's files in sorted order."""

    root: str
    files: tuple[DataFile, ...]

    @classmethod
    def scan(cls, path: StrPath, suffixes: Sequence[str] = (), *, is_zarr: bool = False) -> DataFolder:
        """List the files at ``path``: a single file, or all files of a folder and its subfolders with one of ``suffixes``.

        Without suffixes all files are listed. ``is_zarr``: include zarr's metadata files, whose names start with ``.z``.

        Raises MissingFileError [file.missing]; FormatError [dataset.link] and [dataset.unreadable], for all files at once.
        """
        root = _resolve(path)
        if not os.path.isdir(root):
            status = os.stat(root)
            if not stat.S_ISREG(status.st_mode):
                raise FormatError("dataset.kind", "a dataset must be a regular file or a folder", file=os.fspath(path))
            return cls(os.path.dirname(root), (_data_file(os.path.basename(root), status),))
        files: list[DataFile] = []
        errors: list[DovetailError] = []
        for name, is_link in _names(root, errors, is_zarr):
            if not suffixes or name.lower().endswith(tuple(suffixes)):
                try:
                    steps = _resolve_steps(root, name) if is_link else [name]
                    files.append(_data_file(name, _status(os.path.join(root, *steps), name)))
                except DovetailError as error:
                    errors.append(error)
        raise_all(errors, "paths of the dataset cannot be read")
        return cls(root, tuple(sorted(files)))

    def open(self, file: DataFile) -> BinaryIO:
        """Open a file for reading. Raises FormatError [dataset.link], [dataset.unreadable]; EngineError [file.changed]."""
        try:
            try:
                descriptor = self._open_steps(file.name.split("/"), file.name)
            except (OSError, FormatError) as error:
                if getattr(error, "errno", 0) != errno.ELOOP and getattr(error, "code", "") != "path.link":
                    raise
                descriptor = self._open_steps(_resolve_steps(self.root, file.name), file.name)
        except (OSError, FormatError) as error:
            if getattr(error, "code", "").startswith("dataset."):
                raise
            if getattr(error, "errno", 0) in _LOST or getattr(error, "code", "") == "path.missing":
                message = "the file no longer exists since the start of the job, or its file system is not mounted here"
                raise EngineError("file.changed", message, file=file.name) from None
            message = error.message if isinstance(error, FormatError) else error.strerror or str(error)
            raise FormatError("dataset.unreadable", f"the file cannot be opened: {message}", file=file.name) from None
        stream = os.fdopen(descriptor, "rb")
        status = os.fstat(descriptor)
        try:
            _refuse_change(file, status)
        except EngineError:
            stream.close()
            raise
        return stream

    def check(self, file: DataFile) -> None:
        """Raise EngineError [file.changed] if a file has changed since the start of the job."""
        with self.open(file):
            pass

    def _open_steps(self, steps: Sequence[str], file: str) -> int:
        with Folder.walk(self.root, steps[:-1], file) as folder:
            return os.open(folder.at(steps[-1]), _READ, dir_fd=folder.descriptor)


def _refuse_change(file: DataFile, status: os.stat_result) -> None:
    """Raise EngineError [file.changed] for a status that differs from the status at the start of the job.

    On a host with a copy of the dataset, devices, inodes and ctimes differ; only modification times are compared there.
    """
    if not stat.S_ISREG(status.st_mode) or status.st_size != file.size:
        message = f"the file must have {file.size} bytes, its size at the start of the job, got {status.st_size}"
        raise EngineError("file.changed", message, file=file.name)
    is_copy = status.st_dev != file.identity[0]
    known = (file.modified, 0, 0) if is_copy else (file.modified, file.changed, file.identity[1])
    actual = (status.st_mtime_ns, 0, 0) if is_copy else (status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    if actual != known:
        message = "the file was written or replaced since the start of the job"
        raise EngineError("file.changed", message, file=file.name)


def file_names(path: StrPath) -> list[str]:
    """Return the names of all files of a dataset, without opening the files. Raises MissingFileError [file.missing]."""
    root = _resolve(path)
    return [name for name, _ in _names(root, [], False)] if os.path.isdir(root) else [os.path.basename(root)]


def _resolve(path: StrPath) -> str:
    name = os.fspath(path)
    if "\0" in name or not os.path.exists(name):
        raise MissingFileError("file.missing", f"{name!r} does not exist", file=name)
    return os.path.realpath(name)


def _names(root: str, errors: list[DovetailError], is_zarr: bool) -> Iterator[tuple[str, bool]]:
    """Yield the name of each file below a folder, and whether it is a link.

    Links to folders and folders that cannot be listed are appended to ``errors``.
    """
    pending = [""]
    while pending:
        prefix = pending.pop()
        try:
            with os.scandir(os.path.join(root, prefix)) as entries:
                for entry in entries:
                    name = f"{prefix}{entry.name}"
                    if entry.name.startswith(("_", ".")) and not (is_zarr and entry.name.startswith(".z")):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(f"{name}/")
                    elif entry.is_symlink() and entry.is_dir():
                        errors.append(FormatError("dataset.link", "a link to a folder is not followed", file=name))
                    else:
                        yield name, entry.is_symlink()
        except OSError as error:
            message = f"the folder cannot be listed: {error.strerror}"
            errors.append(FormatError("dataset.unreadable", message, file=prefix or root))


def _status(path: str, name: str) -> os.stat_result:
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError as error:
        raise FormatError("dataset.unreadable", f"the file cannot be read: {error.strerror or error}", file=name) from None
    if not stat.S_ISREG(status.st_mode):
        raise FormatError("dataset.unreadable", "must be a regular file", file=name)
    return status


def _resolve_steps(root: str, name: str) -> list[str]:
    """Return the path components from ``root`` to the file after resolving links.

    Raises FormatError [dataset.link] for a file outside of ``root``.
    """
    target = os.path.realpath(os.path.join(root, name))
    if os.path.commonpath([root, target]) != root or target == root:
        raise FormatError("dataset.link", f"the link must lead to a file in the dataset's folder, got {target!r}", file=name)
    return os.path.relpath(target, root).split(os.sep)


def _data_file(name: str, status: os.stat_result) -> DataFile:
    return DataFile(name, status.st_size, status.st_mtime_ns, status.st_ctime_ns, (status.st_dev, status.st_ino))


def describe_change(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Describe how two fingerprints differ, with the names of files; return "" if they are equal."""
    if old.get("kind") != new.get("kind"):
        return f"the dataset was {old.get('kind')} and is {new.get('kind')}"
    before = {row[0]: list(row[1:]) for row in old.get("files", ())}
    after = {row[0]: list(row[1:]) for row in new.get("files", ())}
    changes = {
        "removed": [name for name in before if name not in after],
        "added": [name for name in after if name not in before],
        "modified": [name for name in after if name in before and before[name] != after[name]],
    }
    texts = [f"{len(names)} {word} ({_shorten(names)})" for word, names in changes.items() if names]
    if texts:
        return f"files of the dataset: {', '.join(texts)}"
    names = [name for name in {**old, **new} if name != "files" and old.get(name) != new.get(name)]
    return f"the dataset has different {', '.join(names)}" if names else ""


def _shorten(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
