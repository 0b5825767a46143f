"""Objects that are usable after a fork. A child has one thread: a lock held by another thread at the fork would stay locked."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Protocol, Self
from weakref import WeakSet


class ForkLock:
    """ForkLock is a reentrant lock that is free in a forked child. ``was_held``: another thread held the lock at the fork."""

    __slots__ = ("__weakref__", "_lock", "was_held")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.was_held = False
        renew_in_child(self)

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Replace the inner lock if another thread holds it. Only a forked child calls this, at its start."""
        if not self._lock.acquire(blocking=False):
            self._lock, self.was_held = threading.RLock(), True
        else:
            self._lock.release()


class Renewable(Protocol):
    """Renewable is an object whose ``renew`` makes it usable in a forked child."""

    def renew(self) -> None: ...


_renewable: WeakSet[Renewable] = WeakSet()


def renew_in_child(renewable: Renewable) -> None:
    """Call ``renew`` of an object at the start of each forked child, as long as the object is in use."""
    _renewable.add(renewable)


def _renew_all() -> None:
    for each in list(_renewable):
        each.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
