"""Shape tensors: values that follow from the sizes of a run alone, computed at planning time.

A *shape tensor* depends only on constants, shapes and other shape tensors. Where type inference knows every shape,
``ShapeTensorNodes`` evaluates the nodes that compute shape tensors, and their results are constants of the plan. Where inference
leaves shapes open, because a length results from float arithmetic on sizes, ``specialize`` infers types anew with concrete sizes
in place of symbols. It evaluates these nodes in the same traversal, so that later nodes know their shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dovetail.engine.memory.tensor import INTERPRET, RunTensor, TensorMap, elements_as_array
from dovetail.engine.parametric_sizes import WHOLE, Follower, Pieces, input_symbols_of, pieces_at, pieces_of, steps_of
from dovetail.engine.plan import Plan
from dovetail.errors import DovetailError, raise_all
from dovetail.ir import symbolic
from dovetail.ir.builder import Builder, describe_op
from dovetail.ir.edit import copy_graph, remove_dead
from dovetail.ir.evaluate import evaluate_node, evaluates_early
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.infer import keep_names
from dovetail.ir.op import infer_types, infer_values
from dovetail.ir.rewrite import rewrite
from dovetail.ir.types import UNKNOWN, Tensor, Type, is_static, static
from dovetail.laws.fold import NodeTest
from dovetail.ops.constant import Constant, Foreign
from dovetail.ops.runtime_attributes import as_attributes

MAX_BYTES = 1 << 24
"""The maximum bytes of results, intermediate ones included, computed for one plan; each call computes further results."""
MAX_DYNAMIC_INPUT_BYTES = 1 << 16
"""The maximum bytes of inputs of a node whose output shape depends on elements of the inputs (NonZero, Unique)."""
MAX_PIECES = 256
"""The maximum number of combinations of sizes of other symbols whose pieces are kept."""
Array = np.ndarray[Any, Any]
Symbols = frozenset[str]
Rule = Callable[[Builder, Node], "list[Value] | None"]


def constants_of(graph: Graph) -> set[int]:
    """Return the set of the ``id`` of each array that is a constant of a graph."""
    return {id(data) for value in graph.values() if (data := value.constant) is not None}


# Graphs whose shapes type inference knows


class ShapeTensorNode(NamedTuple):
    """ShapeTensorNode holds a node that computes shape tensors, and the input symbols on which the node's results depend."""

    node: Node
    symbols: Symbols


class ShapeTensorNodes:
    """ShapeTensorNodes holds the nodes of a graph that compute shape tensors. ``shared``: ``id`` of all plans' constants.
    ``is_foldable``: a test of the nodes that may be evaluated before a run; None: all.

    The bits of a result must not depend on which plan serves a call. A parametric plan leaves nodes that depend on its symbols to
    native kernels, and the fusion of kernels depends on which tensors are constant. Therefore every plan leaves a node to kernels
    if the node depends on a symbol for which a parametric plan is possible.
    """

    def __init__(self, graph: Graph, shared: AbstractSet[int], is_foldable: NodeTest | None = None) -> None:
        self.shared = shared
        self._graph = graph
        self._nodes = _shape_tensor_nodes_of(graph, is_foldable)
        self._pieces_in: dict[tuple[object, ...], Pieces] = {}

    @cached_property
    def pieces(self) -> dict[str, Pieces]:
        """The symbols for which a parametric plan is possible, each with its Pieces; see :func:`pieces_of`."""
        return pieces_of(self._graph)

    def pieces_in(self, name: str, others: Mapping[str, int], followers: Mapping[str, Follower]) -> Pieces:
        """Return the pieces of a symbol for the sizes of the others; WHOLE where its sizes have none."""
        if name in self.pieces:
            return self.pieces[name]
        key = name, tuple(sorted(others.items())), tuple(sorted(followers.items()))
        if key not in self._pieces_in:
            if len(self._pieces_in) > MAX_PIECES:
                self._pieces_in.clear()
            self._pieces_in[key] = pieces_at(self._graph, name, others, followers) or WHOLE
        return self._pieces_in[key]

    @cached_property
    def _parametric(self) -> frozenset[Node]:
        """The nodes that are left to kernels in every call."""
        if not any(symbols for _, symbols in self._nodes):
            return frozenset()
        names: AbstractSet[str] = self.pieces.keys()
        if any(symbols and symbols.isdisjoint(names) for _, symbols in self._nodes):
            names = names | steps_of(self._graph)
        return frozenset(node for node, symbols in self._nodes if not symbols.isdisjoint(names))

    def are_left_to_kernels(self, names: AbstractSet[str]) -> bool:
        """Return whether all nodes that depend on these symbols are left to kernels, so that no constant follows from them."""
        return all(node in self._parametric for node, symbols in self._nodes if not symbols.isdisjoint(names))

    def has_interpreted_step(self, plan: Plan) -> bool:
        """Return whether a plan interprets a node that was left to kernels, so that no parametric plan is possible."""
        return any(
            node in self._parametric for step in plan.steps if step.kernel == INTERPRET and step.call for node in step.call.nodes
        )

    def evaluate(self, tensor_map: TensorMap, include_parametric: bool = False) -> None:
        """Set the elements of shape tensors; with ``include_parametric`` also the results of nodes that are left to kernels."""
        bytes_left = MAX_BYTES
        computed: list[tuple[Value, RunTensor]] = []
        for node, _ in self._nodes:
            if not include_parametric and node in self._parametric:
                continue
            data = [None if x is None else tensor_map.of(x).data for x in node.inputs]
            if any(array is None and x is not None for array, x in zip(data, node.inputs, strict=True)):
                continue
            tensors = [tensor_map.of(y) for y in node.outputs]
            results = _evaluate(node, data, [Tensor(tensor.dtype, tensor.shape) for tensor in tensors], bytes_left)
            if results is None or any(array.shape != tensor.shape for array, tensor in zip(results, tensors, strict=True)):
                continue
            for y, tensor, array in zip(node.outputs, tensors, results, strict=True):
                bytes_left -= array.nbytes
                tensor.data = np.asarray(array, order="C")
                computed.append((y, tensor))
        tensor_map.shape_tensors.update(tensor for _, tensor in computed)
        self._drop_intermediate(tensor_map, computed)

    def _drop_intermediate(self, tensor_map: TensorMap, computed: Sequence[tuple[Value, RunTensor]]) -> None:
        """Drop the elements of tensors that only evaluated nodes read."""
        outputs = {id(value) for value in self._graph.outputs}
        intermediate = [
            tensor
            for y, tensor in computed
            if id(y) not in outputs and all(tensor_map.of(z).data is not None for user, _ in y.uses for z in user.outputs)
        ]
        for tensor in intermediate:
            tensor.data = None


def _shape_tensor_nodes_of(graph: Graph, is_foldable: NodeTest | None) -> list[ShapeTensorNode]:
    names = input_symbols_of(graph)
    known: dict[int, Symbols] = {}
    nodes = []
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
        # Constant folding leaves a node with constant inputs only where its result would exceed a limit.
        if all(x.constant is not None for x in xs) or any(id(x) not in known for x in xs) or not _may_evaluate(node, is_foldable):
            continue
        symbols = frozenset[str]().union(*(known[id(x)] for x in xs))
        nodes.append(ShapeTensorNode(node, symbols))
        known.update((id(y), symbols) for y in node.outputs)
    return nodes


def _symbols_in(value: Value, names: Symbols) -> Symbols | None:
    """Return the symbols in the elements of a shape value; None where the sizes of ``names`` do not determine all elements."""
    if value._value is None or not isinstance(value.type, Tensor) or value.type.dtype is None or not value.type.dtype.is_integer:
        return None
    elements = np.asarray(value._value, dtype=object).reshape(-1).tolist()
    symbols = frozenset(str(symbol) for element in elements for symbol in symbolic.symbols(element))
    return symbols if symbols <= names else None


# Graphs with shapes that type inference leaves open


def specialize(
    graph: Graph,
    shapes: Sequence[tuple[int, ...] | None],
    shared: AbstractSet[int],
    inline_if: Rule | None = None,
    rewrite_inlined: Callable[[Graph], None] | None = None,
    is_foldable: NodeTest | None = None,
) -> Graph:
    """Make a copy of ``graph`` for inputs of these shapes. ``shared``: the ``id`` of each array that is constant in every plan.

    ``inline_if`` replaces an If whose condition the shapes decide. ``rewrite_inlined`` then rewrites the nodes whose ranks
    depended on the condition. ``is_foldable``: a test of the nodes that may be evaluated before a run; None: all.

    Raises RuleError where a node that an output needs breaks its rules; ``diagnostics`` has all independent errors.
    """
    new = copy_graph(graph)
    for value, shape in zip(new.inputs, shapes, strict=True):
        if shape is not None and isinstance(value.type, Tensor):
            value.type = Tensor(value.type.dtype, shape)
    errors: dict[Node, DovetailError] = {}
    rule = _specialization_rule(errors, shared, is_foldable)
    rewrite(new, rule)
    # The nodes of an inlined branch must be specialized too.
    is_inlined = False
    while inline_if is not None and rewrite(new, inline_if):
        rewrite(new, rule)
        is_inlined = True
    remove_dead(new)
    if is_inlined and rewrite_inlined is not None and not errors:
        rewrite_inlined(new)
        rewrite(new, rule)
    raise_all([errors[node] for node in new.nodes if node in errors], "faults while inferring types")
    return new


def _specialization_rule(errors: dict[Node, DovetailError], shared: AbstractSet[int], is_foldable: NodeTest | None) -> Rule:
    bytes_left = MAX_BYTES

    def rule(b: Builder, node: Node) -> list[Value] | None:
        nonlocal bytes_left
        if isinstance(node.op, Constant | Foreign):
            return None
        try:
            _infer(node)
            errors.pop(node, None)
        except DovetailError as error:
            errors[node] = error.at(node=node.label, op=describe_op(node.op, node.inputs))
            for y in node.outputs:
                y.type, y.value = UNKNOWN, None
            return None
        results = _inferred_elements_of(node)
        if results is None:
            data = [None if x is None else x.constant for x in node.inputs]
            is_known = all(array is not None or x is None for array, x in zip(data, node.inputs, strict=True))
            has_own_constant = is_known and any(array is not None and id(array) not in shared for array in data)
            if has_own_constant and _may_evaluate(node, is_foldable):
                results = _evaluate(node, data, [y.type for y in node.outputs], bytes_left)
        if results is None:
            return as_attributes(b, node)
        bytes_left -= sum(array.nbytes for array in results)
        return [b.constant(array, y.dtype) for array, y in zip(results, node.outputs, strict=True)]

    return rule


def _infer(node: Node) -> None:
    """Infer the types and shape values of a node's outputs, with concrete sizes."""
    xs = tuple(node.inputs)
    types = infer_types(node.op, xs, node.outputs[0].name if node.outputs else "")
    values = infer_values(node.op, xs, types)
    for y, type, value in zip(node.outputs, types, values, strict=True):
        y.type, y.value = keep_names(type, y.type), value


def _inferred_elements_of(node: Node) -> list[Array] | None:
    """Return the elements of a node's outputs where type inference knows all of them; else None."""
    outputs = []
    for y in node.outputs:
        type = y.type
        if y._value is None or not isinstance(type, Tensor) or type.dtype is None or not is_static(type):
            return None
        elements = elements_as_array(y._value, static(type.shape), type.dtype)
        if elements is None:
            return None
        outputs.append(elements)
    return outputs or None


def _may_evaluate(node: Node, is_foldable: NodeTest | None) -> bool:
    return evaluates_early(node.op, node.inputs) and (is_foldable is None or is_foldable(node))


def _evaluate(node: Node, data: Sequence[Array | None], types: Sequence[Type], max_bytes: int) -> list[Array] | None:
    """Return the outputs of a node for known inputs; None for sequences, strings and more than ``max_bytes``.

    None too where the rule raises: the node stays, and raises the same error in the call if an output needs it.
    """
    input_bytes = sum(array.nbytes for array in data if array is not None)
    for type in types:
        if not isinstance(type, Tensor) or type.dtype is None or type.dtype.name == "string":
            return None
        if is_static(type):
            if prod(static(type.shape)) * type.dtype.numpy.itemsize > max_bytes:
                return None
        elif input_bytes > MAX_DYNAMIC_INPUT_BYTES:
            return None
    try:
        results = evaluate_node(node, np, data)
    except DovetailError:
        return None
    if any(not isinstance(array, np.ndarray) for array in results) or sum(array.nbytes for array in results) > max_bytes:
        return None
    return list(results)
