"""Details of a node for the side panel of a page: attributes, operands with statistics of weights, and results, as text."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import printable
from dovetail.ir.graph import Node, Value
from dovetail.ir.types import Tensor
from dovetail.report.draw.scene import full_name, shorten
from dovetail.report.draw.scene_builder import operands_of

MAX_NODES = 3000
"""The maximum number of nodes of a page that have details; the first nodes of the picture have them."""
MAX_ELEMENTS = 1 << 24
"""The maximum number of elements of all weights of a page whose minimum, maximum and mean are computed."""
MAX_FIRST = 12
"""The maximum number of elements of a weight that are listed."""
MAX_ROWS = 24
"""The maximum number of attributes, of operands and of results of a node that are listed."""
MAX_TEXT = 400
"""The maximum length, in characters, of an attribute."""


class DetailWriter:
    """DetailWriter returns the details of the nodes of one page, and bounds their number and the elements that it reads."""

    def __init__(self) -> None:
        self._nodes = MAX_NODES
        self._elements = MAX_ELEMENTS

    def details_of(self, node: Node) -> list[list[list[str]]] | None:
        """Return rows of texts: attributes (name, value), operands (name, value, type, statistics), results (name, type).

        Returns None for each node after the first MAX_NODES.
        """
        if not self._nodes:
            return None
        self._nodes -= 1
        fields = [field.name for field in node.op.fields if field.annotation != "Graph" and field.name != "data"]
        attributes = [(name, node.op.__dict__[name]) for name in fields if node.op.__dict__[name] is not None]
        return [
            _first_rows([[name, shorten(str(value), MAX_TEXT)] for name, value in attributes[: MAX_ROWS + 1]]),
            _first_rows([self._operand(name, x) for _, (name, x) in zip(range(MAX_ROWS + 1), operands_of(node), strict=False)]),
            _first_rows([[full_name(y.name), _type(y)] for y in node.outputs[: MAX_ROWS + 1]]),
        ]

    def _operand(self, name: str, x: Value | None) -> list[str]:
        if x is None:
            return [name, "(absent)"]
        data = x.constant
        row = [name, full_name(x.name), _type(x)]
        if data is None:
            return row
        dtype = x.type.dtype if isinstance(x.type, Tensor) else None
        has_numbers = dtype is not None and dtype.kind in ("float", "int", "uint") and dtype.name != "nf4"
        return [*row, *(self._statistics(data) if has_numbers and data.size > 1 else ()), _first_elements(data)]

    def _statistics(self, data: np.ndarray[Any, Any]) -> list[str]:
        """Return the line of minimum, maximum and mean of a weight."""
        if data.size > self._elements:
            return ["min, max and mean not computed: the weights of this page are too large"]
        self._elements -= data.size
        # numpy has no reductions of the types of ml_dtypes (bf16, 4-bit and 8-bit floats).
        numbers = data.astype(np.float32) if data.dtype.kind == "V" else data
        with np.errstate(all="ignore"):
            low, high, mean = numbers.min(), numbers.max(), numbers.mean(dtype=np.float64)
        return [f"min {float(low):.6g}, max {float(high):.6g}, mean {mean:.6g}"]


def _first_elements(data: np.ndarray[Any, Any]) -> str:
    first = ", ".join(_element(data.item(index)) for index in range(min(data.size, MAX_FIRST)))
    more = ", …" if data.size > MAX_FIRST else ""
    return f"[{first}{more}]" if data.ndim else first


def _first_rows(rows: list[list[str]]) -> list[list[str]]:
    return rows if len(rows) <= MAX_ROWS else [*rows[:MAX_ROWS], ["…", "there are more"]]


def _type(value: Value) -> str:
    return printable(str(value.type))[:MAX_TEXT]


def _element(item: object) -> str:
    return f"{item:.6g}" if isinstance(item, float) else shorten(str(item), 60)
