"""Steps of training: tensors moved against their gradients, and what the next step has to know of this one."""

from __future__ import annotations

from typing import Any, ClassVar

from dovetail.errors import RuleError
from dovetail.ir.op import Op
from dovetail.ir.types import agree_shapes

_DOMAIN = "ai.onnx.preview.training"
_RATE = "rate, count, *xs"


class _Step(Op, sig="rate: F, count: i64, *xs: F1 -> *ys: F1"):
    """``xs`` are the tensors, then their gradients, then each kind of what earlier steps left of them; ``ys`` are the new
    tensors, and what this step leaves. ``rate`` and ``count``, how many steps there have been, have one element."""

    kept: ClassVar[int] = 1
    norm_coefficient: float = 0.0
    outputs: int = 2

    def validate(self) -> None:
        if self.outputs < 1 or self.outputs % (1 + self.kept):
            raise RuleError("node.outputs", f"{self.outputs} outputs, where each tensor has {1 + self.kept}")

    def shape(self, rate: Any, count: Any, *xs: Any) -> Any:
        for x, name in ((rate, "rate"), (count, "count")):
            if x.shape is not None and any(isinstance(size, int) and size != 1 for size in x.shape):
                raise RuleError("training.scalar", f"a {name} of one element is needed, not {x.type}")
        many = self.outputs // (1 + self.kept)
        if len(xs) != many * (2 + self.kept):
            raise RuleError("node.inputs", f"{len(xs)} tensors, where {many} have {2 + self.kept} each")
        shapes: list[Any] = [None] * many
        for place, x in enumerate(xs):
            if x.shape is not None and shapes[place % many] is not None:
                shapes[place % many] = agree_shapes(shapes[place % many], x.shape)
            elif x.shape is not None:
                shapes[place % many] = x.shape
        return shapes * (1 + self.kept)

    def decompose(self, b: Any, rate: Any, count: Any, *xs: Any) -> Any:
        many, kind = self.outputs // (1 + self.kept), xs[0].dtype
        rate = b.Reshape(rate if rate.dtype is kind else b.Cast(rate, to=kind), [])
        count = b.Reshape(count, [])
        made = []
        for place in range(many):
            x, g, *rest = xs[place::many]
            if self.norm_coefficient:
                g = b.Add(b.Multiply(x, self.norm_coefficient), g)
            made.append(self.step(b, rate, count, x, g, *rest))
        return [row[part] for part in range(1 + self.kept) for row in made]

    def step(self, b: Any, rate: Any, count: Any, x: Any, g: Any, *rest: Any) -> tuple[Any, ...]:
        """The new tensor and what is left, of one tensor and its whole gradient."""
        raise NotImplementedError


class Momentum(
    _Step,
    sig=_Step.sig,
    onnx=f"{_DOMAIN}:Momentum-1({_RATE}; alpha, beta, mode, norm_coefficient)",
):
    """Of each tensor x, its gradient g and its momentum v: ``v' = alpha * v + beta * (g + norm_coefficient * x)``, with 1 for
    ``beta`` in step 0, and ``x' = x - rate * v'``; with the mode ``nesterov`` ``x' = x - rate * (g + norm_coefficient * x +
    alpha * v')``. All tensors come first, then all gradients, then all momenta. Source: ai.onnx.preview.training Momentum 1.
    """

    alpha: float = 0.0
    beta: float = 1.0
    mode: str = "standard"

    def validate(self) -> None:
        super().validate()
        if self.mode not in ("standard", "nesterov"):
            raise RuleError("training.mode", f"{self.mode!r} is none of standard, nesterov")

    def step(self, b: Any, rate: Any, count: Any, x: Any, g: Any, *rest: Any) -> tuple[Any, ...]:
        is_later = b.Greater(count, b.constant(0))
        beta = b.Where(is_later, b.constant(self.beta, x.dtype), b.constant(1, x.dtype))
        v = b.Add(b.Multiply(rest[0], self.alpha), b.Multiply(beta, g))
        way = v if self.mode == "standard" else b.Add(g, b.Multiply(v, self.alpha))
        return b.Subtract(x, b.Multiply(rate, way)), v


class Adagrad(
    _Step,
    sig=_Step.sig,
    onnx=f"{_DOMAIN}:Adagrad-1({_RATE}; decay_factor=0.0, epsilon=9.999999974752427e-07, norm_coefficient=0.0)",
):
    """Of each tensor x, its gradient g and the sum h of squares before: ``g' = g + norm_coefficient * x``, ``h' = h + g' * g'``,
    ``x' = x - rate / (1 + count * decay_factor) * g' / (sqrt(h') + epsilon)``. All tensors come first, then all gradients, then
    all sums. Source: ai.onnx.preview.training Adagrad 1.
    """

    decay_factor: float = 0.0
    epsilon: float = 9.999999974752427e-07

    def step(self, b: Any, rate: Any, count: Any, x: Any, g: Any, *rest: Any) -> tuple[Any, ...]:
        if self.decay_factor:
            rate = b.Divide(rate, b.Add(b.Multiply(b.Cast(count, to=x.dtype), self.decay_factor), 1.0))
        h = b.Add(rest[0], b.Multiply(g, g))
        return b.Subtract(x, b.Divide(b.Multiply(rate, g), b.Add(b.Sqrt(h), self.epsilon))), h


class Adam(
    _Step,
    sig=_Step.sig,
    onnx=f"{_DOMAIN}:Adam-1({_RATE}; alpha=0.8999999761581421, beta=0.9990000128746033, epsilon=9.999999974752427e-07, "
    "norm_coefficient=0.0, norm_coefficient_post=0.0)",
):
    """Of each tensor x, its gradient g and the running means v of gradients and h of squares: ``g' = g + norm_coefficient * x``,
    ``v' = alpha * v + (1 - alpha) * g'``, ``h' = beta * h + (1 - beta) * g' * g'``, and ``x' = (1 - norm_coefficient_post) * (x -
    r * v' / (sqrt(h') + epsilon))`` with ``r = rate * sqrt(1 - beta ** count) / (1 - alpha ** count)``, or rate in step 0. All
    tensors come first, then all gradients, then all means of either kind. Source: ai.onnx.preview.training Adam 1.
    """

    kept: ClassVar[int] = 2
    alpha: float = 0.8999999761581421
    beta: float = 0.9990000128746033
    epsilon: float = 9.999999974752427e-07
    norm_coefficient_post: float = 0.0
    outputs: int = 3

    def step(self, b: Any, rate: Any, count: Any, x: Any, g: Any, *rest: Any) -> tuple[Any, ...]:
        kind = x.dtype
        v = b.Add(b.Multiply(rest[0], self.alpha), b.Multiply(g, 1 - self.alpha))
        h = b.Add(b.Multiply(rest[1], self.beta), b.Multiply(b.Multiply(g, g), 1 - self.beta))
        is_later = b.Greater(count, b.constant(0))
        # In step 0 both powers are 1, and their quotient is no number, which is not taken.
        steps = b.Cast(b.Where(is_later, count, b.constant(1)), to=kind)
        first, second = (b.Subtract(1.0, b.Power(b.constant(base, kind), steps)) for base in (self.alpha, self.beta))
        rate = b.Where(is_later, b.Divide(b.Multiply(rate, b.Sqrt(second)), first), rate)
        new = b.Subtract(x, b.Divide(b.Multiply(rate, v), b.Add(b.Sqrt(h), self.epsilon)))
        return b.Multiply(new, 1 - self.norm_coefficient_post) if self.norm_coefficient_post else new, v, h
