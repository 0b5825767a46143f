"""Normalisation: by the mean and variance of some axes, by neighbours, by a norm, by the sum of exponentials; and Dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail import arrays, dims, dtypes
from dovetail.build import shape_value
from dovetail.dtypes import DType
from dovetail.errors import EngineError, RuleError, UnsupportedError
from dovetail.op import Op, check_inputs
from dovetail.ops.conv import joined
from dovetail.ops.pool import AveragePool
from dovetail.ops.sliding import halves, spatial
from dovetail.types import Tensor, Type, agree, axes_in, axis_in, broadcast

_EPSILON = "epsilon=9.999999747378752e-06"
_BATCH = f"x, scale, bias, mean, variance; {_EPSILON}, momentum=0.8999999761581421"


class _Normalization(Op):
    """The shape of the result is that of ``x``."""

    def shape(self, x: Any, *rest: Any) -> Any:
        return x.shape


def _rounded(xp: Any, y: Any, kind: DType) -> Any:
    return y if arrays.element(y) is kind else arrays.cast(xp, y, kind, saturate=False)


def _standardized(xp: Any, x: Any, axes: Sequence[int], epsilon: float) -> tuple[Any, Any, Any]:
    """``x`` less its mean, times the inverse of its deviation over ``axes``; the mean; the inverse."""
    mean = xp.mean(x, axis=tuple(axes), keepdims=True)
    centred = x - mean
    inverse = 1 / xp.sqrt(xp.mean(centred * centred, axis=tuple(axes), keepdims=True) + epsilon)
    return centred * inverse, mean, inverse


def _channels(xp: Any, values: Any, rank: int) -> Any:
    """A vector, one number a channel, against a tensor of ``rank`` whose channels are axis 1 (a vector has one channel)."""
    return xp.reshape(values, (1, -1, *(1,) * (rank - 2)) if rank > 1 else (-1,))


def _channels_value(b: Any, values: Any, rank: int) -> Any:
    return b.Reshape(values, [1, -1] + [1] * (rank - 2)) if rank > 1 else values


def _as(b: Any, x: Any, dtype: DType) -> Any:
    return x if x.dtype is dtype else b.Cast(x, to=dtype)


def _wide(*kinds: DType) -> DType:
    """The type in which statistics of these are computed: f64 where one is f64, otherwise f32."""
    return dtypes.f64 if any(kind == "f64" for kind in kinds) else dtypes.f32


def _check_vector(values: Any, size: Any, what: str) -> None:
    if values is None or values.shape is None:
        return
    if len(values.shape) != 1:
        raise RuleError("norm.parameters", f"the {what} should be a vector, not of rank {len(values.shape)}")
    agree(values.shape[0], size)


class BatchNormalization(
    _Normalization,
    sig="x: F, scale: F1, bias: F1, mean: F2, variance: F2 -> y: F, running_mean: F2, running_variance: F2",
    onnx=(
        f"BatchNormalization-1,6({_BATCH}, is_test~{{1:false}}:training, spatial~{{1:true}}=1, consumed_inputs:_? | outputs=1)",
        f"BatchNormalization-7({_BATCH}, spatial=1 | training=false, outputs=1)",
        f"BatchNormalization-9({_BATCH} | training=false, outputs=1)",
        f"BatchNormalization-14,15({_BATCH}, training_mode:training=0)",
    ),
    openvino=(
        "BatchNormInference-1(scale, bias, x, mean, variance; epsilon | training=false, outputs=1)",
        "BatchNormInference-5(x, scale, bias, mean, variance; epsilon | training=false, outputs=1)",
    ),
):
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias``, channel by channel (axis 1; a vector is one channel).

    With ``training`` the mean and (population) variance are those of ``x`` over all other axes, and the further outputs are
    ``momentum * mean + (1 - momentum) * mean of x`` and the same of the variance. Without ``spatial`` the parameters have the
    shape of ``x`` less its first axis. Sources: ONNX BatchNormalization 1 and 6 (testing), 7 and 9 (one output), 14, 15; OpenVINO
    BatchNormInference-1, -5.
    """

    epsilon: float = 9.999999747378752e-06
    momentum: float = 0.8999999761581421
    training: bool = False
    spatial: bool = True
    outputs: int = 1

    def validate(self) -> None:
        if not 1 <= self.outputs <= (3 if self.training else 1):
            raise RuleError("node.outputs", f"{self.outputs} outputs, with training={self.training}")
        if self.training and not self.spatial:
            raise UnsupportedError("norm.training", "training with statistics for each place")

    def shape(self, x: Any, *parameters: Any) -> Any:
        if x.shape is None:
            return [None] * self.outputs
        if not x.shape:
            raise RuleError("norm.rank", "a scalar has no channels")
        channels = x.shape[1] if len(x.shape) > 1 else 1
        for values, what in zip(parameters, ("scale", "bias", "mean", "variance"), strict=True):
            if self.spatial:
                _check_vector(values, channels, what)
            elif values.shape is not None:
                if len(values.shape) != len(x.shape) - 1:
                    raise RuleError(
                        "norm.parameters", f"the {what} should have the rank {len(x.shape) - 1}, not {len(values.shape)}"
                    )
                tuple(map(agree, values.shape, x.shape[1:]))
        return [x.shape, (channels,), (channels,)][: self.outputs]

    def evaluate(self, xp: Any, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
        wide = arrays.widened(xp, x)
        axes = tuple(axis for axis in range(x.ndim) if axis != 1 or x.ndim == 1)
        old = [arrays.cast(xp, values, arrays.element(wide)) for values in (mean, variance)]
        used = old
        if self.training:
            middle = xp.mean(wide, axis=axes, keepdims=True)
            spread = xp.mean((wide - middle) ** 2, axis=axes, keepdims=True)
            used = [xp.reshape(values, (-1,)) for values in (middle, spread)]
        factor = arrays.cast(xp, scale, arrays.element(wide)) / xp.sqrt(used[1] + self.epsilon)
        offset = arrays.cast(xp, bias, arrays.element(wide))
        centre, factor, offset = (self._placed(xp, values, x.ndim) for values in (used[0], factor, offset))
        y = _rounded(xp, (wide - centre) * factor + offset, arrays.element(x))
        running = [now * (1 - self.momentum) + before * self.momentum for now, before in zip(used, old, strict=True)]
        return (y, *(_rounded(xp, values, arrays.element(mean)) for values in running))[: self.outputs]

    def _placed(self, xp: Any, values: Any, rank: int) -> Any:
        return _channels(xp, values, rank) if self.spatial else values

    def canonical(self, x: Any, *parameters: Any) -> Op:
        """Momentum is nothing to inference."""
        return self if self.training else self.with_(momentum=0.8999999761581421)

    def decompose(self, b: Any, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
        rank, kind = len(x.dims), _wide(x.dtype)
        wide = _as(b, x, kind)
        old = [_as(b, values, kind) for values in (mean, variance)]
        used = old
        if self.training:
            axes = [axis for axis in range(rank) if axis != 1 or rank == 1]
            middle = b.ReduceMean(wide, axes, keep_dims=True)
            centred = b.Subtract(wide, middle)
            spread = b.ReduceMean(b.Multiply(centred, centred), axes, keep_dims=True)
            used = [b.Reshape(values, [-1]) for values in (middle, spread)]
        factor = b.Divide(_as(b, scale, kind), b.Sqrt(b.Add(used[1], self.epsilon)))
        placed = [
            _channels_value(b, values, rank) if self.spatial else values for values in (used[0], factor, _as(b, bias, kind))
        ]
        y = _as(b, b.Add(b.Multiply(b.Subtract(wide, placed[0]), placed[1]), placed[2]), x.dtype)
        running = [
            _as(b, b.Add(b.Multiply(now, 1 - self.momentum), b.Multiply(before, self.momentum)), mean.dtype)
            for now, before in zip(used, old, strict=True)
        ]
        return [y, *running][: self.outputs]


class MeanVarianceNormalization(
    _Normalization,
    sig="x: F, axes!: I -> y: F",
    onnx="MeanVarianceNormalization-9,13(x; axes=[0,2,3] | normalize_variance=true, epsilon=1e-9/9.999999717180685e-10, "
    "epsilon_mode=outside_sqrt)",
    openvino="MVN-6(x, axes; normalize_variance, eps:epsilon, "
    "eps_mode~{INSIDE_SQRT:inside_sqrt,OUTSIDE_SQRT:outside_sqrt,inside_sqrt:inside_sqrt,outside_sqrt:outside_sqrt}:epsilon_mode)",
):
    """``x`` less its mean over ``axes``, divided by its deviation there with ``normalize_variance``.

    ``epsilon_mode``: ``inside_sqrt`` divides by sqrt(variance + epsilon), ``outside_sqrt`` by sqrt(variance) + epsilon.
    Sources: ONNX MeanVarianceNormalization 9, 13 (epsilon 1e-9, as its function body has it); OpenVINO MVN-1, -6.
    """

    normalize_variance: bool = True
    epsilon: float = 1e-9
    epsilon_mode: str = "inside_sqrt"

    def validate(self) -> None:
        if self.epsilon_mode not in ("inside_sqrt", "outside_sqrt"):
            raise RuleError("norm.epsilon-mode", f"{self.epsilon_mode!r} is none of inside_sqrt, outside_sqrt")

    def shape(self, x: Any, axes: Any) -> Any:
        if x.shape is not None and axes.value is not None:
            axes_in(_listed(axes.value), len(x.shape))
        return x.shape

    def evaluate(self, xp: Any, x: Any, axes: Any) -> Any:
        places = axes_in(_listed(axes), x.ndim)
        wide = arrays.widened(xp, x)
        y = wide - xp.mean(wide, axis=places, keepdims=True)
        if self.normalize_variance:
            variance = xp.mean(y * y, axis=places, keepdims=True)
            inside = self.epsilon_mode == "inside_sqrt"
            y = y / (xp.sqrt(variance + self.epsilon) if inside else xp.sqrt(variance) + self.epsilon)
        return _rounded(xp, y, arrays.element(x))

    def decompose(self, b: Any, x: Any, axes: Any) -> Any:
        kind = _wide(x.dtype)
        wide = _as(b, x, kind)
        y = b.Subtract(wide, b.ReduceMean(wide, axes, keep_dims=True, empty_is_all=False))
        if self.normalize_variance:
            variance = b.ReduceMean(b.Multiply(y, y), axes, keep_dims=True, empty_is_all=False)
            inside = self.epsilon_mode == "inside_sqrt"
            y = b.Divide(y, b.Sqrt(b.Add(variance, self.epsilon)) if inside else b.Add(b.Sqrt(variance), self.epsilon))
        return _as(b, y, x.dtype)


def _listed(axes: Any) -> list[int]:
    return [int(axis) for axis in np.atleast_1d(np.asarray(axes)).tolist()]


def standardized(b: Any, x: Any, axes: Sequence[int], epsilon: float) -> Any:
    """``x`` with mean 0 and variance 1 over ``axes``."""
    return b.MeanVarianceNormalization(x, list(axes), epsilon=epsilon)


class LayerNormalization(
    Op,
    sig="x: F, scale: F, bias?: F -> y: F, mean: F1, inverse_deviation: F1",
    onnx=f"LayerNormalization-17(x, scale, bias?; axis=-1, {_EPSILON}, stash_type:stash=f32)",
):
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` with the mean and variance of the axes from ``axis`` on.

    The outputs ``mean`` and 1 / sqrt(variance + epsilon) are of the type ``stash``; all is computed in it, in f32 and in the type
    of ``x``, whichever is the most exact, with those axes kept as 1; ``scale`` and ``bias`` broadcast to ``x``. Source: ONNX
    LayerNormalization 17.
    """

    axis: int = -1
    epsilon: float = 9.999999747378752e-06
    stash: DType = dtypes.f32
    outputs: int = 1

    def types(self, x: Any, scale: Any, bias: Any = None) -> list[Type]:
        bound = check_inputs(self, (x, scale, bias))
        shape = x.shape
        kept: Any = None
        if shape is not None:
            axis = axis_in(self.axis, len(shape))
            kept = (*shape[:axis], *(1,) * (len(shape) - axis))
            for values in (scale, bias):
                if values is not None and values.shape is not None and len(values.shape) > len(shape):
                    raise RuleError("norm.parameters", f"{values.type} does not broadcast to {x.type}")
                if values is not None:
                    broadcast(shape, values.shape)
        types: list[Type] = [Tensor(bound.get("F"), shape), Tensor(self.stash, kept), Tensor(self.stash, kept)]
        return types[: self.outputs]

    def evaluate(self, xp: Any, x: Any, scale: Any, bias: Any = None) -> Any:
        kind = arrays.element(x)
        work = arrays.cast(xp, x, _wide(kind, self.stash))
        axes = range(axis_in(self.axis, x.ndim), x.ndim)
        y, mean, inverse = _standardized(xp, work, axes, self.epsilon)
        y = arrays.cast(xp, y, _wide(kind)) * arrays.widened(xp, scale)
        if bias is not None:
            y = y + arrays.widened(xp, bias)
        statistics = (arrays.cast(xp, values, self.stash) for values in (mean, inverse))
        return (_rounded(xp, y, kind), *statistics)[: self.outputs]

    def decompose(self, b: Any, x: Any, scale: Any, bias: Any = None) -> Any:
        rank = len(x.dims)
        axes = list(range(axis_in(self.axis, rank), rank))
        work = _as(b, x, _wide(x.dtype, self.stash))
        statistics = []
        if self.outputs > 1:
            mean = b.ReduceMean(work, axes, keep_dims=True)
            centred = b.Subtract(work, mean)
            inverse = b.Divide(1.0, b.Sqrt(b.Add(b.ReduceMean(b.Multiply(centred, centred), axes, keep_dims=True), self.epsilon)))
            y = b.Multiply(centred, inverse)
            statistics = [_as(b, values, self.stash) for values in (mean, inverse)]
        else:
            y = standardized(b, work, axes, self.epsilon)
        kind = _wide(x.dtype)
        y = b.Multiply(_as(b, y, kind), _as(b, scale, kind))
        if bias is not None:
            y = b.Add(y, _as(b, bias, kind))
        return [_as(b, y, x.dtype), *statistics][: self.outputs]


class RMSNormalization(
    _Normalization,
    sig="x: F, scale: F1 -> y: F1",
    onnx="RMSNormalization-23(x, scale; axis=-1, epsilon=9.999999747378752e-06, stash_type:stash=f32)",
):
    """``x / sqrt(mean(x ** 2) + epsilon) * scale`` with the mean of the axes from ``axis`` on, computed in the type ``stash``.

    ``scale`` broadcasts to ``x``, and the result has its element type. Source: ONNX RMSNormalization 23.
    """

    axis: int = -1
    epsilon: float = 9.999999747378752e-06
    stash: DType = dtypes.f32

    def shape(self, x: Any, scale: Any) -> Any:
        if x.shape is not None:
            axis_in(self.axis, len(x.shape))
            broadcast(x.shape, scale.shape)
        return x.shape

    def evaluate(self, xp: Any, x: Any, scale: Any) -> Any:
        work = arrays.cast(xp, x, _wide(arrays.element(x), self.stash))
        axes = tuple(range(axis_in(self.axis, x.ndim), x.ndim))
        y = work / xp.sqrt(xp.mean(work * work, axis=axes, keepdims=True) + self.epsilon)
        kind = arrays.element(scale)
        return _rounded(xp, arrays.cast(xp, y, _wide(kind)) * arrays.widened(xp, scale), kind)

    def decompose(self, b: Any, x: Any, scale: Any) -> Any:
        rank, kind = len(x.dims), _wide(scale.dtype)
        axes = list(range(axis_in(self.axis, rank), rank))
        work = _as(b, x, _wide(x.dtype, self.stash))
        y = b.Divide(work, b.Sqrt(b.Add(b.ReduceMean(b.Multiply(work, work), axes, keep_dims=True), self.epsilon)))
        return _as(b, b.Multiply(_as(b, y, kind), _as(b, scale, kind)), scale.dtype)


class InstanceNormalization(
    _Normalization,
    sig="x: F, scale: F, bias: F -> y: F",
    onnx=(
        f"InstanceNormalization-1(x, scale, bias; {_EPSILON}, consumed_inputs:_?)",
        f"InstanceNormalization-6,22(x, scale, bias; {_EPSILON})",
    ),
):
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias``, the mean and variance over the spatial axes of ``x`` [N, C,
    *sizes].

    ``scale`` and ``bias``: [C]. Source: ONNX InstanceNormalization 1, 6, 22.
    """

    epsilon: float = 9.999999747378752e-06

    def shape(self, x: Any, scale: Any, bias: Any) -> Any:
        if x.shape is not None:
            spatial(x.shape)
            _check_vector(scale, x.shape[1], "scale")
            _check_vector(bias, x.shape[1], "bias")
        return x.shape

    def evaluate(self, xp: Any, x: Any, scale: Any, bias: Any) -> Any:
        y, _, _ = _standardized(xp, arrays.widened(xp, x), range(2, x.ndim), self.epsilon)
        scale, bias = (_channels(xp, arrays.widened(xp, values), x.ndim) for values in (scale, bias))
        return _rounded(xp, y * scale + bias, arrays.element(x))

    def decompose(self, b: Any, x: Any, scale: Any, bias: Any) -> Any:
        rank, kind = len(x.dims), _wide(x.dtype)
        y = standardized(b, _as(b, x, kind), range(2, rank), self.epsilon)
        scale, bias = (_channels_value(b, _as(b, values, kind), rank) for values in (scale, bias))
        return _as(b, b.Add(b.Multiply(y, scale), bias), x.dtype)


class GroupNormalization(
    _Normalization,
    sig="x: F, scale: F, bias: F -> y: F",
    onnx=(
        f"GroupNormalization-18(x, scale, bias; num_groups:groups, {_EPSILON} | per_group=true)",
        f"GroupNormalization-21(x, scale, bias; num_groups:groups, {_EPSILON}, stash_type:stash=f32)",
    ),
    openvino="GroupNormalization-12(x, scale, bias; num_groups:groups, epsilon | stash=none/f32/f64)",
):
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias``, the mean and variance over each of ``groups`` groups of channels.

    ``x`` [N, C, *sizes]; ``scale`` and ``bias`` [C], or with ``per_group`` [groups]. The statistics are computed in the type
    ``stash``, by default in that of ``x``, at least f32. Sources: ONNX GroupNormalization 18 (per group), 21; OpenVINO
    GroupNormalization-12.
    """

    groups: int = 1
    epsilon: float = 9.999999747378752e-06
    per_group: bool = False
    stash: DType | None = None

    def validate(self) -> None:
        if self.groups < 1:
            raise RuleError("norm.groups", f"{self.groups} groups")

    def shape(self, x: Any, scale: Any, bias: Any) -> Any:
        if x.shape is None:
            return None
        if len(x.shape) < 2:
            raise RuleError("norm.rank", f"a batch and channels are needed, not the rank {len(x.shape)}")
        channels = x.shape[1]
        if dims.equal(channels % self.groups, 0) is False:
            raise RuleError("norm.groups", f"{channels} channels do not divide into {self.groups} groups")
        for values, what in ((scale, "scale"), (bias, "bias")):
            _check_vector(values, self.groups if self.per_group else channels, what)
        return x.shape

    def evaluate(self, xp: Any, x: Any, scale: Any, bias: Any) -> Any:
        kind = arrays.element(x)
        split = (x.shape[0], self.groups, x.shape[1] // self.groups, *x.shape[2:])
        work = xp.reshape(arrays.cast(xp, x, _wide(kind, self.stash or kind)), split)
        y, _, _ = _standardized(xp, work, range(2, len(split)), self.epsilon)
        y = arrays.cast(xp, y, _wide(kind))
        placed = (1, self.groups, 1 if self.per_group else split[2], *(1,) * (x.ndim - 2))
        scale, bias = (xp.reshape(arrays.widened(xp, values), placed) for values in (scale, bias))
        return _rounded(xp, xp.reshape(y * scale + bias, x.shape), kind)

    def canonical(self, x: Any, scale: Any, bias: Any) -> Op:
        return self.with_(stash=self.stash or _wide(x.dtype))

    def decompose(self, b: Any, x: Any, scale: Any, bias: Any) -> Any:
        rank, kind = len(x.dims), _wide(x.dtype)
        if self.per_group:
            each = [_repeated(b, values, x, self.groups) for values in (scale, bias)]
            return b.add(self.with_(per_group=False), x, *each)[0]
        shape = shape_value(b, x)
        split = joined(b, shape_value(b, x, [0]), [self.groups, -1], shape_value(b, x, range(2, rank)))
        work = b.Reshape(_as(b, x, _wide(kind, self.stash or kind)), split, copy_zeros=False)
        y = b.Reshape(standardized(b, work, range(2, rank + 1), self.epsilon), shape, copy_zeros=False)
        scale, bias = (_channels_value(b, _as(b, values, kind), rank) for values in (scale, bias))
        return _as(b, b.Add(b.Multiply(_as(b, y, kind), scale), bias), x.dtype)


def _repeated(b: Any, values: Any, x: Any, groups: int) -> Any:
    """One number a group as one number a channel."""
    channels = shape_value(b, x, [1])
    each = [channels[0] // groups] if isinstance(channels, list) else b.Divide(channels, [groups])
    return b.Reshape(b.Expand(b.Unsqueeze(values, [1]), joined(b, [groups], each)), [-1])


class LRN(
    _Normalization,
    sig="x: F -> y: F",
    onnx="LRN-1,13(x; size, alpha=9.999999747378752e-05, beta=0.75, bias=1.0)",
    openvino="LRN-1(x, axes; alpha, beta, bias, size)",
):
    """``x / (bias + alpha / size ** n * sum(x ** 2)) ** beta``, summed over a region of ``size`` places along each of the n
    ``axes``.

    The region begins floor((size - 1) / 2) before and ends ceil((size - 1) / 2) after the element. Sources: ONNX LRN 1, 13 (the
    channels); OpenVINO LRN-1 (an odd size: of an even one its text and its implementation make different things).
    """

    size: int
    alpha: float = 9.999999747378752e-05
    beta: float = 0.75
    bias: float = 1.0
    axes: tuple[int, ...] = (1,)

    def validate(self) -> None:
        if self.size < 1:
            raise RuleError("norm.size", f"size {self.size} should be at least 1")

    def shape(self, x: Any) -> Any:
        if x.shape is not None:
            axes_in(self.axes, len(x.shape))
        return x.shape

    def evaluate(self, xp: Any, x: Any) -> Any:
        wide = arrays.widened(xp, x)
        axes = axes_in(self.axes, x.ndim)
        before, after = halves(self.size - 1, upper=True)
        count, last = len(axes), range(x.ndim - len(axes), x.ndim)
        squares = xp.moveaxis(wide * wide, axes, tuple(last)) if count else wide * wide
        ones = (1,) * count
        total = (
            arrays.pool_sum(xp, squares, (self.size,) * count, ones, (before,) * count, (after,) * count, ones)
            if count
            else squares
        )
        total = xp.moveaxis(total, tuple(last), axes) if count else total
        return _rounded(xp, wide / (self.bias + self.alpha / self.size**count * total) ** self.beta, arrays.element(x))

    def decompose(self, b: Any, x: Any) -> Any:
        """The mean of the squares by an average pool over the axes, brought to the end."""
        rank, kind = len(x.dims), _wide(x.dtype)
        wide = _as(b, x, kind)
        axes = list(axes_in(self.axes, rank))
        squares = b.Multiply(wide, wide)
        if axes:
            order = [axis for axis in range(rank) if axis not in axes] + axes
            turned = b.Transpose(squares, order)
            flat = b.Reshape(turned, joined(b, [-1, 1], shape_value(b, x, axes)), copy_zeros=False)
            before, after = halves(self.size - 1, upper=True)
            pads = (before,) * len(axes) + (after,) * len(axes)
            pool = AveragePool(pads=pads, kernel=(self.size,) * len(axes), divisor="padded")
            means = b.Reshape(b.add(pool, flat)[0], shape_value(b, turned), copy_zeros=False)
            squares = b.Transpose(means, [order.index(axis) for axis in range(rank)])
        below = b.Power(b.Add(b.Multiply(squares, self.alpha), self.bias), self.beta)
        return _as(b, b.Divide(wide, below), x.dtype)


class _Exponential(_Normalization, sig="x: F -> y: F"):
    """Over ``axis``; with ``coerce`` over it and all after it together, as if those were one."""

    axis: int = -1
    coerce: bool = False

    def shape(self, x: Any) -> Any:
        if x.shape is not None:
            axis_in(self.axis, len(x.shape))
        return x.shape

    def axes(self, rank: int) -> tuple[int, ...]:
        axis = axis_in(self.axis, rank)
        return tuple(range(axis, rank)) if self.coerce else (axis,)

    def canonical(self, x: Any) -> Op:
        """Axes of size 1 after it change nothing."""
        if x.shape is None:
            return self
        axis = axis_in(self.axis, len(x.shape))
        alone = all(isinstance(size, int) and size == 1 for size in x.shape[axis + 1 :])
        return self.with_(axis=axis, coerce=self.coerce and not alone)

    def decompose(self, b: Any, x: Any) -> Any:
        """Over the last axis, into which the others are folded or which is swapped with the axis."""
        rank = len(x.dims)
        axis = axis_in(self.axis, rank)
        last: Any = type(self)
        if self.coerce:
            flat = b.Reshape(x, [0] * axis + [-1])
            return b.Reshape(b.add(last(axis=-1), flat)[0], shape_value(b, x), copy_zeros=False)
        order = list(range(rank))
        order[axis], order[-1] = order[-1], order[axis]
        turned = x if axis == rank - 1 else b.Transpose(x, order)
        y = b.add(last(axis=rank - 1, coerce=True), turned)[0]
        return y if axis == rank - 1 else b.Transpose(y, order)


class Softmax(
    _Exponential,
    onnx=("Softmax-1(x; axis~natural=1 | coerce=true)", "Softmax-11(x; axis=1 | coerce=true)", "Softmax-13(x; axis=-1)"),
    openvino=("SoftMax-1(x; axis~natural=1)", "SoftMax-8(x; axis=1)"),
):
    """``exp(x) / sum(exp(x))`` over ``axis``; with ``coerce`` over it and all after it together.

    Sources: ONNX Softmax 1, 11 (coerced to two dimensions), 13; OpenVINO SoftMax-1, -8.
    """

    def evaluate(self, xp: Any, x: Any) -> Any:
        return arrays.softmax(xp, x, self.axes(x.ndim))

    def vjp(self, b: Any, g: Any, y: Any, x: Any) -> Any:
        weighted = b.Multiply(g, y)
        total = b.ReduceSum(weighted, list(self.axes(len(x.dims))), keep_dims=True)
        return [b.Subtract(weighted, b.Multiply(y, total))]


class LogSoftmax(
    _Exponential,
    onnx=("LogSoftmax-1(x; axis~natural=1 | coerce=true)", "LogSoftmax-11(x; axis=1 | coerce=true)", "LogSoftmax-13(x; axis=-1)"),
    openvino="LogSoftmax-5(x; axis=1)",
):
    """``log(softmax(x))`` over ``axis``; with ``coerce`` over it and all after it together.

    Sources: ONNX LogSoftmax 1, 11 (coerced to two dimensions), 13; OpenVINO LogSoftmax-5.
    """

    def evaluate(self, xp: Any, x: Any) -> Any:
        return arrays.log_softmax(xp, x, self.axes(x.ndim))

    def vjp(self, b: Any, g: Any, y: Any, x: Any) -> Any:
        total = b.ReduceSum(g, list(self.axes(len(x.dims))), keep_dims=True)
        return [b.Subtract(g, b.Multiply(b.Exp(y), total))]


class Hardmax(
    _Exponential,
    onnx=("Hardmax-1(x; axis~natural=1 | coerce=true)", "Hardmax-11(x; axis=1 | coerce=true)", "Hardmax-13(x; axis=-1)"),
):
    """1 at the first greatest element over ``axis`` and 0 elsewhere; with ``coerce`` over it and all after it together.

    Sources: ONNX Hardmax 1, 11 (coerced to two dimensions), 13.
    """

    def evaluate(self, xp: Any, x: Any) -> Any:
        axis = axis_in(self.axis, x.ndim)
        flat = xp.reshape(x, (*x.shape[:axis], -1)) if self.coerce and 0 not in x.shape else x
        if 0 in x.shape:
            return x
        wide = xp.moveaxis(arrays.widened(xp, flat), axis, -1)
        one, zero = (xp.asarray(number, dtype=x.dtype) for number in (1, 0))
        hot = arrays.one_hot(xp, xp.argmax(wide, axis=-1), wide.shape[-1], one, zero)
        return xp.reshape(xp.moveaxis(hot, -1, axis), x.shape)

    def vjp(self, b: Any, g: Any, y: Any, x: Any) -> Any:
        """A step function has no slope."""
        return [None]


class NormalizeL2(_Normalization, sig="x: F, axes!: I -> y: F", openvino="NormalizeL2-1(x, axes; eps:epsilon, eps_mode:mode)"):
    """``x / sqrt(s + epsilon)`` where s is the sum of squares over ``axes`` (none: of the element alone).

    ``mode``: ``add`` as written, ``max`` takes the greater of s and epsilon. Source: OpenVINO NormalizeL2-1.
    """

    epsilon: float
    mode: str = "add"

    def validate(self) -> None:
        if self.mode not in ("add", "max"):
            raise RuleError("norm.epsilon-mode", f"{self.mode!r} is none of add, max")

    def shape(self, x: Any, axes: Any) -> Any:
        if x.shape is not None and axes.value is not None:
            axes_in(_listed(axes.value), len(x.shape))
        return x.shape

    def evaluate(self, xp: Any, x: Any, axes: Any) -> Any:
        wide = arrays.widened(xp, x)
        places = axes_in(_listed(axes), x.ndim)
        total = xp.sum(wide * wide, axis=places, keepdims=True) if places else wide * wide
        below = total + self.epsilon if self.mode == "add" else xp.maximum(total, xp.asarray(self.epsilon, dtype=wide.dtype))
        return _rounded(xp, wide / xp.sqrt(below), arrays.element(x))

    def decompose(self, b: Any, x: Any, axes: Any) -> Any:
        kind = _wide(x.dtype)
        wide = _as(b, x, kind)
        total = b.ReduceSum(b.Multiply(wide, wide), axes, keep_dims=True, empty_is_all=False)
        below = b.Add(total, self.epsilon) if self.mode == "add" else b.Maximum(total, self.epsilon)
        return _as(b, b.Divide(wide, b.Sqrt(below)), x.dtype)


class LpNormalization(_Normalization, sig="x: F -> y: F", onnx="LpNormalization-1,22(x; axis=-1, p=2)"):
    """``x`` divided by its ``p``-norm (p is 1 or 2) over ``axis``; 0 where the norm is 0. Source: ONNX LpNormalization 1, 22."""

    axis: int = -1
    p: int = 2

    def validate(self) -> None:
        if self.p not in (1, 2):
            raise RuleError("norm.p", f"p = {self.p} should be 1 or 2")

    def shape(self, x: Any) -> Any:
        if x.shape is not None:
            axis_in(self.axis, len(x.shape))
        return x.shape

    def evaluate(self, xp: Any, x: Any) -> Any:
        wide = arrays.widened(xp, x)
        size = xp.abs(wide) if self.p == 1 else wide * wide
        total = xp.sum(size, axis=axis_in(self.axis, x.ndim), keepdims=True)
        norm = total if self.p == 1 else xp.sqrt(total)
        safe = xp.where(norm == 0, xp.ones_like(norm), norm)
        return _rounded(xp, xp.where(norm == 0, xp.zeros_like(wide), wide / safe), arrays.element(x))

    def decompose(self, b: Any, x: Any) -> Any:
        kind = _wide(x.dtype)
        wide = _as(b, x, kind)
        size = b.Abs(wide) if self.p == 1 else b.Multiply(wide, wide)
        total = b.ReduceSum(size, [axis_in(self.axis, len(x.dims))], keep_dims=True)
        # A root of 0 has no slope: 1 stands in wherever the norm is 0.
        is_zero = b.Equal(total, 0.0)
        safe = b.Where(is_zero, b.constant(1.0, kind), total)
        y = b.Divide(wide, safe if self.p == 1 else b.Sqrt(safe))
        return _as(b, b.Where(is_zero, b.constant(0.0, kind), y), x.dtype)


class Dropout(
    Op,
    sig="x: F, ratio?: F1, training?: boolean -> y: F, mask: boolean",
    onnx=(
        "Dropout-7(x; ratio:_? | mask_like=true)",
        "> Dropout-7(x | outputs=1)",
        "Dropout-10(x; ratio:_?)",
        "Dropout-12,13,22(x, ratio?, training?; seed?)",
    ),
):
    """``x`` itself; or where ``training`` is true, ``x / (1 - ratio)`` with each element dropped (0) with probability ``ratio``,
    0.5 by default.

    ``mask`` says what was kept, as booleans, or with ``mask_like`` as ones of the element type of ``x``. The draws are numpy's
    ``RandomState(seed).uniform``, as in onnx.reference; without a seed it is 0. Sources: ONNX Dropout 1, 6 (is_test), 7, 10
    (inference), 12, 13, 22.
    """

    seed: int | None = None
    mask_like: bool = False
    outputs: int = 1

    @property
    def is_random(self) -> bool:
        """Whether it may not be computed beforehand."""
        return True

    def validate(self) -> None:
        if self.outputs not in (1, 2):
            raise RuleError("node.outputs", f"{self.outputs} outputs, of 1 or 2")

    def types(self, x: Any, ratio: Any = None, training: Any = None) -> list[Type]:
        bound = check_inputs(self, (x, ratio, training))
        for scalar, what in ((ratio, "ratio"), (training, "flag for training")):
            if scalar is not None and scalar.shape is not None and any(dims.equal(size, 1) is False for size in scalar.shape):
                raise RuleError("dropout.scalar", f"the {what} should be a scalar, not {scalar.type}")
        kind = bound.get("F")
        types: list[Type] = [Tensor(kind, x.shape), Tensor(kind if self.mask_like else dtypes.boolean, x.shape)]
        return types[: self.outputs]

    def evaluate(self, xp: Any, x: Any, ratio: Any = None, training: Any = None) -> Any:
        share = 0.5 if ratio is None else float(arrays.to_numpy(ratio).reshape(()).astype(np.float64))
        kind = arrays.element(x)
        if training is None or not bool(arrays.to_numpy(training).reshape(())) or share == 0:
            kept, y = xp.ones_like(x, dtype=xp.bool if hasattr(xp, "bool") else bool), x
        else:
            if not 0 <= share < 1:
                raise EngineError("dropout.ratio", f"a ratio of {share} is not in [0, 1)")
            draws = np.random.RandomState(self.seed or 0).uniform(0, 1, tuple(x.shape))
            kept = arrays.from_numpy(xp, draws >= share, x)
            wide = arrays.widened(xp, x)
            y = _rounded(xp, xp.where(kept, wide / (1 - share), xp.zeros_like(wide)), kind)
        return (y, arrays.cast(xp, kept, kind) if self.mask_like else kept)[: self.outputs]

    def vjp(self, b: Any, g: Any, y: Any, x: Any, ratio: Any = None, training: Any = None) -> Any:
        """What was kept takes its share; the mask is drawn again from the same seed."""
        if g[0] is None or is_inference(training):
            return [g[0]]
        kept = b.add(self.with_(outputs=2, mask_like=True), x, ratio, training)[1]
        share = b.constant(0.5, x.dtype) if ratio is None else _as(b, ratio, x.dtype)
        scale = b.Where(training, b.Divide(b.constant(1.0, x.dtype), b.Subtract(1.0, share)), b.constant(1.0, x.dtype))
        return [b.Multiply(b.Multiply(g[0], kept), scale)]

    def canonical(self, x: Any, ratio: Any = None, training: Any = None) -> Op:
        return self if self.outputs == 2 else self.with_(mask_like=False)


def is_inference(training: Any) -> bool:
    """Whether nothing will be dropped, as far as is known before anything runs."""
    return training is None or (training.constant is not None and not bool(training.constant.reshape(())))
