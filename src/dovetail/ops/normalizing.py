"""What the operators that normalise share: their shape, the type in which they compute, and rounding once at the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import arrays, dtypes
from dovetail.dtypes import DType
from dovetail.op import Op


class _Normalizing(Op):
    """The shape of the result is that of ``x``."""

    def shape(self, x: Any, *rest: Any) -> Any:
        return x.shape


def rounded(xp: Any, y: Any, kind: DType) -> Any:
    return y if arrays.element(y) is kind else arrays.cast(xp, y, kind, saturate=False)


def as_type(b: Any, x: Any, dtype: DType) -> Any:
    return x if x.dtype is dtype else b.Cast(x, to=dtype)


def wide_type(*kinds: DType) -> DType:
    """The type in which statistics of these are computed: f64 where one is f64, otherwise f32."""
    return dtypes.f64 if any(kind == "f64" for kind in kinds) else dtypes.f32


def listed(axes: Any) -> list[int]:
    return [int(axis) for axis in np.atleast_1d(np.asarray(axes)).tolist()]
