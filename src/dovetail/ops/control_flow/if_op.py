"""Operators that hold graphs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail import symbolic
from dovetail.errors import DovetailError, EngineError, RuleError
from dovetail.ir.graph import Graph, Value
from dovetail.ir.op import Op, bodies
from dovetail.ir.types import Map, Optional, Sequence, Size, Tensor, Type, Unknown, View, common_type, sizes_in
from dovetail.limits import current
from dovetail.passes.infer import infer_graph

if TYPE_CHECKING:
    from dovetail.arrays import Array, Namespace
    from dovetail.ir.builder import Builder


def infer_branch(body: Graph, xs: tuple[Any, ...]) -> list[Type] | None:
    """Give a branch its input types and infer it. Returns its outputs' types; None where it cannot run with these inputs.

    What a rule refuses is then ``body.fault``, and the branch keeps the types that it had.
    """
    before = types_in(body)
    for inner, x in zip(body.inputs, xs, strict=True):
        inner.type, inner.value = x.type, x.value
    if not infer_subgraph(body):
        restore_types(before)
        # Another error than that of a rule does not say that the branch cannot run.
        return None if isinstance(body.fault, RuleError) else [value.type for value in body.outputs]
    return [value.type for value in body.outputs]


def infer_subgraph(body: Graph) -> bool:
    """Infer ``body`` from its inputs' types. Returns False, with the error as ``body.fault``, where a rule refuses."""
    body.fault = None
    current().count_inference(body, len(body.nodes))
    try:
        infer_graph(body)
    except DovetailError as error:
        body.fault = error.with_traceback(None)
    return body.fault is None


def types_in(body: Graph) -> list[tuple[Value, Type, Any]]:
    """The type and the shape value of every value of a subgraph and of those within it."""
    found = [(value, value.type, value._value) for value in body.values()]
    for node in body.nodes:
        for _, inner in bodies(node.op):
            found += types_in(inner)
    return found


def restore_types(before: list[tuple[Value, Type, Any]]) -> None:
    """Undo what inference did since :func:`types_in`."""
    for value, type, known in before:
        value.type, value._value = type, known


def faults_in(body: Graph) -> list[tuple[Graph, DovetailError | None]]:
    """The fault of a subgraph and of those within it."""
    found = [(body, body.fault)]
    for node in body.nodes:
        for _, inner in bodies(node.op):
            found += faults_in(inner)
    return found


def forget_faults(body: Graph) -> None:
    """Let a subgraph that never runs have no faults."""
    body.fault = None
    for node in body.nodes:
        for _, inner in bodies(node.op):
            forget_faults(inner)


def taken_branch(condition: View) -> int | None:
    """The index of the branch that runs (0: ``then_branch``); None where the condition is not known."""
    known = known_boolean(condition)
    return None if known is None else int(not known)


def known_boolean(value: View) -> bool | None:
    """The one element of a boolean (a Value or a View), where it is known."""
    known = getattr(value, "constant", None)
    known = value.value if known is None else known
    if known is None and isinstance(value, Value):
        from dovetail.interpreter.evaluate import constant_value

        known = constant_value(value)
    item = np.reshape(known, ()).item() if known is not None and np.size(known) == 1 else None
    return item if isinstance(item, bool) else None


def symbols_of(xs: Iterable[Any]) -> set[str]:
    """The names of the symbols in the types and values of what a body reads from outside."""
    sizes = (size for x in xs if x is not None for size in (*sizes_in(x.type), *_elements(x.value)))
    return {str(symbol) for size in sizes for symbol in symbolic.symbols(size)}


def _elements(value: View) -> Iterable[Any]:
    return () if value is None else np.asarray(value, dtype=object).ravel().tolist()


def outside(type: Type, known: set[str]) -> Type:
    """The type as it is seen outside of the body, whose own symbols mean nothing there."""

    def seen(size: Size | None) -> Any:
        return size if size is not None and all(str(symbol) in known for symbol in symbolic.symbols(size)) else None

    if isinstance(type, Sequence):
        return Sequence(outside(type.element, known), seen(type.length))
    if isinstance(type, Optional):
        return Optional(outside(type.element, known))
    if isinstance(type, Map):
        return Map(type.key, outside(type.element, known))
    return type if type.shape is None else Tensor(type.dtype, tuple(map(seen, type.shape)))


class _HoldsGraphs(Op):
    """An operator with graphs among its attributes: equal to itself alone, and not followed through shape values."""

    holds_graphs = True

    def value(self, *xs: View) -> Any:
        raise Unknown

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


class If(_HoldsGraphs, sig="cond: boolean, *captures: any -> *outputs: any"):
    """The outputs of ``then_branch`` where the one element of ``condition`` is true, otherwise those of ``else_branch``.

    Both branches take ``captures`` as their inputs. A branch that is not taken raises nothing, whatever its rules say of the
    inputs. Sources: ONNX If 1 to 25, OpenVINO If-8.
    """

    then_branch: Graph
    else_branch: Graph
    outputs: int = 1

    def types(self, cond: View, *captures: View) -> list[Type]:
        if isinstance(cond.type, Tensor) and cond.type.dtype is not None and cond.type.dtype != "boolean":
            raise RuleError("type.class", f"input 'condition' should be boolean, not {cond.type.dtype}")
        shape = cond.shape
        if shape is not None and all(isinstance(size, int) for size in shape) and any(size != 1 for size in shape):
            raise RuleError("if.condition", f"the condition should have one element, not the shape {list(shape)}")
        branches = (self.then_branch, self.else_branch)
        counts = [len(branch.outputs) for branch in branches]
        if counts != [self.outputs] * 2:
            raise RuleError("node.outputs", f"{self.outputs} outputs from branches of {counts[0]} and {counts[1]}")
        inferred = [infer_branch(branch, captures) for branch in branches]
        known = symbols_of((cond, *captures))
        return [outside(type, known) for type in self._common_types(inferred, taken_branch(cond))]

    def _common_types(self, inferred: list[list[Type] | None], taken: int | None) -> list[Type]:
        """The outputs' types: a branch that cannot run with these inputs says nothing of them, unless neither can."""
        branches = (self.then_branch, self.else_branch)
        if taken is not None:
            fault = branches[taken].fault
            if fault is not None:
                raise fault.with_traceback(None)
            forget_faults(branches[1 - taken])
            return inferred[taken] or []
        able = [types for types in inferred if types is not None]
        first, *rest = able or [[value.type for value in branch.outputs] for branch in branches]
        return [reduce(common_type, types) for types in zip(first, *rest, strict=True)]

    def evaluate(self, xp: Namespace, cond: Array, *captures: Array) -> Any:
        from dovetail.interpreter.evaluate import run

        return self.through(lambda body, inputs: run(body, inputs, xp), xp, cond, *captures)

    def through(self, call: Any, xp: Namespace, cond: Array, *captures: Any) -> Any:
        """What ``evaluate`` says, where ``call(body, inputs)`` runs a branch."""
        if cond.size != 1 if hasattr(cond, "size") and isinstance(cond.size, int) else False:
            raise EngineError("if.condition", f"the condition should have one element, not the shape {list(cond.shape)}")
        return tuple(call(self.then_branch if bool(cond.reshape(())) else self.else_branch, captures))

    def pull_back(self, b: Builder, walk: Any, node: Any, g: Any, wanted: Any) -> Any:
        from dovetail.ops.control_flow.gradients import through_if

        return through_if(self, b, walk, node, g, wanted)

    def __repr__(self) -> str:
        return f"If(then_branch={len(self.then_branch)} nodes, else_branch={len(self.else_branch)} nodes)"


__all__ = ["If", "infer_subgraph", "known_boolean", "outside", "restore_types", "symbols_of", "taken_branch", "types_in"]
