"""Classes of elementwise operators, by the kind of their operands."""

from __future__ import annotations

from dovetail.ir.op import REGISTRY, Op
from dovetail.ops.elementwise import activation, binary, bitwise, clip, logical, unary
from dovetail.ops.elementwise.broadcast import BroadcastingOp, Elementwise
from dovetail.ops.elementwise.cast import Cast


def _subclasses(kind: type[Op]) -> list[type[Op]]:
    return [each for child in kind.__subclasses__() for each in (child, *_subclasses(child))]


_MODULES = {module.__name__ for module in (activation, binary, bitwise, clip, logical, unary)}
_POINTWISE = [kind for kind in _subclasses(Elementwise) if kind.__module__ in _MODULES and REGISTRY.is_loaded(kind.__name__)]
SEVERAL_OPERANDS = frozenset(kind for kind in _POINTWISE if issubclass(kind, BroadcastingOp))
"""Operators whose operands broadcast to each other."""
ONE_OPERAND = frozenset((*(kind for kind in _POINTWISE if kind not in SEVERAL_OPERANDS and kind is not activation.PRelu), Cast))
"""Operators of one tensor operand; all other operands are scalars."""


def is_pointwise(kind: type[Op]) -> bool:
    """Return whether each element of the result depends on one element of each operand."""
    return kind in ONE_OPERAND or kind in SEVERAL_OPERANDS
