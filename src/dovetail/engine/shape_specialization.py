"""What follows from the sizes of a run alone, computed when its plan is made: shape specialization.

A node is *early* where all its inputs are: constants, the shape of a tensor, and what is computed from these. Where inference
knows every shape, ``EarlyNodes`` evaluates the early nodes for the sizes of a plan, and their results are its constants. Where it
leaves shapes open, because a length comes of float arithmetic on sizes, ``specialize`` infers types anew with numbers in the
place of symbols and evaluates early nodes in the same walk, so that those after them know their shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dovetail import symbolic
from dovetail.engine.affine_sizes import input_symbols, linear_symbols
from dovetail.engine.memory.tensor import INTERPRET, RunTensor, TensorMap, fitting_elements
from dovetail.engine.plan import Plan
from dovetail.errors import DovetailError, raise_all
from dovetail.interpreter.evaluate import evaluates_early, placed
from dovetail.ir.builder import Builder, written
from dovetail.ir.edit import copy_graph, remove_dead, rewrite
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import infer_types, infer_values
from dovetail.ir.types import UNKNOWN, Tensor, Type, is_static, static
from dovetail.ops.constant import Constant, Foreign
from dovetail.ops.runtime_attributes import as_attributes
from dovetail.passes.infer import keep_names

LIMIT = 1 << 24
"""The most bytes of results that are computed for one plan, intermediate ones included. What would pass it is computed in each
call."""
SMALL = 1 << 16
"""The most bytes of inputs from which a result is computed whose shape depends on their elements (NonZero, Unique)."""
Array = np.ndarray[Any, Any]
Symbols = frozenset[str]
Rule = Callable[[Builder, Node], "list[Value] | None"]


def weights_of(graph: Graph) -> frozenset[int]:
    """The identities of the arrays that are constants of a graph."""
    return frozenset(id(data) for value in graph.values() if (data := value.constant) is not None)


# Where every shape is known


class Early(NamedTuple):
    """An early node, and the symbols of the graph's inputs that its results depend on."""

    node: Node
    symbols: Symbols


class EarlyNodes:
    """The early nodes of a prepared graph. ``shared``: the identities of the arrays that are constants of all its plans.

    The bits of a result must not depend on which plan serves a call. A parametric plan leaves what changes with its symbol to
    native kernels, and which kernels are fused depends on what is constant. So what depends on a symbol for which there may be
    a parametric plan is left to kernels in every plan.
    """

    def __init__(self, graph: Graph, shared: frozenset[int]) -> None:
        self.shared = shared
        self._graph = graph
        self._nodes = _early_nodes(graph)

    @cached_property
    def _linear(self) -> Symbols:
        return linear_symbols(self._graph) if any(symbols for _, symbols in self._nodes) else frozenset()

    @cached_property
    def _left(self) -> frozenset[Node]:
        """The nodes that are left to kernels, in every call."""
        return frozenset(node for node, symbols in self._nodes if not symbols.isdisjoint(self._linear))

    def lack_kernels(self, plan: Plan) -> bool:
        """Whether a plan runs an early node in Python, so that there is no template for its sizes."""
        return any(
            node in self._left for step in plan.steps if step.kernel == INTERPRET and step.call for node in step.call.nodes
        )

    def evaluate(self, tensor_map: TensorMap, all_: bool = False) -> None:
        """Give the tensors of ``scene`` the elements that early nodes compute; ``all_``: even where a kernel might."""
        left = LIMIT
        made: list[tuple[Value, RunTensor]] = []
        for node, _ in self._nodes:
            if not all_ and node in self._left:
                continue
            data = [None if x is None else tensor_map.of(x).data for x in node.inputs]
            if any(array is None and x is not None for array, x in zip(data, node.inputs, strict=True)):
                continue
            tensors = [tensor_map.of(y) for y in node.outputs]
            results = _evaluated(node, data, [Tensor(tensor.dtype, tensor.shape) for tensor in tensors], left)
            if results is None or any(array.shape != tensor.shape for array, tensor in zip(results, tensors, strict=True)):
                continue
            for y, tensor, array in zip(node.outputs, tensors, results, strict=True):
                left -= array.nbytes
                tensor.data = np.asarray(array, order="C")
                made.append((y, tensor))
        tensor_map.early.update(tensor for _, tensor in made)
        self._forget(tensor_map, made)

    def _forget(self, tensor_map: TensorMap, made: Sequence[tuple[Value, RunTensor]]) -> None:
        """Let go of what is read by evaluated nodes alone."""
        outputs = {id(value) for value in self._graph.outputs}
        over = [
            tensor
            for y, tensor in made
            if id(y) not in outputs and all(tensor_map.of(z).data is not None for user, _ in y.uses for z in user.outputs)
        ]
        for tensor in over:
            tensor.data = None


def _early_nodes(graph: Graph) -> list[Early]:
    names = input_symbols(graph)
    known: dict[int, Symbols] = {}
    found = []
    for node in graph.nodes:
        if isinstance(node.op, Constant):
            known[id(node.outputs[0])] = frozenset()
            continue
        symbols_of_outputs = [_symbols_in(y, names) for y in node.outputs]
        if all(symbols is not None for symbols in symbols_of_outputs):
            known.update(
                (id(y), symbols) for y, symbols in zip(node.outputs, symbols_of_outputs, strict=True) if symbols is not None
            )
            continue
        xs = [x for x in node.inputs if x is not None]
        # Where all inputs are constants, folding has refused to enlarge them.
        if (
            all(x.constant is not None for x in xs)
            or any(id(x) not in known for x in xs)
            or not evaluates_early(node.op, node.inputs)
        ):
            continue
        symbols = frozenset[str]().union(*(known[id(x)] for x in xs))
        found.append(Early(node, symbols))
        known.update((id(y), symbols) for y in node.outputs)
    return found


def _symbols_in(value: Value, names: Symbols) -> Symbols | None:
    """The symbols in the elements of a shape value, if all are known once the sizes ``names`` are; None otherwise."""
    if value._value is None or not isinstance(value.type, Tensor) or value.type.dtype is None or not value.type.dtype.is_integer:
        return None
    items = np.asarray(value._value, dtype=object).reshape(-1).tolist()
    found = frozenset(str(symbol) for item in items for symbol in symbolic.symbols(item))
    return found if found <= names else None


# Where shapes are open


def specialize(graph: Graph, shapes: Sequence[tuple[int, ...] | None], shared: frozenset[int]) -> Graph:
    """A copy of ``graph`` for inputs of these shapes. ``shared``: identities of the arrays that are constants of every plan.

    Raises RuleError, with all independent ones in its ``diagnostics``, where a node that an output needs breaks its rules.
    """
    new = copy_graph(graph)
    for value, shape in zip(new.inputs, shapes, strict=True):
        if shape is not None and isinstance(value.type, Tensor):
            value.type = Tensor(value.type.dtype, shape)
    errors: dict[Node, DovetailError] = {}
    rewrite(new, _specializing(errors, shared))
    remove_dead(new)
    raise_all([errors[node] for node in new.nodes if node in errors], "faults while inferring types")
    return new


def _specializing(errors: dict[Node, DovetailError], shared: frozenset[int]) -> Rule:
    left = LIMIT

    def rule(b: Builder, node: Node) -> list[Value] | None:
        nonlocal left
        if isinstance(node.op, Constant | Foreign):
            return None
        try:
            _infer(node)
        except DovetailError as error:
            errors[node] = error.at(node=node.label, op=written(node.op, node.inputs))
            for y in node.outputs:
                y.type, y.value = UNKNOWN, None
            return None
        results = _known_elements(node)
        if results is None:
            data = [None if x is None else x.constant for x in node.inputs]
            is_known = all(array is not None or x is None for array, x in zip(data, node.inputs, strict=True))
            is_early = is_known and any(array is not None and id(array) not in shared for array in data)
            if is_early and evaluates_early(node.op, node.inputs):
                results = _evaluated(node, data, [y.type for y in node.outputs], left)
        if results is None:
            return as_attributes(b, node)
        left -= sum(array.nbytes for array in results)
        return [b.constant(array, y.dtype) for array, y in zip(results, node.outputs, strict=True)]

    return rule


def _infer(node: Node) -> None:
    xs = tuple(node.inputs)
    types = infer_types(node.op, xs, node.outputs[0].name if node.outputs else "")
    values = infer_values(node.op, xs, types)
    for y, type, value in zip(node.outputs, types, values, strict=True):
        y.type, y.value = keep_names(type, y.type), value


def _known_elements(node: Node) -> list[Array] | None:
    """The outputs of a node whose elements inference tells, all of them."""
    found = []
    for y in node.outputs:
        type = y.type
        if y._value is None or not isinstance(type, Tensor) or type.dtype is None or not is_static(type):
            return None
        elements = fitting_elements(y._value, static(type.shape), type.dtype)
        if elements is None:
            return None
        found.append(elements)
    return found or None


def _evaluated(node: Node, data: Sequence[Array | None], types: Sequence[Type], most: int) -> list[Array] | None:
    """The outputs of a node for known inputs; None where that is not done: lists, strings, more than ``most`` bytes.

    None too where its rule raises: the node stays, and raises the same in the call if an output needs it.
    """
    read = sum(array.nbytes for array in data if array is not None)
    for type in types:
        if not isinstance(type, Tensor) or type.dtype is None or type.dtype.name == "string":
            return None
        if prod(static(type.shape)) * type.dtype.numpy.itemsize > most if is_static(type) else read > SMALL:
            return None
    try:
        results = placed(node, np, data)
    except DovetailError:
        return None
    if any(not isinstance(array, np.ndarray) for array in results) or sum(array.nbytes for array in results) > most:
        return None
    return list(results)


__all__ = ["LIMIT", "EarlyNodes", "specialize", "weights_of"]
