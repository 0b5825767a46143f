"""Open model files, whose paths the user chooses, and files that a model refers to.

The user's path of a model may contain links. Paths *in* a model are not trusted: the file must be in the model's folder.
Every step of its path is opened relative to an open directory and follows no links, so that nothing can be replaced between
a check and its use (CVE-2022-25882, CVE-2024-27318, CVE-2026-27489, CVE-2026-34446, CVE-2026-34447, CVE-2025-51480).
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import FormatError
from dovetail.storage.mapped_files import watch

StrPath: TypeAlias = str | os.PathLike[str]
Bytes: TypeAlias = NDArray[np.uint8]
Content: TypeAlias = bytes | memoryview
"""The bytes of a model file: a copy in memory, or a view of a memory-mapped file."""

_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
# A FIFO that replaces a file between lstat and open must not block.
_NO_BLOCK = getattr(os, "O_NONBLOCK", 0)
MIN_MAPPED_SIZE = 64 << 20
"""The minimum size in bytes of a memory-mapped weights file.

Smaller files are copied in milliseconds, and later changes of the file do not affect a copy.
"""
_policy: ContextVar[str] = ContextVar("dovetail-mapping", default="auto")
_HAS_DIRECTORIES = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY") and hasattr(os, "O_NOFOLLOW")


_opened: ContextVar[list[tuple[str, os.stat_result]] | None] = ContextVar("dovetail-opened", default=None)


@contextmanager
def record_files() -> Iterator[list[tuple[str, os.stat_result]]]:
    """Collect the paths of all files that are opened in the ``with`` block, each with its ``stat`` result."""
    opened: list[tuple[str, os.stat_result]] = []
    token = _opened.set(opened)
    try:
        yield opened
    finally:
        _opened.reset(token)


def _record(path: str, descriptor: int) -> None:
    opened = _opened.get()
    if opened is not None:
        opened.append((path, os.fstat(descriptor)))


def read_bytes(path: StrPath, limit: int | None = None) -> bytes:
    """Read the whole regular file at ``path``, a path that the user chose.

    Raises FormatError [path.escape], [path.missing], [path.unreadable], [path.kind]; [file.size] beyond ``limit`` bytes.
    """
    descriptor = _open_user_path(path)
    with os.fdopen(descriptor, "rb") as stream:
        size = os.fstat(descriptor).st_size
        if limit is not None and size > limit:
            raise FormatError("file.size", f"the file must have at most {limit} bytes, got {size}", file=os.fspath(path))
        return stream.read(size)


def read_content(path: StrPath, limit: int) -> Content:
    """Read or memory-map the regular file at ``path``, chosen as in ``contents``. Raises the errors of read_bytes."""
    descriptor = _open_user_path(path)
    try:
        size = os.fstat(descriptor).st_size
        if _is_mapped(size) and size <= limit:
            return contents(descriptor).data
    finally:
        os.close(descriptor)
    return read_bytes(path, limit)


def open_beside(model_path: StrPath, location: str, *, allow_symlinks_within: StrPath | None = None) -> int:
    """Open the file ``location`` of a model at ``model_path`` for reading; the caller closes the descriptor.

    ``location`` is relative to the folder of the model. ``allow_symlinks_within`` is a folder that links may lead to, such as a
    download cache; the file must then be in that folder. Raises FormatError: [path.escape] (empty, absolute, ``..``, or outside
    the allowed folder), [path.link] (a symbolic link in the path, or a file with several hard links), [path.kind] (no regular
    file), [path.missing], [path.unreadable].
    """
    parts = parts_of(location, file=os.fspath(model_path))
    root = folder_of(model_path)
    if allow_symlinks_within is not None:
        target = os.path.realpath(os.path.join(root, *parts))
        root = os.path.realpath(allow_symlinks_within)
        parts = _parts_below(target, root, location, file=os.fspath(model_path))
    with Folder.walk(root, parts[:-1], os.fspath(model_path)) as folder:
        return folder.open_file(parts[-1])


def map_file(source: StrPath | int, offset: int = 0, length: int | None = None) -> Bytes:
    """Map ``length`` bytes (None: to the end) from ``offset`` of a file as a read-only uint8 array.

    ``source`` is a path that the user chose, or a descriptor, which stays open. The system reads bytes at their first use.
    Raises FormatError [data.range] if the file does not have the bytes of the range, and the errors of read_bytes.
    """
    if not isinstance(source, int):
        descriptor = _open_user_path(source)
        try:
            return map_file(descriptor, offset, length)
        finally:
            os.close(descriptor)
    size = os.fstat(source).st_size
    end = size if length is None else offset + length
    if offset < 0 or not offset <= end <= size:
        asked = f"bytes {offset} to {end}" if length is None or length >= 0 else f"{length} bytes"
        raise FormatError("data.range", f"{asked} exceed a file of {size} bytes")
    if end == offset:
        return np.frombuffer(b"", np.uint8)
    aligned = offset - offset % mmap.ALLOCATIONGRANULARITY
    mapping = mmap.mmap(source, end - aligned, access=mmap.ACCESS_READ, offset=aligned)
    return np.frombuffer(mapping, np.uint8)[offset - aligned :]


def contents(source: StrPath | int) -> Bytes:
    """Return all bytes of a weights file as a read-only uint8 array: a copy of a small file, a memory map of a large file.

    ``mapping_policy`` overrides the choice by size. Raises the errors of map_file, and FormatError [data.memory] if a copy does
    not fit into memory.
    """
    if not isinstance(source, int):
        descriptor = _open_user_path(source)
        try:
            return contents(descriptor)
        finally:
            os.close(descriptor)
    size = os.fstat(source).st_size
    if not _is_mapped(size):
        return _copy_contents(source, size)
    data = map_file(source)
    watch(data, source)
    return data


def _is_mapped(size: int) -> bool:
    policy = _policy.get()
    return policy == "always" or (policy == "auto" and size >= MIN_MAPPED_SIZE)


def _copy_contents(descriptor: int, size: int) -> Bytes:
    try:
        data = np.empty(size, np.uint8)
    except MemoryError:
        raise FormatError(
            "data.memory", f"the weights ({size} bytes) do not fit into memory: load the model with map='always'"
        ) from None
    remaining: memoryview = data.data
    with os.fdopen(os.dup(descriptor), "rb", buffering=0) as stream:
        stream.seek(0)
        while remaining and (count := stream.readinto(remaining)):
            remaining = remaining[count:]
    if remaining:
        raise FormatError("file.changed", f"the file became {len(remaining)} bytes shorter while it was read")
    data.flags.writeable = False
    return data


@contextmanager
def mapping_policy(policy: str) -> Iterator[None]:
    """Set when ``contents`` memory-maps files in the ``with`` block: "never", "always" or "auto" (from MIN_MAPPED_SIZE bytes).

    Raises FormatError [argument.value] for any other policy.
    """
    if policy not in ("never", "auto", "always"):
        raise FormatError("argument.value", f"map must be 'never', 'auto' or 'always', got {policy!r}")
    token = _policy.set(policy)
    try:
        yield
    finally:
        _policy.reset(token)


def check_location(location: str, *, file: str | None = None) -> None:
    """Raise FormatError [path.escape] if ``location`` is empty or absolute, or contains ``..`` or NUL. Accesses no file."""
    parts_of(location, file=file)


class Folder:
    """Folder is an open directory, whose files are accessed relative to its descriptor where the system supports that."""

    def __init__(self, path: str, descriptor: int | None, file: str) -> None:
        self.path = path
        self.descriptor = descriptor
        self.file = file

    @classmethod
    def walk(cls, root: str, steps: Sequence[str], file: str) -> Folder:
        """Open the folder ``root/step/step/...`` without following links in ``steps``; links in ``root`` are followed."""
        try:
            descriptor = os.open(root, _READ | os.O_DIRECTORY) if _HAS_DIRECTORIES else None
            os.stat(os.path.join(root, os.curdir))
        except OSError as error:
            raise unreadable(error, root, file) from None
        folder = cls(root, descriptor, file)
        for step in steps:
            with folder:
                folder = folder.step(step)
        return folder

    def step(self, name: str) -> Folder:
        self._refuse_unless(stat.S_ISDIR, name, "a folder")
        try:
            descriptor = os.open(name, _READ | os.O_DIRECTORY | NO_FOLLOW, dir_fd=self.descriptor) if _HAS_DIRECTORIES else None
        except OSError as error:
            raise unreadable(error, name, self.file) from None
        return Folder(os.path.join(self.path, name), descriptor, self.file)

    def open_file(self, name: str) -> int:
        self._refuse_unless(stat.S_ISREG, name, "a regular file")
        try:
            descriptor = os.open(self.at(name), _READ | NO_FOLLOW | _NO_BLOCK, dir_fd=self.descriptor)
        except OSError as error:
            raise unreadable(error, name, self.file) from None
        try:
            info = os.fstat(descriptor)
            refuse_kind(info, name, self.file)
            if info.st_nlink > 1:
                raise FormatError("path.link", f"{name!r} must have one name, got {info.st_nlink} hard links", file=self.file)
            _record(os.path.join(self.path, name), descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def at(self, name: str) -> str:
        return name if self.descriptor is not None else os.path.join(self.path, name)

    def look(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(self.at(name), dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise unreadable(error, name, self.file) from None

    def _refuse_unless(self, is_right: Callable[..., bool], name: str, expected_kind: str) -> None:
        info = self.look(name)
        if info is None:
            raise FormatError("path.missing", f"{self.path!r} has no file {name!r}", file=self.file)
        if stat.S_ISLNK(info.st_mode):
            raise FormatError("path.link", f"{name!r} must be a regular file, got a symbolic link", file=self.file)
        if not is_right(info.st_mode):
            raise FormatError("path.kind", f"{name!r} must be {expected_kind}", file=self.file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


def _open_user_path(path: StrPath) -> int:
    """Open the regular file at a path that the user chose, following links."""
    name = os.fspath(path)
    refuse_nul(name, name)
    try:
        refuse_kind(os.stat(name), name, name)
        descriptor = os.open(name, _READ | _NO_BLOCK)
    except OSError as error:
        raise unreadable(error, name, name) from None
    try:
        refuse_kind(os.fstat(descriptor), name, name)
        _record(name, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def folder_of(model_path: StrPath) -> str:
    refuse_nul(os.fspath(model_path), os.fspath(model_path))
    return os.path.realpath(os.path.dirname(os.fspath(model_path)) or os.curdir)


def parts_of(location: str, *, file: str | None) -> tuple[str, ...]:
    """Split a relative POSIX path into steps. Raises FormatError [path.escape] for paths that are unsafe on POSIX or Windows."""
    refuse_nul(location, file)
    # Deferred for start-up time.
    from pathlib import PureWindowsPath

    windows = PureWindowsPath(location)
    if location.startswith("/") or windows.drive or windows.root:
        raise FormatError("path.escape", f"{location!r} must be a relative path", file=file)
    if ".." in location.split("/") or ".." in windows.parts:
        raise FormatError("path.escape", f"{location!r} must stay in the model's folder", file=file)
    parts = tuple(part for part in location.split("/") if part not in ("", "."))
    if not parts:
        raise FormatError("path.escape", f"{location!r} must name a file", file=file)
    return parts


def _parts_below(target: str, root: str, location: str, *, file: str) -> tuple[str, ...]:
    if os.path.commonpath([target, root]) != root or target == root:
        raise FormatError("path.escape", f"{location!r} must lead into {root!r}, got {target!r}", file=file)
    return tuple(os.path.relpath(target, root).split(os.sep))


def refuse_nul(path: str, file: str | None) -> None:
    if "\0" in path:
        raise FormatError("path.escape", f"{path!r} must not contain a NUL", file=file)


def refuse_kind(info: os.stat_result, name: str, file: str) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise FormatError("path.kind", f"{name!r} must be a regular file", file=file)


def unreadable(error: OSError | ValueError, name: str, file: str) -> FormatError:
    number = getattr(error, "errno", None)
    if number in (errno.ENOENT, errno.ENOTDIR):
        return FormatError("path.missing", f"{name!r} does not exist", file=file)
    if number == errno.ELOOP:
        return FormatError("path.link", f"{name!r} must be a regular file, got a symbolic link", file=file)
    return FormatError("path.unreadable", f"{name!r} cannot be read: {getattr(error, 'strerror', None) or error}", file=file)
