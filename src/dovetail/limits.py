"""Limits on what a model file may cost, and the count of what one operation has used of them.

An operation (a load, a check, a save, a compilation, a run) has one :class:`Usage`, which ``counting`` makes current and
``current`` gives to whatever spends: no argument goes through the rules of operators.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any

from dovetail.errors import EngineError, UnsupportedError

FREE_INFERENCES = 16
"""How often a subgraph is inferred in one operation before that counts as inference steps."""

MOST_AXES = 64
"""The most axes of an array of numpy."""

FREE_ENDS = 16
"""Inputs and outputs of a node that count as a part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a model file may cost at most. ``load``, ``check``, ``compile`` and ``plan`` take it as ``limits=``.

    A Model keeps the limits that it was loaded with. Raises EngineError [limits.value] for a value that is no limit.
    """

    nodes: int = 150_000
    """Nodes that a file says, those of its subgraphs and functions included; inputs and outputs of a node beyond 16 count too."""
    function_nodes: int = 50_000
    """Nodes that are added where functions are written out at their calls."""
    name_bytes: int = 1 << 26
    """Bytes of the names that are made where functions are written out at their calls."""
    depth: int = 32
    """Levels of nested graphs, and of functions that call functions."""
    dense_bytes: int = 1 << 28
    """Bytes of the dense tensors that the sparse ones of a file become."""
    folded_bytes: int = 1 << 28
    """Bytes that constant folding adds in one operation; what would pass it is left to the run."""
    inference_steps: int = 200_000
    """Nodes of subgraphs that are inferred again, after the first 16 times of each subgraph."""
    text_bytes: int = 1 << 28
    """Bytes of the strings that one operator makes in a run."""
    memory: int | None = None
    """Bytes of a run: its arena, outputs, tables of constants, and what its loops collect. None: what the machine has."""
    trips: int = 1_000_000
    """Trips of all loops in one run."""
    seconds: float | None = None
    """Seconds of a run, looked at between its steps. None: as long as it takes."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name in _OPTIONAL:
                continue
            kinds = (int, float) if field.name == "seconds" else (int,)
            if isinstance(value, bool) or not isinstance(value, kinds) or not value >= 0:
                raise EngineError("limits.value", f"the limit {field.name} is {value!r}, and should be a number from 0 on")

    def changed(self, settings: Iterable[str]) -> Limits:
        """These limits with changes written ``name=value``, as the command line has them.

        Raises EngineError [limits.unknown], [limits.value].
        """
        changes: dict[str, Any] = {}
        for setting in settings:
            name, _, text = setting.partition("=")
            if name not in self.__slots__:
                raise EngineError("limits.unknown", f"there is no limit {name!r}; there are {', '.join(self.__slots__)}")
            try:
                changes[name] = float(text) if name == "seconds" else int(text)
            except ValueError:
                raise EngineError("limits.value", f"the limit {name} is {text!r}, and should be a number from 0 on") from None
        return replace(self, **changes)

    def bound(self, name: str) -> str:
        """What a refusal says of a limit: its name and its value."""
        return f"the limit {name} is {getattr(self, name)}"


_OPTIONAL = ("memory", "seconds")
DEFAULT = Limits()


class Usage:
    """What one operation has used of its limits."""

    __slots__ = ("deadline", "folded", "inferences", "inferred", "limits", "memory", "steps", "trips")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.folded = 0
        self.steps = 0
        self.trips = 0
        self.memory = 0
        self.inferences: dict[int, int] = {}
        self.inferred: dict[Any, Any] | None = None
        self.deadline = None if limits.seconds is None else time.monotonic() + limits.seconds

    def count_inference(self, subgraph: object, nodes: int) -> None:
        """Note that a subgraph is inferred. Raises UnsupportedError [inference.steps]."""
        times = self.inferences[id(subgraph)] = self.inferences.get(id(subgraph), 0) + 1
        if times > FREE_INFERENCES:
            self.steps += nodes
            if self.steps > self.limits.inference_steps:
                raise UnsupportedError(
                    "inference.steps",
                    f"subgraphs of {nodes} nodes are inferred {times} times and more; {self.limits.bound('inference_steps')}",
                )

    @contextmanager
    def remembering(self) -> Iterator[None]:
        """Keep what inference finds of the bodies of loops, until the outermost of these ends. Inside nothing changes a body that
        was inferred."""
        if self.inferred is not None:
            yield
            return
        self.inferred = {}
        try:
            yield
        finally:
            self.inferred = None

    def count_trips(self, count: int) -> None:
        """Note trips of a loop, before they are made. Raises EngineError [loop.trips]."""
        self.trips += count
        if self.trips > self.limits.trips:
            raise EngineError("loop.trips", f"the loops of one run make {self.trips} trips or more; {self.limits.bound('trips')}")

    def check_time(self) -> None:
        """Raises EngineError [run.time] where the run has taken too long."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise EngineError("run.time", f"the run takes too long; {self.limits.bound('seconds')}")

    def hold(self, nbytes: int, what: str) -> None:
        """Note memory that the run holds until its end (negative: that it lets go of). Raises EngineError [run.memory]."""
        self.memory += nbytes
        refuse_memory(self.limits, self.memory, what)


def weight_of_node(ends: int) -> int:
    """As how many nodes one with ``ends`` inputs and outputs counts: each beyond the first 16 is a step of its own in a plan."""
    return 1 + max(0, ends - FREE_ENDS)


def refuse_memory(limits: Limits, nbytes: int, what: str) -> None:
    """Raises EngineError [run.memory] where ``what``, which needs ``nbytes``, is more than a run may take."""
    most = limits.memory if limits.memory is not None else machine_memory()
    if nbytes > most:
        bound = limits.bound("memory") if limits.memory is not None else f"the machine has {most} (the limit memory is not set)"
        raise EngineError("run.memory", f"{what} needs {nbytes} bytes; {bound}")


def refuse_array(sizes: Iterable[int], itemsize: int, what: str) -> None:
    """Raises EngineError [array.size], [run.memory] where ``what`` cannot be an array, before numpy allocates it.

    numpy counts the bytes of an array without elements too, as if its axes of size 0 were of size 1.
    """
    sizes = tuple(sizes)
    nbytes = itemsize * prod(size for size in sizes if size)
    if len(sizes) > MOST_AXES or nbytes >= 1 << 63:
        said = f"{', '.join(map(str, sizes[:8]))}{' ...' if len(sizes) > 8 else ''}"
        raise EngineError(
            "array.size", f"{what} has {len(sizes)} axes of {said}; an array has at most {MOST_AXES} axes and 2**63 - 1 bytes"
        )
    if 0 not in sizes:
        refuse_memory(current().limits, nbytes, what)


@contextmanager
def within_memory(what: str, file: str | None = None) -> Iterator[None]:
    """Raises EngineError [run.memory] where memory runs out inside."""
    try:
        yield
    except MemoryError as error:
        raise EngineError("run.memory", f"{what} does not fit into memory: {error or 'none is left'}", file=file) from error


def bytes_of(result: Any) -> int:
    """The bytes of what an operator made: an array, a list or a map. A string is counted as its characters."""
    if isinstance(result, list):
        return sum(map(bytes_of, result))
    if isinstance(result, dict):
        return 64 * len(result)
    nbytes = int(getattr(result, "nbytes", 0))
    if nbytes and getattr(getattr(result, "dtype", None), "hasobject", False):
        nbytes += sum(len(each) for each in result.reshape(-1).tolist() if isinstance(each, str | bytes))
    return nbytes


def refuse_text(nbytes: int, what: str) -> None:
    """Raises EngineError [run.text] where ``what`` would make more bytes of strings than an operator may."""
    limits = current().limits
    if nbytes > limits.text_bytes:
        raise EngineError("run.text", f"{what} makes {nbytes} bytes of strings; {limits.bound('text_bytes')}")


def machine_memory() -> int:
    """The bytes of physical memory of this machine."""
    global _machine
    if _machine is None:
        known = hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names
        _machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if known else 1 << 46
    return _machine


_machine: int | None = None
_CURRENT: ContextVar[Usage | None] = ContextVar("dovetail_usage", default=None)


def current() -> Usage:
    """The usage of the operation that is under way; a new one under the default limits where there is none."""
    return _CURRENT.get() or Usage(DEFAULT)


def active() -> Usage | None:
    """The usage of the operation that is under way, if there is one."""
    return _CURRENT.get()


@contextmanager
def counting(limits: Limits | None = None) -> Iterator[Usage]:
    """Count what is used inside: anew under ``limits``; without them as a part of the operation that is under way."""
    usage = _CURRENT.get() if limits is None else None
    if usage is not None:
        yield usage
        return
    token = _CURRENT.set(made := Usage(limits or DEFAULT))
    try:
        yield made
    finally:
        _CURRENT.reset(token)


__all__ = [
    "DEFAULT",
    "MOST_AXES",
    "Limits",
    "Usage",
    "active",
    "bytes_of",
    "counting",
    "current",
    "machine_memory",
    "refuse_array",
    "refuse_memory",
    "refuse_text",
    "weight_of_node",
    "within_memory",
]
