"""The number of threads of an engine."""

from __future__ import annotations

import os

from dovetail.errors import EngineError

MAX_THREADS = 1 << 10
"""The maximum number of threads of an engine."""


def processor_count() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_count(threads: int | None) -> int:
    """Return ``threads``; if it is None, the environment variable DOVETAIL_THREADS or else the number of usable processors."""
    if threads is None:
        variable = os.environ.get("DOVETAIL_THREADS", "")
        if variable and not variable.isdigit():
            raise EngineError("argument.value", f"DOVETAIL_THREADS must be a number, got {variable!r}")
        threads = int(variable) if variable else processor_count()
    if not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS:
        raise EngineError("argument.value", f"threads must be an integer from 1 to {MAX_THREADS}, got {threads!r}")
    return threads
