"""If, and the base class of operators with subgraphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence as Several
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import DovetailError, EngineError, RuleError
from dovetail.ir import symbolic
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.infer import infer_graph
from dovetail.ir.limits import current
from dovetail.ir.op import Op, bodies
from dovetail.ir.types import Map, Optional, Sequence, Size, Tensor, Type, Unknown, View, common_type, sizes_in

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder


def infer_branch(body: Graph, xs: tuple[View, ...]) -> list[Type] | None:
    """Infer the types of a branch from its inputs; return the output types, or None if the branch cannot run.

    Where a rule raises an error, ``body.fault`` is this error, and the branch keeps its previous types. Only a RuleError means
    that the branch cannot run with these inputs; for any other error the previous output types are returned.
    """
    before = types_in(body)
    for inner, x in zip(body.inputs, xs, strict=True):
        inner.type, inner.value = x.type, x.value
    if not infer_subgraph(body):
        restore_types(before)
        return None if isinstance(body.fault, RuleError) else [value.type for value in body.outputs]
    return [value.type for value in body.outputs]


def infer_subgraph(body: Graph) -> bool:
    """Infer the types of ``body`` from its inputs. Where a rule raises an error, set ``body.fault`` to it and return False."""
    body.fault = None
    current().count_inference(body, len(body.nodes))
    try:
        infer_graph(body, refuse_preserved=True)
    except DovetailError as error:
        body.fault = error.with_traceback(None)
    return body.fault is None


def types_in(body: Graph) -> list[tuple[Value, Type, Any]]:
    """Return the type and the shape value of every value of a subgraph and of nested subgraphs."""
    result = [(value, value.type, value._value) for value in body.values()]
    for node in body.nodes:
        for _, inner in bodies(node.op):
            result += types_in(inner)
    return result


def restore_types(before: list[tuple[Value, Type, Any]]) -> None:
    """Restore the types that :func:`types_in` returned."""
    for value, type, known in before:
        value.type, value._value = type, known


def faults_in(body: Graph) -> list[tuple[Graph, DovetailError | None]]:
    """Return pairs of a graph and the graph's fault, for a subgraph and its nested subgraphs."""
    result = [(body, body.fault)]
    for node in body.nodes:
        for _, inner in bodies(node.op):
            result += faults_in(inner)
    return result


def clear_faults(body: Graph) -> None:
    """Clear the faults of a subgraph that never runs, and of its nested subgraphs."""
    body.fault = None
    for node in body.nodes:
        for _, inner in bodies(node.op):
            clear_faults(inner)


def known_branch(condition: View) -> int | None:
    """Return the index of the branch that runs (0: ``then_branch``); None if the condition is unknown."""
    known = known_boolean(condition)
    return None if known is None else int(not known)


def known_boolean(value: View) -> bool | None:
    """Return the element of a boolean tensor (a Value or a View) with one element; None if the element is unknown."""
    known = getattr(value, "constant", None)
    known = value.value if known is None else known
    if known is None and isinstance(value, Value):
        from dovetail.ir.evaluate import constant_value

        known = constant_value(value)
    item = np.reshape(known, ()).item() if known is not None and np.size(known) == 1 else None
    return item if isinstance(item, bool) else None


def symbols_of(xs: Iterable[View | None]) -> set[str]:
    """Return the names of the symbols in the types and values of the inputs of a subgraph."""
    sizes = (size for x in xs if x is not None for size in (*sizes_in(x.type), *_elements(x.value)))
    return {str(symbol) for size in sizes for symbol in symbolic.symbols(size)}


def _elements(value: View) -> Iterable[Any]:
    return () if value is None else np.asarray(value, dtype=object).ravel().tolist()


def type_outside(type: Type, known: set[str]) -> Type:
    """Return ``type`` with None for each size with a symbol that is not in ``known``, the symbols of the outer graph."""

    def size_outside(size: Size | None) -> Any:
        return size if size is not None and all(str(symbol) in known for symbol in symbolic.symbols(size)) else None

    if isinstance(type, Sequence):
        return Sequence(type_outside(type.element, known), size_outside(type.length))
    if isinstance(type, Optional):
        return Optional(type_outside(type.element, known))
    if isinstance(type, Map):
        return Map(type.key, type_outside(type.element, known))
    return type if type.shape is None else Tensor(type.dtype, tuple(map(size_outside, type.shape)))


class SubgraphOp(Op):
    """SubgraphOp is the base class of operators with subgraphs among their attributes.

    Such an operator equals only itself and has no rule for shape values.
    """

    holds_graphs = True

    def value(self, *xs: View) -> Any:
        raise Unknown

    __eq__ = object.__eq__
    __hash__ = object.__hash__


class If(SubgraphOp, sig="cond: boolean, *captures: any -> *outputs: any"):
    """If runs ``then_branch`` where ``cond`` is true, otherwise ``else_branch``, and returns the outputs of that branch.

    ``cond`` has one element. Both branches take ``captures`` as their inputs. The branch that does not run raises no error,
    even where its rules reject the inputs. Sources: ONNX If 1 to 25, OpenVINO If-8.
    """

    then_branch: Graph
    else_branch: Graph
    outputs: int = 1

    @property
    def first_capture(self) -> int:
        return 1

    def types(self, cond: View, *captures: View) -> list[Type]:
        if isinstance(cond.type, Tensor) and cond.type.dtype is not None and cond.type.dtype != "boolean":
            raise RuleError("type.class", f"input 'cond' must be boolean, got {cond.type.dtype}")
        shape = cond.shape
        if shape is not None and all(isinstance(size, int) for size in shape) and any(size != 1 for size in shape):
            raise RuleError("shape.single", f"cond must have one element, got the shape {list(shape)}")
        branches = (self.then_branch, self.else_branch)
        counts = [len(branch.outputs) for branch in branches]
        if counts != [self.outputs] * 2:
            raise RuleError("node.outputs", f"branches must have {self.outputs} outputs, got {counts[0]} and {counts[1]}")
        inferred = [infer_branch(branch, captures) for branch in branches]
        known = symbols_of((cond, *captures))
        return [type_outside(type, known) for type in self._common_types(inferred, known_branch(cond))]

    def _common_types(self, inferred: list[list[Type] | None], taken: int | None) -> list[Type]:
        """Return the output types of the branch with the index ``taken``; if ``taken`` is None, types that cover both branches.

        A branch that cannot run with these inputs is ignored, unless neither branch can run. Raises the fault of the branch
        ``taken``.
        """
        branches = (self.then_branch, self.else_branch)
        if taken is not None:
            fault = branches[taken].fault
            if fault is not None:
                raise fault.with_traceback(None)
            clear_faults(branches[1 - taken])
            return inferred[taken] or []
        runnable = [types for types in inferred if types is not None]
        first, *rest = runnable or [[value.type for value in branch.outputs] for branch in branches]
        return [reduce(common_type, types) for types in zip(first, *rest, strict=True)]

    def evaluate(self, xp: Namespace, cond: Array, *captures: Array) -> Any:
        from dovetail.ir.evaluate import run

        return self.evaluate_with(lambda body, inputs: run(body, inputs, xp), xp, cond, *captures)

    def evaluate_with(self, call: Callable[..., Any], xp: Namespace, cond: Array, *captures: Array) -> Any:
        """Evaluate the operator; ``call(branch, inputs)`` runs the branch that ``cond`` selects."""
        if cond.size != 1 if hasattr(cond, "size") and isinstance(cond.size, int) else False:
            raise EngineError("shape.single", f"cond must have one element, got the shape {list(cond.shape)}")
        return tuple(call(self.then_branch if bool(xp.reshape(cond, ())) else self.else_branch, captures))

    def pull_back(self, b: Builder, adjoints: Any, node: Node, g: Any, wanted: Several[bool]) -> Any:
        from dovetail.ops.control_flow.gradients import gradients_of_if

        return gradients_of_if(self, b, adjoints, node, g, wanted)

    def __repr__(self) -> str:
        return f"If(then_branch={len(self.then_branch)} nodes, else_branch={len(self.else_branch)} nodes)"
