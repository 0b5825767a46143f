"""Operators whose inputs broadcast against each other, and the way back that their gradients take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dovetail import arrays, dtypes, symbolic
from dovetail.errors import EngineError, RuleError, UnsupportedError
from dovetail.ir.op import Op, default_types, infer_types
from dovetail.ir.types import Shape, Type, agree_shapes, broadcast

# How OpenVINO spells the attribute ``broadcast``; ``pdpd`` is a matter of its compose module.
AUTO = "auto_broadcast~{numpy:true,explicit:false,none:false}:broadcast=numpy"

_CODES = ("nf4", "u1", "u3", "u6")


# Narrow types that came late to ONNX, and one in which the same is computed: floats are rounded once, integers wrap at the end.
_WIDER = {"bf16": dtypes.f32, "i8": dtypes.i32, "i16": dtypes.i32, "u8": dtypes.i32, "u16": dtypes.i32}


class Elementwise(Op):
    """One result for each place. Types that travel as codes have no arithmetic."""

    def decompose(self, b: Any, *xs: Any) -> Any:
        """In a wider type, where that is the same; otherwise as ``composed`` says."""
        return _in_wider(b, self, xs) or self.composed(b, *xs)

    def composed(self, b: Any, *xs: Any) -> Any:
        """The same from other operators, or None."""
        return None

    def types(self, *xs: Any) -> list[Type]:
        for x in xs:
            dtype = getattr(getattr(x, "type", None), "dtype", None)
            if dtype is not None and dtype.name in _CODES:
                raise RuleError("type.class", f"{type(self).__name__} does not compute in {dtype}; convert it first")
        return default_types(self, xs)


def _in_wider(b: Any, op: Op, xs: tuple[Any, ...]) -> Any:
    narrow = [x is not None and x.dtype.name in _WIDER for x in xs]
    if not any(narrow):
        return None
    wide = [b.Cast(x, to=_WIDER[x.dtype.name]) if is_narrow else x for x, is_narrow in zip(xs, narrow, strict=True)]
    y, type = b.add(op, *wide)[0], infer_types(op, xs)[0]
    dtype = getattr(type, "dtype", None)
    return y if dtype is None or dtype is y.dtype else b.Cast(y, to=dtype)


class BroadcastingOp(Elementwise):
    """With ``broadcast`` the inputs are stretched as numpy has it; without, their shapes have to be equal."""

    broadcast: bool = True

    def shape(self, *xs: Any) -> Any:
        shapes = [x.shape for x in xs]
        if self.broadcast:
            return broadcast(*shapes)
        result: Shape | None = shapes[0]
        for shape in shapes[1:]:
            result = agree_shapes(result, shape)
        return result

    def hold(self, *arrays: Any) -> None:
        """Raise EngineError [shape.disagree] where shapes differ that should not."""
        shapes = [tuple(array.shape) for array in arrays]
        if not self.broadcast and len(set(shapes)) > 1:
            raise EngineError("shape.disagree", f"shapes {', '.join(str(list(shape)) for shape in shapes)} should be equal")

    def canonical(self, *xs: Any) -> Op:
        """Where the shapes are known to be equal, a refusal to broadcast says the same, and every version can say it."""
        return self.with_(broadcast=False) if self.broadcast and _are_equal([x.shape for x in xs]) else self


def _are_equal(shapes: list[Shape | None]) -> bool:
    first = shapes[0] if shapes else None
    return first is not None and all(
        shape is not None
        and len(shape) == len(first)
        and all(symbolic.equal(*pair) is True for pair in zip(shape, first, strict=True))
        for shape in shapes
    )


def computed(xp: Any, function: Callable[..., Any], *xs: Any) -> Any:
    """``function`` of ``xs``: narrow elements are widened for it (f32, or 8 bits), and the result rounded once."""
    if xp is symbolic.xp:
        return function(*xs)
    kind = arrays.element(xs[0])
    with np.errstate(all="ignore"):
        if not (kind.is_float and kind.bits < 32) and not (kind.is_integer and kind.bits < 8):
            return function(*xs)
        wide = dtypes.f32 if kind.is_float else dtypes.dtype(f"{kind.kind}8")
        result = function(*(arrays.cast(xp, x, wide) for x in xs))
        return arrays.cast(xp, result, kind, saturate=False)


def number(b: Any, value: float | int, like: Any) -> Any:
    """A scalar constant of the element type of ``like``."""
    return b.constant(value, like.dtype)


def is_float(x: Any) -> bool:
    return x is not None and x.dtype.is_float


def unbroadcast(b: Any, g: Any, x: Any) -> Any:
    """The gradient ``g`` of a broadcast result summed back to the shape of ``x``; None where ``x`` has no gradient.

    Raises UnsupportedError [gradient.rank] where a rank is unknown.
    """
    if not is_float(x):
        return None
    if g.shape is None or x.shape is None:
        raise UnsupportedError("gradient.rank", f"the gradient of a broadcast needs the ranks of {g.type} and {x.type}")
    extra = len(g.shape) - len(x.shape)
    if extra:
        g = b.ReduceSum(g, list(range(extra)), keepdims=False)
    unknown = [axis for axis, pair in enumerate(zip(g.shape, x.shape, strict=True)) if _is_stretched(*pair) is None]
    if unknown:
        return _sum_where_stretched(b, g, x)
    axes = [axis for axis, pair in enumerate(zip(g.shape, x.shape, strict=True)) if _is_stretched(*pair)]
    return b.ReduceSum(g, axes, keepdims=True) if axes else g


def _is_stretched(wide: Any, narrow: Any) -> bool | None:
    """Whether an axis was stretched; None where only run time can tell."""
    if symbolic.equal(wide, narrow) is True:
        return False
    if isinstance(narrow, int) and narrow == 1:
        return True
    return False if symbolic.equal(narrow, 1) is False else None


def _sum_where_stretched(b: Any, g: Any, x: Any) -> Any:
    """Each axis of ``g`` cut in two, of sizes (g / x, x), where x is 1 or as large as g; the first of the two is summed over."""
    wide, narrow = b.Shape(g, output_type=dtypes.i64), b.Shape(x, output_type=dtypes.i64)
    times = b.Divide(wide, b.Maximum(narrow, 1))
    rank = len(x.shape)
    pairs = b.Reshape(b.Concat(b.Unsqueeze(times, [1]), b.Unsqueeze(narrow, [1]), axis=1), [2 * rank])
    split = b.Reshape(g, pairs, special_zero=False)
    return b.ReduceSum(split, list(range(0, 2 * rank, 2)), keepdims=False)
