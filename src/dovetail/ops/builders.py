"""Builder functions that several operator families share: zeros_like and reshape_like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.ir import dtypes

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


def zeros_like(b: Builder, x: Value) -> Value:
    """Emit a tensor of zeros with the element type and shape of ``x``."""
    from dovetail.ir.builder import shape_value

    zero = b.constant(np.zeros((), dtype=x.dtype.numpy), x.dtype)
    is_static = x.shape is not None and all(isinstance(size, int) for size in x.shape)
    sizes = b.constant(np.array(x.shape, dtype=np.int64), dtypes.i64) if is_static else shape_value(b, x)
    zeros: Value = b.Expand(zero, sizes)
    return zeros


def reshape_like(b: Builder, x: Value, like: Value) -> Value:
    """Reshape ``x`` to the shape of ``like``."""
    from dovetail.ir.builder import shape_value

    y: Value = b.Reshape(x, shape_value(b, like), special_zero=False)
    return y
