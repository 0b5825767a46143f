"""The plan of an Executable as the header and blobs of a cache entry, and back as a program of the core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.interpreter.results import Results
from dovetail.plan_cache.folder import Blob, Entry

if TYPE_CHECKING:
    from dovetail.engine.run.executable import Executable
    from dovetail.ir.graph import Value

MAX_ARENA_BYTES = 1 << 40

Row = tuple[int, int, str, int, list[int], list[int], int, int, int]


class NotStorable(Exception):
    """A plan that an entry cannot hold."""


def encode_plan(executable: Executable, inputs: Sequence[Value], outputs: Sequence[Value]) -> tuple[dict[str, Any], list[Blob]]:
    """Return the header and the blobs of an executable, whose steps are all native. Raises NotStorable."""
    from dovetail.engine.memory.tensor import INTERPRET
    from dovetail.engine.run.step_encoding import encode_step

    plan = executable.plan
    if not executable.is_native or not executable.has_dense_inputs:
        raise NotStorable
    if any(tensor.is_dynamic for tensor in (*plan.inputs, *plan.outputs)):
        raise NotStorable
    blobs: dict[tuple[int, int], tuple[int, Blob]] = {}
    steps = []
    for step in plan.steps:
        if step.kernel == INTERPRET:
            # The subgraphs of If and Loop are programs of their own.
            raise NotStorable
        for data in step.constants():
            if not data.flags.c_contiguous or data.dtype.hasobject:
                raise NotStorable
            key = (data.__array_interface__["data"][0], data.nbytes)
            if key not in blobs:
                blobs[key] = (len(blobs), data)
        kernel, reads, writes, attributes = encode_step(step)
        rows = [[_encode_row(row, blobs) for row in rows] for rows in (reads, writes)]
        values = {name: _encode_attribute(value) for name, value in attributes.items()}
        steps.append([kernel, *rows, values, executable.tensor_map.shares(step.constants())])
    header = {
        "inputs": _encode_ports(inputs, plan.inputs),
        "outputs": _encode_ports(outputs, plan.outputs),
        "arena": plan.arena_bytes,
        "steps": steps,
    }
    return header, [blob for _, blob in blobs.values()]


def _encode_ports(values: Sequence[Value], tensors: Sequence[Any]) -> list[list[Any]]:
    ports = []
    for value, tensor in zip(values, tensors, strict=True):
        dtype = tensor.dtype.numpy
        # The engine converts some outputs after the plan, such as maps.
        if dtype.isbuiltin != 1 or getattr(value.type, "dtype", None) != tensor.dtype:
            raise NotStorable
        ports.append([value.name, dtype.str, list(tensor.sizes)])
    return ports


def _encode_row(row: Row, blobs: dict[tuple[int, int], tuple[int, Blob]]) -> list[Any]:
    """Return a row with the number of a blob (-1: none) and an offset in it, in place of the address and the extent."""
    *fields, address, low, high = row
    if not address:
        return [*fields, -1, 0]
    number = blobs.get((address + low, high - low))
    if number is None:
        raise NotStorable
    return [*fields, number[0], -low]


def _encode_attribute(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_encode_attribute(item) for item in value]
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.floating):
        return float(value)
    if not isinstance(value, int | float | str):
        raise NotStorable
    return value


def restore_calls(entry: Entry, core: ModuleType, threads: int, max_trips: int) -> Callable[..., Results | None]:
    """Return the fast calls of an entry: called with the arguments of a Program's call, None for other shapes and errors.

    The core refuses operands outside of their buffers. Raises ValueError, TypeError, KeyError or MemoryError for an entry that
    does not describe a program.
    """
    header = entry.header
    inputs, outputs = header["inputs"], header["outputs"]
    arena = header["arena"]
    if not 0 <= arena <= MAX_ARENA_BYTES:
        raise ValueError("the size of the arena")
    base = entry.data.__array_interface__["data"][0]
    ranges = [(0, _bytes_of(port)) for port in (*inputs, *outputs)]
    weights = core.WeightCache()
    pool, arenas = core.ThreadPool(threads), core.ArenaPool()
    program = core.Program(pool, weights, arenas, arena, ranges)
    for kernel, reads, writes, attributes, shared in header["steps"]:
        program.add(kernel, _rows_of(reads, entry, base), _rows_of(writes, entry, base), attributes, shared)
    ports = [tuple((name, np.dtype(dtype), None, None, False) for name, dtype, _ in port) for port in (inputs, outputs)]
    calls = core.FastCalls(*ports, Results, 1, max_trips)
    calls.add(program, [tuple(port[2]) for port in inputs], [tuple(port[2]) for port in outputs], (entry.data,))
    return calls  # type: ignore[no-any-return]


def _bytes_of(port: Sequence[Any]) -> int:
    _, text, sizes = port
    dtype = np.dtype(text)
    if dtype.kind not in "biufc" or dtype.isbuiltin != 1:
        raise ValueError("an element type")
    count = int(dtype.itemsize)
    for size in sizes:
        if not isinstance(size, int) or size < 0:
            raise ValueError("a size")
        count *= size
    if count >= 1 << 62:
        raise ValueError("a size")
    return count


def _rows_of(rows: Sequence[Sequence[Any]], entry: Entry, base: int) -> list[Row]:
    found = []
    for buffer, offset, element, itemsize, sizes, strides, number, start in rows:
        address = low = high = 0
        if number >= 0:
            first, size = entry.blobs[number]
            if not 0 <= start <= size:
                raise ValueError("an offset in a constant")
            address, low, high = base + first + start, -start, size - start
        found.append((buffer, offset, element, itemsize, sizes, strides, address, low, high))
    return found
