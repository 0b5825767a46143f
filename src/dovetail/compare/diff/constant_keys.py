"""Keys of constants and attributes: equal content has equal keys, in either format."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

from dovetail.errors import DovetailError
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Node
from dovetail.ir.op import UNFORESEEN, Op
from dovetail.ir.symbolic import Inexact
from dovetail.ir.types import Unknown
from dovetail.laws.terms.keys import digest, freeze, operator_key
from dovetail.ops.constant import Foreign

WHOLE_BYTES = 1 << 16
"""Maximum size in bytes of a constant whose key contains all elements.

The key of a larger constant contains sampled elements; larger constants of matched nodes are compared later, by blocks.
"""
SAMPLES = 256
MAX_SHOWN = 8
MAX_HOST = 1024
"""Maximum number of elements of an integer input of shape rules that is compared independently of the integer width."""


class Weight(NamedTuple):
    """Weight is a constant operand: elements stored as ``stored`` and read as ``dtype``, a float type at least as wide."""

    data: np.ndarray[Any, Any]
    dtype: DType
    stored: DType

    @property
    def type_text(self) -> str:
        stored = "" if self.dtype is self.stored else f" stored as {self.stored}"
        return f"{self.dtype}[{', '.join(map(str, self.data.shape))}]{stored}"

    def __str__(self) -> str:
        return str(self.data.tolist()) if self.data.size <= MAX_SHOWN else self.type_text


def constant_key(constant: Weight, is_host: bool) -> tuple[Hashable, ...]:
    """Return the key of a constant's elements.

    ``is_host`` marks operands that shape rules read; their keys do not depend on whether the elements are i32 or i64.
    """
    data = constant.data
    if is_host and data.dtype.kind in "iu" and data.size <= MAX_HOST:
        return "integers", data.shape, tuple(data.reshape(-1).tolist())
    return constant.dtype.name, constant.stored.name, data.shape, _digest(data)


def type_key(constant: Weight) -> tuple[Hashable, ...]:
    return constant.dtype.name, constant.data.shape


def is_whole(data: np.ndarray[Any, Any]) -> bool:
    """Return whether the key of a constant contains all of its elements."""
    return not data.dtype.hasobject and data.nbytes <= WHOLE_BYTES


def _digest(data: np.ndarray[Any, Any]) -> bytes:
    return digest(data if is_whole(data) else _sample(data))


def _sample(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return evenly spaced elements, including the first and the last, without reading the other elements."""
    if data.size <= SAMPLES:
        return data.reshape(-1)
    positions = np.linspace(0, data.size - 1, SAMPLES).astype(np.int64)
    sample: np.ndarray[Any, Any] = data[np.unravel_index(positions, data.shape)]
    return sample


def canonical_op(node: Node) -> Op:
    """Return the operator of a node in canonical form, or the unchanged operator if the rule for this form fails."""
    try:
        return node.op.canonical(*node.inputs)
    except (Unknown, Inexact, DovetailError, NotImplementedError, *UNFORESEEN):
        return node.op


def op_key(op: Op) -> tuple[Hashable, ...]:
    """Return the key of an operator's attributes, without its subgraphs."""
    if isinstance(op, Foreign):
        return "Foreign", op.domain, op.kind, freeze(op.attributes), op.outputs
    return (operator_key(op, with_subgraphs=False),)
