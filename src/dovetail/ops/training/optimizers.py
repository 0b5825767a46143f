"""Optimizer steps: Momentum, Adagrad and Adam."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from dovetail.errors import RuleError
from dovetail.ir.op import Op
from dovetail.ir.types import View, agree_shapes

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_DOMAIN = "ai.onnx.preview.training"
_INPUTS = "r, t, *inputs"


class _Optimizer(Op, sig="r: F, t: i64, *inputs: F1 -> *outputs: F1"):
    """_Optimizer is the base of Momentum, Adagrad and Adam.

    ``inputs`` are all tensors, then all gradients, then all states of each kind from earlier steps. ``outputs`` are all new
    tensors, then all new states of each kind. The learning rate ``r`` and the number of earlier steps ``t`` have one element.
    """

    state_count: ClassVar[int] = 1
    norm_coefficient: float = 0.0
    outputs: int = 2

    def validate(self) -> None:
        if self.outputs < 1 or self.outputs % (1 + self.state_count):
            raise RuleError("node.outputs", f"number of outputs must be a multiple of {1 + self.state_count}, got {self.outputs}")

    def shape(self, r: View, t: View, *inputs: View) -> Any:
        for x, name in ((r, "r"), (t, "t")):
            if x.shape is not None and any(isinstance(size, int) and size != 1 for size in x.shape):
                raise RuleError("shape.single", f"{name} must have one element, got {x.type}")
        tensor_count = self.outputs // (1 + self.state_count)
        if len(inputs) != tensor_count * (2 + self.state_count):
            raise RuleError("node.inputs", f"{tensor_count} tensors need {2 + self.state_count} inputs each, got {len(inputs)}")
        shapes: list[Any] = [None] * tensor_count
        for index, x in enumerate(inputs):
            if x.shape is not None and shapes[index % tensor_count] is not None:
                shapes[index % tensor_count] = agree_shapes(
                    shapes[index % tensor_count], x.shape, (2 + index % tensor_count, 0), (2 + index, 0)
                )
            elif x.shape is not None:
                shapes[index % tensor_count] = x.shape
        return shapes * (1 + self.state_count)

    def decompose(self, b: Builder, r: Value, t: Value, *inputs: Value) -> Any:
        tensor_count, dtype = self.outputs // (1 + self.state_count), inputs[0].dtype
        r = b.Reshape(r if r.dtype is dtype else b.Cast(r, to=dtype), [])
        t = b.Reshape(t, [])
        results = []
        for index in range(tensor_count):
            x, g, *rest = inputs[index::tensor_count]
            if self.norm_coefficient:
                g = b.Add(b.Multiply(x, self.norm_coefficient), g)
            results.append(self.step(b, r, t, x, g, *rest))
        return [row[part] for part in range(1 + self.state_count) for row in results]

    def step(self, b: Builder, r: Value, t: Value, x: Value, g: Value, *rest: Value) -> tuple[Any, ...]:
        """Return the new tensor and states for the tensor ``x`` with the regularized gradient ``g`` and the states ``rest``."""
        raise NotImplementedError


class Momentum(
    _Optimizer,
    sig=_Optimizer.sig,
    onnx=f"{_DOMAIN}:Momentum-1({_INPUTS}; alpha, beta, mode, norm_coefficient)",
):
    """Momentum updates each tensor x with gradient g and momentum v by gradient descent with momentum.

    ``v' = alpha * v + beta * (g + norm_coefficient * x)``, with ``beta`` 1 in step 0, and ``x' = x - r * v'``; with ``mode``
    nesterov ``x' = x - r * (g + norm_coefficient * x + alpha * v')``. ``inputs`` are all tensors, then all gradients, then
    all momenta.
    Source: ai.onnx.preview.training Momentum 1.
    """

    alpha: float = 0.0
    beta: float = 1.0
    mode: str = "standard"

    def validate(self) -> None:
        super().validate()
        if self.mode not in ("standard", "nesterov"):
            raise RuleError("attribute.value", f"mode must be standard or nesterov, got {self.mode!r}")

    def step(self, b: Builder, r: Value, t: Value, x: Value, g: Value, *rest: Value) -> tuple[Any, ...]:
        is_later = b.Greater(t, b.constant(0))
        beta = b.Where(is_later, b.constant(self.beta, x.dtype), b.constant(1, x.dtype))
        v = b.Add(b.Multiply(rest[0], self.alpha), b.Multiply(beta, g))
        direction = v if self.mode == "standard" else b.Add(g, b.Multiply(v, self.alpha))
        return b.Subtract(x, b.Multiply(r, direction)), v


class Adagrad(
    _Optimizer,
    sig=_Optimizer.sig,
    onnx=f"{_DOMAIN}:Adagrad-1({_INPUTS}; decay_factor=0.0, epsilon=9.999999974752427e-07, norm_coefficient=0.0)",
):
    """Adagrad updates each tensor x with gradient g by the sum h of squared gradients.

    ``g' = g + norm_coefficient * x``, ``h' = h + g' * g'``, ``x' = x - r / (1 + t * decay_factor) * g' / (sqrt(h') +
    epsilon)``. ``inputs`` are all tensors, then all gradients, then all sums.
    Source: ai.onnx.preview.training Adagrad 1.
    """

    decay_factor: float = 0.0
    epsilon: float = 9.999999974752427e-07

    def step(self, b: Builder, r: Value, t: Value, x: Value, g: Value, *rest: Value) -> tuple[Any, ...]:
        if self.decay_factor:
            r = b.Divide(r, b.Add(b.Multiply(b.Cast(t, to=x.dtype), self.decay_factor), 1.0))
        h = b.Add(rest[0], b.Multiply(g, g))
        return b.Subtract(x, b.Divide(b.Multiply(r, g), b.Add(b.Sqrt(h), self.epsilon))), h


class Adam(
    _Optimizer,
    sig=_Optimizer.sig,
    onnx=f"{_DOMAIN}:Adam-1({_INPUTS}; alpha=0.8999999761581421, beta=0.9990000128746033, epsilon=9.999999974752427e-07, "
    "norm_coefficient=0.0, norm_coefficient_post=0.0)",
):
    """Adam updates each tensor x with gradient g by the running means v of gradients and h of squared gradients.

    ``g' = g + norm_coefficient * x``, ``v' = alpha * v + (1 - alpha) * g'``, ``h' = beta * h + (1 - beta) * g' * g'``, and
    ``x' = (1 - norm_coefficient_post) * (x - rate * v' / (sqrt(h') + epsilon))`` with ``rate = r * sqrt(1 - beta ** t) / (1 -
    alpha ** t)``, or r in step 0. ``inputs`` are all tensors, then all gradients, then all means of gradients, then all means
    of squares.
    Source: ai.onnx.preview.training Adam 1.
    """

    state_count: ClassVar[int] = 2
    alpha: float = 0.8999999761581421
    beta: float = 0.9990000128746033
    epsilon: float = 9.999999974752427e-07
    norm_coefficient_post: float = 0.0
    outputs: int = 3

    def step(self, b: Builder, r: Value, t: Value, x: Value, g: Value, *rest: Value) -> tuple[Any, ...]:
        dtype = x.dtype
        v = b.Add(b.Multiply(rest[0], self.alpha), b.Multiply(g, 1 - self.alpha))
        h = b.Add(b.Multiply(rest[1], self.beta), b.Multiply(b.Multiply(g, g), 1 - self.beta))
        is_later = b.Greater(t, b.constant(0))
        # In step 0 both powers are 1 and the quotient is 0 / 0: the exponent is replaced by 1, and the result is not used.
        steps = b.Cast(b.Where(is_later, t, b.constant(1)), to=dtype)
        first, second = (b.Subtract(1.0, b.Power(b.constant(base, dtype), steps)) for base in (self.alpha, self.beta))
        r = b.Where(is_later, b.Divide(b.Multiply(r, b.Sqrt(second)), first), r)
        new = b.Subtract(x, b.Divide(b.Multiply(r, v), b.Add(b.Sqrt(h), self.epsilon)))
        return b.Multiply(new, 1 - self.norm_coefficient_post) if self.norm_coefficient_post else new, v, h
