"""Costs of a run from its plan: memory, bytes moved and operations, at the plan's sizes and as expressions in open sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dovetail.engine.engine import Engine
from dovetail.engine.fitted_objects import OBJECTS
from dovetail.engine.memory.arena import ALIGNMENT, align
from dovetail.engine.memory.tensor import RunTensor, TensorMap
from dovetail.engine.plan import Operand, Plan, Step
from dovetail.engine.run.executable import Executable, output_bytes_of
from dovetail.engine.step_costs import bytes_of, cost_of, is_gather, operations_of
from dovetail.ir import symbolic
from dovetail.ir.graph import Graph, Node
from dovetail.ir.op import Op, has
from dovetail.ir.symbolic import Size
from dovetail.ir.symbolic.algebra import Atom, sorted_terms
from dovetail.ir.types import Tensor
from dovetail.storage.mapped_files import map_of, stored_constants

Sizes = Mapping[str, int]
TRIED_SIZES = (1, 2, 3, 7, 8, 16, 64, 256, 1024, 4096)
"""Sizes of the symbols at which the steps with the most live bytes are found."""


class MemoryCost(NamedTuple):
    """MemoryCost holds the bytes of memory that a run takes, by their use.

    ``weights``: constants of the model and of the engine's rewritten graph; ``mapped``: those that are pages of a model file;
    ``packed``: weights in the layout of kernels; ``tables``: constants computed from the sizes of the run; ``arena``: all
    intermediate values. ``inputs`` and ``outputs`` are the caller's arrays. ``objects``: nodes, values and steps of a program
    beyond those of one with one operator, by factors fitted to measurements (``fitted_objects``).
    """

    weights: int
    mapped: int
    packed: int
    tables: int
    arena: int
    inputs: int
    outputs: int
    objects: int

    @property
    def total(self) -> int:
        """The sum of all bytes."""
        return sum(self)

    def at_plan(self, plan: Plan) -> MemoryCost:
        """Return the bytes of a run by another plan with the same weights."""
        return self._replace(
            tables=plan.constant_bytes, arena=plan.arena_bytes, inputs=_input_bytes(plan), outputs=output_bytes_of(plan)
        )


def memory_of(engine: Engine, executable: Executable) -> MemoryCost:
    """Return the bytes of a run by ``executable``, the only executable of ``engine``."""
    weights, _ = constant_bytes((engine.model.graph, engine.graph))
    # The engine returns the pages of a constant that it replaces to the system.
    _, mapped = constant_bytes((engine.graph,))
    objects = object_bytes(len(engine.model.graph.nodes), len(executable.plan.steps))
    base = MemoryCost(weights, mapped, engine.packed_bytes, 0, 0, 0, 0, objects)
    return base.at_plan(executable.plan)


def object_bytes(nodes: int, steps: int) -> int:
    """Return the bytes of the objects of a program with these numbers of nodes and planned steps."""
    return int(OBJECTS[0] + OBJECTS[1] * nodes + OBJECTS[2] * steps)


def constant_bytes(graphs: Iterable[Graph]) -> tuple[int, int]:
    """Return the bytes of the graphs' constants in memory of the process and in mapped files; shared memory counts once."""
    own: list[tuple[int, int]] = []
    mapped: list[tuple[int, int]] = []
    for graph in graphs:
        for array in stored_constants(graph):
            if isinstance(array, np.ndarray) and array.size:
                (own if map_of(array) is None else mapped).append(np.lib.array_utils.byte_bounds(array))
    return _length(own), _length(mapped)


def _length(spans: list[tuple[int, int]]) -> int:
    """Return the length of the union of some intervals."""
    total = end = 0
    for start, stop in sorted(spans):
        total += max(0, stop - max(start, end))
        end = max(end, stop)
    return total


def _input_bytes(plan: Plan) -> int:
    return sum(tensor.nbytes for tensor in plan.inputs if not tensor.is_dynamic)


class SymbolicCosts(NamedTuple):
    """SymbolicCosts holds the costs of a run as expressions in the open sizes; None for a cost that no expression gives.

    ``live``: the bytes of the largest set of live buffers of the arena. ``tables``, ``inputs``, ``outputs``: bytes, as in
    :class:`MemoryCost`. ``moved``: bytes that the steps read and write. ``operations``: as the operators define them. ``steps``:
    ``moved`` and ``operations`` of each step.
    """

    live: Size | None
    tables: Size | None
    inputs: Size | None
    outputs: Size | None
    moved: Size | None
    operations: Size | None
    steps: list[tuple[Size | None, Size | None]]


def symbolic_costs(plan: Plan, tensor_map: TensorMap, sizes: Sizes) -> SymbolicCosts:
    """Return the costs of a plan for ``sizes`` as expressions in the open sizes.

    The expressions hold for all sizes at which the plan has the same steps; :func:`differences` compares them with the plan for
    other sizes.
    """
    moved = [_expression(partial(_moved_bytes, step, sizes)) for step in plan.steps]
    operations = [_expression(partial(_operations, step, tensor_map)) for step in plan.steps]
    return SymbolicCosts(
        _expression(lambda: _live_bytes(plan, sizes)),
        plan.constant_bytes,
        _expression(lambda: _total(_tensor_bytes(x) for x in plan.inputs if not x.is_dynamic)),
        _expression(lambda: _total(_tensor_bytes(y) for y in plan.outputs if not y.is_dynamic)),
        _total_or_none(moved),
        _total_or_none(operations),
        list(zip(moved, operations, strict=True)),
    )


def differences(expressions: SymbolicCosts, plan: Plan, tensor_map: TensorMap, sizes: Sizes) -> list[str]:
    """Return the names of the expressions that do not give the costs of the plan for ``sizes``."""
    costs = [cost_of(step, tensor_map) for step in plan.steps]
    numbers = (
        plan.lower_bound, plan.constant_bytes, _input_bytes(plan), output_bytes_of(plan),
        sum(cost.read + cost.written for cost in costs), sum(defined_operations(step, tensor_map) for step in plan.steps),
    )  # fmt: skip
    rows = zip(SymbolicCosts._fields, expressions[:6], numbers, strict=False)
    return [name for name, size, number in rows if size is not None and value_of(size, sizes) != number]


def value_of(size: Size, sizes: Sizes) -> int | None:
    """Return the value of an expression at some sizes; None where it has none."""
    try:
        return symbolic.evaluate(size, sizes)
    except (symbolic.Inexact, ArithmeticError, ValueError):
        return None


class _NoExpression(Exception):
    """_NoExpression reports a cost that does not follow from the types of the plan's tensors."""


def _expression(make: Callable[[], Size]) -> Size | None:
    try:
        return make()
    except (_NoExpression, symbolic.Inexact, ArithmeticError, ValueError, TypeError):
        return None


def _total(parts: Iterable[Size]) -> Size:
    found: Size = 0
    for part in parts:
        found = found + part
    return found


def _total_or_none(parts: Sequence[Size | None]) -> Size | None:
    known = [part for part in parts if part is not None]
    return _expression(lambda: _total(known)) if len(known) == len(parts) else None


def _dims_of(tensor: RunTensor) -> tuple[Size, ...]:
    """Return the dimensions of a tensor as expressions. Raises _NoExpression."""
    type = tensor.type
    if not isinstance(type, Tensor) or type.shape is None or len(type.shape) != len(tensor.sizes):
        raise _NoExpression
    dims = tuple(_positive(dim) for dim in type.shape if dim is not None)
    if len(dims) != len(tensor.sizes):
        raise _NoExpression
    return dims


@lru_cache(maxsize=4096)
def _positive(dim: Size) -> Size:
    """Return a dimension whose symbols are at least 1: rules of costs compare sizes, and a size of 0 decides no comparison."""
    if isinstance(dim, int):
        return dim
    names = {str(symbolic.name_of(symbol)): symbolic.bounds(symbol) for symbol in symbolic.symbols(dim)}
    return symbolic.substitute(dim, {name: symbolic.symbol(name, max(low or 0, 1), high) for name, (low, high) in names.items()})


def _tensor_bytes(tensor: RunTensor) -> Size:
    return symbolic.product((*_dims_of(tensor), tensor.itemsize))


def _moved_bytes(step: Step, sizes: Sizes) -> Size:
    """Return the bytes that a step reads and writes, as :func:`dovetail.engine.step_costs.cost_of` counts them."""
    written = _total(_operand_bytes(operand, sizes) for operand in step.writes)
    reads = [0 if operand is None else _operand_bytes(operand, sizes) for operand in step.reads]
    if reads and is_gather(step):
        reads[0] = symbolic.minimum(reads[0], written)
    return written + _total(reads)


def _operand_bytes(operand: Operand, sizes: Sizes) -> Size:
    """Return the bytes of an operand's distinct elements. Raises _NoExpression for a part of a tensor."""
    tensor = operand.tensor
    if tensor.is_dynamic or 0 in operand.sizes:
        return 0
    if operand.data is not None:
        dims_of_data = tensor.type.shape if isinstance(tensor.type, Tensor) else None
        if dims_of_data is not None and all(isinstance(dim, int) for dim in dims_of_data):
            return bytes_of(operand)
    dims = _dims_of(tensor)
    if tuple(value_of(dim, sizes) for dim in dims) == operand.sizes:
        axes_read = (dim for dim, stride, size in zip(dims, operand.strides, operand.sizes, strict=True) if stride or size == 1)
        return symbolic.product((*axes_read, tensor.itemsize))
    # A view with other axes, such as the transpose between groups of channels, has all elements of its tensor.
    is_whole = prod(operand.sizes) == prod(value_of(dim, sizes) or 0 for dim in dims)
    if is_whole and all(stride or size == 1 for size, stride in zip(operand.sizes, operand.strides, strict=True)):
        return symbolic.product((*dims, tensor.itemsize))
    raise _NoExpression


def _operations(step: Step, tensor_map: TensorMap) -> Size:
    nodes = step.call.nodes if step.call is not None else ()
    return _total(_node_operations(node, tensor_map) for node in nodes)


def defined_operations(step: Step, tensor_map: TensorMap) -> int:
    """Return the operations of a step by the definitions of its operators; Winograd's algorithm performs fewer."""
    return sum(operations_of(node, tensor_map) for node in (step.call.nodes if step.call is not None else ()))


def _node_operations(node: Node, tensor_map: TensorMap) -> Size:
    tensors = [None if value is None else tensor_map.of(value) for value in (*node.inputs, *node.outputs)]
    if any(tensor is not None and tensor.shape is None for tensor in tensors) or not node.outputs:
        return 0
    # The rules multiply and compare sizes, which expressions permit too.
    shapes: list[Any] = [None if tensor is None else _dims_of(tensor) for tensor in tensors]
    count = len(node.inputs)
    try:
        return node.op.operations(shapes[:count], [shape for shape in shapes[count:] if shape is not None])
    except symbolic.Inexact:
        if type(node.op).operations is not Op.operations or has(node.op, "multiply_adds"):
            raise
    # The number of elements of the largest operand, where the sizes decide which one that is.
    found: Size = 0
    for shape in shapes:
        if shape is not None:
            found = symbolic.maximum(found, symbolic.product(shape))
    return found


def _live_bytes(plan: Plan, sizes: Sizes) -> Size:
    """Return the maximum over all steps of the bytes of live buffers, each rounded up to the arena's alignment."""
    changes: list[list[tuple[int, Size]]] = [[] for _ in range(len(plan.steps) + 1)]
    for buffer in plan.buffers:
        nbytes = _tensor_bytes(buffer.root)
        if value_of(nbytes, sizes) != buffer.nbytes:
            raise _NoExpression
        aligned = align(nbytes) if isinstance(nbytes, int) else symbolic.ceil_divide(nbytes, ALIGNMENT) * ALIGNMENT
        changes[buffer.first].append((1, aligned))
        changes[buffer.last + 1].append((-1, aligned))
    live: Size = 0
    sums: dict[Size, None] = {0: None}
    for rows in changes:
        for sign, nbytes in rows:
            live = live + sign * nbytes
        sums[live] = None
    return _maximum(list(sums), sizes)


def _maximum(terms: Sequence[Size], sizes: Sizes) -> Size:
    """Return the maximum of expressions, without those that are never the largest at the tried sizes."""
    names = sorted({str(symbolic.name_of(symbol)) for term in terms for symbol in symbolic.symbols(term)})
    trials = [dict(sizes), *({**sizes, **dict.fromkeys(names, size)} for size in TRIED_SIZES)]
    trials += [{**sizes, name: size} for name in names if len(names) > 1 for size in TRIED_SIZES]
    largest = dict.fromkeys(terms[int(np.argmax([value_of(term, trial) or 0 for term in terms]))] for trial in trials)
    found: Size = 0
    for term in largest:
        found = symbolic.maximum(found, term)
    return found


def is_monotone(size: Size, name: str) -> bool:
    """Return whether an expression surely does not fall while the symbol ``name`` grows."""
    for monomial, coefficient in [] if isinstance(size, int) else sorted_terms(size):
        atoms = [atom for atom in monomial if name in _names_in(atom)]
        if (atoms and coefficient < 0) or not all(_grows(atom, name) for atom in atoms):
            return False
    return True


def _grows(atom: Atom, name: str) -> bool:
    if atom.kind == "symbol":
        return True
    if atom.kind == "//":
        return isinstance(atom.args[1], int) and atom.args[1] > 0 and is_monotone(atom.args[0], name)
    return atom.kind in ("max", "min") and all(is_monotone(arg, name) for arg in atom.args)


def _names_in(atom: Atom) -> set[str]:
    if atom.kind == "symbol":
        return {atom.args[0]}
    return {str(symbolic.name_of(symbol)) for arg in atom.args for symbol in symbolic.symbols(arg)}
