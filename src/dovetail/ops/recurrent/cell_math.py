"""Arithmetic of recurrent cells on arrays or on graph values: activations and the unrolled recurrence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from dovetail.ir import arrays
from dovetail.ir.arrays.backends import full
from dovetail.ir.builder import shape_value
from dovetail.ir.dtypes import DType
from dovetail.ops.casts import as_type, round_to, wide_type
from dovetail.ops.elementwise.activation import Elu, HardSigmoid, LeakyRelu, Relu, Sigmoid, Softplus, Softsign, ThresholdedRelu
from dovetail.ops.elementwise.unary import Tanh

if TYPE_CHECKING:
    from dovetail.ir.arrays import Namespace
    from dovetail.ir.builder import Builder

from typing import TYPE_CHECKING

from dovetail.ir.arrays import Namespace
from dovetail.ops.nn.conv import concat_vectors

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder

DEFAULT_PARAMETERS: dict[str, tuple[float | None, float | None]] = {
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
"""Default alpha and beta of each activation; None: no default, or no such parameter."""
HAS_PARAMETERS = {
    "affine": (True, True),
    "elu": (True, False),
    "hardsigmoid": (True, True),
    "leakyrelu": (True, False),
    "scaledtanh": (True, True),
    "thresholdedrelu": (True, False),
}
"""Presence of alpha and beta, by activation; an activation that is not listed has neither."""

Data: TypeAlias = Any
"""An array of an ArrayBackend, or a graph value of a GraphBackend."""
Activation: TypeAlias = Callable[[Data], Data]


class ArrayBackend:
    """ArrayBackend computes the operations of recurrent cells on the arrays of one library."""

    def __init__(self, xp: Namespace) -> None:
        self.xp = xp

    def widen(self, x: Data) -> Any:
        return None if x is None else arrays.widen(self.xp, x)

    def round_to(self, x: Data, dtype: DType) -> Any:
        return round_to(self.xp, x, dtype)

    def dtype_of(self, x: Data) -> DType:
        return arrays.element(x)

    def index(self, x: Data, i: int) -> Any:
        return x[i, ...]

    def transpose(self, x: Data, order: Sequence[int]) -> Any:
        return self.xp.permute_dims(x, tuple(order))

    def prepare_weights(self, weights: Data) -> Any:
        """Return weights in the layout that ``matmul`` expects. A layer calls this method once for all time steps."""
        return self.xp.permute_dims(weights, (1, 0))

    def matmul(self, x: Data, factor: Data) -> Any:
        """Return the product of ``x`` and ``factor``, the weights that ``prepare_weights`` returned."""
        return self.xp.matmul(x, factor)

    def apply(self, op: Any, x: Data) -> Any:
        return op.function(self.xp, x)

    def clip(self, x: Data, limit: float) -> Any:
        return self.xp.clip(x, -limit, limit)

    def concat(self, parts: Sequence[Data], axis: int) -> Any:
        return self.xp.concat(list(parts), axis=axis)

    def stack(self, parts: Sequence[Data], axis: int) -> Any:
        return self.xp.stack(list(parts), axis=axis)

    def zeros(self, like: Data, x: Data, batch: int, size: Data, before: Sequence[int] = ()) -> Any:
        """Return zeros of the type of ``like`` and the shape [*before, n, size], where axis ``batch`` of ``x`` has the size n."""
        return full(self.xp, (*before, x.shape[batch], size), 0, like)

    def where(self, mask: Data, x: Data, y: Data) -> Any:
        return self.xp.where(mask, x, y)

    def is_active(self, lengths: Data, step: int) -> Any:
        """Return a mask [batch, 1] of the batch rows whose sequences have more than ``step`` time steps."""
        return lengths[:, None] > step


class GraphBackend:
    """GraphBackend emits the operations of ArrayBackend into a graph through a Builder."""

    def __init__(self, b: Builder) -> None:
        self.b = b

    def widen(self, x: Data) -> Any:
        return None if x is None else as_type(self.b, x, wide_type(x.dtype))

    def round_to(self, x: Data, dtype: DType) -> Any:
        return as_type(self.b, x, dtype)

    def dtype_of(self, x: Data) -> DType:
        dtype: DType = x.dtype
        return dtype

    def index(self, x: Data, i: int) -> Any:
        return x[i]

    def transpose(self, x: Data, order: Sequence[int]) -> Any:
        return x if list(order) == sorted(order) else self.b.Transpose(x, list(order))

    def prepare_weights(self, weights: Data) -> Any:
        return weights

    def matmul(self, x: Data, factor: Data) -> Any:
        return self.b.MatMul(x, factor, transpose_b=True)

    def apply(self, op: Any, x: Data) -> Any:
        return self.b.add(op, x)[0]

    def clip(self, x: Data, limit: float) -> Any:
        return self.b.Clip(x, -limit, limit)

    def concat(self, parts: Sequence[Data], axis: int) -> Any:
        return self.b.Concat(*parts, axis=axis) if len(parts) > 1 else parts[0]

    def stack(self, parts: Sequence[Data], axis: int) -> Any:
        return self.concat([self.b.Unsqueeze(part, [axis]) for part in parts], axis)

    def zeros(self, like: Data, x: Data, batch: int, size: Data, before: Sequence[int] = ()) -> Any:
        zero = self.b.constant(0, like.dtype)
        return self.b.Expand(zero, concat_vectors(self.b, list(before), shape_value(self.b, x, [batch]), [size]))

    def where(self, mask: Data, x: Data, y: Data) -> Any:
        return self.b.Where(mask, x, y)

    def is_active(self, lengths: Data, step: int) -> Any:
        return self.b.Greater(self.b.Unsqueeze(lengths, [1]), step)


Backend: TypeAlias = ArrayBackend | GraphBackend


def activation(m: Backend, name: str, alpha: float, beta: float, limit: float) -> Activation:
    """Return the activation function ``name``, whose argument is clipped to [-limit, limit] unless ``limit`` is 0."""
    function = _plain_activation(m, name, alpha, beta)
    return (lambda x: function(m.clip(x, limit))) if limit else function


def _plain_activation(m: Backend, name: str, alpha: float, beta: float) -> Activation:
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


def split_gates(x: Data, count: int, size: int) -> list[Any]:
    """Split the last axis into ``count`` slices of ``size``."""
    return [x[..., index * size : (index + 1) * size] for index in range(count)]


Step: TypeAlias = Callable[..., tuple[Data, ...]]
"""Function from the input projection of a time step and the states to the next states; the first next state is the output."""


def unroll(
    m: Backend, inputs: Sequence[Data], step: Step, states: tuple[Data, ...], lengths: Data, backwards: bool
) -> tuple[list[Any], tuple[Any, ...]]:
    """Run ``step`` over all time steps, and return the output of each step and the last states.

    After the end of a batch row's sequence the output is 0 and the row's states are unchanged. A row of length 0 has last states
    of 0. Without time steps the states are unchanged, whether ``lengths`` is given or not.
    """
    count = len(inputs)
    zeros = None
    if lengths is not None and inputs:
        zeros = [state * 0 for state in states]
        is_not_empty = m.is_active(lengths, 0)
        states = tuple(m.where(is_not_empty, state, zero) for state, zero in zip(states, zeros, strict=True))
    outputs: list[Any] = [None] * count
    for step_index in reversed(range(count)) if backwards else range(count):
        new = step(inputs[step_index], *states)
        outputs[step_index] = new[0]
        if zeros is not None:
            is_active = m.is_active(lengths, step_index)
            outputs[step_index] = m.where(is_active, new[0], zeros[0])
            new = tuple(m.where(is_active, after, before) for after, before in zip(new, states, strict=True))
        states = new
    return outputs, states
