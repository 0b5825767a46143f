"""The threads of numpy's BLAS. A program that divides its products among threads of its own lets BLAS use one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dovetail.ir.host.forks import ForkLock


class ThreadControl(NamedTuple):
    """ThreadControl holds the functions of OpenBLAS that return and set the number of its threads, in all threads at once."""

    current: Callable[[], int]
    set_count: Callable[[int], None]


@cache
def thread_control() -> ThreadControl | None:
    """Return the thread control of the OpenBLAS that numpy has loaded; None for another BLAS."""
    for path in _openblas_files():
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for prefix, suffix in product(("", "scipy_"), ("", "64_")):
            count = getattr(library, f"{prefix}openblas_get_num_threads{suffix}", None)
            set_count = getattr(library, f"{prefix}openblas_set_num_threads{suffix}", None)
            if count is not None and set_count is not None:
                set_count.argtypes, set_count.restype = [ctypes.c_int], None
                return ThreadControl(count, set_count)
    return None


def _openblas_files() -> list[str]:
    """Return the files named openblas that this process has mapped, or else those of numpy's wheel."""
    maps = Path("/proc/self/maps")
    if maps.exists():
        lines = maps.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        return sorted({path for line in lines if "openblas" in (path := line.partition("/")[1] + line.partition("/")[2])})
    package = Path(np.__file__).parent
    folders = (package.with_name("numpy.libs"), package / ".dylibs")
    return [str(path) for folder in folders if folder.is_dir() for path in sorted(folder.glob("*openblas*"))]


_lock = ForkLock()
_calls = [0, 0]
"""The number of running calls for which BLAS uses one thread, and its number of threads before the first of them."""


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Let numpy's BLAS use one thread, in the whole process, until the last of such blocks ends. Needs a thread control."""
    control = thread_control()
    assert control is not None
    with _lock:
        if not _calls[0]:
            _calls[1] = control.current()
            control.set_count(1)
        _calls[0] += 1
    try:
        yield
    finally:
        with _lock:
            _calls[0] -= 1
            if not _calls[0]:
                control.set_count(_calls[1])
