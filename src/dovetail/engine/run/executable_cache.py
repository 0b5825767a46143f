"""ExecutableCache: the executables of an engine by the shapes of their inputs, bounded by an estimate of their bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock

from dovetail.engine.plan_log import log_eviction
from dovetail.engine.run.executable import Executable
from dovetail.engine.run.fast_calls import FastCalls
from dovetail.ir.host import native_core

MAX_PLAN_BYTES = 3 << 26
"""The maximum bytes of the executables of a program and its subgraphs, as estimated by :func:`plan_bytes`."""
STEP_BYTES = 10 << 10
"""Estimated bytes of a step, objects in Python and in the core together; 7 to 11 KiB were measured."""


def plan_bytes(executable: Executable | None) -> int:
    """Estimate the bytes of an executable, without the arena and without packed weights, which all executables share."""
    core = native_core.core()
    if executable is None:
        return STEP_BYTES
    # Steps of an executable from a parametric plan take memory only in the core.
    step_bytes = STEP_BYTES if executable.has_own_plan or core is None else core.SIZE_STEP_BYTES
    return (1 + len(executable.plan.steps)) * step_bytes + executable.plan.constant_bytes


class PlanMemory:
    """PlanMemory counts a program's plans and evictions, and the bytes of its executables; those of subgraphs are included.

    ``fast_calls``: the FastCalls of the program and of its partitions, which count the programs that the core created.
    """

    def __init__(self) -> None:
        self.fast_calls: list[FastCalls] = []
        self.bytes = 0
        self.cached = 0
        self.plans = 0
        self.ranges = 0
        self.evictions = 0
        self._lock = Lock()

    def count(self, nbytes: int, *, is_planned: bool) -> None:
        """Count a new executable, and its plan if ``is_planned``."""
        with self._lock:
            self.bytes += nbytes
            self.cached += 1
            self.plans += is_planned

    def count_range(self, *, is_found: bool) -> None:
        """Count an attempt to plan for a range of sizes as a plan and, if ``is_found``, as a plan for a range."""
        with self._lock:
            self.plans += 1
            self.ranges += is_found

    def discount(self, nbytes: int, *, is_eviction: bool) -> None:
        """Subtract a dropped executable from the counts; with ``is_eviction`` count an eviction."""
        with self._lock:
            self.bytes -= nbytes
            self.cached -= 1
            self.evictions += is_eviction


class ExecutableCache:
    """ExecutableCache maps keys to executables, None for a key without a plan, and evicts the least recently used executables.

    The lock of the engine guards the cache. A cache keeps its newest executable, however many bytes other executables in
    ``memory`` take.
    """

    def __init__(self, memory: PlanMemory, fast_calls: FastCalls | None, file: str | None) -> None:
        self._memory = memory
        self._fast_calls = fast_calls
        self._file = file
        self._items: OrderedDict[Hashable, Executable | None] = OrderedDict()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._items

    def get(self, key: Hashable) -> Executable | None:
        """Return the executable of a key that is in the cache, which becomes the most recently used."""
        self._items.move_to_end(key)
        return self._items[key]

    def add(self, key: Hashable, executable: Executable | None) -> None:
        """Add the executable of a new key, and drop others beyond MAX_PLAN_BYTES."""
        # Evict before adding: the new executable has no fast calls yet, so that it could be evicted first.
        while self._memory.bytes + plan_bytes(executable) > MAX_PLAN_BYTES and self._items:
            self._evict()
        self._items[key] = executable
        self._memory.count(plan_bytes(executable), is_planned=executable is None or executable.has_own_plan)
        if self._fast_calls is not None:
            self._fast_calls.add(executable)

    def _evict(self) -> None:
        """Evict the least recently used executable; the fast calls of an executable since its last check count as one use."""
        while True:
            key, executable = self._items.popitem(last=False)
            if self._fast_calls is None or not self._fast_calls.pop_use(executable):
                break
            self._items[key] = executable
        if self._fast_calls is not None:
            self._fast_calls.discard(executable)
        self._memory.discount(plan_bytes(executable), is_eviction=True)
        log_eviction(self._file, self._memory.cached, self._memory.bytes, MAX_PLAN_BYTES)

    def clear(self) -> None:
        """Remove all executables, also from the fast calls and from the counts of the plan memory."""
        for executable in self._items.values():
            self._memory.discount(plan_bytes(executable), is_eviction=False)
        self._items.clear()
        if self._fast_calls is not None:
            self._fast_calls.clear()

    def values(self) -> list[Executable]:
        """Return the executables, the least recently used first."""
        return [executable for executable in self._items.values() if executable is not None]
