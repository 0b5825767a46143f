"""The folder of cached plans: an entry is read only if it is complete and belongs to this user, and is replaced atomically.

An entry consists of a magic number, a digest, the length of the JSON header, the length of the digested part, the header, and
blobs at multiples of 64 bytes. The digested part starts at the two lengths. Copies of parts of the model file follow the
digested part; a reader compares the copies with the model file. The name of an entry contains the digest of the model file.
An entry is pure data: reading an entry executes nothing and opens no other file.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from dovetail.errors import EngineError
from dovetail.storage.digest import BufferComparison, bytes_of, digest_of

LOGGER = logging.getLogger("dovetail")
MAGIC = b"dovetail plan 2\n"
_DIGEST_END = len(MAGIC) + 32
_HEADER_BEGIN = _DIGEST_END + 16
ALIGNMENT = 64
MAX_HEADER_BYTES = 1 << 28
MAX_FOLDER_BYTES = 8 << 30
"""The maximum total size of all entries in bytes; beyond it the least recently used entries are removed."""
MAX_DRAFT_SECONDS = 3600
"""The age in seconds at which a draft counts as abandoned: its writer was killed."""
SUFFIX = ".plan"
LOCK_SUFFIX = ".lock"
_DRAFT = re.compile(r"\.[0-9a-f]{16}\.draft")
_HAS_DESCRIPTORS = os.open in os.supports_dir_fd and os.scandir in os.supports_fd and hasattr(os, "O_DIRECTORY")
_NAME_LENGTH = 64 + len(SUFFIX)

Blob = np.ndarray[Any, Any]


class Entry(NamedTuple):
    """Entry holds the header of a cache entry and all bytes of the entry's memory-mapped file."""

    header: dict[str, Any]
    data: np.ndarray[Any, Any]
    blobs: list[tuple[int, int]]
    """The offset and the size in bytes of each blob."""
    comparison: BufferComparison
    """The background comparison of copied blobs with the model file. An entry is used only if all copies are equal."""


class LockFile:
    """LockFile is the lock file of an entry; its descriptor is None if the file cannot be opened.

    A process that cannot write the entry writes a mark into the lock file; ``is_storable`` is then false.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @property
    def is_storable(self) -> bool:
        return self._descriptor is None or os.fstat(self._descriptor).st_size == 0

    def refuse(self) -> None:
        """Mark the entry as not storable, so that no other process waits for the entry."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.write(self._descriptor, b"not storable\n")


class CacheFolder:
    """CacheFolder is a folder of entries that belongs to this user and that no other user may write.

    A missing folder is created with the mode 0700. Raises EngineError [cache.folder] if the path is not a folder of this kind.
    Every access checks the folder again, and uses calls relative to the folder's descriptor where the system supports them.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(os.fspath(path))
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)
        except (OSError, ValueError) as error:
            raise EngineError("cache.folder", f"{self.path!r} must be a folder for cached plans: {error}") from None
        with self._open():
            pass

    @contextmanager
    def _open(self) -> Iterator[int | None]:
        """Open the folder. Yields the descriptor; None where the system cannot open files relative to a descriptor."""
        descriptor = None
        try:
            if _HAS_DESCRIPTORS:
                descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            info = os.stat(self.path if descriptor is None else descriptor)
        except (OSError, ValueError) as error:
            raise EngineError("cache.folder", f"{self.path!r} must be a folder for cached plans: {error}") from None
        try:
            if not stat.S_ISDIR(info.st_mode) or not _is_own(info):
                message = "must be a folder that belongs to this user and that no other user may write"
                raise EngineError("cache.folder", f"{self.path!r} {message}, got mode {info.st_mode & 0o777:04o}")
            yield descriptor
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _at(self, name: str, folder: int | None) -> str:
        return os.path.join(self.path, name) if folder is None else name

    def read(self, name: str, model: Any = b"") -> Entry | None:
        """Return the entry called ``name``; None if it is missing, incomplete, damaged or of another user.

        ``model``: the bytes of the model file, whose digest is part of ``name``.
        """
        name += SUFFIX
        with self._open() as folder:
            content = self._map(name, folder)
            if content is None:
                return None
            with suppress(OSError):
                os.utime(self._at(name, folder), dir_fd=folder)
        entry = _parse(content, np.frombuffer(model, np.uint8))
        if entry is None:
            LOGGER.info("the cached plan %s is damaged, and is not used", os.path.join(self.path, name))
        return entry

    def _map(self, name: str, folder: int | None) -> mmap.mmap | None:
        flags = os.O_RDONLY | _flag("O_NOFOLLOW") | _flag("O_NONBLOCK") | _flag("O_CLOEXEC") | _flag("O_BINARY")
        try:
            descriptor = os.open(self._at(name, folder), flags, dir_fd=folder)
        except OSError:
            return None
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode) or not _is_own(info) or info.st_size < _HEADER_BEGIN:
                return None
            return mmap.mmap(descriptor, info.st_size, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            return None
        finally:
            os.close(descriptor)

    def write(self, name: str, header: Mapping[str, Any], blobs: Sequence[Blob], sources: Sequence[int] = ()) -> bool:
        """Write an entry atomically, and remove old entries beyond MAX_FOLDER_BYTES. Returns whether the entry was written.

        ``sources`` holds for each blob the offset of equal bytes in the model file, or -1 if the model file has no such bytes.
        """
        sources = sources or [-1] * len(blobs)
        text = json.dumps(
            {**header, "blobs": [blob.nbytes for blob in blobs], "sources": sources}, separators=(",", ":")
        ).encode()
        if len(text) > MAX_HEADER_BYTES or sum(blob.nbytes for blob in blobs) > MAX_FOLDER_BYTES // 2:
            return False
        places, covered, _ = _layout(_HEADER_BEGIN + len(text), [blob.nbytes for blob in blobs], sources)
        body = bytearray(len(text).to_bytes(8, "little") + covered.to_bytes(8, "little") + text)
        body += bytes(covered - _DIGEST_END - len(body))
        for blob, (offset, size), source in zip(blobs, places, sources, strict=True):
            if source < 0:
                body[offset - _DIGEST_END : offset - _DIGEST_END + size] = bytes_of(blob).data
        draft = f".{secrets.token_hex(8)}.draft"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _flag("O_NOFOLLOW") | _flag("O_CLOEXEC") | _flag("O_BINARY")
        with self._open() as folder:
            try:
                descriptor = os.open(self._at(draft, folder), flags, 0o600, dir_fd=folder)
                try:
                    with os.fdopen(descriptor, "wb") as stream:
                        stream.write(MAGIC + digest_of(body))
                        stream.write(body)
                        for blob, (offset, _), source in zip(blobs, places, sources, strict=True):
                            if source >= 0:
                                stream.write(bytes(offset - stream.tell()))
                                stream.write(bytes_of(blob).data)
                    old, new = self._at(draft, folder), self._at(name + SUFFIX, folder)
                    os.replace(old, new, src_dir_fd=folder, dst_dir_fd=folder)
                except BaseException:
                    os.unlink(self._at(draft, folder), dir_fd=folder)
                    raise
            except OSError as error:
                LOGGER.info("the plan was not cached: %s", error)
                return False
            self._remove_old(name + SUFFIX, folder)
        return True

    @contextmanager
    def lock(self, name: str) -> Iterator[LockFile]:
        """Hold the lock of the entry ``name`` against other processes, where the system and the file system support locks."""
        descriptor = None
        with self._open() as folder, suppress(OSError):
            flags = os.O_RDWR | os.O_CREAT | _flag("O_NOFOLLOW") | _flag("O_NONBLOCK") | _flag("O_CLOEXEC")
            descriptor = os.open(self._at(name + LOCK_SUFFIX, folder), flags, 0o600, dir_fd=folder)
        if descriptor is None:
            yield LockFile(None)
            return
        try:
            _flock(descriptor, "LOCK_EX")
            yield LockFile(descriptor)
        finally:
            # A forked child may share the descriptor; close() would then not release the lock.
            _flock(descriptor, "LOCK_UN")
            os.close(descriptor)

    def _remove_old(self, keep: str, folder: int | None) -> None:
        """Remove the least recently used entries beyond MAX_FOLDER_BYTES, and abandoned drafts.

        Files that are neither entries nor drafts stay.
        """
        with suppress(OSError):
            files = {item.name: item.stat(follow_symlinks=False) for item in os.scandir(self.path if folder is None else folder)}
            entries = [(info.st_mtime_ns, name, info) for name, info in files.items() if _is_entry(name)]
            total = 0
            for _, name, info in sorted(entries, key=lambda row: (row[1] == keep, row[0]), reverse=True):
                total += info.st_size
                if total > MAX_FOLDER_BYTES and name != keep:
                    os.unlink(self._at(name, folder), dir_fd=folder)
            for name, info in files.items():
                if _DRAFT.fullmatch(name) and time.time() - info.st_mtime > MAX_DRAFT_SECONDS:
                    os.unlink(self._at(name, folder), dir_fd=folder)


def _parse(content: mmap.mmap, model: Blob) -> Entry | None:
    """Return the entry in ``content``; None if its digest is wrong or its header does not match its size."""
    view = memoryview(content)
    length, covered = (int.from_bytes(view[at : at + 8], "little") for at in (_DIGEST_END, _DIGEST_END + 8))
    if view[: len(MAGIC)] != MAGIC or not _HEADER_BEGIN <= covered <= len(view):
        return None
    end = _HEADER_BEGIN + length
    if view[len(MAGIC) : _DIGEST_END] != digest_of(view[_DIGEST_END:covered]) or length > MAX_HEADER_BYTES or end > covered:
        return None
    try:
        header = json.loads(bytes(view[_HEADER_BEGIN:end]))
        sizes, sources = header["blobs"], header["sources"]
        if not all(type(size) is int and 0 <= size <= len(view) for size in sizes):
            return None
        if not all(type(source) is int and source >= -1 for source in sources):
            return None
        places, *ends = _layout(end, sizes, sources)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    data = np.frombuffer(content, np.uint8)
    if ends != [covered, len(view)]:
        return None
    pairs = [
        (model[source : source + size], data[offset : offset + size])
        for (offset, size), source in zip(places, sources, strict=True)
        if source >= 0
    ]
    return Entry(header, data, places, BufferComparison(pairs))


def _layout(end: int, sizes: Sequence[int], sources: Sequence[int]) -> tuple[list[tuple[int, int]], int, int]:
    """Return the offset and size of each blob, the offset of the end of the digested part, and the size of the file.

    The blobs follow a header that ends at ``end``. Blobs that are not copies of parts of the model file come first.
    """
    offsets = [0] * len(sizes)
    ends = []
    for is_copy in (False, True):
        for index, (size, source) in enumerate(zip(sizes, sources, strict=True)):
            if (source >= 0) is is_copy:
                offsets[index] = end + -end % ALIGNMENT
                end = offsets[index] + size
        ends.append(end)
    return list(zip(offsets, sizes, strict=True)), ends[0], ends[1]


def _is_entry(name: str) -> bool:
    return len(name) == _NAME_LENGTH and name.endswith(SUFFIX)


def _is_own(info: os.stat_result) -> bool:
    """Return whether a file belongs to this user, and no other user may write it."""
    if not hasattr(os, "geteuid"):
        return True
    return info.st_uid == os.geteuid() and not info.st_mode & 0o022


def _flock(descriptor: int, operation: str) -> None:
    if fcntl is not None:
        with suppress(OSError):
            fcntl.flock(descriptor, getattr(fcntl, operation))


def _flag(name: str) -> int:
    return int(getattr(os, name, 0))
