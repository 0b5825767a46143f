"""Random generators, Bernoulli and Multinomial. A graph is pure: the seeds and the shape determine the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.dtypes import DType
from dovetail.ir.op import REGISTRY, Op, check_inputs
from dovetail.ir.types import Tensor, Type, View
from dovetail.ops.casts import as_type
from dovetail.ops.shape_values import elements_of, is_size, join_sizes, length_of_vector

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class _Random(Op):
    """_Random is the base of random operators. ``seed`` and ``op_seed`` determine the numbers, which differ between runtimes."""

    seed: float = 0.0
    op_seed: int = 0

    def is_random(self, *xs: View) -> bool:
        return True

    def value(self, *xs: View) -> Any:
        raise symbolic.Inexact("a random number")

    def seeds(self) -> dict[str, Any]:
        return {"seed": self.seed, "op_seed": self.op_seed}

    def draw(self, shape: Sequence[int]) -> Any:
        """Generate f64 numbers in [0, 1) with PCG64, numpy's default generator."""
        return np.random.default_rng(self.state()).random(tuple(shape))

    def state(self) -> list[int]:
        """Return the seeds as integers for numpy's SeedSequence."""
        return [int(np.float64(self.seed).view(np.uint64)), self.op_seed % 2**64]


def _read_shape(shape: View) -> Any:
    """Return the shape that a shape input holds; None for each size that is unknown or may be negative."""
    count = length_of_vector(shape, "a shape")
    sizes = elements_of(shape)
    if sizes is None:
        return (None,) * count if isinstance(count, int) else None
    if any(isinstance(size, int) and size < 0 for size in sizes):
        raise RuleError("shape.range", f"sizes must not be negative, got {sizes}")
    return tuple(size if is_size(size) else None for size in sizes)


def _check_bounds(*bounds: View) -> None:
    for x in bounds:
        if x.shape is not None and any(symbolic.equal(size, 1) is False for size in x.shape):
            raise RuleError("shape.single", f"bounds must be scalars, got shape {list(x.shape)}")


def _as_scalar(b: Builder, x: Value) -> Any:
    """Reshape a bound to a scalar."""
    return x if x.shape == () else b.Reshape(x, [])


def _sum_to(b: Builder, gradient: Value, x: Value) -> Any:
    """Sum all elements of a gradient into the shape of ``x``, which has one element."""
    total = b.ReduceSum(b.Reshape(gradient, [-1]), [0], keepdims=False)
    return b.Reshape(total, shape_value(b, x))


class RandomUniform(_Random, sig="shape!: I, low: R, high: R -> y: R"):
    """Generate numbers, uniformly distributed in [``low``, ``high``), in a tensor of shape ``shape``.

    A number is ``low + u * (high - low)`` with u in [0, 1); integers are rounded down. Sources: ONNX RandomUniform 1, 22;
    OpenVINO RandomUniform-8.
    """

    rounds_half_once = False

    def shape(self, shape: View, low: View, high: View) -> Any:
        _check_bounds(low, high)
        return _read_shape(shape)

    def evaluate(self, xp: Namespace, shape: Array, low: Array, high: Array) -> Any:
        kind = arrays.element(low)
        first, last = (arrays.to_numpy(x).reshape(()).astype(np.float64) for x in (low, high))
        y = first + self.draw(np.asarray(shape).tolist()) * (last - first)
        numbers = (np.floor(y) if kind.is_integer else y).astype(kind.numpy)
        # Rounding to the element type can reach `high`, which is excluded: such numbers become `low`.
        limit = last.astype(kind.numpy)
        return arrays.from_numpy(xp, np.where((numbers >= limit) & (first < last), first.astype(kind.numpy), numbers), low)

    def vjp(self, b: Builder, g: Value, y: Value, shape: Value, low: Value, high: Value) -> Any:
        if not low.dtype.is_float:
            return [None, None, None]
        share = b.add(self, shape, b.constant(0, low.dtype), b.constant(1, low.dtype))[0]
        upper = b.Multiply(g, share)
        return [None, _sum_to(b, b.Subtract(g, upper), low), _sum_to(b, upper, high)]

    def decompose(self, b: Builder, shape: Value, low: Value, high: Value) -> Any:
        """Generate f64 numbers in [0, 1) and scale them; return None for constant float bounds."""
        bounds = [low.constant, high.constant]
        if low.dtype.is_float and all(x is not None for x in bounds):
            return None
        first, last = (as_type(b, _as_scalar(b, x), dtypes.f64) for x in (low, high))
        share = b.add(self, shape, b.constant(0, dtypes.f64), b.constant(1, dtypes.f64))[0]
        y = b.Add(first, b.Multiply(share, b.Subtract(last, first)))
        return as_type(b, b.Floor(y) if low.dtype.is_integer else y, low.dtype)


class RandomNormal(_Random, sig="shape!: I, mean: F, scale: F -> y: F"):
    """Generate normally distributed numbers with ``mean`` and standard deviation ``scale``, in a tensor of shape ``shape``.

    Source: ONNX RandomNormal 1, 22.
    """

    def shape(self, shape: View, mean: View, deviation: View) -> Any:
        _check_bounds(mean, deviation)
        return _read_shape(shape)

    def decompose(self, b: Builder, shape: Value, mean: Value, deviation: Value) -> Any:
        """Apply the Box-Muller transform: sqrt(-2 log(1 - u)) * cos(2 pi v)."""
        wide = dtypes.f64 if mean.dtype == "f64" else dtypes.f32
        zero, one = b.constant(0, wide), b.constant(1, wide)
        first, second = (
            b.apply("RandomUniform", shape, zero, one, seed=self.seed, op_seed=self.op_seed + step) for step in (0, 1)
        )
        length = b.Sqrt(b.Multiply(b.Log(b.Subtract(one, first)), b.constant(-2, wide)))
        normal = b.Multiply(length, b.Cos(b.Multiply(second, b.constant(2 * np.pi, wide))))
        mean, deviation = (_as_scalar(b, x) for x in (mean, deviation))
        return b.Add(b.Multiply(as_type(b, normal, mean.dtype), deviation), mean)


class _Like(_Random, sig="x: T, first: R, last: R -> y: R"):
    """_Like is the base of RandomUniformLike and RandomNormalLike, which take the shape from ``x`` instead of ``shape``."""

    def shape(self, x: View, first: View, last: View) -> Any:
        _check_bounds(first, last)
        return x.shape

    def with_shape_input(self) -> Op:
        """Return the operator with the same seeds that takes a shape instead of ``x``."""
        return REGISTRY[type(self).__name__.removesuffix("Like")](**self.seeds())

    def decompose(self, b: Builder, x: Value, first: Value, last: Value) -> Any:
        return b.add(self.with_shape_input(), shape_value(b, x), first, last)[0]


class RandomUniformLike(_Like):
    """Generate numbers with the shape of ``x``, distributed as in RandomUniform. Source: ONNX RandomUniformLike 1, 22."""


class RandomNormalLike(_Like):
    """Generate numbers with the shape of ``x``, distributed as in RandomNormal. Source: ONNX RandomNormalLike 1, 22."""


class Bernoulli(_Random, sig="x: F -> y: T"):
    """Draw 0 or 1 for each element of ``x``, which is the probability of 1.

    The element type is ``dtype``, by default that of ``x``. Source: ONNX Bernoulli 15, 22.
    """

    dtype: DType | None = None

    def types(self, x: View) -> list[Type]:
        check_inputs(self, (x,))
        return [Tensor(self.dtype or getattr(x.type, "dtype", None), x.shape)]

    def decompose(self, b: Builder, x: Value) -> Any:
        kind = dtypes.f64 if x.dtype == "f64" else dtypes.f32
        share = b.apply("RandomUniform", shape_value(b, x), b.constant(0, kind), b.constant(1, kind), **self.seeds())
        return as_type(b, b.Less(share, as_type(b, x, kind)), self.dtype or x.dtype)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        """Return no gradient: Bernoulli is a step function of ``x``."""
        return [None]


class Multinomial(_Random, sig="x: F -> y: I"):
    """Draw ``sample_size`` class indices for each row of ``x`` [rows, classes] with probabilities softmax(x).

    The result is [rows, sample_size]. Source: ONNX Multinomial 7, 22.
    """

    sample_size: int = 1
    dtype: DType = dtypes.i32

    def validate(self) -> None:
        if self.sample_size < 1:
            raise RuleError("attribute.range", f"sample_size must be at least 1, got {self.sample_size}")
        if self.dtype not in ("i32", "i64"):
            raise RuleError("attribute.value", f"dtype must be i32 or i64, got {self.dtype}")

    def types(self, x: View) -> list[Type]:
        check_inputs(self, (x,))
        if x.shape is not None and len(x.shape) != 2:
            raise RuleError("shape.rank", f"rank must be 2, got {len(x.shape)}")
        return [Tensor(self.dtype, (None if x.shape is None else x.shape[0], self.sample_size))]  # type: ignore[arg-type]

    def decompose(self, b: Builder, x: Value) -> Any:
        """Apply the Gumbel-max trick: the argmax of the row plus Gumbel noise."""
        kind = dtypes.f64 if x.dtype == "f64" else dtypes.f32
        shape = join_sizes(b, [shape_value(b, x, [0]), [self.sample_size], shape_value(b, x, [1])])
        share = b.apply("RandomUniform", shape, b.constant(0, kind), b.constant(1, kind), **self.seeds())
        exponential = b.Negative(b.Log(b.Subtract(b.constant(1, kind), share)))
        total = b.Subtract(b.Unsqueeze(as_type(b, x, kind), [1]), b.Log(exponential))
        return as_type(b, b.ArgMax(total, axis=2, keepdims=False), self.dtype)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [None]
