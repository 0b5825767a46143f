"""Laws of constants per channel: factors and summands, also those of BatchNormalization, are folded into weights."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.laws.computed_weights import scale
from dovetail.laws.law import Inputs, Result, Types, is_read_once
from dovetail.ops.elementwise.binary import Add, Divide, Multiply, Subtract
from dovetail.ops.linalg.matmul import Gemm, MatMul
from dovetail.ops.nn.conv import Conv, Convolution, ConvTranspose
from dovetail.ops.nn.normalization import BatchNormalization

Array: TypeAlias = np.ndarray[Any, Any]


class Affine(NamedTuple):
    """Affine is the map y * factor + summand of each channel, in f64; an absent factor or summand is None."""

    factor: Array | None
    summand: Array | None


def batch_norm_map(op: BatchNormalization, parameters: Inputs) -> Affine | None:
    """Return the map of a BatchNormalization with constant scale, bias, mean and variance; None otherwise."""
    if op.training_mode or op.outputs != 1 or not op.spatial:
        return None
    constants = [None if x is None else x.constant for x in parameters]
    if any(array is None for array in constants):
        return None
    scale, bias, mean, variance = (np.asarray(array, np.float64) for array in constants)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + op.epsilon)
    return Affine(factor, bias - mean * factor)


def constant_by_channel(x: Value, rank: int, axis: int, channels: int) -> Array | None:
    """Return a constant that varies only along ``axis`` as one number per channel; None for any other value."""
    data = x.constant
    if data is None or data.ndim > rank:
        return None
    shape = (1,) * (rank - data.ndim) + data.shape
    if any(size != 1 for position, size in enumerate(shape) if position != axis) or shape[axis] not in (1, channels):
        return None
    return np.broadcast_to(data.reshape(-1), (channels,))


def fold_into_weights(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Fold an operator with constants per channel into the constant weights of the layer that produces its input.

    The operator is BatchNormalization with constant statistics, Add, Subtract, Multiply or Divide; the layer is Conv,
    ConvTranspose, Gemm or MatMul. The product is computed in f64 and rounded once, so that results change by rounding. Weights
    that other nodes read stay unchanged.
    """
    for index in (0, 1) if isinstance(op, Add | Multiply) else (0,):
        x = xs[index]
        layer = None if x is None else x.node
        if x is None or layer is None or not isinstance(layer.op, Convolution | Gemm | MatMul):
            continue
        if not is_read_once(b.graph, x) or x.dtype.name not in ("f32", "f64"):
            continue
        channels = _channel_count(layer)
        affine = None if channels is None else _affine_of(op, xs, index, channels, _channel_axis(layer, x))
        if affine is not None and channels is not None:
            return _merge(b, layer, affine, channels)
    return None


def _channel_count(layer: Node) -> int | None:
    """Return the number of channels of a layer with constant weights that no other node reads; None for other layers."""
    weights = layer.input(1)
    data = weights.constant
    if data is None or len(weights.uses) != 1:
        return None
    bias = layer.inputs[2] if len(layer.inputs) > 2 else None
    if bias is not None and bias.constant is None:
        return None
    op = layer.op
    if isinstance(op, Conv):
        return int(data.shape[0])
    if isinstance(op, ConvTranspose):
        return int(data.shape[1]) * op.group
    if data.ndim != 2:
        return None
    return int(data.shape[0] if op.transpose_b else data.shape[1])  # type: ignore[attr-defined]


def _channel_axis(layer: Node, x: Value) -> int:
    return 1 if isinstance(layer.op, Convolution) else len(x.dims) - 1


def _affine_of(op: Op, xs: Inputs, index: int, channels: int, axis: int) -> Affine | None:
    """Return the map that an operator applies to each channel of its input ``index``; None for other operators."""
    if isinstance(op, BatchNormalization):
        affine = batch_norm_map(op, xs[1:]) if axis == 1 else None
        return affine if affine is not None and {array.shape for array in affine if array is not None} == {(channels,)} else None
    x, other = xs[index], xs[1 - index]
    if not getattr(op, "broadcast", False) or x is None or other is None or x.shape is None:
        return None
    constant = constant_by_channel(other, len(x.shape), axis, channels)
    row = None if constant is None else constant.astype(np.float64)
    if row is None:
        return None
    match op:
        case Add():
            return Affine(None, row)
        case Subtract():
            return Affine(None, -row)
        case Multiply():
            return Affine(row, None)
        case Divide() if np.all(row != 0):
            return Affine(1 / row, None)
    return None


def _merge(b: Builder, layer: Node, affine: Affine, channels: int) -> Result:
    op, x, weights, *rest = layer.op, layer.input(0), layer.input(1), *layer.inputs[2:]
    dtype, bias = weights.dtype, rest[0] if rest else None
    if isinstance(op, MatMul) and affine.summand is not None:
        return None
    data = weights.constant
    assert data is not None
    summand = None if bias is None else _bias(op, np.asarray(bias.constant, np.float64), channels)
    if bias is not None and summand is None:
        return None
    if affine.factor is not None:
        summand = None if summand is None else summand * affine.factor
    if affine.summand is not None:
        summand = affine.summand if summand is None else summand + affine.summand
    if isinstance(op, Gemm) and summand is not None:
        # `_bias` has multiplied the bias by beta.
        op = op.with_(beta=1.0)
    with np.errstate(all="ignore"):
        new_bias = None if summand is None else summand.astype(dtype.numpy)
    if new_bias is not None and not np.all(np.isfinite(new_bias)):
        return None
    if affine.factor is not None:
        scaled = scale(data, _along_channels(op, affine.factor, data))
        if scaled is None:
            return None
        weights = b.constant(scaled, dtype)
    inputs = [x, weights, *([] if new_bias is None else [b.constant(new_bias, dtype)]), *rest[1:]]
    result: Value = b.add(op, *inputs)[0]
    return result


def _bias(op: object, bias: Array, channels: int) -> Array | None:
    """Return the bias of a layer as one number per channel; None if the bias differs between rows."""
    if not isinstance(op, Gemm):
        return bias
    if bias.ndim > 1 and bias.shape[0] != 1:
        return None
    return op.beta * np.broadcast_to(bias.reshape(-1), (channels,))


def _along_channels(op: object, factor: Array, data: Array) -> Array:
    """Return the factors in a shape that broadcasts to the weights."""
    if isinstance(op, Conv):
        return factor.reshape(-1, *(1,) * (data.ndim - 1))
    if isinstance(op, ConvTranspose):
        inputs = data.shape[0] // op.group
        rows = np.repeat(factor.reshape(op.group, -1), inputs, axis=0)
        return rows.reshape(data.shape[0], data.shape[1], *(1,) * (data.ndim - 2))
    return factor.reshape(-1, 1) if getattr(op, "transpose_b", False) else factor.reshape(1, -1)
