"""Operators that exist only in the table of terms: bound parameters, known integers, and operators compared by a key."""

from __future__ import annotations

from typing import Any

from dovetail.ir import dtypes
from dovetail.ir.op import Op
from dovetail.ir.types import Tensor, Type, View


class BoundParameter(Op, sig="-> y: any", is_registered=False):
    """Represent input ``position`` of the subgraph at nesting ``depth``, of any operator (de Bruijn level)."""

    depth: int
    position: int
    type: Any

    def types(self) -> list[Type]:
        return [self.type]

    def value(self) -> Any:
        return None


class KnownIntegers(Op, sig="-> y: any", is_registered=False):
    """Hold integers that are known as expressions over the sizes of the inputs."""

    elements: Any
    dtype: dtypes.DType
    extents: tuple[int, ...]

    def types(self) -> list[Type]:
        return [Tensor(self.dtype, self.extents)]

    def value(self) -> Any:
        # Deferred for start-up time.
        import numpy as np

        array = np.empty(len(self.elements), dtype=object)
        array[:] = self.elements
        return array.reshape(self.extents)


class Opaque(Op, sig="*xs: any -> *ys: any", is_registered=False):
    """Opaque is an operator that is known only by a key: two nodes with equal keys and equal operands have equal results.

    ``key`` identifies the operator with its attributes; ``result_types`` are the types of its outputs.
    """

    key: Any
    result_types: Any
    outputs: int

    def types(self, *xs: View) -> list[Type]:
        return list(self.result_types)

    def value(self, *xs: View) -> Any:
        return [None] * self.outputs
