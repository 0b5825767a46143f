"""Normalization by mean and variance: Batch, Layer, Instance, Group, RMS and MeanVarianceNormalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op, check_inputs
from dovetail.ir.types import AxisName, Shape, Size, Tensor, Type, View, agree, agree_shapes, axes_in, axes_of, axis_in, broadcast
from dovetail.ops.casts import as_type, round_to, wide_type
from dovetail.ops.nn.conv import concat_vectors
from dovetail.ops.nn.sliding_window import spatial_sizes

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_EPSILON = "epsilon=9.999999747378752e-06"
_BATCH = f"x, scale, bias, input_mean, input_var; {_EPSILON}, momentum=0.8999999761581421"


class NormalizationOp(Op):
    """NormalizationOp is the base of normalizations whose output has the shape of the first input."""

    def shape(self, x: View, *rest: Any) -> Any:
        return x.shape


def check_parameter(shape: Shape, parameter: View | Array | None) -> None:
    """Check that a scale or bias broadcasts to ``shape`` without extending ``shape``.

    Raises RuleError [shape.broadcast].
    """
    if parameter is None or parameter.shape is None:
        return
    own = tuple(parameter.shape)
    common = broadcast(tuple(shape), own) if len(own) <= len(shape) else None
    pairs = zip(common or (), shape, strict=False)
    is_extended = any(size is not None and ours is not None and symbolic.equal(size, ours) is False for size, ours in pairs)
    if common is None or is_extended:
        raise RuleError("shape.broadcast", f"a scale or bias of shape {list(own)} must broadcast to {list(shape)}")


def is_parameter(shape: Shape | None, parameter: View | Array | None) -> bool:
    """Test whether a scale or bias is known to broadcast to ``shape`` without extending ``shape``."""
    if shape is None or parameter is None or parameter.shape is None or len(parameter.shape) > len(shape):
        return False
    common = broadcast(tuple(shape), tuple(parameter.shape))
    return common is not None and all(
        size is not None and symbolic.equal(size, ours) is True for size, ours in zip(common, shape, strict=True)
    )


def _standardize(xp: Namespace, x: Array, axes: Sequence[int], epsilon: float) -> tuple[Any, Any, Any]:
    """Return (x - mean) / sqrt(variance + epsilon) over ``axes``, the mean, and 1 / sqrt(variance + epsilon)."""
    mean = arrays.mean(xp, x, axes)
    centred = x - mean
    inverse = 1 / xp.sqrt(arrays.mean(xp, centred * centred, axes) + epsilon)
    return centred * inverse, mean, inverse


def _channels(xp: Namespace, values: Array, rank: int) -> Any:
    """Reshape a vector of one number per channel to broadcast along axis 1 of a tensor of ``rank`` (rank 1: one channel)."""
    return xp.reshape(values, (1, -1, *(1,) * (rank - 2)) if rank > 1 else (-1,))


def _channels_value(b: Builder, values: Value, rank: int) -> Any:
    return b.Reshape(values, [1, -1] + [1] * (rank - 2)) if rank > 1 else values


def check_vector(values: View, size: Size, name: str, size_name: AxisName = ("x", 1)) -> None:
    if values is None or values.shape is None:
        return
    if len(values.shape) != 1:
        raise RuleError("shape.rank", f"{name} must be a vector, got rank {len(values.shape)}")
    agree(values.shape[0], size, (name, 0), size_name)


class BatchNormalization(
    NormalizationOp,
    sig="x: F, scale: F1, bias: F1, input_mean: F2, input_var: F2 -> y: F, running_mean: F2, running_var: F2",
    onnx=(
        f"BatchNormalization-1,6({_BATCH}, is_test~{{1:false}}:training_mode, "
        f"spatial~{{1:true}}=1, consumed_inputs:_ | outputs=1)",
        f"BatchNormalization-7({_BATCH}, spatial=1 | training_mode=false, outputs=1)",
        f"BatchNormalization-9({_BATCH} | training_mode=false, outputs=1)",
        f"BatchNormalization-14,15({_BATCH}, training_mode=0)",
    ),
    openvino=(
        "BatchNormInference-1(scale, bias, x, input_mean, input_var; epsilon | training_mode=false, outputs=1)",
        "BatchNormInference-5(x, scale, bias, input_mean, input_var; epsilon | training_mode=false, outputs=1)",
    ),
):
    """Compute ``(x - mean) / sqrt(variance + epsilon) * scale + bias`` per channel (axis 1; a vector is one channel).

    With ``training_mode`` the mean and population variance of ``x`` over all axes but the channels are used. ``running_mean`` is
    then ``momentum * input_mean + (1 - momentum) * mean``, and ``running_var`` the same average of ``input_var`` and the
    variance. Without ``spatial`` the parameters have the shape of ``x`` without the first axis.
    Sources: ONNX BatchNormalization 1 and 6 (testing), 7 and 9 (one output), 14, 15; OpenVINO BatchNormInference-1, -5.
    """

    decomposes_in_f32 = True
    fixed_ports = (3, 4)

    epsilon: float = 9.999999747378752e-06
    momentum: float = 0.8999999761581421
    training_mode: bool = False
    spatial: bool = True
    outputs: int = 1

    def validate(self) -> None:
        if not 1 <= self.outputs <= (3 if self.training_mode else 1):
            raise RuleError("node.outputs", f"number of outputs must be 1, or up to 3 with training_mode, got {self.outputs}")
        if self.training_mode and not self.spatial:
            raise UnsupportedError("op.unsupported", "training_mode needs spatial true, got false")

    def shape(self, x: View, *parameters: View) -> Any:
        if x.shape is None:
            return [None] * self.outputs
        if not x.shape:
            raise RuleError("shape.rank", "rank must be at least 1, got 0")
        channels = x.shape[1] if len(x.shape) > 1 else 1
        for values, name in zip(parameters, ("scale", "bias", "mean", "variance"), strict=True):
            if self.spatial:
                check_vector(values, channels, name)
            elif values.shape is not None:
                if len(values.shape) != len(x.shape) - 1:
                    raise RuleError("shape.rank", f"{name} must have rank {len(x.shape) - 1}, got {len(values.shape)}")
                agree_shapes(values.shape, x.shape[1:], name, ("x", 1))
        return [x.shape, (channels,), (channels,)][: self.outputs]

    def evaluate(self, xp: Namespace, x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> Any:
        wide = arrays.widen(xp, x)
        axes = tuple(axis for axis in range(x.ndim) if axis != 1 or x.ndim == 1)
        old = [arrays.cast(xp, values, arrays.element(wide)) for values in (mean, variance)]
        used = old
        if self.training_mode:
            batch_mean = arrays.mean(xp, wide, axes)
            batch_variance = arrays.mean(xp, (wide - batch_mean) ** 2, axes)
            used = [xp.reshape(values, (-1,)) for values in (batch_mean, batch_variance)]
        factor = arrays.cast(xp, scale, arrays.element(wide)) / xp.sqrt(used[1] + self.epsilon)
        offset = arrays.cast(xp, bias, arrays.element(wide))
        centre, factor, offset = (self._reshape_parameter(xp, values, x.ndim) for values in (used[0], factor, offset))
        # Runtimes multiply before they subtract, with the larger rounding error.
        scaled = wide * factor - centre * factor if arrays.is_rounding(xp) else (wide - centre) * factor
        y = round_to(xp, scaled + offset, arrays.element(x))
        running = [now * (1 - self.momentum) + before * self.momentum for now, before in zip(used, old, strict=True)]
        return (y, *(round_to(xp, values, arrays.element(mean)) for values in running))[: self.outputs]

    def _reshape_parameter(self, xp: Namespace, values: Array, rank: int) -> Any:
        return _channels(xp, values, rank) if self.spatial else values

    def canonical(self, x: View, *parameters: View) -> Op:
        """Reset ``momentum``, which inference does not use."""
        return self if self.training_mode else self.with_(momentum=0.8999999761581421)

    def decompose(self, b: Builder, x: Value, scale: Value, bias: Value, mean: Value, variance: Value) -> Any:
        rank, kind = len(x.dims), wide_type(x.dtype)
        wide = as_type(b, x, kind)
        old = [as_type(b, values, kind) for values in (mean, variance)]
        used = old
        if self.training_mode:
            axes = [axis for axis in range(rank) if axis != 1 or rank == 1]
            batch_mean = b.ReduceMean(wide, axes, keepdims=True)
            centred = b.Subtract(wide, batch_mean)
            batch_variance = b.ReduceMean(b.Multiply(centred, centred), axes, keepdims=True)
            used = [b.Reshape(values, [-1]) for values in (batch_mean, batch_variance)]
        factor = b.Divide(as_type(b, scale, kind), b.Sqrt(b.Add(used[1], self.epsilon)))
        channels = [
            _channels_value(b, values, rank) if self.spatial else values for values in (used[0], factor, as_type(b, bias, kind))
        ]
        y = as_type(b, b.Add(b.Multiply(b.Subtract(wide, channels[0]), channels[1]), channels[2]), x.dtype)
        running = [
            as_type(b, b.Add(b.Multiply(now, 1 - self.momentum), b.Multiply(before, self.momentum)), mean.dtype)
            for now, before in zip(used, old, strict=True)
        ]
        return [y, *running][: self.outputs]


class MeanVarianceNormalization(
    NormalizationOp,
    sig="x: F, axes!: I -> y: F",
    onnx="MeanVarianceNormalization-9,13(x; axes=[0,2,3] | normalize_variance=true, eps=1e-9/9.999999717180685e-10, "
    "eps_mode=outside_sqrt)",
    openvino="MVN-6(x, axes; normalize_variance, eps, "
    "eps_mode~{INSIDE_SQRT:inside_sqrt,OUTSIDE_SQRT:outside_sqrt,inside_sqrt:inside_sqrt,outside_sqrt:outside_sqrt})",
):
    """Subtract the mean over ``axes``, and with ``normalize_variance`` divide by the standard deviation.

    ``eps_mode``: ``inside_sqrt`` divides by sqrt(variance + eps), ``outside_sqrt`` by sqrt(variance) + eps. Sources: ONNX
    MeanVarianceNormalization 9, 13 (epsilon 1e-9, as in its function body); OpenVINO MVN-1, -6.
    """

    decomposes_in_f32 = True

    normalize_variance: bool = True
    eps: float = 1e-9
    eps_mode: str = "inside_sqrt"

    def validate(self) -> None:
        if self.eps_mode not in ("inside_sqrt", "outside_sqrt"):
            raise RuleError("attribute.value", f"eps_mode must be inside_sqrt or outside_sqrt, got {self.eps_mode!r}")

    def shape(self, x: View, axes: View) -> Any:
        if x.shape is not None and axes.value is not None:
            axes_in(axes_of(axes.value), len(x.shape))
        return x.shape

    def evaluate(self, xp: Namespace, x: Array, axes: Array) -> Any:
        indices = axes_in(axes_of(axes), x.ndim)
        wide = arrays.widen(xp, x)
        y = wide - arrays.mean(xp, wide, indices)
        if self.normalize_variance:
            variance = arrays.mean(xp, y * y, indices)
            inside = self.eps_mode == "inside_sqrt"
            y = y / (xp.sqrt(variance + self.eps) if inside else xp.sqrt(variance) + self.eps)
        return round_to(xp, y, arrays.element(x))

    def decompose(self, b: Builder, x: Value, axes: Value) -> Any:
        kind = wide_type(x.dtype)
        wide = as_type(b, x, kind)
        y = b.Subtract(wide, b.ReduceMean(wide, axes, keepdims=True, noop_with_empty_axes=True))
        if self.normalize_variance:
            variance = b.ReduceMean(b.Multiply(y, y), axes, keepdims=True, noop_with_empty_axes=True)
            inside = self.eps_mode == "inside_sqrt"
            y = b.Divide(y, b.Sqrt(b.Add(variance, self.eps)) if inside else b.Add(b.Sqrt(variance), self.eps))
        return as_type(b, y, x.dtype)


def standardize(b: Builder, x: Value, axes: Sequence[int], epsilon: float) -> Any:
    """Normalize ``x`` to mean 0 and variance 1 over ``axes``."""
    return b.MeanVarianceNormalization(x, list(axes), eps=epsilon)


class LayerNormalization(
    Op,
    sig="x: F, scale: F, bias?: F -> y: F, mean: F1, inv_std_dev: F1",
    onnx=f"LayerNormalization-17(x, scale, bias?; axis=-1, {_EPSILON}, stash_type=f32)",
):
    """Compute ``(x - mean) / sqrt(variance + epsilon) * scale + bias``, with statistics over the axes from ``axis`` on.

    The outputs ``mean`` and ``inv_std_dev`` = 1 / sqrt(variance + epsilon) have the type ``stash_type``; the axes from ``axis``
    on have size 1. Statistics are computed in the widest of f32, ``stash_type`` and the type of ``x``. ``scale`` and ``bias``
    broadcast to ``x``. Source: ONNX LayerNormalization 17.
    """

    axis: int = -1
    epsilon: float = 9.999999747378752e-06
    stash_type: DType = dtypes.f32
    outputs: int = 1

    def types(self, x: View, scale: View, bias: View | None = None) -> list[Type]:
        bound = check_inputs(self, (x, scale, bias))
        shape = x.shape
        statistics_shape: Any = None
        if shape is not None:
            axis = axis_in(self.axis, len(shape))
            statistics_shape = (*shape[:axis], *(1,) * (len(shape) - axis))
            for values in (scale, bias):
                check_parameter(shape, values)
        types: list[Type] = [
            Tensor(bound.get("F"), shape),
            Tensor(self.stash_type, statistics_shape),
            Tensor(self.stash_type, statistics_shape),
        ]
        return types[: self.outputs]

    def evaluate(self, xp: Namespace, x: Array, scale: Array, bias: Array | None = None) -> Any:
        for values in (scale, bias):
            check_parameter(x.shape, values)
        kind = arrays.element(x)
        work = arrays.cast(xp, x, wide_type(kind, self.stash_type))
        axes = range(axis_in(self.axis, x.ndim), x.ndim)
        y, mean, inverse = _standardize(xp, work, axes, self.epsilon)
        y = arrays.cast(xp, y, wide_type(kind)) * arrays.widen(xp, scale)
        if bias is not None:
            y = y + arrays.widen(xp, bias)
        statistics = (arrays.cast(xp, values, self.stash_type) for values in (mean, inverse))
        return (round_to(xp, y, kind), *statistics)[: self.outputs]

    def decompose(self, b: Builder, x: Value, scale: Value, bias: Value | None = None) -> Any:
        rank = len(x.dims)
        axes = list(range(axis_in(self.axis, rank), rank))
        work = as_type(b, x, wide_type(x.dtype, self.stash_type))
        statistics = []
        if self.outputs > 1:
            mean = b.ReduceMean(work, axes, keepdims=True)
            centred = b.Subtract(work, mean)
            inverse = b.Divide(1.0, b.Sqrt(b.Add(b.ReduceMean(b.Multiply(centred, centred), axes, keepdims=True), self.epsilon)))
            y = b.Multiply(centred, inverse)
            statistics = [as_type(b, values, self.stash_type) for values in (mean, inverse)]
        else:
            y = standardize(b, work, axes, self.epsilon)
        kind = wide_type(x.dtype)
        y = b.Multiply(as_type(b, y, kind), as_type(b, scale, kind))
        if bias is not None:
            y = b.Add(y, as_type(b, bias, kind))
        return [as_type(b, y, x.dtype), *statistics][: self.outputs]


class RMSNormalization(
    NormalizationOp,
    sig="x: F, scale: F1 -> y: F1",
    onnx="RMSNormalization-23(x, scale; axis=-1, epsilon=9.999999747378752e-06, stash_type=f32)",
):
    """Compute ``x / sqrt(mean(x ** 2) + epsilon) * scale``, with the mean over the axes from ``axis`` on, in ``stash_type``.

    ``scale`` broadcasts to ``x``, and the result has the element type of ``scale``. Source: ONNX RMSNormalization 23.
    """

    decomposes_in_f32 = True

    axis: int = -1
    epsilon: float = 9.999999747378752e-06
    stash_type: DType = dtypes.f32

    def shape(self, x: View, scale: View) -> Any:
        if x.shape is not None:
            axis_in(self.axis, len(x.shape))
            check_parameter(x.shape, scale)
        return x.shape

    def evaluate(self, xp: Namespace, x: Array, scale: Array) -> Any:
        check_parameter(x.shape, scale)
        work = arrays.cast(xp, x, wide_type(arrays.element(x), self.stash_type))
        axes = tuple(range(axis_in(self.axis, x.ndim), x.ndim))
        y = work / xp.sqrt(arrays.mean(xp, work * work, axes) + self.epsilon)
        kind = arrays.element(scale)
        return round_to(xp, arrays.cast(xp, y, wide_type(kind)) * arrays.widen(xp, scale), kind)

    def decompose(self, b: Builder, x: Value, scale: Value) -> Any:
        rank, kind = len(x.dims), wide_type(scale.dtype)
        axes = list(range(axis_in(self.axis, rank), rank))
        work = as_type(b, x, wide_type(x.dtype, self.stash_type))
        y = b.Divide(work, b.Sqrt(b.Add(b.ReduceMean(b.Multiply(work, work), axes, keepdims=True), self.epsilon)))
        return as_type(b, b.Multiply(as_type(b, y, kind), as_type(b, scale, kind)), scale.dtype)


class InstanceNormalization(
    NormalizationOp,
    sig="x: F, scale: F, bias: F -> y: F",
    onnx=(
        f"InstanceNormalization-1(x, scale, bias; {_EPSILON}, consumed_inputs:_)",
        f"InstanceNormalization-6,22(x, scale, bias; {_EPSILON})",
    ),
):
    """Compute ``(x - mean) / sqrt(variance + epsilon) * scale + bias``, with statistics over the spatial axes.

    ``x`` is [N, C, *sizes], ``scale`` and ``bias`` [C]. Source: ONNX InstanceNormalization 1, 6, 22.
    """

    decomposes_in_f32 = True

    epsilon: float = 9.999999747378752e-06

    def shape(self, x: View, scale: View, bias: View) -> Any:
        if x.shape is not None:
            spatial_sizes(x.shape)
            check_vector(scale, x.shape[1], "scale")
            check_vector(bias, x.shape[1], "bias")
        return x.shape

    def evaluate(self, xp: Namespace, x: Array, scale: Array, bias: Array) -> Any:
        y, _, _ = _standardize(xp, arrays.widen(xp, x), range(2, x.ndim), self.epsilon)
        scale, bias = (_channels(xp, arrays.widen(xp, values), x.ndim) for values in (scale, bias))
        return round_to(xp, y * scale + bias, arrays.element(x))

    def decompose(self, b: Builder, x: Value, scale: Value, bias: Value) -> Any:
        rank, kind = len(x.dims), wide_type(x.dtype)
        y = standardize(b, as_type(b, x, kind), range(2, rank), self.epsilon)
        scale, bias = (_channels_value(b, as_type(b, values, kind), rank) for values in (scale, bias))
        return as_type(b, b.Add(b.Multiply(y, scale), bias), x.dtype)


class GroupNormalization(
    NormalizationOp,
    sig="x: F, scale: F, bias: F -> y: F",
    onnx=(
        f"GroupNormalization-18(x, scale, bias; num_groups, {_EPSILON} | per_group=true)",
        f"GroupNormalization-21(x, scale, bias; num_groups, {_EPSILON}, stash_type=f32)",
    ),
    openvino="GroupNormalization-12(x, scale, bias; num_groups, epsilon | stash_type=none/f32/f64)",
):
    """Compute ``(x - mean) / sqrt(variance + epsilon) * scale + bias``, with statistics of each of ``num_groups`` channel groups.

    ``x`` is [N, C, *sizes]; ``scale`` and ``bias`` are [C], or with ``per_group`` [num_groups]. The statistics are computed in
    ``stash_type``, by default in the type of ``x``, at least f32. Sources: ONNX GroupNormalization 18 (per group), 21; OpenVINO
    GroupNormalization-12.
    """

    decomposes_in_f32 = True

    num_groups: int = 1
    epsilon: float = 9.999999747378752e-06
    per_group: bool = False
    stash_type: DType | None = None

    def validate(self) -> None:
        if self.num_groups < 1:
            raise RuleError("attribute.range", f"num_groups must be at least 1, got {self.num_groups}")

    def shape(self, x: View, scale: View, bias: View) -> Any:
        if x.shape is None:
            return None
        if len(x.shape) < 2:
            raise RuleError("shape.rank", f"rank must be at least 2 (batch, channels), got {len(x.shape)}")
        channels = x.shape[1]
        if symbolic.equal(channels % self.num_groups, 0) is False:
            raise RuleError("shape.multiple", f"channels ({channels}) must be a multiple of num_groups ({self.num_groups})")
        for values, name in ((scale, "scale"), (bias, "bias")):
            check_vector(
                values, self.num_groups if self.per_group else channels, name, "num_groups" if self.per_group else ("x", 1)
            )
        return x.shape

    def evaluate(self, xp: Namespace, x: Array, scale: Array, bias: Array) -> Any:
        kind = arrays.element(x)
        split = (x.shape[0], self.num_groups, x.shape[1] // self.num_groups, *x.shape[2:])
        work = xp.reshape(arrays.cast(xp, x, wide_type(kind, self.stash_type or kind)), split)
        y, _, _ = _standardize(xp, work, range(2, len(split)), self.epsilon)
        y = arrays.cast(xp, y, wide_type(kind))
        parameter_shape = (1, self.num_groups, 1 if self.per_group else split[2], *(1,) * (x.ndim - 2))
        scale, bias = (xp.reshape(arrays.widen(xp, values), parameter_shape) for values in (scale, bias))
        return round_to(xp, xp.reshape(y * scale + bias, x.shape), kind)

    def canonical(self, x: View, scale: View, bias: View) -> Op:
        return self.with_(stash_type=self.stash_type or wide_type(x.dtype))

    def decompose(self, b: Builder, x: Value, scale: Value, bias: Value) -> Any:
        rank, kind = len(x.dims), wide_type(x.dtype)
        if self.per_group:
            repeated = [_repeat_per_channel(b, values, x, self.num_groups) for values in (scale, bias)]
            return b.add(self.with_(per_group=False), x, *repeated)[0]
        shape = shape_value(b, x)
        # The group size is computed because -1 in the Reshape would be ambiguous for an empty tensor.
        channels: Any = x.dims[1]
        group_size = (
            [channels // self.num_groups] if isinstance(channels, int) else b.Divide(shape_value(b, x, [1]), [self.num_groups])
        )
        split = concat_vectors(b, shape_value(b, x, [0]), [self.num_groups], group_size, shape_value(b, x, range(2, rank)))
        work = b.Reshape(as_type(b, x, wide_type(kind, self.stash_type or kind)), split, special_zero=False)
        y = b.Reshape(standardize(b, work, range(2, rank + 1), self.epsilon), shape, special_zero=False)
        scale, bias = (_channels_value(b, as_type(b, values, kind), rank) for values in (scale, bias))
        return as_type(b, b.Add(b.Multiply(as_type(b, y, kind), scale), bias), x.dtype)


def _repeat_per_channel(b: Builder, values: Value, x: Value, groups: int) -> Any:
    """Repeat a vector of one number per group to one number per channel."""
    channels = shape_value(b, x, [1])
    group_size = [channels[0] // groups] if isinstance(channels, list) else b.Divide(channels, [groups])
    return b.Reshape(b.Expand(b.Unsqueeze(values, [1]), concat_vectors(b, [groups], group_size)), [-1])
