"""Optional, OptionalHasElement and OptionalGetElement; at run time an empty optional is None."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import EngineError, RuleError
from dovetail.ir import dtypes, types
from dovetail.ir.types import Type, Unknown, View
from dovetail.ops.sequence.sequence import SequenceOp

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class Optional(SequenceOp, sig="input?: any -> output: any"):
    """Wrap ``input`` as an optional value; without ``input`` return an empty optional of ``type``.

    Source: ONNX Optional 15, 28.
    """

    type: Type | None = None

    def types(self, input: View | None = None) -> list[Type]:
        if input is not None:
            return [types.Optional(input.type)]
        if self.type is None:
            raise RuleError("attribute.missing", "Optional needs an input or the attribute type, got neither")
        return [types.Optional(types.forget_element_sizes(self.type))]

    def value(self, input: View | None = None) -> Any:
        raise Unknown

    def evaluate(self, xp: Namespace, input: Array | None = None) -> Any:
        return input


class OptionalHasElement(
    SequenceOp, sig="input?: any -> output: boolean", onnx=("OptionalHasElement-15(input)", "OptionalHasElement-18,28(input?)")
):
    """Test whether an optional value is present, as a scalar: false for an empty and for an omitted input.

    Source: ONNX OptionalHasElement 15, 18, 28.
    """

    def shape(self, input: View | None = None) -> Any:
        return ()

    def value(self, input: View | None = None) -> Any:
        return np.array(_is_present(input))

    def evaluate(self, xp: Namespace, input: Array | None = None) -> Any:
        return xp.asarray(input is not None)

    def decompose(self, b: Builder, input: Value | None = None) -> Any:
        return b.constant(np.array(_is_present(input)), dtypes.boolean)


class OptionalGetElement(SequenceOp, sig="input: any -> output: any", onnx="OptionalGetElement-15,18,28(input)"):
    """Return the element of an optional value, which must be present. Source: ONNX OptionalGetElement 15, 18, 28."""

    def types(self, input: View) -> list[Type]:
        return [input.type.element if isinstance(input.type, types.Optional) else input.type]

    def value(self, input: View) -> Any:
        element = _element_of(input)
        if element is None:
            raise Unknown
        return element.exact

    def evaluate(self, xp: Namespace, input: Array) -> Any:
        if input is None:
            raise EngineError("sequence.empty", "the optional value must be present, got an empty one")
        return input

    def decompose(self, b: Builder, input: Value) -> Any:
        element = _element_of(input)
        if element is None:
            raise Unknown
        return element


def _is_present(x: View | None) -> bool:
    """Return whether an optional value is present. Raises Unknown if the presence is known only at run time."""
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


def _element_of(x: View) -> Any:
    """Return the element of an optional value; None if the element is unknown."""
    if not isinstance(x.type, types.Optional):
        return None if x.type == types.UNKNOWN else x
    node = getattr(x, "node", None)
    return node.inputs[0] if node is not None and isinstance(node.op, Optional) and node.inputs else None
