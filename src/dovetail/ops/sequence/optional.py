"""Values that may be nothing. In a run what is there stands for itself, and nothing is None."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail import dtypes
from dovetail.errors import EngineError, RuleError
from dovetail.ir import types
from dovetail.ir.op import Op
from dovetail.ir.types import Type, Unknown, View

if TYPE_CHECKING:
    from dovetail.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class Optional(Op, sig="x?: any -> y: any"):
    """``x`` as a value that might be nothing; where there is no ``x``, nothing, of the type ``element``.

    Source: ONNX Optional 15, 28.
    """

    element: Type | None = None

    def types(self, x: View | None = None) -> list[Type]:
        if x is not None:
            return [types.Optional(x.type)]
        if self.element is None:
            raise RuleError("optional.type", "nothing says of what type the value is that is not there")
        return [types.Optional(types.opened(self.element))]

    def value(self, x: View | None = None) -> Any:
        raise Unknown

    def evaluate(self, xp: Namespace, x: Array | None = None) -> Any:
        return x


class OptionalHasElement(Op, sig="x?: any -> y: boolean", onnx=("OptionalHasElement-15(x)", "OptionalHasElement-18,28(x?)")):
    """Whether ``x`` is something, a scalar: false where it is nothing, and where it is left out.

    Source: ONNX OptionalHasElement 15, 18, 28.
    """

    def shape(self, x: View | None = None) -> Any:
        return ()

    def value(self, x: View | None = None) -> Any:
        return np.array(_is_there(x))

    def evaluate(self, xp: Namespace, x: Array | None = None) -> Any:
        return xp.asarray(x is not None)

    def decompose(self, b: Builder, x: Value | None = None) -> Any:
        return b.constant(np.array(_is_there(x)), dtypes.boolean)


class OptionalGetElement(Op, sig="x: any -> y: any", onnx="OptionalGetElement-15,18,28(x)"):
    """What ``x`` is, which must not be nothing. Source: ONNX OptionalGetElement 15, 18, 28."""

    def types(self, x: View) -> list[Type]:
        return [x.type.element if isinstance(x.type, types.Optional) else x.type]

    def value(self, x: View) -> Any:
        found = _inside(x)
        if found is None:
            raise Unknown
        return found.exact

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        if x is None:
            raise EngineError("optional.nothing", "the value is nothing")
        return x

    def decompose(self, b: Builder, x: Value) -> Any:
        found = _inside(x)
        if found is None:
            raise Unknown
        return found


def _is_there(x: View | None) -> bool:
    """Whether a value is something. Raises Unknown where only a run can tell."""
    if x is None:
        return False
    if not isinstance(x.type, types.Optional):
        if x.type == types.UNKNOWN:
            raise Unknown
        return True
    node = getattr(x, "node", None)
    if node is None or not isinstance(node.op, Optional):
        raise Unknown
    return bool(node.inputs)


def _inside(x: View) -> Any:
    """The value inside an optional one, where it is known."""
    if not isinstance(x.type, types.Optional):
        return None if x.type == types.UNKNOWN else x
    node = getattr(x, "node", None)
    return node.inputs[0] if node is not None and isinstance(node.op, Optional) and node.inputs else None


__all__ = ["Optional", "OptionalGetElement", "OptionalHasElement"]
