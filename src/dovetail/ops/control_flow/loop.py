"""Loop: Loop and Scan of ONNX, Loop and TensorIterator of OpenVINO."""

from __future__ import annotations

from collections.abc import Iterator, Sequence as Several
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import EngineError, RuleError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.arrays import from_numpy
from dovetail.ir.edit import copy_graph
from dovetail.ir.graph import Graph, Node
from dovetail.ir.limits import Usage, bytes_of, counting
from dovetail.ir.op import check_inputs
from dovetail.ir.types import UNKNOWN, Map, Optional, Sequence, Size, Tensor, Type, View, common_type
from dovetail.ops.control_flow.if_op import (
    SubgraphOp,
    faults_in,
    infer_subgraph,
    known_boolean,
    restore_types,
    symbols_of,
    type_outside,
    types_in,
)

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder

COUNTED_TRIPS = 1 << 10
"""Trip count above which a loop without exit condition charges all its trips to the trip limit before the first trip."""
MAX_CACHED_RESULTS = 8
"""Largest number of cached inference results per body while an outer loop is inferred."""
RESTORED_TYPES_PER_NODE = 16
"""Number of restored types that are charged to the inference limit as one inferred node."""
MAX_ROUNDS = 8
"""Number of rounds of inference that widen the types of the states before their ranks become unknown."""


class Loop(SubgraphOp, sig="trip_count?: Z, cond?: boolean, *inputs: any -> *outputs: any"):
    """Loop runs ``body`` while its condition holds, at most ``trip_count`` times, or once per part of the scan inputs.

    ``inputs`` are ``carried`` initial states, then one scan input for each entry of ``scan_inputs``, then the values that every
    trip reads unchanged. The body takes the trip number (an i64 scalar), the states, one part of each scan input, and the
    unchanged values. It returns the condition of the next trip (a boolean scalar), the next states, and one part of each scan
    output. The outputs are the last states, then for each entry of ``scan_outputs`` the concatenated parts.

    An entry of ``scan_inputs`` is ``(axis, size, is_reversed)``: each part has ``size`` elements along ``axis``, and a reversed
    scan input is read from the last part to the first. An entry of ``scan_outputs`` is ``(axis, is_reversed)``.

    Without ``cond`` the condition of the first trip is true. No trip runs where ``cond`` is false or ``trip_count`` is
    negative. Raises EngineError [loop.trips] beyond the limit ``trips``, [run.time], [run.memory], [loop.parts] where a scan
    input has fewer parts than there are trips.
    Sources: ONNX Loop 1 to 25, Scan 9 to 25; OpenVINO TensorIterator-1, Loop-5.
    """

    body: Graph
    carried: int = 0
    scan_inputs: tuple[tuple[int, int, bool], ...] = ()
    scan_outputs: tuple[tuple[int, bool], ...] = ()
    outputs: int = 1

    runs_long = True

    @property
    def first_capture(self) -> int:
        return 2 + self.carried + len(self.scan_inputs)

    def types(self, trip_count: View | None = None, cond: View | None = None, *inputs: View) -> list[Type]:
        check_inputs(self, (trip_count, cond, *inputs))
        for name, x in (("trip_count", trip_count), ("cond", cond)):
            if x is not None and x.shape is not None and any(isinstance(size, int) and size != 1 for size in x.shape):
                raise RuleError("shape.single", f"{name} must have one element, got the shape {list(x.shape)}")
        inside, results = len(self.body.inputs), len(self.body.outputs)
        if inside != 1 + len(inputs) or len(inputs) < self.carried + len(self.scan_inputs):
            raise RuleError(
                "subgraph.ports",
                f"the body must have {1 + len(inputs)} inputs (the trip number and the inputs of the loop), got {inside}",
            )
        if results != 1 + self.outputs or self.outputs != self.carried + len(self.scan_outputs):
            raise RuleError(
                "subgraph.ports",
                f"the body must have {1 + self.outputs} outputs (the condition and the outputs of the loop), got {results}",
            )
        known = symbols_of(inputs)
        before = types_in(self.body)
        with counting() as usage, usage.cache_inferences():
            states = self._infer_once(usage, inputs, known)
        if states is None:
            restore_types(before)
            return self._types_without_trips(trip_count, cond, inputs, known)
        if isinstance(going := self.body.outputs[0].type, Sequence | Optional | Map):
            raise RuleError("shape.single", f"the condition of the body must be a tensor of one element, got {going}")
        count = self.known_trips(trip_count, cond, inputs)
        parts = [value.type for value in self.body.outputs[1 + self.carried :]]
        stacked = [_concatenated_type(part, axis, count) for part, (axis, _) in zip(parts, self.scan_outputs, strict=True)]
        return [type_outside(type, known) for type in (*states, *stacked)]

    def _types_without_trips(
        self, trip_count: View | None, cond: View | None, inputs: Several[Any], known: set[str]
    ) -> list[Type]:
        """Return the output types of a loop whose body breaks a rule; raise the body's error if a trip is known to run."""
        fault = self.body.fault
        if fault is not None and self._is_entered(trip_count, cond, inputs):
            raise fault.with_traceback(None)
        parts = [value.type for value in self.body.outputs[1 + self.carried :]]
        if not isinstance(fault, RuleError):
            # Only a RuleError means that the body cannot run.
            open_parts = [_concatenated_type(part, axis, None) for part, (axis, _) in zip(parts, self.scan_outputs, strict=True)]
            return [*[UNKNOWN] * self.carried, *open_parts]
        stacked = [
            _concatenated_type(type_outside(part, set()), axis, 0)
            for part, (axis, _) in zip(parts, self.scan_outputs, strict=True)
        ]
        return [type_outside(type, known) for type in (*(x.type for x in inputs[: self.carried]), *stacked)]

    def _is_entered(self, trip_count: View | None, cond: View | None, inputs: Several[View]) -> bool:
        """Test whether at least one trip is known to run."""
        if cond is not None and not is_true(cond):
            return False
        if trip_count is not None:
            return trip_count.value is not None and _is_positive(np.reshape(trip_count.value, ()).item())
        cut = zip(inputs[self.carried :], self.scan_inputs, strict=False)
        return all(x.shape is not None and _is_positive(x.shape[axis]) for x, (axis, _, _) in cut)

    def _infer_once(self, usage: Usage, inputs: Several[View], known: set[str]) -> list[Type] | None:
        """Return the result of :meth:`_infer_body`, from a cache if an earlier call had inputs of the same types and values.

        An outer loop infers an inner loop in each round of inference; without the cache, each level of nesting would double the
        time.
        """
        key = tuple((x.type, None if x.value is None else (np.shape(x.value), *np.ravel(x.value).tolist())) for x in inputs)
        assert usage.inference_cache is not None
        # The cache holds a reference to the body, so that no other graph gets the body's id.
        _, entries = usage.inference_cache.setdefault(id(self.body), (self.body, {}))
        if (entry := entries.pop(key, None)) is None:
            states = self._infer_body(inputs, known)
            while len(entries) >= MAX_CACHED_RESULTS:
                del entries[next(iter(entries))]
            entries[key] = states, types_in(self.body) if states is not None else [], faults_in(self.body)
            return states
        entries[key] = states, types, faults = entry
        usage.count_inference(self.body, len(types) // RESTORED_TYPES_PER_NODE)
        restore_types(types)
        for graph, fault in faults:
            graph.fault = fault
        return states  # type: ignore[no-any-return]

    def _infer_body(self, inputs: Several[View], known: set[str]) -> list[Type] | None:
        """Infer the body with state types that are valid for every trip; return these state types.

        ``known`` are the symbols of the outer graph. Where a rule raises an error, ``self.body.fault`` is this error, and the
        result is None.
        """
        body, first = self.body, 1 + self.carried
        body.inputs[0].type = Tensor(dtypes.i64, ())
        cut = inputs[self.carried : self.carried + len(self.scan_inputs)]
        parts = [_part_type(x.type, *entry[:2]) for x, entry in zip(cut, self.scan_inputs, strict=True)]
        rest = inputs[self.carried + len(self.scan_inputs) :]
        for inner, type in zip(body.inputs[first:], [*parts, *(x.type for x in rest)], strict=True):
            inner.type = _with_symbols(type, inner.name)
        for inner, x in zip(body.inputs[first + len(parts) :], rest, strict=True):
            inner.value = x.value
        states = [x.type for x in inputs[: self.carried]]
        for round in range(MAX_ROUNDS + 1):
            for inner, type in zip(body.inputs[1:first], states, strict=True):
                inner.type, inner.value = type, None
            clear_types(body)
            if not infer_subgraph(body):
                return None
            results = [value.type for value in body.outputs[1:first]]
            # Elements of a sequence may come from several trips, so the symbols of one trip do not describe all elements.
            results = [type if isinstance(type, Tensor) else type_outside(type, known) for type in results]
            wide = [_join_types(a, b, inner.name) for a, b, inner in zip(states, results, body.inputs[1:first], strict=True)]
            if wide == states:
                return states
            states = wide if round < MAX_ROUNDS - 1 else [_without_rank(type) for type in wide]
        raise RuleError("type.disagree", "the types of the states must be the same in every trip")

    def known_trips(self, trip_count: View | None, cond: View | None, inputs: Several[View]) -> Size | None:
        """Return the number of trips; None if the number is unknown, as where the body computes the condition."""
        if not is_endless(self.body) or (cond is not None and not is_true(cond)):
            return None
        if trip_count is not None:
            known = trip_count.value
            if known is None:
                return None
            count: Size = np.reshape(known, ()).item()
            low, _ = symbolic.bounds(count)
            if low is None or low < 0:
                return 0 if isinstance(count, int) else None
            return count
        for x, (axis, size, _) in zip(inputs[self.carried :], self.scan_inputs, strict=False):
            if x.shape is not None:
                length = x.shape[axis]
                if isinstance(length, int) and length % size:
                    raise RuleError(
                        "loop.parts", f"the size of axis {axis} ({length}) must be a multiple of the part's size ({size})"
                    )
                return length // size
        return None

    def evaluate(self, xp: Namespace, trip_count: Array | None = None, cond: Array | None = None, *inputs: Array) -> Any:
        from dovetail.ir.evaluate import run

        return self.evaluate_with(lambda body, xs: run(body, xs, xp), xp, trip_count, cond, *inputs)

    def evaluate_with(
        self, call: Any, xp: Namespace, trip_count: Array | None = None, cond: Array | None = None, *inputs: Array
    ) -> Any:
        """Evaluate the operator; ``call(body, inputs)`` runs one trip."""
        with counting() as usage:
            memory = usage.memory
            try:
                return self._run_trips(usage, call, xp, trip_count, cond, *inputs)
            finally:
                usage.memory = memory

    def _run_trips(
        self, usage: Usage, call: Any, xp: Namespace, trip_count: Array | None = None, cond: Array | None = None, *inputs: Array
    ) -> Any:
        states, first = list(inputs[: self.carried]), self.carried + len(self.scan_inputs)
        cut, rest = inputs[self.carried : first], inputs[first:]
        outputs: list[list[Any]] = [[] for _ in self.scan_outputs]
        goes_on = cond is None or bool(arrays.to_numpy(cond).reshape(()))
        never_ends = is_endless(self.body)
        count = self._run_count(trip_count, cut)
        is_counted = goes_on and count is not None and count > COUNTED_TRIPS and never_ends
        if is_counted and count is not None:
            usage.count_trips(count)
        trip = 0
        while goes_on and (count is None or trip < count):
            if not is_counted:
                usage.count_trips(1)
            usage.check_time()
            number = xp.asarray(trip, dtype=xp.int64)
            parts = [_slice_part(x, trip, *entry) for x, entry in zip(cut, self.scan_inputs, strict=True)]
            going, *results = call(self.body, [number, *states, *parts, *rest])
            if going is None or isinstance(going, list | dict):
                raise EngineError(
                    "shape.single", "the condition of the body must be a tensor of one element, got a sequence or nothing"
                )
            # A traced condition has no elements to read; a condition that is always true is not read.
            goes_on = never_ends or bool(xp.reshape(going, ()))
            states = results[: self.carried]
            for row, part in zip(outputs, results[self.carried :], strict=True):
                row.append(part)
                usage.count_memory(bytes_of(part), "scan outputs")
            trip += 1
        if not trip and outputs:
            outputs = [[empty] for empty in self._empty_scan_outputs(xp, inputs)]
        stacked = [
            row[0] if len(row) == 1 else xp.concat(row[::-1] if is_reversed else row, axis=axis)
            for row, (axis, is_reversed) in zip(outputs, self.scan_outputs, strict=True)
        ]
        return (*states, *stacked)

    def _run_count(self, trip_count: Array | None, cut: Several[Array]) -> int | None:
        lengths = []
        for x, (axis, size, _) in zip(cut, self.scan_inputs, strict=True):
            if x.shape[axis] % size:
                raise EngineError(
                    "loop.parts", f"the size of axis {axis} ({x.shape[axis]}) must be a multiple of the part's size ({size})"
                )
            lengths.append(x.shape[axis] // size)
        if trip_count is None:
            if len(set(lengths)) > 1:
                raise EngineError(
                    "loop.parts", f"scan inputs must have equal numbers of parts, got {', '.join(map(str, lengths))}"
                )
            return lengths[0] if lengths else None
        count = int(arrays.to_numpy(trip_count).reshape(()))
        if any(length < count for length in lengths):
            raise EngineError(
                "loop.parts", f"scan inputs must have a part for each trip ({count}), got {', '.join(map(str, lengths))} parts"
            )
        return count

    def _empty_scan_outputs(self, xp: Namespace, inputs: Several[Any]) -> Iterator[Any]:
        """Yield the empty scan outputs of a loop that ran no trip; unknown sizes become 0."""
        from dovetail.ir.evaluate import type_of

        views = [View(type_of(x), None) for x in inputs]
        body = copy_graph(self.body)
        if self.with_(body=body)._infer_body(views, set()) is None:  # type: ignore[attr-defined]
            # Without trips an error of the body's rules is irrelevant.
            body = self.body
        parts = zip(body.outputs[1 + self.carried :], self.body.outputs[1 + self.carried :], self.scan_outputs, strict=True)
        for inferred, declared, (axis, _) in parts:
            value = declared if inferred.shape is None else inferred
            if value.shape is None:
                raise EngineError(
                    "loop.parts", f"parts {value.name!r} of a scan output must have a known rank where the loop runs no trip"
                )
            sizes = [size if isinstance(size, int) else 0 for size in value.shape]
            sizes[axis] = 0
            yield from_numpy(xp, np.zeros(sizes, value.dtype.numpy), *[x for x in inputs if hasattr(x, "shape")][:1])

    def pull_back(self, b: Builder, adjoints: Any, node: Node, g: Any, wanted: Several[bool]) -> Any:
        from dovetail.ops.control_flow.gradients import gradients_of_loop

        return gradients_of_loop(self, b, adjoints, node, g, wanted)

    def __repr__(self) -> str:
        cuts = f"scan_inputs={self.scan_inputs}, scan_outputs={self.scan_outputs}"
        return f"Loop(body={len(self.body)} nodes, carried={self.carried}, {cuts})"


def is_true(value: View) -> bool:
    """Test whether a boolean is known to be true."""
    return known_boolean(value) is True


def is_endless(body: Graph) -> bool:
    """Test whether the condition that the body returns is always true."""
    return is_true(body.outputs[0])


def clear_types(body: Graph) -> None:
    """Clear the types of an earlier inference, since their symbols may no longer be valid."""
    for node in body.nodes:
        if type(node.op).__name__ not in ("Constant", "Foreign"):
            for y in node.outputs:
                y.type, y.value = UNKNOWN, None


def _part_type(type: Type, axis: int, size: int) -> Type:
    if not isinstance(type, Tensor) or type.shape is None:
        return type
    if not 0 <= axis < len(type.shape):
        raise RuleError("axis.range", f"the axis of a scan input must be below the rank of {type}, got {axis}")
    return Tensor(type.dtype, (*type.shape[:axis], size, *type.shape[axis + 1 :]))


def _concatenated_type(type: Type, axis: int, count: Size | None) -> Type:
    if not isinstance(type, Tensor) or type.shape is None:
        return type
    if not 0 <= axis < len(type.shape):
        raise RuleError("axis.range", f"the axis of a scan output must be below the rank of {type}, got {axis}")
    sizes: list[Any] = list(type.shape)
    sizes[axis] = None if count is None or sizes[axis] is None else count * sizes[axis]
    return Tensor(type.dtype, tuple(sizes))


def _with_symbols(type: Type, name: str) -> Type:
    """Return ``type`` with a new symbol for each unknown size."""
    if not isinstance(type, Tensor) or type.shape is None:
        return type
    return Tensor(type.dtype, tuple(_open_size(name, axis) if size is None else size for axis, size in enumerate(type.shape)))


def _open_size(name: str, axis: int) -> Size:
    return symbolic.symbol(f"?{name}@loop.{axis}")


def _join_types(before: Type, after: Type, name: str) -> Type:
    """Return a type that covers a state before and after a trip; a size that differs becomes a symbol."""
    if not isinstance(before, Tensor) or not isinstance(after, Tensor):
        try:
            return common_type(before, after)
        except RuleError:
            raise RuleError("type.disagree", f"a state must keep its type {before}, got {after} from the body") from None
    if before.dtype is not None and after.dtype is not None and before.dtype is not after.dtype:
        raise RuleError("type.disagree", f"a state must keep its type {before}, got {after} from the body")
    dtype = before.dtype or after.dtype
    if before.shape is None or after.shape is None or len(before.shape) != len(after.shape):
        return Tensor(dtype, None)
    pairs = enumerate(zip(before.shape, after.shape, strict=True))
    return Tensor(dtype, tuple(a if a == b else _open_size(name, axis) for axis, (a, b) in pairs))


def _without_rank(type: Type) -> Type:
    if isinstance(type, Sequence):
        return Sequence(_without_rank(type.element))
    if isinstance(type, Map):
        return Map(type.key, _without_rank(type.element))
    return Tensor(type.dtype, None) if isinstance(type, Tensor) else Optional(_without_rank(type.element))


def _is_positive(size: Size) -> bool:
    low, _ = symbolic.bounds(size)
    return low is not None and low > 0


def _slice_part(x: Array, trip: int, axis: int, size: int, is_reversed: bool) -> Any:
    start = x.shape[axis] - (trip + 1) * size if is_reversed else trip * size
    return x[(*[slice(None)] * axis, slice(start, start + size))]
