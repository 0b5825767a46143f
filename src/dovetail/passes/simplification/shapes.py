"""Pass ``shape_folding``: values that inference knows become constants, and so do shape inputs that it knows in part."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import draws
from dovetail.ir.rewrite import rewrite
from dovetail.ir.types import Tensor
from dovetail.laws.law import is_among
from dovetail.ops.constant import Constant
from dovetail.passes.simplification.laws import apply_laws
from dovetail.passes.simplification.rules import Target

MAX_ELEMENTS = 256
"""Maximum number of elements of a known value that becomes a constant."""


def fold_known_values(graph: Graph, target: Target) -> int:
    """Replace integer and boolean values that inference knows by constants, and computed shapes by constant ones.

    Returns the number of replaced nodes.
    """

    def rule(b: Builder, node: Node) -> list[Value | None] | None:
        if isinstance(node.op, Constant) or not node.inputs or node.op.holds_graphs or draws(node.op, node.inputs):
            return None
        arrays = [known_array(y) for y in node.outputs]
        if any(array is None for array in arrays) or any(is_among(y, b.graph.outputs) for y in node.outputs):
            return None
        target.log(node)
        return [
            None if array is None or not y.uses else b.constant(array, y.dtype)
            for y, array in zip(node.outputs, arrays, strict=True)
        ]

    return rewrite(graph, rule) + apply_laws(graph, target, "shape_folding")


def known_array(value: Value) -> np.ndarray[Any, Any] | None:
    """Return the elements of an integer or boolean value where inference knows all of them, else None."""
    type = value.type
    if not isinstance(type, Tensor) or type.dtype is None or not (type.dtype.is_integer or type.dtype.name == "boolean"):
        return None
    if type.dtype.bits < 8 and type.dtype.name != "boolean":
        return None
    known = value.value
    if known is None or np.size(known) > MAX_ELEMENTS:
        return None
    items = np.ravel(known).tolist()
    kinds = bool if type.dtype.name == "boolean" else int
    if not all(isinstance(item, kinds) for item in items):
        return None
    return np.array(items, dtype=type.dtype.numpy).reshape(np.shape(known))
