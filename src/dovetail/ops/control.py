"""Operators that hold graphs."""

from __future__ import annotations

from typing import Any

from dovetail.errors import EngineError, RuleError
from dovetail.graph import Graph
from dovetail.inference import infer_graph
from dovetail.op import Op, infer_types
from dovetail.types import Tensor, Type, Unknown, agree_shapes


def infer_body(body: Graph, xs: tuple[Any, ...]) -> list[Type]:
    """Give a body its input types and infer it. Returns its outputs' types."""
    for inner, x in zip(body.inputs, xs, strict=True):
        inner.type = x.type
        if x.value is not None:
            inner.value = x.value
    infer_graph(body)
    return [value.type for value in body.outputs]


def common_type(first: Type, second: Type) -> Type:
    """What both branches are: their element type, and the sizes in which they agree."""
    if not isinstance(first, Tensor) or not isinstance(second, Tensor):
        if first != second:
            raise RuleError("type.disagree", f"branches make {first} and {second}")
        return first
    if first.dtype is not None and second.dtype is not None and first.dtype is not second.dtype:
        raise RuleError("type.disagree", f"element types {first.dtype}, {second.dtype} of the branches should be equal")
    dtype = first.dtype or second.dtype
    if first.shape is None or second.shape is None or len(first.shape) != len(second.shape):
        return Tensor(dtype, None)
    sizes: Any = tuple(a if a == b else None for a, b in zip(first.shape, second.shape, strict=True))
    return Tensor(dtype, sizes)


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
        return [common_type(*pair) for pair in zip(then_types, else_types, strict=True)]

    def evaluate(self, xp: Any, condition: Any, *captures: Any) -> Any:
        from dovetail.evaluate import run

        if condition.size != 1 if hasattr(condition, "size") and isinstance(condition.size, int) else False:
            raise EngineError("if.condition", f"the condition should have one element, not the shape {list(condition.shape)}")
        branch = self.then_branch if bool(condition.reshape(())) else self.else_branch
        return tuple(run(branch, captures, xp))

    def __repr__(self) -> str:
        return f"If(then_branch={len(self.then_branch)} nodes, else_branch={len(self.else_branch)} nodes)"


__all__ = ["If", "agree_shapes", "common_type", "infer_body", "infer_types"]
