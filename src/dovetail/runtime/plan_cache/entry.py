"""Encoding of an Executable's plan as the header and blobs of a cache entry, and decoding to a program of the core."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.ir.limits import Limits, machine_memory
from dovetail.ir.results import Results
from dovetail.runtime.plan_cache import packed_weights
from dovetail.storage.cache_folder import Blob, Entry

if TYPE_CHECKING:
    from dovetail.engine.parametric_plan import ParametricPlan
    from dovetail.engine.run.executable import Executable
    from dovetail.engine.run.step_encoding import EncodedStep
    from dovetail.ir.graph import Value

MAX_ARENA_BYTES = 1 << 40
MAX_BYTES = 1 << 62
MAX_DEPTH = 32
"""The maximum depth of nested subgraphs, the same as for a model."""
CONTROL = ("add_if", "add_loop")
ROW_LENGTH = 9

Row = tuple[int, int, str, int, list[int], list[int], int, int, int]
Blobs = dict[tuple[int, int], tuple[int, Blob]]
"""Maps a constant's address and size in bytes to the index of its blob and to its data."""


class NotStorable(Exception):
    """NotStorable is raised for a plan that an entry cannot store."""


def encode_plan(executable: Executable, inputs: Sequence[Value], outputs: Sequence[Value]) -> tuple[dict[str, Any], list[Blob]]:
    """Return the header and the blobs of an executable. Raises NotStorable, for example for a step that is not native.

    Only bound subgraphs of If and Loop are encoded; a run that reaches another subgraph compiles the model.
    """
    plan = executable.plan
    blobs: Blobs = {}
    program = _encode_program(executable, blobs)
    header = {
        "inputs": _encode_ports(inputs, plan.inputs),
        "outputs": _encode_ports(outputs, plan.outputs),
        **program,
    }
    return header, [blob for _, blob in blobs.values()]


def encode_range(plan: ParametricPlan, blobs: list[Blob]) -> dict[str, Any]:
    """Encode a parametric plan for a header, and append its constants to ``blobs``. Raises NotStorable."""
    known: Blobs = {(data.__array_interface__["data"][0], data.nbytes): (index, data) for index, data in enumerate(blobs)}
    _add_blobs(plan.constants, known)
    steps, orders, varying, constants, parts = plan.encoded
    inputs, outputs = plan.shapes()
    stored = [_encode_step(step, known) for step in steps]
    blobs += [data for number, data in known.values() if number >= len(blobs)]
    return {
        "symbols": plan.symbols,
        "inputs": inputs,
        "outputs": outputs,
        "constant_bytes": plan.constant_bytes,
        "steps": stored,
        "orders": orders,
        "varying": varying,
        "constants": constants,
        "parts": parts,
    }


def programs_of(executable: Executable) -> Iterator[Executable]:
    """Yield an executable and the executables of its bound subgraphs, at any depth."""
    yield executable
    for _, program in executable.native_subgraphs():
        yield from programs_of(program)


def _encode_program(executable: Executable, blobs: Blobs) -> dict[str, Any]:
    """Encode the arena size and the steps of a program. Raises NotStorable."""
    from dovetail.engine.run.step_encoding import encode_step

    plan = executable.plan
    if not executable.is_native or not executable.has_dense_inputs:
        raise NotStorable
    if any(tensor.is_dynamic for tensor in (*plan.inputs, *plan.outputs)):
        raise NotStorable
    steps: list[Any] = []
    for number, step in enumerate(plan.steps):
        control = executable.control_of(number)
        if control is not None:
            _add_blobs(control.constants, blobs)
            arguments = [_encode_argument(each, blobs) for each in control.arguments]
            steps.append([control.method, arguments, [_encode_subgraph(*each, blobs) for each in control.encode_subgraphs()]])
            continue
        constants = list(step.constants())
        _add_blobs(constants, blobs)
        steps.append([*_encode_step(encode_step(step), blobs), executable.tensor_map.shares(constants)])
    return {"arena": plan.arena_bytes, "steps": steps}


def _encode_step(step: EncodedStep, blobs: Blobs) -> list[Any]:
    kernel, reads, writes, attributes = step
    rows = [[_encode_row(row, blobs) for row in operands] for operands in (reads, writes)]
    return [kernel, *rows, {name: _encode_attribute(value) for name, value in attributes.items()}]


def _encode_subgraph(index: int, program: Executable, reads: list[int], blobs: Blobs) -> list[Any]:
    sizes = [[tensor.nbytes for tensor in tensors] for tensors in (program.plan.inputs, program.plan.outputs)]
    return [index, reads, *sizes, _encode_program(program, blobs)]


def _add_blobs(constants: Sequence[np.ndarray[Any, Any]], blobs: Blobs) -> None:
    for data in constants:
        if not data.flags.c_contiguous or data.dtype.hasobject:
            raise NotStorable
        blobs.setdefault((data.__array_interface__["data"][0], data.nbytes), (len(blobs), data))


def _encode_argument(value: object, blobs: Blobs) -> Any:
    """Encode an argument of ``add_if`` or ``add_loop``: an operand's row, a scan (row and integers), a list, or a scalar."""
    if isinstance(value, tuple) and len(value) == ROW_LENGTH:
        return _encode_row(value, blobs)
    if isinstance(value, list | tuple):
        return [_encode_argument(item, blobs) for item in value]
    return value


def _encode_ports(values: Sequence[Value], tensors: Sequence[Any]) -> list[list[Any]]:
    ports = []
    for value, tensor in zip(values, tensors, strict=True):
        dtype = tensor.dtype.numpy
        # Some outputs, such as maps, are converted by the engine after the plan has run.
        if dtype.isbuiltin != 1 or getattr(value.type, "dtype", None) != tensor.dtype:
            raise NotStorable
        ports.append([value.name, dtype.str, list(tensor.sizes)])
    return ports


def _encode_row(row: Row, blobs: Blobs) -> list[Any]:
    """Encode an operand's row: a blob's index (-1: no blob) and an offset in the blob replace the address and the extent."""
    *fields, address, low, high = row
    if not address:
        return [*fields, -1, 0]
    number = blobs.get((address + low, high - low))
    if number is None:
        raise NotStorable
    return [*fields, number[0], -low]


def _encode_attribute(value: object) -> Any:
    if isinstance(value, list | tuple):
        return [_encode_attribute(item) for item in value]
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.floating):
        return float(value)
    if not isinstance(value, int | float | str):
        raise NotStorable
    return value


def restore_calls(
    entry: Entry,
    core: ModuleType,
    threads: int,
    limits: Limits,
    weights: Any = None,
    packed: Entry | None = None,
) -> Callable[..., Results | None]:
    """Return the fast call of an entry; it takes the arguments of a Program's call, and returns None for other shapes and errors.

    ``weights``: a WeightCache of the core, into which the weights of ``packed`` are imported. The core rejects operands outside
    of their buffers.

    Raises ValueError, TypeError, KeyError or MemoryError for an entry that does not describe a program.
    """
    header = entry.header
    inputs, outputs = header["inputs"], header["outputs"]
    sizes = list(map(_bytes_of, inputs)), list(map(_bytes_of, outputs))
    if weights is not None and packed is not None:
        packed_weights.import_weights(weights, packed)
    restoration = _Restoration(entry, core, threads, weights)
    program = restoration.program(header, *sizes)
    ports = [tuple((name, np.dtype(dtype), None, None, False) for name, dtype, _ in port) for port in (inputs, outputs)]
    calls = core.FastCalls(*ports, Results, limits.trips, core.OutputPool())
    held = (entry.data, packed)
    calls.add(program, [tuple(port[2]) for port in inputs], [tuple(port[2]) for port in outputs], held)
    for row in header.get("ranges", ()):
        restoration.add_range(calls, row, len(inputs), limits.memory if limits.memory is not None else machine_memory(), held)
    return calls  # type: ignore[no-any-return]


class _Restoration:
    """_Restoration creates the programs of an entry, which share threads, packed weights and arenas."""

    def __init__(self, entry: Entry, core: ModuleType, threads: int, weights: Any) -> None:
        self._entry = entry
        self._core = core
        self._base = entry.data.__array_interface__["data"][0]
        weights = weights or core.WeightCache()
        weights.set_base(self._base, entry.data.nbytes)
        self._shared = core.ThreadPool(threads), weights, core.ArenaPool()

    def program(self, header: dict[str, Any], inputs: Sequence[int], outputs: Sequence[int], depth: int = 0) -> Any:
        """Create a program; ``inputs`` and ``outputs`` are the sizes of its inputs and outputs in bytes."""
        arena = header["arena"]
        if not 0 <= arena <= MAX_ARENA_BYTES or depth > MAX_DEPTH:
            raise ValueError("the size of the arena or the depth of subgraphs is out of range")
        if not all(isinstance(size, int) and 0 <= size < MAX_BYTES for size in (*inputs, *outputs)):
            raise ValueError("the size of a buffer is out of range")
        program = self._core.Program(*self._shared, arena, [(0, size) for size in (*inputs, *outputs)])
        for number, step in enumerate(header["steps"]):
            if step[0] in CONTROL:
                self._add_control(program, number, step, len(inputs), depth)
                continue
            kernel, reads, writes, attributes, shared = step
            program.add(kernel, self._rows(reads), self._results(writes, len(inputs)), attributes, shared)
        return program

    def add_range(self, calls: Any, row: dict[str, Any], inputs: int, memory: int, held: Any) -> None:
        """Decode a parametric plan and add it to the fast calls."""
        steps = []
        for kernel, reads, writes, attributes in row["steps"]:
            steps.append((kernel, self._rows(reads), self._results(writes, inputs), attributes))
        program = self._core.ParametricProgram(steps, row["orders"], row["varying"], row["constants"], row["parts"])
        limit = memory - row["constant_bytes"]
        calls.add_range(program, *self._shared, row["symbols"], row["inputs"], row["outputs"], limit, held)

    def _add_control(self, program: Any, number: int, step: Sequence[Any], inputs: int, depth: int) -> None:
        method, arguments, subgraphs = step
        if method == "add_if":
            condition, captures, outputs = arguments
            program.add_if(self._row(condition), self._rows(captures), self._results(outputs, inputs))
        else:
            trip_count, condition, states, scan_inputs, captures, last_states, scan_outputs, is_endless = arguments
            self._results([scan[0] for scan in scan_outputs], inputs)
            program.add_loop(
                None if trip_count is None else self._row(trip_count),
                None if condition is None else self._row(condition),
                self._rows(states),
                self._scans(scan_inputs),
                self._rows(captures),
                self._results(last_states, inputs),
                self._scans(scan_outputs),
                is_endless,
            )
        for index, reads, own_inputs, own_outputs, header in subgraphs:
            subgraph = self.program(header, own_inputs, own_outputs, depth + 1)
            program.bind_subgraph(number, index, subgraph, reads)

    def _rows(self, rows: Sequence[Sequence[Any]]) -> list[Row]:
        return list(map(self._row, rows))

    def _row(self, row: Sequence[Any]) -> Row:
        buffer, offset, element, itemsize, sizes, strides, number, start = row
        address = low = high = 0
        if number >= 0:
            first, size = self._entry.blobs[number]
            if not 0 <= start <= size:
                raise ValueError("an offset is outside of its constant")
            address, low, high = self._base + first + start, -start, size - start
        return buffer, offset, element, itemsize, sizes, strides, address, low, high

    def _results(self, rows: Sequence[Sequence[Any]], inputs: int) -> list[Row]:
        """Decode the rows of results. Raises ValueError for a result that is neither in the arena nor in an output."""
        for row in rows:
            if row[6] >= 0 or 1 <= row[0] <= inputs:
                raise ValueError("a result must not be in a constant or in an input")
        return self._rows(rows)

    def _scans(self, scans: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        return [(self._row(row), axis, size, is_reversed) for row, axis, size, is_reversed in scans]


def _bytes_of(port: Sequence[Any]) -> int:
    _, text, sizes = port
    dtype = np.dtype(text)
    if dtype.kind not in "biufc" or dtype.isbuiltin != 1:
        raise ValueError("an element type is not supported")
    count = int(dtype.itemsize)
    for size in sizes:
        if not isinstance(size, int) or size < 0:
            raise ValueError("a size must be a non-negative integer")
        count *= size
    if count >= MAX_BYTES:
        raise ValueError("the size of a tensor is out of range")
    return count
