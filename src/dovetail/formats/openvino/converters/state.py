"""ReadValue and Assign: a variable is a graph input and a graph output here."""

from __future__ import annotations

import re
from typing import Any

from dovetail import symbolic
from dovetail.dtypes import DType
from dovetail.errors import FormatError
from dovetail.formats.import_context import Lifting
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.graph import Value
from dovetail.ir.types import Shape, Tensor

_SIZE = re.compile(r"\s*(?:(?P<exact>\d+)|\?|-1|(?P<low>\d*)\.\.(?P<high>\d*))\s*")


@OPENVINO.lift("ReadValue", 3, 6)
def read_value(node: Lifting) -> Value:
    """What was kept, as an input of the graph; without an input of its own it begins with zeros."""
    variable = node.attribute("variable_id", "str")
    first = node.optional(0)
    if node.node.version == 6:
        type: Any = Tensor(_dtype(node, first), _shape(node.attribute("variable_shape", "str"), variable))
    else:
        type = node.input(0).type
    return node.lifter.remember(variable, type, first)


def _dtype(node: Lifting, first: Value | None) -> DType | None:
    text = node.attribute("variable_type", "str")
    if text in ("dynamic", "undefined"):
        return None if first is None else first.dtype
    found: DType = node.attribute("variable_type", "DType")
    return found


def _shape(text: str, variable: str) -> Shape | None:
    """A partial shape as IR writes it: "1,3,?", "1..8,2..", "..." (rank unknown), "" (scalar)."""
    inner = text.strip().removeprefix("[").removesuffix("]").strip()
    if inner == "...":
        return None
    sizes: list[Any] = []
    for axis, piece in enumerate(inner.split(",") if inner else ()):
        match = _SIZE.fullmatch(piece)
        if match is None:
            raise FormatError("ir.shape", f"{piece.strip()!r} in the shape {text!r} of the variable {variable!r} is no size")
        if match["exact"]:
            sizes.append(int(match["exact"]))
            continue
        low, high = (int(match[side]) if match[side] else None for side in ("low", "high"))
        sizes.append(symbolic.symbol(f"?{variable}.{axis}", 0 if low is None else low, high))
    return tuple(sizes)


@OPENVINO.lift("Assign", 3, 6)
def assign(node: Lifting) -> Value:
    """What is to be kept, as an output of the graph."""
    variable = node.attribute("variable_id", "str")
    node.ignore("variable_type", "variable_shape")
    kept: Value = node.b.Identity(node.input(0))
    node.lifter.keep(variable, kept)
    return kept
