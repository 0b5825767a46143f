"""Fold BatchNormalization, and per-channel factors and summands, into the weights and bias of convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.types import Shape, View
from dovetail.laws.law import is_read_once, producer
from dovetail.laws.rules.weights import batch_norm_map, constant_by_channel
from dovetail.ops.elementwise.binary import Add, Multiply
from dovetail.ops.nn.conv import Conv
from dovetail.ops.nn.normalization import BatchNormalization


class ScaledConv(Conv, sig="x: N, w: N, bias: N, factor: N -> y: N", is_registered=False):
    """ScaledConv is Conv with the weights of output channel o multiplied by ``factor[o]``. Only the engine uses this operator.

    The factor is applied when the weights are packed. Memory then holds the model's weights and the packed weights, without a
    third, scaled copy.
    """

    def shape(self, x: View, w: View, bias: View | None = None, factor: View | None = None) -> Shape:
        shape: Shape = super().shape(x, w, bias)
        return shape

    def evaluate(self, xp: Namespace, x: Array, w: Array, bias: Array = None, factor: Array = None) -> Array:
        return super().evaluate(xp, x, w * xp.reshape(factor, (-1, *(1,) * (w.ndim - 1))), bias)


def rewrite_batch_norm(b: Builder, op: BatchNormalization, xs: list[Value | None]) -> Value | None:
    """Rewrite BatchNormalization with constant statistics to a product and a sum; None for any other."""
    x, *parameters = xs
    assert x is not None
    if x.shape is None or len(x.shape) < 2 or x.dtype.name not in ("f32", "f64"):
        return None
    affine = batch_norm_map(op, parameters)
    if affine is None:
        return None
    shape = (-1, *(1,) * (len(x.shape) - 2))
    factor, summand = (
        b.constant(np.reshape(array, shape).astype(x.dtype.numpy), x.dtype) for array in affine if array is not None
    )
    return b.Add(b.Multiply(x, factor), summand)


def fold_into_weights(b: Builder, node: Node) -> Value | None:
    """Fold a factor or a summand per channel into the preceding convolution; None where no convolution precedes.

    The factor scales the packed weights, so that the model's weights stay in memory unchanged. ``simplify``, in contrast, scales
    the model's weights.
    """
    op = node.op
    if not isinstance(op, Multiply | Add) or not op.broadcast:
        return None
    for index in (0, 1):
        x, other = node.input(index), node.input(1 - index)
        conv = producer(x, Conv)
        if conv is None or not is_read_once(b.graph, x) or x.dtype.name not in ("f32", "f64") or x.shape is None:
            continue
        weights, bias = (*conv.inputs[1:], None)[:2]
        if weights is None or weights.constant is None or (bias is not None and bias.constant is None):
            continue
        values = constant_by_channel(other, len(x.shape), 1, weights.constant.shape[0])
        if values is not None:
            return _merge(b, op, conv, values)
    return None


def _merge(b: Builder, op: Multiply | Add, node: Node, values: np.ndarray[Any, Any]) -> Value:
    x, weights, *rest = node.inputs
    assert weights is not None and weights.constant is not None
    dtype = weights.dtype
    bias, factor = (None if value is None else value.constant for value in (*rest, None, None)[:2])
    bias = np.zeros(weights.constant.shape[0], dtype.numpy) if bias is None else bias
    if isinstance(op, Multiply):
        bias = bias * values
        factor = values if factor is None else factor * values
    else:
        bias = bias + values
    constants = [b.constant(np.array(array, dtype.numpy), dtype) for array in (bias, factor) if array is not None]
    conv = node.op if factor is None else ScaledConv(**node.op.__dict__)
    result: Value = b.add(conv, x, weights, *constants)[0]
    return result
