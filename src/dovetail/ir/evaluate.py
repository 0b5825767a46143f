"""Evaluation of single operators, graphs and constant expressions (constant folding) by the operators' rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence as Several
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from dovetail.errors import DovetailError, EngineError, RuleError, UnsupportedError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.builder import Builder, describe_op
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import EXTENSIONS, Graph, Node, Value
from dovetail.ir.limits import active, bytes_of, current, refuse_array, refuse_memory
from dovetail.ir.op import Op, bodies, draws, has, host_inputs, infer_types, output_count
from dovetail.ir.types import UNKNOWN, Map, Sequence, Size, Tensor, Type, Unknown, View, common_type, is_static, static

FOLD_LIMIT = 1 << 23
"""The maximum size in bytes of a folded constant that is larger than each input of its operator."""
FOLD_ELEMENTS = 1 << 8
"""The maximum number of elements of a folded constant that is larger than all inputs together, while a model is read or written.

Quantized weights with more elements stay quantized.
"""
FOLD_TEXT = 1 << 16
"""The maximum number of characters in the inputs of a folded string operator; the size of its output is not known in advance."""
FOLD_TEXTS = 1 << 10
"""The maximum number of strings in a folded constant."""
CHAIN_LIMIT = 1 << 27
"""The maximum number of bytes computed for one call of ``constant_value``; each evaluated node adds NODE_COST bytes."""
NODE_COST = 1 << 17
LARGE = 1 << 26
"""The minimum size in bytes of a result that is checked against the memory limit of a run."""
_INFERRED = 1 << 20
"""The minimum size, in bytes, of a node's inputs for which the memory check infers types if no memory limit is set.

For smaller inputs, type inference could cost more than running the node.
"""
_EXACT = 1 << 10
"""The maximum number of elements of an input whose elements the memory check passes to type inference."""

FAILURES = (ValueError, IndexError, KeyError, TypeError, ArithmeticError, RuntimeError, symbolic.Inexact)
"""The classes of errors, other than dovetail's, that the rule `evaluate` of an operator may raise for invalid inputs."""


def apply(op: Op, xp: Namespace, xs: Several[Array]) -> tuple[Any, ...]:
    """Evaluate one operator by its rule ``evaluate``, or by its rule ``decompose`` if it has no ``evaluate``."""
    if not has(op, "evaluate"):
        if has(op, "decompose"):
            return _run_decomposition(op, xp, xs)
        raise UnsupportedError("op.unknown", f"{type(op).__name__} has no rule to run it")
    if not arrays.is_numpy(xp):
        hosts = host_inputs(op, len(xs))
        xs = [_place_input(xp, x, host) for x, host in zip(xs, hosts, strict=True)]
    result = op.evaluate(xp, *xs)
    # A list from an operator with one output is a sequence, not a list of outputs.
    has_several = isinstance(result, tuple) or (isinstance(result, list) and output_count(op) != 1)
    results = tuple(result) if has_several else (result,)
    if arrays.is_numpy(xp):
        # numpy's reductions return scalars.
        return tuple(
            result if isinstance(result, np.ndarray | list | dict) or result is None else np.asarray(result) for result in results
        )
    return results


def _place_input(xp: Namespace, x: Array, host: bool) -> Any:
    """Convert an input of ``evaluate``: to numpy for a host input, else to ``xp``."""
    if x is None or isinstance(x, list | dict):
        return x
    if host:
        return arrays.to_numpy(x)
    return arrays.from_numpy(xp, x) if isinstance(x, np.ndarray) else x


def _run_decomposition(op: Op, xp: Namespace, xs: Several[Array]) -> tuple[Any, ...]:
    b = Builder()
    inputs: list[Any] = []
    for index, x in enumerate(xs):
        inputs.append(None if x is None else b.input_of(f"x{index}", type_of(x)))
        if isinstance(x, np.ndarray) and host_inputs(op, len(xs))[index]:
            inputs[-1].value = x
    outputs = op.decompose(b, *inputs)
    b.graph.outputs = [outputs] if isinstance(outputs, Value) else list(outputs)
    return tuple(run(b.graph, [x for x in xs if x is not None], xp))


def type_of(x: Array) -> Type:
    """Return the type of a value of a run; the value is an array, a list (a sequence), a dict (a map) or None (no value)."""
    if x is None:
        return UNKNOWN
    if isinstance(x, dict):
        return Map(_key_type(x), Tensor(None, ()))
    if not isinstance(x, list):
        return Tensor(arrays.element(x), tuple(map(int, x.shape)))
    return Sequence(reduce(common_type, map(type_of, x)) if x else UNKNOWN, len(x))


def _key_type(x: dict[Any, Any]) -> DType:
    return dtypes.string if any(isinstance(key, str) for key in x) else dtypes.i64


def run(graph: Graph, inputs: Several[Array], xp: Namespace, store: Callable[[Any], Any] | None = None) -> list[Any]:
    """Run the nodes that the outputs of ``graph`` need, with ``inputs`` in the order of the graph's inputs.

    ``store`` is applied to every result. A value is released after its last reader. Raises the ``fault`` of a subgraph that
    cannot run with its input types.
    """
    if isinstance(graph.fault, RuleError):
        raise graph.fault.with_traceback(None)
    last = last_readers(graph)
    live = live_nodes(graph)
    on_host = frozenset[int]() if arrays.is_numpy(xp) else host_nodes(graph)
    usage = active()
    timed = usage if usage is not None and usage.deadline is not None else None
    run_arrays = RunArrays(zip(map(id, graph.inputs), inputs, strict=True))
    with np.errstate(all="ignore"), run_arrays as arrays_by_id:
        for index, node in enumerate(graph.nodes):
            if index not in live:
                continue
            if timed is not None:
                timed.check_time()
            xs = [None if x is None else arrays_by_id[id(x)] for x in node.inputs]
            ys = evaluate_node(node, xp, xs, index in on_host)
            arrays_by_id.store(node, ys if store is None else map(store, ys))
            for key in last.get(index, ()):
                arrays_by_id.release(key)
        return [arrays_by_id[id(value)] for value in graph.outputs]


class RunArrays(dict[int, Any]):
    """RunArrays holds the arrays of one run by the identity of their value.

    Arrays that the run allocates count towards its memory limit; a view counts as part of the array that owns its memory. The
    model's inputs and constants do not count. The exit from the ``with`` block subtracts the counted memory from the usage, also
    after an error.
    """

    def __init__(self, inputs: Iterable[tuple[int, Any]] = ()) -> None:
        super().__init__(inputs)
        self._usage = current()
        self._counted = 0
        self._readers: dict[int, int] = {}
        """The number of live values by the identity of the array that owns their memory; inputs and constants are absent."""
        self._foreign = {id(owner_of(array)) for array in self.values() if isinstance(array, np.ndarray)}

    def __enter__(self) -> RunArrays:
        return self

    def __exit__(self, *_: object) -> None:
        self._usage.memory -= self._counted
        self._counted = 0

    def store(self, node: Node, ys: Iterable[Any]) -> None:
        """Store the outputs of a node. Raises EngineError [run.memory] beyond the memory limit of the run."""
        added = 0
        for y, array in zip(node.outputs, ys, strict=False):
            self[id(y)] = array
            for owner in _owners_in(array):
                if id(owner) in self._foreign:
                    continue
                if y.storage is not None:
                    self._foreign.add(id(owner))
                    continue
                readers = self._readers.get(id(owner), 0)
                self._readers[id(owner)] = readers + 1
                added += 0 if readers else owner.nbytes
        if added:
            self._counted += added
            self._usage.memory += added
            if self._usage.memory >= LARGE or self._usage.limits.memory is not None:
                try:
                    refuse_memory(self._usage.limits, self._usage.memory, "the run")
                except EngineError as error:
                    raise error.at(node=node.label, op=describe_op(node.op, node.inputs)) from None

    def owns(self, key: int) -> bool:
        """Return whether the run allocated the array of a value, and no other live value has a part of its memory."""
        return self._readers.get(id(owner_of(self[key])), 0) == 1

    def release(self, key: int) -> None:
        """Remove the array of a value that has no further reader."""
        for owner in _owners_in(self.pop(key, None)):
            readers = self._readers.get(id(owner), 0)
            if readers > 1:
                self._readers[id(owner)] = readers - 1
            elif readers:
                del self._readers[id(owner)]
                self._counted -= owner.nbytes
                self._usage.memory -= owner.nbytes


def owner_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the array that owns the memory of a view."""
    while isinstance(base := array.base, np.ndarray):
        array = base
    return array


def _owners_in(item: object) -> Iterator[np.ndarray[Any, Any]]:
    if isinstance(item, np.ndarray):
        yield owner_of(item)
    elif isinstance(item, list):
        for element in item:
            yield from _owners_in(element)


def _refuse_results(node: Node, xs: Several[Array]) -> None:
    """Raise EngineError [run.memory] if the outputs of a node that has not run yet will exceed the memory limit of the run."""
    usage = current()
    types: Several[Type] = [y.type for y in node.outputs]
    nbytes = bytes_of_types(types)
    if nbytes is None:
        known = sum(x.nbytes for x in xs if isinstance(x, np.ndarray))
        if usage.limits.memory is None and known < _INFERRED:
            return
        views = tuple(
            View(type_of(x), x if isinstance(x, np.ndarray) and x.dtype.kind in "iub" and x.size <= _EXACT else None)
            if x is not None
            else None
            for x in xs
        )
        try:
            types = infer_types(node.op, views)
        except DovetailError:
            return
        nbytes = bytes_of_types(types)
    if nbytes is not None and (nbytes >= LARGE or usage.limits.memory is not None):
        refuse_memory(usage.limits, usage.memory + nbytes, "the run")


def bytes_of_types(types: Several[Type]) -> int | None:
    """Return the total size in bytes of tensors of these types; None if a type is not a tensor or has an unknown dimension."""
    total = 0
    for type in types:
        if not isinstance(type, Tensor) or type.dtype is None or type.shape is None:
            return None
        nbytes = type.dtype.numpy.itemsize
        for size in type.shape:
            if not isinstance(size, int):
                return None
            nbytes *= size
        total += nbytes
    return total


def evaluate_node(
    node: Node,
    xp: Namespace,
    xs: Several[Array],
    on_host: bool = False,
    compute: Callable[[Op, Namespace, Several[Array]], tuple[Any, ...]] = apply,
) -> tuple[Any, ...]:
    """Evaluate a node, by ``compute`` unless on the host. Raises only DovetailErrors, which name the node."""
    try:
        if xp is np and not (node.outputs and node.outputs[0].storage is not None):
            _refuse_results(node, xs)
        with np.errstate(all="ignore"):
            ys = _evaluate_on_host(node, xs) if on_host else compute(node.op, xp, xs)
        if node.op.is_custom and xp is np:
            _check_results(node.op, xs, ys)
        for y in ys:
            # A view with stride 0 allocates no memory, but its readers may copy it at full size.
            if isinstance(y, np.ndarray) and y.nbytes >= LARGE:
                refuse_memory(current().limits, y.nbytes, "a result")
            elif xp is not np and prod(size for size in getattr(y, "shape", ()) if isinstance(size, int) and size) >= 1 << 60:
                # A tracer allocates no memory, but XLA aborts the process if a product of sizes overflows its integers.
                refuse_array(y.shape, 8, "a result")
        return ys
    except DovetailError as error:
        raise error.at(node=node.label, op=describe_op(node.op, node.inputs)) from None
    except MemoryError as error:
        raise EngineError("run.memory", str(error), node=node.label, op=describe_op(node.op, node.inputs)) from None
    except Exception as error:
        if not isinstance(error, FAILURES) and not node.op.is_custom:
            raise
        raise EngineError(
            "run.failed", f"{type(error).__name__}: {error}", node=node.label, op=describe_op(node.op, node.inputs)
        ) from error


def _check_results(op: Op, xs: Several[Array], ys: Several[Array]) -> None:
    """Require the results of a custom operator to have the types that its rules infer. Raises EngineError [run.failed]."""
    count = output_count(op)
    if len(ys) != count:
        raise EngineError("run.failed", f"evaluate must return {count} array{'s' * (count != 1)}, got {len(ys)}")
    hosts = host_inputs(op, len(xs))
    if not all(x is None or isinstance(x, np.ndarray) for x in xs):
        return
    views = [None if x is None else View(type_of(x), x if host else None) for x, host in zip(xs, hosts, strict=True)]
    for index, (y, type) in enumerate(zip(ys, infer_types(op, tuple(views)), strict=True)):
        if not isinstance(type, Tensor):
            continue
        if not isinstance(y, np.ndarray):
            raise EngineError("run.failed", f"evaluate must return arrays, got a {y.__class__.__name__} as output {index}")
        actual = Tensor(arrays.element(y), tuple(y.shape))
        is_same_shape = type.shape is None or (len(type.shape) == y.ndim and all(map(_may_equal, type.shape, y.shape)))
        if type.dtype not in (None, actual.dtype) or not is_same_shape:
            raise EngineError("run.failed", f"evaluate must return {type} as output {index}, got {actual}")


def _may_equal(expected: Size, actual: int) -> bool:
    return not isinstance(expected, int) or expected == actual


def host_nodes(graph: Graph) -> frozenset[int]:
    """Return the indices of the nodes that can be evaluated on the host: only host inputs read their results.

    A host input is an input whose elements shape rules read. Inputs of nodes in the result count as host inputs too.
    """
    device = {id(value) for value in graph.outputs}
    indices = set()
    for index in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[index]
        if all(id(y) not in device for y in node.outputs) and any(y.uses for y in node.outputs) and not any(bodies(node.op)):
            indices.add(index)
            continue
        hosts = host_inputs(node.op, len(node.inputs))
        device.update(id(x) for x, host in zip(node.inputs, hosts, strict=True) if x is not None and not host)
    return frozenset(indices)


def _evaluate_on_host(node: Node, xs: Several[Array]) -> tuple[Any, ...]:
    """Evaluate a node in numpy. If the shapes of its inputs determine the result, lazy input arrays are not computed."""
    if any(isinstance(x, list | dict) for x in xs):
        xs = [_as_numpy(x) for x in xs]
    if any(x is not None and not isinstance(x, np.ndarray | list | dict) for x in xs):
        values = values_of_shapes(node, xs)
        if values is not None:
            return values
        xs = [_as_numpy(x) for x in xs]
    return apply(node.op, np, xs)


def values_of_shapes(node: Node, xs: Several[Array]) -> tuple[np.ndarray[Any, Any], ...] | None:
    """Compute a node's outputs from the shapes of its inputs and the elements of numpy inputs; None if these do not suffice."""
    views = [
        None if x is None else View(Tensor(arrays.element(x), tuple(x.shape)), x if isinstance(x, np.ndarray) else None)
        for x in xs
    ]
    try:
        value = node.op.value(*views)
        values = value if isinstance(value, tuple | list) else (value,)
        return tuple(np.asarray(item, dtype=y.dtype.numpy) for item, y in zip(values, node.outputs, strict=True))
    except (Unknown, symbolic.Inexact, NotImplementedError, TypeError, ValueError):
        return None


def _as_numpy(x: Array) -> Any:
    if isinstance(x, list):
        return [_as_numpy(item) for item in x]
    return x if x is None or isinstance(x, dict) else arrays.to_numpy(x)


def live_nodes(graph: Graph) -> set[int]:
    """Return the indices of the nodes on which the graph's outputs depend."""
    needed = {id(value) for value in graph.outputs}
    live: set[int] = set()
    for index in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[index]
        if any(id(y) in needed for y in node.outputs):
            live.add(index)
            needed.update(id(x) for x in node.inputs if x is not None)
    return live


def last_readers(graph: Graph) -> dict[int, list[int]]:
    """Map each node's index to the identities of the values that no later node reads; graph outputs are left out.

    A value is listed at its last reader, or at its producer if no node reads it.
    """
    output_ids = {id(value) for value in graph.outputs}
    last: dict[int, int] = {}
    for index, node in enumerate(graph.nodes):
        for value in (*node.inputs, *node.outputs):
            if value is not None:
                last[id(value)] = index
    by_node: dict[int, list[int]] = {}
    for key, index in last.items():
        if key not in output_ids:
            by_node.setdefault(index, []).append(key)
    return by_node


def fold_op(
    op: Op, xs: Several[Value | None], max_bytes: int = FOLD_LIMIT, max_elements: int | None = None, is_counted: bool = True
) -> list[tuple[np.ndarray[Any, Any], DType]] | None:
    """Fold an operator on constants: return its outputs with the bits that a run computes; None if it is not folded.

    Random operators and operators without rules are not folded. A result that is larger than every input, such as a dequantized
    or expanded weight, is not folded if it exceeds ``max_bytes``, nor if it exceeds ``max_elements`` and, unlike a Concat, all
    inputs together. If ``is_counted``, the limit ``folded_bytes`` applies too.
    """
    if not evaluates_early(op, xs):
        return None
    data = [None if x is None else x.constant for x in xs]
    if any(array is None and x is not None for array, x in zip(data, xs, strict=True)):
        return None
    types = infer_types(op, tuple(xs))
    sizes = [array.nbytes for array in data if array is not None]
    read, total = max(sizes, default=0), sum(sizes)
    usage = current()
    needed = 0
    for type in types:
        if not isinstance(type, Tensor) or type.dtype is None or not is_static(type):
            return None
        size = prod(static(type.shape))
        nbytes = size * type.dtype.numpy.itemsize
        if nbytes > read and (nbytes > max_bytes or (max_elements is not None and size > max_elements and nbytes > total)):
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
    """Return the number of characters in a constant of strings; 0 for other types."""
    return sum(map(len, data.reshape(-1).tolist())) if data is not None and data.dtype.hasobject else 0


def evaluates_early(op: Op, xs: Several[Value | None]) -> bool:
    """Return whether ``op`` may be evaluated before a run: it has a rule, takes bounded time and draws no random numbers."""
    return (has(op, "evaluate") or has(op, "decompose")) and not draws(op, xs) and not _runs_long(op)


def _runs_long(op: Op) -> bool:
    return bool(getattr(op, "runs_long", False)) or any(_runs_long(node.op) for _, body in bodies(op) for node in body.nodes)


def constant_value(value: Value) -> np.ndarray[Any, Any] | None:
    """Return the elements of a value that is a constant or that small nodes compute from constants; None for any other value."""
    arrays_by_id: dict[int, Any] = {}
    stack = [value]
    budget = CHAIN_LIMIT
    while stack:
        current = stack[-1]
        if id(current) in arrays_by_id:
            stack.pop()
            continue
        if current.constant is not None:
            arrays_by_id[id(current)] = current.constant
            continue
        node = current.node
        if node is None or not _is_small(node) or budget < 0:
            return None
        missing = [x for x in node.inputs if x is not None and id(x) not in arrays_by_id]
        if missing:
            stack.extend(missing)
            continue
        try:
            results = apply(node.op, np, [None if x is None else arrays_by_id[id(x)] for x in node.inputs])
        except (DovetailError, ValueError, IndexError, TypeError, NotImplementedError):
            return None
        budget -= NODE_COST + sum(map(bytes_of, results))
        arrays_by_id.update({id(y): result for y, result in zip(node.outputs, results, strict=False)})
    return np.asarray(arrays_by_id[id(value)])


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


def _fold_in_builder(op: Op, xs: Several[Value | None]) -> list[tuple[np.ndarray[Any, Any], DType]] | None:
    return fold_op(op, xs, FOLD_LIMIT, FOLD_ELEMENTS)


EXTENSIONS.fold_operator = _fold_in_builder
