"""Pass ``weights``: BatchNormalization, and constant factors and summands per channel, become part of the weights before them."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ops.elementwise.binary import Add, Divide, Multiply, Subtract
from dovetail.ops.linalg.matmul import Gemm, MatMul
from dovetail.ops.nn.conv import Conv, ConvTranspose
from dovetail.ops.nn.normalization import BatchNormalization
from dovetail.passes.simplification.computed_weights import scale
from dovetail.passes.simplification.rules import Result, Rules, Target, apply_rules, is_read_once

Array: TypeAlias = np.ndarray[Any, Any]
Layer: TypeAlias = Conv | ConvTranspose | Gemm | MatMul


class Affine(NamedTuple):
    """The map y * factor + summand of each channel, in f64; None: absent."""

    factor: Array | None
    summand: Array | None


def fold_into_weights(graph: Graph, target: Target) -> int:
    """Fold BatchNormalization with constant statistics, and Add, Subtract, Multiply and Divide of constants per channel, into
    the constant weights of the Conv, ConvTranspose, Gemm or MatMul before them. Returns the number of removed nodes.

    The product is computed in f64 and rounded once, so that results change by rounding. Weights that other nodes read stay.
    """
    return apply_rules(graph, RULES, target)


def _fold(b: Builder, node: Node) -> Result:
    for index in (0, 1) if isinstance(node.op, Add | Multiply) else (0,):
        x = node.input(index)
        layer = x.node
        if layer is None or not isinstance(layer.op, Layer) or not is_read_once(b.graph, x) or x.dtype.name not in ("f32", "f64"):
            continue
        channels = _channel_count(layer)
        affine = None if channels is None else _affine_of(node, index, channels, _channel_axis(layer, x))
        if affine is not None and channels is not None:
            return _merge(b, layer, affine, channels)
    return None


def _channel_count(layer: Node) -> int | None:
    """Return the number of channels of a layer with constant weights that it alone reads; None for others."""
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
    return 1 if isinstance(layer.op, Conv | ConvTranspose) else len(x.dims) - 1


def _affine_of(node: Node, index: int, channels: int, axis: int) -> Affine | None:
    """Return the map that ``node`` applies to the channels of its input ``index``; None where it is not one per channel."""
    if isinstance(node.op, BatchNormalization):
        return _batch_norm(node, channels) if axis == 1 else None
    other, x = node.input(1 - index), node.input(index)
    if not getattr(node.op, "broadcast", False) or other.constant is None or x.shape is None:
        return None
    rank = len(x.shape)
    data = other.constant
    if data.ndim > rank:
        return None
    shape = (1,) * (rank - data.ndim) + data.shape
    if any(size != 1 for position, size in enumerate(shape) if position != axis) or shape[axis] not in (1, channels):
        return None
    row = np.broadcast_to(np.asarray(data, np.float64).reshape(-1), (channels,))
    match node.op:
        case Add():
            return Affine(None, row)
        case Subtract():
            return Affine(None, -row)
        case Multiply():
            return Affine(row, None)
        case Divide() if np.all(row != 0):
            return Affine(1 / row, None)
    return None


def _batch_norm(node: Node, channels: int) -> Affine | None:
    op = node.op
    assert isinstance(op, BatchNormalization)
    if op.training_mode or op.outputs != 1 or not op.spatial:
        return None
    constants = [x.constant if x is not None else None for x in node.inputs[1:]]
    if any(array is None or array.shape != (channels,) for array in constants):
        return None
    scale, bias, mean, variance = (np.asarray(array, np.float64) for array in constants)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + op.epsilon)
    return Affine(factor, bias - mean * factor)


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
    """Return the bias of a layer as one number per channel; None where it differs between rows."""
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


RULES: Rules = dict.fromkeys((Add, BatchNormalization, Divide, Multiply, Subtract), _fold)
