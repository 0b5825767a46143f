"""Base classes of elementwise operators, with broadcasting and the reduction of their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dovetail.errors import EngineError, RuleError, UnsupportedError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.op import Op, default_types, infer_types
from dovetail.ir.types import Shape, Size, Type, View, agree_shapes, are_equal_shapes, broadcast

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value
    from dovetail.ops.elementwise.operand_laws import OperandLaw

# OpenVINO's attribute for ``broadcast``; the converters handle its value ``pdpd``.
AUTO_BROADCAST = "auto_broadcast~{numpy:true,explicit:false,none:false}:broadcast=numpy"

_CODES = ("nf4", "u1", "u3", "u6")


# Narrow types that early ONNX versions lack, each with a wider type that gives the same result: floats are rounded once,
# integers wrap.
_WIDER = {"bf16": dtypes.f32, "i8": dtypes.i32, "i16": dtypes.i32, "u8": dtypes.i32, "u16": dtypes.i32}


class Elementwise(Op):
    """Elementwise operators compute each output element from the input elements of the same index.

    Types stored as codes (nf4, u1, u3, u6) have no arithmetic. ``idempotent`` names the element types for which a second
    application of the operator changes no bit. ``involution`` names the element types for which a second application undoes the
    first.
    """

    idempotent: ClassVar[frozenset[str]] = frozenset()
    involution: ClassVar[frozenset[str]] = frozenset()
    is_activation: ClassVar[bool] = False
    """True if FusedConv and FusedGemm may apply the operator, with its attributes or the bounds of Clip as parameters."""

    def decompose(self, b: Builder, *xs: Any) -> Any:
        """Emit the operator in a wider type where an input has a type of ``_WIDER``, otherwise return the result of ``lower``."""
        return _in_wider(b, self, xs) or self.lower(b, *xs)

    def lower(self, b: Builder, *xs: Any) -> Any:
        """Emit the outputs by other operators, or return None where the operator has no such lowering."""
        return None

    def types(self, *xs: Any) -> list[Type]:
        for x in xs:
            dtype = getattr(getattr(x, "type", None), "dtype", None)
            if dtype is not None and dtype.name in _CODES:
                raise RuleError("type.class", f"{type(self).__name__} has no arithmetic for {dtype}; cast the input first")
        return default_types(self, xs)


def _in_wider(b: Builder, op: Op, xs: tuple[Any, ...]) -> Any:
    narrow = [x is not None and x.dtype.name in _WIDER for x in xs]
    if not any(narrow):
        return None
    wide = [b.Cast(x, to=_WIDER[x.dtype.name]) if is_narrow else x for x, is_narrow in zip(xs, narrow, strict=True)]
    y, type = b.add(op, *wide)[0], infer_types(op, xs)[0]
    dtype = getattr(type, "dtype", None)
    return y if dtype is None or dtype is y.dtype else b.Cast(y, to=dtype)


class BroadcastingOp(Elementwise):
    """BroadcastingOp is the base class of elementwise operators that broadcast their inputs as in numpy.

    Without ``broadcast`` the shapes of the inputs must be equal. ``neutral`` and ``absorbing`` are laws of constant operands:
    with a neutral constant the result has the bits of the other operand, with an absorbing constant the bits of the constant.
    """

    neutral: ClassVar[tuple[OperandLaw, ...]] = ()
    absorbing: ClassVar[tuple[OperandLaw, ...]] = ()
    broadcast: bool = True

    def shape(self, *xs: Any) -> Any:
        shapes = [x.shape for x in xs]
        if self.broadcast:
            return broadcast(*shapes)
        result: Shape | None = shapes[0]
        for number, shape in enumerate(shapes[1:], 1):
            result = agree_shapes(result, shape, (0, 0), (number, 0))
        return result

    def check_equal_shapes(self, *arrays: Array) -> None:
        """Check that the shapes of ``arrays`` are equal where ``broadcast`` is false. Raises EngineError [shape.disagree]."""
        shapes = [tuple(array.shape) for array in arrays]
        if not self.broadcast and len(set(shapes)) > 1:
            raise EngineError("shape.disagree", f"shapes {', '.join(str(list(shape)) for shape in shapes)} must be equal")

    def canonical(self, *xs: Any) -> Op:
        """Set ``broadcast`` to false where the shapes are known to be equal; every version of an operator has this form."""
        is_needless = self.broadcast and bool(xs) and all(are_equal_shapes(xs[0].shape, x.shape) for x in xs)
        return self.with_(broadcast=False) if is_needless else self


def apply_in_wide_type(xp: Namespace, function: Callable[..., Any], *xs: Array) -> Any:
    """Apply ``function`` to ``xs``; types narrower than f32 or 8-bit integers are widened, and the result is rounded once."""
    if xp is symbolic.xp:
        return function(*xs)
    kind = arrays.element(xs[0])
    with np.errstate(all="ignore"):
        if not (kind.is_float and kind.bits < 32) and not (kind.is_integer and kind.bits < 8):
            return function(*xs)
        wide = dtypes.f32 if kind.is_float else dtypes.dtype(f"{kind.kind}8")
        result = function(*(arrays.cast(xp, x, wide) for x in xs))
        return arrays.cast(xp, result, kind, saturate=False)


def scalar_like(b: Builder, value: float | int, like: View) -> Any:
    """Create a scalar constant of the element type of ``like``."""
    return b.constant(value, like.dtype)


def is_float(x: View | None) -> bool:
    return x is not None and x.dtype.is_float


def unbroadcast(b: Builder, g: Value, x: Value | None) -> Any:
    """Sum the gradient ``g`` of a broadcast result to the shape of ``x``; None where ``x`` has no gradient.

    Raises UnsupportedError [type.unknown] where a rank is unknown.
    """
    if x is None or not x.dtype.is_float:
        return None
    if g.shape is None or x.shape is None:
        raise UnsupportedError("type.unknown", f"the gradient of a broadcast needs known ranks, got {g.type} and {x.type}")
    extra = len(g.shape) - len(x.shape)
    if extra:
        g = b.ReduceSum(g, list(range(extra)), keepdims=False)
    unknown = [axis for axis, pair in enumerate(zip(g.dims, x.dims, strict=True)) if _is_stretched(*pair) is None]
    if unknown:
        return _sum_broadcast_axes(b, g, x)
    axes = [axis for axis, pair in enumerate(zip(g.dims, x.dims, strict=True)) if _is_stretched(*pair)]
    return b.ReduceSum(g, axes, keepdims=True) if axes else g


def _is_stretched(wide: Size, narrow: Size) -> bool | None:
    """Return whether an axis of the size ``narrow`` was broadcast to ``wide``; None if that depends on unknown sizes."""
    if symbolic.equal(wide, narrow) is True:
        return False
    if isinstance(narrow, int) and narrow == 1:
        return True
    return False if symbolic.equal(narrow, 1) is False else None


def _sum_broadcast_axes(b: Builder, g: Value, x: Value) -> Any:
    """Sum ``g`` over the broadcast axes where only the sizes at run time tell which axes these are.

    An axis of size n in ``g`` and size m (1 or n) in ``x`` is split into two axes of sizes n / m and m. The first axis of each
    pair is summed.
    """
    wide, narrow = b.Shape(g, output_type=dtypes.i64), b.Shape(x, output_type=dtypes.i64)
    times = b.Divide(wide, b.Maximum(narrow, 1))
    rank = len(x.dims)
    pairs = b.Reshape(b.Concat(b.Unsqueeze(times, [1]), b.Unsqueeze(narrow, [1]), axis=1), [2 * rank])
    split = b.Reshape(g, pairs, special_zero=False)
    return b.ReduceSum(split, list(range(0, 2 * rank, 2)), keepdims=False)
