"""A graph made ready for an engine, once per model: constants folded, known statistics made part of weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dovetail.engine.rewrite.half_precision import computed_in_f32
from dovetail.engine.rewrite.integer_ops import on_grids
from dovetail.engine.rewrite.nms import suppressed
from dovetail.engine.rewrite.qdq_fusion import quantized
from dovetail.engine.rewrite.recurrent import LAYERS, by_moments, with_checked_lengths
from dovetail.engine.select.tree_ensemble import with_tables
from dovetail.errors import UnsupportedError
from dovetail.interpreter.evaluate import folded
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_graph, remove_dead
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.rewrite import rewrite
from dovetail.ir.types import Tensor, Unknown
from dovetail.ops.attention.attention import Attention, ScaledDotProductAttention
from dovetail.ops.attention.rotary_embedding import RotaryEmbedding
from dovetail.ops.constant import Constant
from dovetail.ops.detection.nms import NonMaxSuppression
from dovetail.ops.elementwise.activation import Sigmoid
from dovetail.ops.elementwise.binary import Add, Multiply, Sum
from dovetail.ops.elementwise.cast import Cast, CastLike
from dovetail.ops.linalg.einsum import Einsum
from dovetail.ops.ml.feature_encoding import FeatureVectorizer, Imputer, Normalizer, OneHotEncoder, Scaler
from dovetail.ops.ml.linear_models import LinearClassifier, LinearRegressor
from dovetail.ops.ml.svm import SVMClassifier, SVMRegressor
from dovetail.ops.ml.tree_ensemble import TreeEnsemble
from dovetail.ops.ml.tree_ensemble_classifier import TreeEnsembleClassifier, TreeEnsembleRegressor
from dovetail.ops.nn.conv import Conv
from dovetail.ops.nn.dropout import Dropout
from dovetail.ops.nn.group_conv import GroupConv
from dovetail.ops.nn.lrn import LpNormalization, NormalizeL2
from dovetail.ops.nn.normalization import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    MeanVarianceNormalization,
    RMSNormalization,
    is_parameter,
)
from dovetail.ops.nn.pool import MaxPool
from dovetail.ops.quantization.matmul_nbits import MatMulNBits
from dovetail.ops.quantization.quantize_linear import DequantizeLinear, FakeQuantize
from dovetail.ops.recurrent.cells import GRUCell, LSTMCell, RecurrentCell, RNNCell
from dovetail.ops.recurrent.layers import GRU, LSTM, RNN
from dovetail.ops.sequence.sequence import UNLISTED, ConcatFromSequence, unlisted
from dovetail.passes.fold import fold
from dovetail.passes.infer import infer_graph

ROUNDS = 4
"""What an operator is taken apart into may be taken apart in its turn."""
DECOMPOSED = (
    Attention,
    Einsum,
    FakeQuantize,
    GroupNormalization,
    InstanceNormalization,
    LpNormalization,
    MatMulNBits,
    MeanVarianceNormalization,
    NormalizeL2,
    RMSNormalization,
    RotaryEmbedding,
    ScaledDotProductAttention,
)
"""Operators whose parts have kernels and they have not."""
LEARNED = (
    FeatureVectorizer,
    Imputer,
    LinearClassifier,
    LinearRegressor,
    Normalizer,
    OneHotEncoder,
    SVMClassifier,
    SVMRegressor,
    Scaler,
    TreeEnsembleClassifier,
    TreeEnsembleRegressor,
)
"""Models of ai.onnx.ml, whose parts have kernels whatever the type of the features is."""
RECURRENT = (RNN, GRU, LSTM, RNNCell, GRUCell, LSTMCell)
UNPACKED = 2 << 30
"""The most bytes of floats that are kept for weights which a file stores in fewer bits; the rest is unpacked in each run."""
MOMENTS = 256
"""The most moments of a recurrent layer that are written one by one: more make planning long."""


class ScaledConv(Conv, sig="x: N, w: N, bias: N, factor: N -> y: N", is_registered=False):
    """Conv with the weights of output channel o multiplied by ``factor[o]``. Not one of a model's operators.

    The product is made where the weights are packed, so that they are in memory twice and not three times: as the model has them
    and packed.
    """

    def shape(self, x: Any, w: Any, bias: Any = None, factor: Any = None) -> Any:
        return super().shape(x, w, bias)

    def evaluate(self, xp: Any, x: Any, w: Any, bias: Any = None, factor: Any = None) -> Any:
        return super().evaluate(xp, x, w * xp.reshape(factor, (-1, *(1,) * (w.ndim - 1))), bias)


def prepare(graph: Graph, file: str | None = None) -> Graph:
    """A copy of ``graph`` that computes the same, to within rounding, with less to do. Types and shape values are everywhere."""
    new = copy_graph(graph)
    infer_graph(new, file=file)
    computed_in_f32(new)
    rewrite(new, quantized)
    unpacked = _unpacking()
    rewrite(new, unpacked)
    fold(new)
    for _ in range(ROUNDS):
        if not rewrite(new, _simpler):
            break
        remove_dead(new)
        rewrite(new, unpacked)
        fold(new)
    rewrite(new, _into_weights)
    remove_dead(new)
    _make_row_major(new)
    return new


def _make_row_major(graph: Graph) -> None:
    """Copy constants that are not row-major, or lie at odd addresses, once for all plans.

    Kernels read aligned rows, and packed weights are shared by address.
    """
    for node in graph.nodes:
        op = node.op
        if isinstance(op, Constant) and not (op.data.flags.c_contiguous and op.data.flags.aligned):
            data = np.array(op.data, order="C")
            data.flags.writeable = False
            node.op = Constant(data, op.dtype)


def _unpacking() -> Callable[[Builder, Node], Any]:
    """A rule that makes constants of weights that a file stores in fewer bits, once instead of in every run."""
    left = UNPACKED

    def rule(b: Builder, node: Node) -> Any:
        nonlocal left
        if not isinstance(node.op, Cast | DequantizeLinear) or any(x is None or x.constant is None for x in node.inputs):
            return None
        found = folded(node.op, node.inputs, left, is_counted=False)
        if found is None:
            return None
        left -= sum(array.nbytes for array, _ in found)
        return [b.constant(array, dtype) for array, dtype in found]

    return rule


def _apart(b: Builder, op: Any, xs: Any) -> Any:
    """What an operator is made of; None where that hangs on sizes that only the run tells: the operator's own rule sees them."""
    try:
        return op.decompose(b, *xs)
    except (UnsupportedError, Unknown):
        return None


def _simpler(b: Builder, node: Node) -> Any:
    op, xs = node.op, node.inputs
    if isinstance(op, UNLISTED):
        # Whether there is something to lay end to end is asked where only the run tells.
        is_open = isinstance(op, ConcatFromSequence) and not isinstance(getattr(xs[0].type, "length", None), int)  # type: ignore[union-attr]
        return None if is_open else unlisted(b, node)
    if isinstance(op, BatchNormalization):
        return _scale_and_shift(b, op, xs)
    if isinstance(op, MatMulNBits) and xs[1] is not None and xs[1].constant is None:
        return None
    if isinstance(op, RMSNormalization) and not is_parameter(getattr(xs[0], "shape", None), xs[1]):
        # Taken apart it would not refuse a scale that stretches.
        return None
    if isinstance(op, DECOMPOSED) and _is_plain(xs):
        return _apart(b, op, xs)
    if isinstance(op, LEARNED) and all(x is not None and x.shape is not None for x in xs):
        return _apart(b, op, xs)
    if isinstance(op, TreeEnsemble) and xs[0] is not None:
        return with_tables(b, op, xs[0])
    if isinstance(op, NonMaxSuppression):
        return suppressed(b, op, xs)
    if isinstance(op, CastLike) and isinstance(like := xs[1].type, Tensor) and like.dtype is not None:  # type: ignore[union-attr]
        return b.add(op.cast(like.dtype), xs[0])
    if (made := on_grids(b, op, xs)) is not None:
        return made
    if type(op) in LAYERS and (made := by_moments(b, op, xs)) is not None:
        return made
    if type(op) in RECURRENT and _is_short(op, xs):
        return _apart(b, op, with_checked_lengths(b, op, xs))
    if isinstance(op, Multiply) and op.broadcast:
        return _gated(b, xs)
    if isinstance(op, Sum) and len(xs) == 2 and op.broadcast:
        return b.Add(node.input(0), node.input(1))
    if isinstance(op, GroupConv) and xs[1] is not None and xs[1].constant is not None:
        return op.decompose(b, node.input(0), xs[1])
    if isinstance(op, Dropout) and _is_off(xs) and _is_for_the_first(b, node):
        return [b.Identity(node.input(0)), None][: op.outputs]
    if isinstance(op, MaxPool) and op.outputs == 2 and _is_for_the_first(b, node):
        return [*b.add(op.with_(outputs=1), *xs), None]
    return None


def _is_for_the_first(b: Builder, node: Node) -> bool:
    """Whether nobody needs a node's outputs but the first."""
    return not any(y.uses or y in b.graph.outputs for y in node.outputs[1:])


def _gated(b: Builder, xs: list[Value | None]) -> Any:
    """What is multiplied by its own sigmoid is one activation, which a product or convolution before it takes in."""
    for x, gate in (xs, xs[::-1]):
        assert x is not None and gate is not None
        if gate.node is not None and isinstance(gate.node.op, Sigmoid) and gate.node.inputs[0] is x and x.dtype.name == "f32":
            return b.Swish(x)
    return None


def _is_plain(xs: list[Value | None]) -> bool:
    """Whether the first input is of f32 and the ranks of all are known."""
    return xs[0] is not None and xs[0].dtype.name == "f32" and all(x is None or x.shape is not None for x in xs)


def _is_short(op: Any, xs: list[Value | None]) -> bool:
    """Whether a recurrent layer (or a cell, which is one moment of it) has so few moments that they are written one by one."""
    x = xs[0]
    if x is None or x.shape is None or x.dtype.name != "f32" or any(each is not None and each.shape is None for each in xs):
        return False
    if isinstance(op, RecurrentCell):
        return isinstance(op.shape(*xs)[0][1], int)
    sizes = op.sizes_of(*xs)
    return isinstance(sizes["h"], int) and isinstance(sizes["s"], int) and 0 < sizes["s"] * op.directions <= MOMENTS


def _is_off(xs: list[Value | None]) -> bool:
    """Whether a Dropout does nothing: no third input, or a constant that says so."""
    training = xs[2] if len(xs) > 2 else None
    return training is None or (training.constant is not None and not training.constant.any())


def _scale_and_shift(b: Builder, op: BatchNormalization, xs: list[Value | None]) -> Any:
    """Normalisation with statistics that are known is a product and a sum."""
    x, *parameters = xs
    assert x is not None
    if (
        op.training_mode
        or op.outputs != 1
        or not op.spatial
        or x.shape is None
        or len(x.shape) < 2
        or x.dtype.name not in ("f32", "f64")
    ):
        return None
    data = [None if value is None else value.constant for value in parameters]
    if any(array is None for array in data):
        return None
    scale, bias, mean, variance = (np.asarray(array, np.float64) for array in data)
    factor = scale / np.sqrt(variance + op.epsilon)
    shape = (-1, *(1,) * (len(x.shape) - 2))
    made = [np.reshape(array, shape).astype(x.dtype.numpy) for array in (factor, bias - mean * factor)]
    return b.Add(b.Multiply(x, b.constant(made[0], x.dtype)), b.constant(made[1], x.dtype))


def _into_weights(b: Builder, node: Node) -> Any:
    """A factor or a summand per channel after a convolution, in the convolution's weights."""
    op = node.op
    if not isinstance(op, Multiply | Add) or not op.broadcast:
        return None
    for place in (0, 1):
        x, other = node.inputs[place], node.inputs[1 - place]
        assert x is not None and other is not None
        if x.node is None or not isinstance(x.node.op, Conv) or len(x.uses) != 1 or x in b.graph.outputs:
            continue
        values = _per_channel(x, other)
        if values is not None:
            return _merged(b, op, x.node, values)
    return None


def _per_channel(x: Value, other: Value) -> np.ndarray[Any, Any] | None:
    """A constant that has one number per channel of the convolution's result ``x``, or one for all."""
    if other.constant is None or x.node is None or x.dtype.name not in ("f32", "f64") or x.shape is None:
        return None
    weights = x.node.inputs[1]
    if weights is None or weights.constant is None:
        return None
    bias = x.node.inputs[2] if len(x.node.inputs) > 2 else None
    if bias is not None and bias.constant is None:
        return None
    rank = len(x.shape)
    shape = (1,) * (rank - other.constant.ndim) + other.constant.shape
    if len(shape) != rank or any(size != 1 for axis, size in enumerate(shape) if axis != 1):
        return None
    channels = weights.constant.shape[0]
    return np.broadcast_to(other.constant.reshape(-1), (channels,)) if shape[1] in (1, channels) else None


def _merged(b: Builder, op: Multiply | Add, node: Node, values: np.ndarray[Any, Any]) -> Any:
    x, weights, *rest = node.inputs
    assert weights is not None and weights.constant is not None
    kind = weights.dtype
    bias, factor = (None if value is None else value.constant for value in (*rest, None, None)[:2])
    bias = np.zeros(weights.constant.shape[0], kind.numpy) if bias is None else bias
    if isinstance(op, Multiply):
        bias = bias * values
        factor = values if factor is None else factor * values
    else:
        bias = bias + values
    made = [b.constant(np.array(array, kind.numpy), kind) for array in (bias, factor) if array is not None]
    changed = node.op if factor is None else ScaledConv(**node.op.__dict__)
    found: Value = b.add(changed, x, weights, *made)[0]
    return found
