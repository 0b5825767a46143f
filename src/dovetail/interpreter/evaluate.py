"""Running operators' own rules: one node, one graph, or a constant and what leads to it."""

from __future__ import annotations

from collections.abc import Sequence as Several
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from dovetail import arrays, dtypes, symbolic
from dovetail.dtypes import DType
from dovetail.errors import DovetailError, EngineError, RuleError, UnsupportedError
from dovetail.ir.builder import Builder, written
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import Op, bodies, draws, has, host_inputs, infer_types, output_count
from dovetail.ir.types import UNKNOWN, Map, Sequence, Tensor, Type, Unknown, View, common_type, is_static, static
from dovetail.limits import active, bytes_of, current, refuse_memory

FOLD_LIMIT = 1 << 23
"""The most bytes that a folded constant may have beyond those of its inputs."""
FOLD_WRITTEN = 1 << 8
"""The most elements of a folded constant where a model is read or written: its quantised weights stay as they are."""
FOLD_TEXT = 1 << 16
"""The most characters of strings that are folded: how many they become is not known before."""
FOLD_TEXTS = 1 << 10
"""The most strings of a folded constant."""
CHAIN_LIMIT = 1 << 27
"""The most bytes that are computed to learn one constant; a node counts as NODE_COST of them."""
NODE_COST = 1 << 17
_LARGE = 1 << 26
"""Bytes from which a result is held against the memory of a run."""

FAILURES = (ValueError, IndexError, KeyError, TypeError, ArithmeticError, RuntimeError, symbolic.Inexact)
"""What an operator's rule may raise, beside errors of ours, where it is given what it cannot compute with."""


def apply(op: Op, xp: Any, xs: Several[Any]) -> tuple[Any, ...]:
    """The outputs of one operator, by its ``evaluate`` rule, or through ``decompose`` where it has none."""
    if not has(op, "evaluate"):
        if has(op, "decompose"):
            return _decomposed(op, xp, xs)
        raise UnsupportedError("op.evaluate", f"{type(op).__name__} has no rule to run it")
    if not arrays.is_numpy(xp):
        hosts = host_inputs(op, len(xs))
        xs = [_settled(xp, x, host) for x, host in zip(xs, hosts, strict=True)]
    found = op.evaluate(xp, *xs)
    # A lone output may be a sequence, which is a list.
    several = isinstance(found, tuple) or (isinstance(found, list) and output_count(op) != 1)
    results = tuple(found) if several else (found,)
    if arrays.is_numpy(xp):
        # numpy's reductions hand back scalars
        return tuple(
            result if isinstance(result, np.ndarray | list | dict) or result is None else np.asarray(result) for result in results
        )
    return results


def _settled(xp: Any, x: Any, host: bool) -> Any:
    """An input where its rule wants it: in numpy, or in ``xp`` though it is a shape input of what is taken apart."""
    if x is None or isinstance(x, list | dict):
        return x
    if host:
        return arrays.to_numpy(x)
    return arrays.from_numpy(xp, x) if isinstance(x, np.ndarray) else x


def _decomposed(op: Op, xp: Any, xs: Several[Any]) -> tuple[Any, ...]:
    b = Builder()
    inputs: list[Any] = []
    for index, x in enumerate(xs):
        inputs.append(None if x is None else b.input_of(f"x{index}", type_of(x)))
        if isinstance(x, np.ndarray) and host_inputs(op, len(xs))[index]:
            inputs[-1].value = x
    made = op.decompose(b, *inputs)
    b.graph.outputs = [made] if isinstance(made, Value) else list(made)
    return tuple(run(b.graph, [x for x in xs if x is not None], xp))


def type_of(x: Any) -> Type:
    """The type of what flows through a graph as it runs: an array, a list of arrays, or None for an optional one that is
    nothing."""
    if x is None:
        return UNKNOWN
    if isinstance(x, dict):
        return Map(_key_type(x), Tensor(None, ()))
    if not isinstance(x, list):
        return Tensor(arrays.element(x), tuple(map(int, x.shape)))
    return Sequence(reduce(common_type, map(type_of, x)) if x else UNKNOWN, len(x))


def _key_type(x: dict[Any, Any]) -> DType:
    return dtypes.string if any(isinstance(key, str) for key in x) else dtypes.i64


def run(graph: Graph, inputs: Several[Any], xp: Any) -> list[Any]:
    """The outputs of ``graph`` for its inputs in order. A node that no output needs is not run.

    A value is released after its last reader.

    Raises the ``fault`` of a body that cannot run with the types of its inputs.
    """
    if isinstance(graph.fault, RuleError):
        raise graph.fault.with_traceback(None)
    found: dict[int, Any] = {id(value): array for value, array in zip(graph.inputs, inputs, strict=True)}
    last = last_readers(graph)
    live = live_nodes(graph)
    hosted = frozenset[int]() if arrays.is_numpy(xp) else _host_nodes(graph)
    usage = active()
    timed = usage if usage is not None and usage.deadline is not None else None
    with np.errstate(all="ignore"):
        for place, node in enumerate(graph.nodes):
            if place not in live:
                continue
            if timed is not None:
                timed.check_time()
            xs = [None if x is None else found[id(x)] for x in node.inputs]
            ys = placed(node, xp, xs, place in hosted)
            for y, array in zip(node.outputs, ys, strict=False):
                found[id(y)] = array
            for key in last.get(place, ()):
                found.pop(key, None)
    return [found[id(value)] for value in graph.outputs]


def placed(node: Node, xp: Any, xs: Several[Any], on_host: bool = False) -> tuple[Any, ...]:
    """The outputs of a node by its operator's rule. Whatever goes wrong is a DovetailError that names the node."""
    try:
        with np.errstate(all="ignore"):
            ys = _on_host(node, xs) if on_host else apply(node.op, xp, xs)
        for y in ys:
            # Views that repeat elements cost nothing themselves, and whoever reads them everything.
            if isinstance(y, np.ndarray) and y.nbytes >= _LARGE:
                refuse_memory(current().limits, y.nbytes, "a result")
        return ys
    except DovetailError as error:
        raise error.at(node=node.label, op=written(node.op, node.inputs)) from None
    except MemoryError as error:
        raise EngineError("run.memory", str(error), node=node.label, op=written(node.op, node.inputs)) from None
    except FAILURES as error:
        raise EngineError(
            "run.failed", f"{type(error).__name__}: {error}", node=node.label, op=written(node.op, node.inputs)
        ) from error


def _host_nodes(graph: Graph) -> frozenset[int]:
    """The places of the nodes all of whose results are read by shape rules alone, at once or through other such nodes."""
    device = {id(value) for value in graph.outputs}
    hosted = set()
    for place in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[place]
        if all(id(y) not in device for y in node.outputs) and any(y.uses for y in node.outputs) and not any(bodies(node.op)):
            hosted.add(place)
            continue
        hosts = host_inputs(node.op, len(node.inputs))
        device.update(id(x) for x, host in zip(node.inputs, hosts, strict=True) if x is not None and not host)
    return frozenset(hosted)


def _on_host(node: Node, xs: Several[Any]) -> tuple[Any, ...]:
    """One node in numpy: from the shapes of its inputs alone where these tell, so that nothing lazy is computed for its size."""
    if any(isinstance(x, list | dict) for x in xs):
        xs = [_as_numpy(x) for x in xs]
    if any(x is not None and not isinstance(x, np.ndarray | list | dict) for x in xs):
        seen = [
            None if x is None else View(Tensor(arrays.element(x), tuple(x.shape)), x if isinstance(x, np.ndarray) else None)
            for x in xs
        ]
        try:
            value = node.op.value(*seen)
            values = value if isinstance(value, tuple | list) else (value,)
            return tuple(np.asarray(each, dtype=y.dtype.numpy) for each, y in zip(values, node.outputs, strict=True))
        except (Unknown, symbolic.Inexact, NotImplementedError, TypeError, ValueError):
            xs = [_as_numpy(x) for x in xs]
    return apply(node.op, np, xs)


def _as_numpy(x: Any) -> Any:
    if isinstance(x, list):
        return [_as_numpy(each) for each in x]
    return x if x is None or isinstance(x, dict) else arrays.to_numpy(x)


def live_nodes(graph: Graph) -> set[int]:
    """The places of the nodes that some output of the graph needs."""
    needed = {id(value) for value in graph.outputs}
    live: set[int] = set()
    for place in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[place]
        if any(id(y) in needed for y in node.outputs):
            live.add(place)
            needed.update(id(x) for x in node.inputs if x is not None)
    return live


def last_readers(graph: Graph) -> dict[int, list[int]]:
    kept = {id(value) for value in graph.outputs}
    last: dict[int, int] = {}
    for place, node in enumerate(graph.nodes):
        for value in (*node.inputs, *node.outputs):
            if value is not None:
                last[id(value)] = place
    by_place: dict[int, list[int]] = {}
    for key, place in last.items():
        if key not in kept:
            by_place.setdefault(place, []).append(key)
    return by_place


def folded(
    op: Op, xs: Several[Value | None], most: int = FOLD_LIMIT, elements: int | None = None, is_counted: bool = True
) -> list[tuple[np.ndarray[Any, Any], DType]] | None:
    """The outputs as constants, bit for bit what a run would give, or None where that is not done.

    Nothing random or opaque is folded, nor anything that would grow a constant beyond ``most`` bytes or ``elements`` (a
    dequantised or expanded weight), nor what would take an operation beyond its limit ``folded_bytes`` (unless not
    ``is_counted``: the caller counts).
    """
    if not evaluates_early(op, xs):
        return None
    data = [None if x is None else x.constant for x in xs]
    if any(array is None and x is not None for array, x in zip(data, xs, strict=True)):
        return None
    types = infer_types(op, tuple(xs))
    read = max((array.nbytes for array in data if array is not None), default=0)
    usage = current()
    needed = 0
    for type in types:
        if not isinstance(type, Tensor) or type.dtype is None or not is_static(type):
            return None
        size = prod(static(type.shape))
        nbytes = size * type.dtype.numpy.itemsize
        if nbytes > read and (nbytes > most or (elements is not None and size > elements)):
            return None
        if type.dtype.name == "string" and (size > FOLD_TEXTS or sum(map(_characters, data)) > FOLD_TEXT):
            return None
        needed += nbytes
    if is_counted and usage.folded + max(0, needed - read) > usage.limits.folded_bytes:
        return None
    try:
        with np.errstate(all="ignore"):
            results = apply(op, np, data)
    except (DovetailError, MemoryError, *FAILURES):
        return None
    if is_counted:
        usage.folded += max(0, sum(map(bytes_of, results)) - read)
    return [(result, type.dtype) for result, type in zip(results, types, strict=True)]  # type: ignore[misc]


def _characters(data: np.ndarray[Any, Any] | None) -> int:
    """The characters of a constant of strings; 0 of another."""
    return sum(map(len, data.reshape(-1).tolist())) if data is not None and data.dtype.hasobject else 0


def evaluates_early(op: Op, xs: Several[Value | None]) -> bool:
    """Whether an operator may be evaluated once for many runs: it has a rule, takes bounded time and draws no random numbers."""
    return (has(op, "evaluate") or has(op, "decompose")) and not draws(op, xs) and not _runs_long(op)


def _runs_long(op: Op) -> bool:
    return bool(getattr(op, "runs_long", False)) or any(_runs_long(node.op) for _, body in bodies(op) for node in body.nodes)


def constant_value(value: Value) -> np.ndarray[Any, Any] | None:
    """The elements of ``value`` where they follow from constants alone, through any number of nodes; None otherwise."""
    found: dict[int, Any] = {}
    stack = [value]
    budget = CHAIN_LIMIT
    while stack:
        current = stack[-1]
        if id(current) in found:
            stack.pop()
            continue
        if current.constant is not None:
            found[id(current)] = current.constant
            continue
        node = current.node
        if node is None or not _is_small(node) or budget < 0:
            return None
        missing = [x for x in node.inputs if x is not None and id(x) not in found]
        if missing:
            stack.extend(missing)
            continue
        try:
            results = apply(node.op, np, [None if x is None else found[id(x)] for x in node.inputs])
        except (DovetailError, ValueError, IndexError, TypeError, NotImplementedError):
            return None
        budget -= NODE_COST + sum(map(bytes_of, results))
        found.update({id(y): result for y, result in zip(node.outputs, results, strict=False)})
    return np.asarray(found[id(value)])


def _is_small(node: Node) -> bool:
    if not evaluates_early(node.op, node.inputs) or not node.inputs:
        return False
    for y in node.outputs:
        type = y.type
        if not isinstance(type, Tensor) or type.shape is None or not all(isinstance(size, int) for size in type.shape):
            return False
        size = prod(type.shape)
        if type.dtype is None or size * type.dtype.numpy.itemsize > FOLD_LIMIT or (type.dtype.name == "string" and size > 1):
            return False
    return True


def _fold_written(op: Op, xs: Several[Value | None]) -> list[tuple[np.ndarray[Any, Any], DType]] | None:
    return folded(op, xs, FOLD_LIMIT, FOLD_WRITTEN)


Builder.constant_folder = staticmethod(_fold_written)
