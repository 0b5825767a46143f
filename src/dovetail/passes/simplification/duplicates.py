"""Pass ``common_subexpressions``: nodes that compute the same value, and equal constants, are merged (value numbering)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import draws
from dovetail.ir.rewrite import rewrite
from dovetail.ir.types import Tensor
from dovetail.laws.terms.keys import digest
from dovetail.ops.constant import Constant, Foreign
from dovetail.ops.shape_values import elements_over_sizes
from dovetail.passes.simplification.rules import Target, can_replace

_SAMPLE = 64
MAX_TEXTS = 1024
"""String constants of more elements are not compared."""


def merge_duplicates(graph: Graph, target: Target) -> int:
    """Merge nodes with equal operators and inputs, integer values with equal shape values, and equal constants.

    Returns the number of removed nodes, constants excluded. Random operators and operators with subgraphs are not merged.
    """
    merged_constants = 0
    values: dict[Hashable, Node] = {}
    forms = _shared_forms(graph)

    def rule(b: Builder, node: Node) -> list[Value | None] | None:
        nonlocal merged_constants
        for key in _keys(node, forms):
            first = values.setdefault(key, node)
            if first is node:
                continue
            if not all(can_replace(b.graph, old, new) for old, new in zip(node.outputs, first.outputs, strict=True)):
                continue
            if isinstance(node.op, Constant):
                merged_constants += 1
            else:
                target.log(node)
            return list(first.outputs)
        return None

    return rewrite(graph, rule) - merged_constants


def _keys(node: Node, forms: set[Hashable]) -> list[Hashable]:
    """Return the keys for value numbering of a node: one of its operator and inputs, and one of its shape value."""
    op = node.op
    if isinstance(op, Constant):
        key = _form_of(op)
        is_compared = key in forms and _is_comparable(op.data) and not _is_quantized(node)
        return [("constant", *key, digest(op.data))] if is_compared else []
    if isinstance(op, Foreign) or op.holds_graphs or not node.inputs or draws(op, node.inputs):
        return []
    inputs = [0 if x is None else id(x) for x in node.inputs]
    if None not in node.inputs and op.is_commutative(*node.inputs):
        inputs.sort()
    keys: list[Hashable] = []
    if len(node.outputs) == 1 and (known := _shape_value(node.outputs[0])) is not None:
        keys.append(known)
    try:
        hash(op)
    except TypeError:
        return keys
    return [*keys, ("node", op, len(node.outputs), *inputs)]


def _shape_value(value: Value) -> Hashable | None:
    """Return a key of the elements of an integer value as expressions over sizes; None if an element is not known.

    Symbols of unknown tensor elements do not count as known: a Cast to a narrower type wraps elements, but keeps the symbols.
    """
    type = value.type
    if not isinstance(type, Tensor) or type.dtype is None or not type.dtype.is_integer or value._value is None:
        return None
    elements = elements_over_sizes(value._value)
    return None if elements is None else ("value", type.dtype.name, np.shape(value._value), elements)


def _form_of(op: Constant) -> tuple[Hashable, ...]:
    """Return the element type, the shape and sampled bytes of a constant; different constants usually differ in these."""
    data = op.data
    sample = b""
    if not data.dtype.hasobject and data.size:
        flat = data.reshape(-1) if data.flags.c_contiguous else data.ravel()
        middle = data.size // 2
        sample = b"".join(flat[start : start + _SAMPLE].tobytes() for start in (0, middle, max(data.size - _SAMPLE, 0)))
    return op.dtype.name, data.shape, sample


def _shared_forms(graph: Graph) -> set[Hashable]:
    """Return the results of ``_form_of`` that at least two constants share; only such constants are read completely."""
    once: set[Hashable] = set()
    twice: set[Hashable] = set()
    for node in graph.nodes:
        if isinstance(node.op, Constant):
            key = _form_of(node.op)
            (twice if key in once else once).add(key)
    return twice


def _is_quantized(node: Node) -> bool:
    """Return whether quantized operators read a constant.

    onnxruntime names internal tensors after scales and zero points, and rejects a file where operators share these constants.
    """
    return any("quantiz" in type(reader.op).__module__ for reader, _ in node.outputs[0].uses)


def _is_comparable(data: np.ndarray[Any, Any]) -> bool:
    return not data.dtype.hasobject or data.size <= MAX_TEXTS
