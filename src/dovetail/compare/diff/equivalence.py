"""Conversion of constants of matched nodes to one form, if two models store them in different but equivalent forms.

The equivalent forms differ in:

- leading axes of size 1 of a broadcast operand
- a transposed matrix of a MatMul with a transpose attribute
- axes that count from the end
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.compare.diff.constant_keys import Weight
from dovetail.ir.graph import Node
from dovetail.ir.op import Op
from dovetail.ir.types import Tensor

AXES = ("axes", "axis")
MATRICES = {"a": "transpose_a", "b": "transpose_b"}


def align(nodes: tuple[Node, Node], ops: tuple[Op, Op], name: str, first: Weight, second: Weight) -> tuple[Weight, Weight, str]:
    """Convert two constants to one form. Also return the attribute whose difference this form explains, else an empty string.

    ``name`` is the name of the operand. Constants that have no other form are returned unchanged.
    """
    # Deferred for start-up time: `import dovetail` imports this module, but only a comparison needs the operators.
    from dovetail.ops.elementwise import binary, bitwise, logical
    from dovetail.ops.linalg.matmul import MatMul

    if type(ops[0]) is not type(ops[1]):
        return first, second, ""
    broadcasts = type(ops[0]).__module__ in (binary.__name__, bitwise.__name__, logical.__name__)
    if broadcasts and first.data.ndim != second.data.ndim and _have_equal_types(nodes):
        return _without_leading_ones(first), _without_leading_ones(second), ""
    if isinstance(ops[0], MatMul) and name in MATRICES and min(first.data.ndim, second.data.ndim) >= 2:
        attribute = MATRICES[name]
        if ops[0].__dict__[attribute] != ops[1].__dict__[attribute]:
            return first, second._replace(data=np.swapaxes(second.data, -1, -2)), attribute
    if name in AXES and first.data.dtype.kind == second.data.dtype.kind == "i":
        return _from_the_front(nodes[0], first), _from_the_front(nodes[1], second), ""
    return first, second, ""


def _have_equal_types(nodes: tuple[Node, Node]) -> bool:
    """Return whether the first outputs have equal rank; only then do leading axes of size 1 change nothing."""
    types: list[Any] = [node.outputs[0].type for node in nodes]
    shapes = [type.shape if isinstance(type, Tensor) else None for type in types]
    return shapes[0] is not None and shapes[1] is not None and len(shapes[0]) == len(shapes[1])


def _without_leading_ones(weight: Weight) -> Weight:
    shape = list(weight.data.shape)
    while shape and shape[0] == 1:
        del shape[0]
    return weight._replace(data=weight.data.reshape(shape))


def _from_the_front(node: Node, axes: Weight) -> Weight:
    type = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
    if not isinstance(type, Tensor) or type.shape is None:
        return axes
    return axes._replace(data=np.where(axes.data < 0, axes.data + len(type.shape), axes.data))
