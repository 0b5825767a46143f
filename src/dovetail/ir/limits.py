"""Limits on the resources of a model file, and their usage by one operation.

An operation (load, check, save, compile, run) has one :class:`Usage`. ``counting`` makes it current and ``current`` returns it,
so that operators' rules need no parameter for it.
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
from dovetail.ir.suggestions import check_keywords

FREE_INFERENCES = 16
"""The number of times that one subgraph may be inferred in one operation before further inferences count as steps."""

MAX_AXES = 64
"""The maximum number of axes of a numpy array."""

MAX_COUNT = (1 << 63) - 1
"""The largest value of a limit in bytes or of a limit on a count: the maximum of the native engine's signed 64-bit integers."""

MAX_SECONDS = 10**9
"""The largest value of a limit in seconds."""

FREE_ENDS = 16
"""The number of inputs and outputs that a node may have before each further one counts as another node."""


@check_keywords
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on the resources of a model file; the argument ``limits=`` of ``load``, ``check``, ``compile`` and ``plan``.

    A Model keeps the limits that it was loaded with. Raises EngineError [argument.value] for a number that is negative or above
    MAX_COUNT (MAX_SECONDS for ``seconds``).
    """

    nodes: int = 150_000
    """Nodes of a file, its subgraphs and functions; each input or output of a node beyond the 16th counts as another node."""
    function_nodes: int = 50_000
    """Nodes that inlining of functions adds."""
    name_bytes: int = 1 << 26
    """Bytes of the names that inlining of functions adds."""
    depth: int = 32
    """Nesting depth of graphs, and of functions that call functions."""
    dense_bytes: int = 1 << 28
    """Bytes of the dense tensors that the sparse tensors of a file are converted to."""
    folded_bytes: int = 1 << 28
    """Bytes that constant folding adds in one operation, and bytes of a table that a decomposition computes from sizes."""
    inference_steps: int = 200_000
    """Nodes of subgraphs whose types are inferred, not counting the first 16 inferences of each subgraph."""
    text_bytes: int = 1 << 28
    """Bytes of strings in the outputs of one operator in a run."""
    memory: int | None = None
    """Bytes that a run allocates: arena, outputs, constant tables and loop outputs. None: the memory of the machine."""
    trips: int = 1_000_000
    """Iterations of all loops in one run."""
    seconds: float | None = None
    """Seconds of a run, checked between steps. None: no limit."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name in _OPTIONAL:
                continue
            kinds = (int, float) if field.name == "seconds" else (int,)
            is_number = isinstance(value, kinds) and not isinstance(value, bool)
            highest = MAX_SECONDS if field.name == "seconds" else MAX_COUNT
            if not is_number or not 0 <= value <= highest:
                got = str(value)[:40] if is_number else repr(value)
                raise EngineError("argument.value", f"the limit {field.name} must be a number from 0 to {highest}, got {got}")

    def with_settings(self, settings: Iterable[str]) -> Limits:
        """Return these limits with changes written as ``name=value``, the syntax of the command line.

        Raises EngineError [argument.value].
        """
        changes: dict[str, Any] = {}
        for setting in settings:
            name, _, text = setting.partition("=")
            if name not in self.__slots__:
                raise EngineError("argument.value", f"the limit must be one of {', '.join(self.__slots__)}, got {name!r}")
            try:
                changes[name] = float(text) if name == "seconds" else int(text)
            except ValueError:
                raise EngineError("argument.value", f"the limit {name} must be a number, got {text[:40]!r}") from None
        return replace(self, **changes)

    def describe(self, name: str) -> str:
        """Return the name and value of a limit, for messages."""
        return f"the limit {name} is {getattr(self, name)}"


_OPTIONAL = ("memory", "seconds")
DEFAULT = Limits()


class Usage:
    """Usage counts the resources that one operation has used, against its limits."""

    __slots__ = ("deadline", "folded", "inference_cache", "inferences", "limits", "memory", "steps", "trips")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.folded = 0
        self.steps = 0
        self.trips = 0
        self.memory = 0
        self.inferences: dict[int, int] = {}
        self.inference_cache: dict[Any, Any] | None = None
        self.deadline = None if limits.seconds is None else time.monotonic() + limits.seconds

    def count_inference(self, subgraph: object, nodes: int) -> None:
        """Charge one inference of a subgraph to the limit. Raises UnsupportedError [inference.steps] beyond the limit."""
        times = self.inferences[id(subgraph)] = self.inferences.get(id(subgraph), 0) + 1
        if times > FREE_INFERENCES:
            self.steps += nodes
            if self.steps > self.limits.inference_steps:
                raise UnsupportedError(
                    "inference.steps",
                    f"a subgraph of {nodes} nodes is inferred at least {times} times; {self.limits.describe('inference_steps')}",
                )

    @contextmanager
    def cache_inferences(self) -> Iterator[None]:
        """Cache the inferred types of loop bodies until the outermost ``cache_inferences`` block ends.

        Code inside the block must not change a body that was inferred.
        """
        if self.inference_cache is not None:
            yield
            return
        self.inference_cache = {}
        try:
            yield
        finally:
            self.inference_cache = None

    def count_trips(self, count: int) -> None:
        """Charge a loop's trip count to the limit before the loop runs. Raises EngineError [loop.trips] beyond the limit."""
        self.trips += count
        if self.trips > self.limits.trips:
            raise EngineError(
                "loop.trips", f"the loops of one run have at least {self.trips} iterations; {self.limits.describe('trips')}"
            )

    def check_time(self) -> None:
        """Raise EngineError [run.time] after the deadline of the run."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise EngineError("run.time", f"the run takes too long; {self.limits.describe('seconds')}")

    def count_memory(self, nbytes: int, subject: str) -> None:
        """Charge memory to the limit of the run until its end. Raises EngineError [run.memory] beyond the limit.

        A negative ``nbytes`` ends the charge of memory that has been released.
        """
        self.memory += nbytes
        refuse_memory(self.limits, self.memory, subject)


def weight_of_node(ends: int) -> int:
    """Return the number of nodes that a node with ``ends`` inputs and outputs counts as: 1, plus 1 for each end beyond 16."""
    return 1 + max(0, ends - FREE_ENDS)


def refuse_memory(limits: Limits, nbytes: int, subject: str) -> None:
    """Raise EngineError [run.memory] if the size ``nbytes`` of ``subject`` exceeds the memory limit of a run."""
    maximum = limits.memory if limits.memory is not None else machine_memory()
    if nbytes > maximum:
        is_set = limits.memory is not None
        rule = limits.describe("memory") if is_set else f"the machine has {maximum} bytes (the limit memory is not set)"
        raise EngineError("run.memory", f"{subject} needs {nbytes} bytes; {rule}")


def refuse_array(sizes: Iterable[int], itemsize: int, subject: str) -> None:
    """Raise EngineError [array.size], [run.memory] if numpy could not allocate ``subject`` as an array of these sizes.

    numpy's limit of bytes also applies to an empty array: axes of size 0 count as size 1.
    """
    sizes = tuple(sizes)
    nbytes = itemsize * prod(size for size in sizes if size)
    if len(sizes) > MAX_AXES or nbytes >= 1 << 63:
        size_text = f"{', '.join(map(str, sizes[:8]))}{' ...' if len(sizes) > 8 else ''}"
        raise EngineError(
            "array.size",
            f"{subject} has {len(sizes)} axes of {size_text}; an array has at most {MAX_AXES} axes and 2**63 - 1 bytes",
        )
    if 0 not in sizes:
        refuse_memory(current().limits, nbytes, subject)


def refuse_table(sizes: Iterable[int], itemsize: int, subject: str) -> None:
    """Raise UnsupportedError [limits.exceeded] if a constant that a rewrite computes from sizes exceeds ``folded_bytes``."""
    limits = current().limits
    nbytes = itemsize * prod(sizes)
    if nbytes > limits.folded_bytes:
        raise UnsupportedError(
            "limits.exceeded", f"{subject} would be a constant of {nbytes} bytes; {limits.describe('folded_bytes')}"
        )


def refuse_unrolling(steps: int, nodes_per_step: int, subject: str) -> None:
    """Raise UnsupportedError [limits.exceeded] if ``steps`` unrolled iterations of ``subject`` exceed the limit ``nodes``."""
    limits = current().limits
    if steps * nodes_per_step > limits.nodes:
        raise UnsupportedError(
            "limits.exceeded",
            f"{subject} ({steps}) would be unrolled to {steps * nodes_per_step} nodes; {limits.describe('nodes')}",
        )


@contextmanager
def within_memory(subject: str, file: str | None = None) -> Iterator[None]:
    """Convert a MemoryError that the ``with`` block raises to EngineError [run.memory]."""
    try:
        yield
    except MemoryError as error:
        raise EngineError("run.memory", f"{subject} does not fit into memory: {error or 'out of memory'}", file=file) from error


def bytes_of(result: Any) -> int:
    """Return the size in bytes of an operator's output, an array, a list or a map. A character of a string counts as one byte."""
    if isinstance(result, list):
        return sum(map(bytes_of, result))
    if isinstance(result, dict):
        return 64 * len(result)
    nbytes = int(getattr(result, "nbytes", 0))
    if nbytes and getattr(getattr(result, "dtype", None), "hasobject", False):
        nbytes += sum(len(item) for item in result.reshape(-1).tolist() if isinstance(item, str | bytes))
    return nbytes


def refuse_text(nbytes: int, subject: str) -> None:
    """Raise EngineError [run.text] if the strings of ``subject`` exceed the limit ``text_bytes`` of one operator."""
    limits = current().limits
    if nbytes > limits.text_bytes:
        raise EngineError("run.text", f"{subject} creates {nbytes} bytes of strings; {limits.describe('text_bytes')}")


def machine_memory() -> int:
    """Return the physical memory of the machine in bytes."""
    global _machine
    if _machine is None:
        known = hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names
        _machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if known else 1 << 46
    return _machine


_machine: int | None = None
_CURRENT: ContextVar[Usage | None] = ContextVar("dovetail_usage", default=None)
_DEFAULTS: ContextVar[Limits] = ContextVar("dovetail_limits", default=DEFAULT)


def default_limits() -> Limits:
    """Return the default limits, which apply to models that are loaded or built without explicit limits."""
    return _DEFAULTS.get()


@contextmanager
def defaulting_to(limits: Limits) -> Iterator[None]:
    """Make ``limits`` the default inside the ``with`` block: a command sets them for every model that it loads or builds."""
    token = _DEFAULTS.set(limits)
    try:
        yield
    finally:
        _DEFAULTS.reset(token)


def current() -> Usage:
    """Return the usage of the current operation, or a new one with the default limits."""
    return _CURRENT.get() or Usage(default_limits())


def active() -> Usage | None:
    """Return the usage of the current operation, or None."""
    return _CURRENT.get()


@contextmanager
def counting(limits: Limits | None = None) -> Iterator[Usage]:
    """Make a new usage under ``limits`` current in the ``with`` block; without ``limits`` the current usage stays current."""
    usage = _CURRENT.get() if limits is None else None
    if usage is not None:
        yield usage
        return
    token = _CURRENT.set(made := Usage(limits or default_limits()))
    try:
        yield made
    finally:
        _CURRENT.reset(token)
