"""Legacy broadcasting: the second tensor is aligned with an axis of the first (ONNX before opset 7, PaddlePaddle in OpenVINO)."""

from __future__ import annotations

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Value
from dovetail.ir.types import broadcast


def align_second(b: Builder, x: Value, y: Value, axis: int | None) -> Value:
    """Reshape ``y`` so that it broadcasts to the shape of ``x`` by numpy's rules.

    The first axis of ``y`` is aligned with ``axis`` of ``x``; if ``axis`` is None, the last axes are aligned. Trailing axes of
    ``y`` of size 1 beyond the last axis of ``x`` are dropped. The result has the shape of ``x``. Raises RuleError
    [shape.broadcast], and UnsupportedError [type.unknown] if unknown ranks or sizes decide the result.
    """
    if x.shape is None or y.shape is None:
        raise UnsupportedError("type.unknown", f"broadcasting {y.type} along axis {axis} of {x.type} needs known ranks")
    rank, own = len(x.shape), len(y.shape)
    is_one = all(symbolic.equal(size, 1) is True for size in y.shape)
    if axis is not None and not is_one:
        behind = rank - axis - own
        if axis < 0 or (behind < 0 and not all(symbolic.equal(size, 1) is True for size in y.shape[behind:])):
            raise RuleError("shape.broadcast", f"shape {list(y.shape)} must fit into shape {list(x.shape)} from axis {axis} on")
        if behind < 0:
            y = b.Squeeze(y, list(range(own + behind, own)))
        elif behind:
            y = b.Unsqueeze(y, list(range(own, own + behind)))
    _check(x, y)
    return y


def _check(x: Value, y: Value) -> None:
    result = broadcast(x.shape, y.shape) or ()
    shape = x.shape or ()
    fits = [size is not None and symbolic.equal(size, own) for size, own in zip(result, shape, strict=False)]
    if len(result) != len(shape) or any(fit is False and size is not None for fit, size in zip(fits, result, strict=False)):
        raise RuleError("shape.broadcast", f"shape {list(y.shape or ())} must broadcast to {list(shape)}")
    if not all(fits):
        raise UnsupportedError("type.unknown", f"{y.type} must broadcast to {x.type}, but sizes are unknown")
