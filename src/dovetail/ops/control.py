"""Operators that hold graphs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dovetail import dims
from dovetail.errors import EngineError, RuleError
from dovetail.graph import Graph
from dovetail.inference import infer_graph
from dovetail.op import Op
from dovetail.types import Map, Optional, Sequence, Size, Tensor, Type, Unknown, common_type, sizes_in


def infer_body(body: Graph, xs: tuple[Any, ...]) -> list[Type]:
    """Give a body its input types and infer it. Returns its outputs' types."""
    for inner, x in zip(body.inputs, xs, strict=True):
        inner.type = x.type
        if x.value is not None:
            inner.value = x.value
    infer_graph(body)
    return [value.type for value in body.outputs]


def symbols_of(xs: Iterable[Any]) -> set[str]:
    """The names of the symbols in the types and values of what a body reads from outside."""
    sizes = (size for x in xs if x is not None for size in (*sizes_in(x.type), *_elements(x.value)))
    return {str(symbol) for size in sizes for symbol in dims.symbols(size)}


def _elements(value: Any) -> Iterable[Any]:
    return () if value is None else np.asarray(value, dtype=object).ravel().tolist()


def outside(type: Type, known: set[str]) -> Type:
    """The type as it is seen outside of the body, whose own symbols mean nothing there."""

    def seen(size: Size | None) -> Any:
        return size if size is not None and all(str(symbol) in known for symbol in dims.symbols(size)) else None

    if isinstance(type, Sequence):
        return Sequence(outside(type.element, known), seen(type.length))
    if isinstance(type, Optional):
        return Optional(outside(type.element, known))
    if isinstance(type, Map):
        return Map(type.key, outside(type.element, known))
    return type if type.shape is None else Tensor(type.dtype, tuple(map(seen, type.shape)))


class _HoldsGraphs(Op):
    """An operator with graphs among its attributes: equal to itself alone, and not followed through shape values."""

    def value(self, *xs: Any) -> Any:
        raise Unknown

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


class If(_HoldsGraphs, sig="condition: boolean, *captures: any -> *ys: any"):
    """The outputs of ``then_branch`` where the one element of ``condition`` is true, otherwise those of ``else_branch``.

    Both branches take ``captures`` as their inputs. Sources: ONNX If 1 to 25, OpenVINO If-8.
    """

    then_branch: Graph
    else_branch: Graph
    outputs: int = 1

    def types(self, condition: Any, *captures: Any) -> list[Type]:
        if isinstance(condition.type, Tensor) and condition.type.dtype is not None and condition.type.dtype != "boolean":
            raise RuleError("type.class", f"input 'condition' should be boolean, not {condition.type.dtype}")
        shape = condition.shape
        if shape is not None and all(isinstance(size, int) for size in shape) and any(size != 1 for size in shape):
            raise RuleError("if.condition", f"the condition should have one element, not the shape {list(shape)}")
        then_types = infer_body(self.then_branch, captures)
        else_types = infer_body(self.else_branch, captures)
        if len(then_types) != self.outputs or len(else_types) != self.outputs:
            raise RuleError("node.outputs", f"{self.outputs} outputs from branches of {len(then_types)} and {len(else_types)}")
        known = symbols_of((condition, *captures))
        return [outside(common_type(*pair), known) for pair in zip(then_types, else_types, strict=True)]

    def evaluate(self, xp: Any, condition: Any, *captures: Any) -> Any:
        from dovetail.evaluate import run

        return self.through(lambda body, inputs: run(body, inputs, xp), xp, condition, *captures)

    def through(self, call: Any, xp: Any, condition: Any, *captures: Any) -> Any:
        """What ``evaluate`` says, where ``call(body, inputs)`` runs a branch."""
        if condition.size != 1 if hasattr(condition, "size") and isinstance(condition.size, int) else False:
            raise EngineError("if.condition", f"the condition should have one element, not the shape {list(condition.shape)}")
        return tuple(call(self.then_branch if bool(condition.reshape(())) else self.else_branch, captures))

    def pull_back(self, b: Any, walk: Any, node: Any, g: Any, wanted: Any) -> Any:
        from dovetail.ops.control_gradients import through_if

        return through_if(self, b, walk, node, g, wanted)

    def __repr__(self) -> str:
        return f"If(then_branch={len(self.then_branch)} nodes, else_branch={len(self.else_branch)} nodes)"


__all__ = ["If", "infer_body", "outside", "symbols_of"]
