"""What the operators that normalise share: their shape, the type in which they compute, and rounding once at the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import arrays, dtypes, symbolic
from dovetail.dtypes import DType
from dovetail.errors import RuleError
from dovetail.ir.op import Op
from dovetail.ir.types import broadcast


class _Normalizing(Op):
    """The shape of the result is that of ``x``."""

    def shape(self, x: Any, *rest: Any) -> Any:
        return x.shape


def rounded(xp: Any, y: Any, kind: DType) -> Any:
    return y if arrays.element(y) is kind else arrays.cast(xp, y, kind, saturate=False)


def check_parameter(shape: Any, parameter: Any) -> None:
    """Refuse a scale or bias that would stretch what it is broadcast to.

    Raises RuleError [norm.parameters], [shape.broadcast].
    """
    if parameter is None or parameter.shape is None:
        return
    own = tuple(parameter.shape)
    wide = broadcast(tuple(shape), own) if len(own) <= len(shape) else None
    pairs = zip(wide or (), shape, strict=False)
    stretches = any(size is not None and ours is not None and symbolic.equal(size, ours) is False for size, ours in pairs)
    if wide is None or stretches:
        raise RuleError("norm.parameters", f"a scale or bias of shape {list(own)} does not broadcast to {list(shape)}")


def fits(shape: Any, parameter: Any) -> bool:
    """Whether a scale or bias is known not to stretch what it is broadcast to."""
    if shape is None or parameter is None or parameter.shape is None or len(parameter.shape) > len(shape):
        return False
    wide = broadcast(tuple(shape), tuple(parameter.shape))
    return wide is not None and all(
        size is not None and symbolic.equal(size, ours) is True for size, ours in zip(wide, shape, strict=True)
    )


def as_type(b: Any, x: Any, dtype: DType) -> Any:
    return x if x.dtype is dtype else b.Cast(x, to=dtype)


def wide_type(*kinds: DType) -> DType:
    """The type in which statistics of these are computed: f64 where one is f64, otherwise f32."""
    return dtypes.f64 if any(kind == "f64" for kind in kinds) else dtypes.f32


def listed(axes: Any) -> list[int]:
    return [int(axis) for axis in np.atleast_1d(np.asarray(axes)).tolist()]
