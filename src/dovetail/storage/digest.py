"""Digests of files and buffers: SHA-256 of the SHA-256 digests of pieces of PIECE bytes, computed by several threads."""

from __future__ import annotations

import mmap
import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any

import numpy as np

Bytes = np.ndarray[Any, Any]
"""An array of u8 with one axis."""

_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
PIECE = 1 << 22
"""Bytes of one piece."""
MAX_THREADS = 4
COMPARED_BYTES = 1 << 18
"""The number of bytes that one step compares in each of two buffers; both blocks fit into the L2 cache."""


def bytes_of(array: np.ndarray[Any, Any]) -> Bytes:
    """Return the bytes of a contiguous array, without copying them."""
    return array.reshape(-1).view(np.uint8)


def digest_of(data: Any) -> bytes:
    """Return the digest of a buffer of bytes."""
    view = memoryview(data)
    starts = range(0, len(view), PIECE)
    pieces = [b""] * len(starts)

    def work(index: int) -> None:
        # hashlib releases the interpreter lock.
        pieces[index] = sha256(view[starts[index] : starts[index] + PIECE]).digest()

    _run_in_threads(work, len(starts))
    view.release()
    return sha256(b"".join((len(data).to_bytes(8, "little"), *pieces))).digest()


class BufferComparison:
    """BufferComparison compares pairs of byte arrays in a background thread; the thread that requests the result compares too."""

    def __init__(self, pairs: Iterable[tuple[Bytes, Bytes]]) -> None:
        self._is_equal = True
        self._pieces: deque[tuple[Bytes, Bytes]] = deque()
        for a, b in pairs:
            self._is_equal = self._is_equal and a.size == b.size
            self._pieces += [(a[start : start + PIECE], b[start : start + PIECE]) for start in range(0, a.size, PIECE)]
        self._helper = threading.Thread(target=self._work)
        if self._pieces:
            self._helper.start()

    def _work(self) -> None:
        while self._is_equal:
            try:
                a, b = self._pieces.pop()
            except IndexError:
                return
            if not _are_equal(a, b):
                self._is_equal = False

    def is_equal(self) -> bool:
        self._work()
        if self._helper.ident is not None:
            self._helper.join()
        return self._is_equal


def _are_equal(a: Bytes, b: Bytes) -> bool:
    # numpy compares aligned 64-bit words faster than bytes: both blocks are copied to aligned buffers, which fit into L2.
    buffers = np.empty((2, COMPARED_BYTES), np.uint8)
    for start in range(0, a.size, COMPARED_BYTES):
        count = min(COMPARED_BYTES, a.size - start)
        for buffer, array in zip(buffers, (a, b), strict=True):
            buffer[:count] = array[start : start + count]
            buffer[count : -(-count // 8) * 8] = 0
        one, other = buffers[:, : -(-count // 8) * 8].view(np.uint64)
        if not np.array_equal(one, other):
            return False
    return True


def _run_in_threads(work: Callable[[int], None], count: int) -> None:
    """Call ``work`` with each integer in range(count), from several threads."""
    threads = min(MAX_THREADS, _processors(), count)

    def run(first: int) -> None:
        for index in range(first, count, threads):
            work(index)

    helpers = [threading.Thread(target=run, args=(number,)) for number in range(1, threads)]
    for helper in helpers:
        helper.start()
    if threads:
        run(0)
    for helper in helpers:
        helper.join()


def map_file(path: str, flags: int = 0) -> mmap.mmap | bytes | None:
    """Return a memory map of a regular file (``b""`` for an empty file); None if the file cannot be read."""
    try:
        descriptor = os.open(path, _READ | flags)
    except (OSError, ValueError):
        return None
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            return None
        return mmap.mmap(descriptor, info.st_size, access=mmap.ACCESS_READ) if info.st_size else b""
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)


def digest_of_file(path: str) -> bytes | None:
    """Return the digest of a regular file; None if the file cannot be read."""
    content = map_file(path)
    if content is None:
        return None
    digest = digest_of(content)
    if isinstance(content, mmap.mmap):
        content.close()
    return digest


def name_of(parts: Sequence[str | bytes]) -> str:
    """Return the name of a cache entry: the SHA-256, in hex, of the byte strings ``parts``, each preceded by its length."""
    hasher = sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hasher.update(len(data).to_bytes(8, "little"))
        hasher.update(data)
    return hasher.hexdigest()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
