"""Digests of files and buffers: SHA-256 of the digests of fixed pieces, which several threads compute."""

from __future__ import annotations

import mmap
import os
import stat
import threading
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

PIECE = 1 << 22
"""Bytes of one piece."""
MAX_THREADS = 4


def digest_of(data: Any) -> bytes:
    """Return the digest of a buffer of bytes."""
    view = memoryview(data)
    starts = range(0, len(view), PIECE)
    pieces = [b""] * len(starts)
    threads = min(MAX_THREADS, _processors(), len(starts))

    def work(first: int) -> None:
        # hashlib releases the interpreter lock.
        for index in range(first, len(starts), threads):
            pieces[index] = sha256(view[starts[index] : starts[index] + PIECE]).digest()

    helpers = [threading.Thread(target=work, args=(number,)) for number in range(1, threads)]
    for helper in helpers:
        helper.start()
    if threads:
        work(0)
    for helper in helpers:
        helper.join()
    view.release()
    return sha256(b"".join((len(data).to_bytes(8, "little"), *pieces))).digest()


def digest_of_file(path: str) -> bytes | None:
    """Return the digest of a regular file; None where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError):
        return None
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            return None
        if not info.st_size:
            return digest_of(b"")
        with mmap.mmap(descriptor, info.st_size, access=mmap.ACCESS_READ) as content:
            return digest_of(content)
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)


def name_of(parts: Sequence[str | bytes]) -> str:
    """Return the name of an entry: a digest of ``parts``, each with its length."""
    hasher = sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hasher.update(len(data).to_bytes(8, "little"))
        hasher.update(data)
    return hasher.hexdigest()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
