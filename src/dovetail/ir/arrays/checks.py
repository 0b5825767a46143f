"""Checks of elements: raised at once, or deferred until a traced program has run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from dovetail.errors import EngineError
from dovetail.ir.arrays.backends import Array, Namespace, is_numpy


class DeferredCheck(NamedTuple):
    """DeferredCheck holds a boolean scalar that the traced program computes, and the error to raise if the scalar is true."""

    failed: Array
    error: EngineError


_DEFERRED: ContextVar[list[DeferredCheck] | None] = ContextVar("deferred", default=None)


@contextmanager
def deferring_checks() -> Iterator[list[DeferredCheck]]:
    """Collect the checks of traced arrays in the ``with`` block: their elements are unknown until the program runs."""
    checks: list[DeferredCheck] = []
    token = _DEFERRED.set(checks)
    try:
        yield checks
    finally:
        _DEFERRED.reset(token)


def is_deferring(xp: Namespace) -> bool:
    """Return whether arrays of ``xp`` are traced, so that no branch may depend on their elements."""
    return _DEFERRED.get() is not None and not is_numpy(xp)


def refuse_elements(xp: Namespace, failed: Array, code: str, message: str) -> None:
    """Raise EngineError if an element of ``failed`` is true; for a traced array it is raised after the program has run."""
    if not math.prod(failed.shape):
        return
    checks = _DEFERRED.get()
    if checks is not None and not is_numpy(xp):
        checks.append(DeferredCheck(xp.any(failed), EngineError(code, message)))
    elif bool(xp.any(failed)):
        raise EngineError(code, message)
