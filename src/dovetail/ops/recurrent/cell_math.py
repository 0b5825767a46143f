"""The arithmetic of recurrent cells, written once for arrays and for values of a graph: activations, steps through time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dovetail import arrays
from dovetail.arrays.backends import filled
from dovetail.dtypes import DType
from dovetail.ir.builder import shape_value
from dovetail.ops.casts import as_type, round_to, wide_type
from dovetail.ops.elementwise.activation import Elu, HardSigmoid, LeakyRelu, Relu, Sigmoid, Softplus, Softsign, ThresholdedRelu
from dovetail.ops.elementwise.unary import Tanh
from dovetail.ops.nn.conv import joined

DEFAULTS: dict[str, tuple[float | None, float | None]] = {
    "affine": (None, None),
    "elu": (1.0, None),
    "hardsigmoid": (0.20000000298023224, 0.5),
    "leakyrelu": (0.009999999776482582, None),
    "relu": (None, None),
    "scaledtanh": (None, None),
    "sigmoid": (None, None),
    "softplus": (None, None),
    "softsign": (None, None),
    "tanh": (None, None),
    "thresholdedrelu": (1.0, None),
}
"""The activation functions, and what alpha and beta are where they are left out."""
PARAMETERS = {
    "affine": (True, True),
    "elu": (True, False),
    "hardsigmoid": (True, True),
    "leakyrelu": (True, False),
    "scaledtanh": (True, True),
    "thresholdedrelu": (True, False),
}
"""Which of alpha and beta a function has; none where it does not stand here."""

Function = Callable[[Any], Any]


class Arrays:
    """Arrays of one library, computed at once."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp

    def wide(self, x: Any) -> Any:
        return None if x is None else arrays.widened(self.xp, x)

    def rounded(self, x: Any, kind: DType) -> Any:
        return round_to(self.xp, x, kind)

    def kind(self, x: Any) -> DType:
        return arrays.element(x)

    def part(self, x: Any, place: int) -> Any:
        return x[place, ...]

    def turned(self, x: Any, order: Sequence[int]) -> Any:
        return self.xp.permute_dims(x, tuple(order))

    def factor(self, weights: Any) -> Any:
        """A matrix as ``product`` takes it."""
        return self.xp.permute_dims(weights, (1, 0))

    def product(self, x: Any, factor: Any) -> Any:
        """``x`` by the transpose of the matrix."""
        return self.xp.matmul(x, factor)

    def apply(self, op: Any, x: Any) -> Any:
        return op.function(self.xp, x)

    def clip(self, x: Any, limit: float) -> Any:
        return self.xp.clip(x, -limit, limit)

    def joined(self, parts: Sequence[Any], axis: int) -> Any:
        return self.xp.concat(list(parts), axis=axis)

    def stacked(self, parts: Sequence[Any], axis: int) -> Any:
        return self.xp.stack(list(parts), axis=axis)

    def zeros(self, like: Any, x: Any, batch: int, size: Any, before: Sequence[int] = ()) -> Any:
        """Zeros of the type of ``like``, for each row of axis ``batch`` of ``x`` as many as ``size`` says."""
        return filled(self.xp, (*before, x.shape[batch], size), 0, like)

    def select(self, mask: Any, x: Any, y: Any) -> Any:
        return self.xp.where(mask, x, y)

    def beyond(self, lengths: Any, step: int) -> Any:
        """For each row whether its sequence goes on at ``step``."""
        return lengths[:, None] > step


class Values:
    """Values of a graph, written through a Builder."""

    def __init__(self, b: Any) -> None:
        self.b = b

    def wide(self, x: Any) -> Any:
        return None if x is None else as_type(self.b, x, wide_type(x.dtype))

    def rounded(self, x: Any, kind: DType) -> Any:
        return as_type(self.b, x, kind)

    def kind(self, x: Any) -> DType:
        found: DType = x.dtype
        return found

    def part(self, x: Any, place: int) -> Any:
        return x[place]

    def turned(self, x: Any, order: Sequence[int]) -> Any:
        return x if list(order) == sorted(order) else self.b.Transpose(x, list(order))

    def factor(self, weights: Any) -> Any:
        return weights

    def product(self, x: Any, factor: Any) -> Any:
        return self.b.MatMul(x, factor, transpose_b=True)

    def apply(self, op: Any, x: Any) -> Any:
        return self.b.add(op, x)[0]

    def clip(self, x: Any, limit: float) -> Any:
        return self.b.Clip(x, -limit, limit)

    def joined(self, parts: Sequence[Any], axis: int) -> Any:
        return self.b.Concat(*parts, axis=axis) if len(parts) > 1 else parts[0]

    def stacked(self, parts: Sequence[Any], axis: int) -> Any:
        return self.joined([self.b.Unsqueeze(part, [axis]) for part in parts], axis)

    def zeros(self, like: Any, x: Any, batch: int, size: Any, before: Sequence[int] = ()) -> Any:
        zero = self.b.constant(0, like.dtype)
        return self.b.Expand(zero, joined(self.b, list(before), shape_value(self.b, x, [batch]), [size]))

    def select(self, mask: Any, x: Any, y: Any) -> Any:
        return self.b.Where(mask, x, y)

    def beyond(self, lengths: Any, step: int) -> Any:
        return self.b.Greater(self.b.Unsqueeze(lengths, [1]), step)


Medium = Arrays | Values


def activation(m: Medium, name: str, alpha: float, beta: float, limit: float) -> Function:
    """The function of this name; its argument is first limited to [-limit, limit] where ``limit`` is not 0."""
    function = _plain_activation(m, name, alpha, beta)
    return (lambda x: function(m.clip(x, limit))) if limit else function


def _plain_activation(m: Medium, name: str, alpha: float, beta: float) -> Function:
    if name == "affine":
        return lambda x: x * alpha + beta
    if name == "scaledtanh":
        return lambda x: m.apply(Tanh(), x * beta) * alpha
    ops: dict[str, Callable[[], Any]] = {
        "elu": lambda: Elu(alpha),
        "hardsigmoid": lambda: HardSigmoid(alpha, beta),
        "leakyrelu": lambda: LeakyRelu(alpha),
        "relu": Relu,
        "sigmoid": Sigmoid,
        "softplus": Softplus,
        "softsign": Softsign,
        "tanh": Tanh,
        "thresholdedrelu": lambda: ThresholdedRelu(alpha),
    }
    op = ops[name]()
    return lambda x: m.apply(op, x)


def parts(x: Any, count: int, size: int) -> list[Any]:
    """The last axis in pieces of ``size``."""
    return [x[..., index * size : (index + 1) * size] for index in range(count)]


Step = Callable[..., tuple[Any, ...]]
"""The next states (what is put out first) from what one moment brings in and the states before it."""


def through_time(
    m: Medium, moments: Sequence[Any], step: Step, states: tuple[Any, ...], lengths: Any, backwards: bool
) -> tuple[list[Any], tuple[Any, ...]]:
    """What is put out at each moment, and the last states.

    Where a row's sequence is over, 0 is put out and its states stay; a row of no length has 0 for its last states too.
    """
    count = len(moments)
    nothing = None
    if lengths is not None:
        nothing = [state * 0 for state in states]
        is_any = m.beyond(lengths, 0)
        states = tuple(m.select(is_any, state, zero) for state, zero in zip(states, nothing, strict=True))
    made: list[Any] = [None] * count
    for place in reversed(range(count)) if backwards else range(count):
        new = step(moments[place], *states)
        made[place] = new[0]
        if nothing is not None:
            goes_on = m.beyond(lengths, place)
            made[place] = m.select(goes_on, new[0], nothing[0])
            new = tuple(m.select(goes_on, after, before) for after, before in zip(new, states, strict=True))
        states = new
    return made, states
