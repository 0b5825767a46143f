"""Rewrite of a graph for the engine, once per model: infers types, selects operators that have kernels, folds constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dovetail.engine.rewrite.activations import rewrite_multiply
from dovetail.engine.rewrite.channel_groups import order_channels_by_part
from dovetail.engine.rewrite.compressed_gather import gather_codes
from dovetail.engine.rewrite.compressed_product import compress_products, is_packed
from dovetail.engine.rewrite.conditions import inline_known_branches
from dovetail.engine.rewrite.fold_batchnorm import fold_into_weights, rewrite_batch_norm
from dovetail.engine.rewrite.grouped_heads import multiply_by_cache
from dovetail.engine.rewrite.half_precision import compute_half_in_f32
from dovetail.engine.rewrite.image_products import transpose_product
from dovetail.engine.rewrite.integer_conv import fuse_integer_product
from dovetail.engine.rewrite.qdq_fusion import fuse_qdq
from dovetail.errors import UnsupportedError
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder, shape_value
from dovetail.ir.edit import copy_graph, remove_dead
from dovetail.ir.evaluate import fold_op
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.infer import infer_graph, pure_inference
from dovetail.ir.op import Op, has
from dovetail.ir.packed_elements import PackedElements
from dovetail.ir.rewrite import rewrite
from dovetail.ir.types import Tensor, Unknown, axes_in, axis_in
from dovetail.laws.fold import NodeTest, fold
from dovetail.ops.constant import Constant
from dovetail.ops.default_inputs import freeze_in_graph
from dovetail.ops.elementwise.cast import Cast, CastLike
from dovetail.ops.nn.normalization import BatchNormalization, is_parameter
from dovetail.ops.quantization.quantize_linear import DequantizeLinear, QuantizeLinear
from dovetail.storage.mapped_files import release_pages

if TYPE_CHECKING:
    from dovetail.ops.detection.nms import NonMaxSuppression
    from dovetail.ops.elementwise.activation import PRelu
    from dovetail.ops.elementwise.binary import Sum
    from dovetail.ops.linalg.matmul import Gemm, MatMul
    from dovetail.ops.ml.tree_ensemble import TreeEnsemble
    from dovetail.ops.nn.dropout import Dropout
    from dovetail.ops.nn.group_conv import GroupConv
    from dovetail.ops.nn.pool import MaxPool
    from dovetail.ops.nn.resize import Resize
    from dovetail.ops.recurrent.dynamic_quantize_lstm import DynamicQuantizeLSTM
    from dovetail.ops.recurrent.layers import GRU, LSTM, RNN
    from dovetail.ops.signal.dft import DFT
    from dovetail.ops.tensor.scatter import TensorScatter

MAX_ROUNDS = 4
"""The maximum number of rounds of rewriting: a decomposition may contain operators that need rewriting too."""
MAX_UNPACKED_BYTES = 2 << 30
"""The maximum bytes of floats unpacked in advance from constant low-bit weights; other weights are unpacked in each run."""
MAX_UNROLLED_STEPS = 256
"""A recurrent layer is unrolled up to this number of time steps, summed over directions; more steps make planning slow."""
KEPT = ("DetectionOutput",)
"""Operators that are not decomposed: the decomposition divides by sizes, and the interpreter refuses sizes of 0 by name."""

Inputs = list[Value | None]
Result = Value | Sequence[Value | None] | None
"""The values that replace a node's outputs (None: an output that nothing reads), or None if the node stays."""
Rule = Callable[[Builder, Node], Result]


def rewrite_for_engine(
    graph: Graph, file: str | None = None, precision: str | None = None, *, is_foldable: NodeTest | None = None
) -> Graph:
    """Return a copy of ``graph`` with inferred types and operators that have kernels, equivalent to within rounding.

    ``precision``: see :func:`dovetail.compile`. ``is_foldable``: see :func:`~dovetail.laws.fold.fold`.
    """
    new = copy_graph(graph)
    freeze_in_graph(new)
    with pure_inference():
        infer_graph(new, file=file)
    new = inline_known_branches(new)
    if rewrite(new, gather_codes):
        remove_dead(new)
    _compress(new, precision, skips_quantized=True)
    compute_half_in_f32(new)
    rewrite(new, fuse_qdq)
    _compress(new, precision, skips_quantized=False)
    unpack = _unpacking_rule()
    rewrite(new, unpack)
    fold(new, is_foldable)
    if rewrite(new, fuse_integer_product):
        remove_dead(new)
    _rewrite_in_rounds(new, unpack, is_foldable)
    rewrite(new, fold_into_weights)
    rewrite(new, order_channels_by_part)
    rewrite(new, transpose_product)
    remove_dead(new)
    _make_constants_row_major(new)
    return new


def _compress(graph: Graph, precision: str | None, skips_quantized: bool) -> None:
    if rewrite(graph, compress_products(precision, skips_quantized)):
        # Weights that nothing else reads are not unpacked.
        remove_dead(graph)


def rewrite_again(graph: Graph, is_foldable: NodeTest | None = None) -> None:
    """Rewrite the nodes whose ranks became known when a branch was inlined."""
    _rewrite_in_rounds(graph, _unpacking_rule(), is_foldable)
    _make_constants_row_major(graph)


def _rewrite_in_rounds(graph: Graph, unpack: Rule, is_foldable: NodeTest | None) -> None:
    for _ in range(MAX_ROUNDS):
        if not rewrite(graph, _rewrite_node):
            break
        remove_dead(graph)
        rewrite(graph, unpack)
        fold(graph, is_foldable)


def _make_constants_row_major(graph: Graph) -> None:
    """Copy constants that are packed, not row-major or not aligned, once for all plans.

    Kernels read aligned rows, and packed weights are shared by the address of their source. Packing takes unaligned ones.
    """
    for node in graph.nodes:
        op = node.op
        if isinstance(op, Constant) and isinstance(op.storage, PackedElements):
            # The graph holds the array, so that its address is not used again.
            op = node.op = Constant(op.data, op.dtype)
        if not isinstance(op, Constant) or (op.data.flags.c_contiguous and op.data.flags.aligned):
            continue
        if not (op.data.flags.c_contiguous and is_packed(node.outputs[0])):
            data = np.array(op.data, order="C")
            data.flags.writeable = False
            release_pages(op.data)
            node.op = Constant(data, op.dtype)


def _unpacking_rule() -> Rule:
    """Return a rule that unpacks constant low-bit weights to constant floats, once instead of in every run."""
    bytes_left = MAX_UNPACKED_BYTES

    def rule(b: Builder, node: Node) -> Result:
        nonlocal bytes_left
        if not isinstance(node.op, Cast | DequantizeLinear) or any(x is None or x.constant is None for x in node.inputs):
            return None
        outputs = fold_op(node.op, node.inputs, bytes_left, is_counted=False)
        if outputs is None:
            return None
        bytes_left -= sum(array.nbytes for array, _ in outputs)
        return [b.constant(array, dtype) for array, dtype in outputs]

    return rule


# Rules by operator


def _rewrite_node(b: Builder, node: Node) -> Result:
    kind = type(node.op)
    rule = None if kind.is_custom else REWRITES.get(kind.__name__)
    if rule is None and kind.__module__.startswith("dovetail.ops.sequence.") and _is_sequence_op(kind):
        rule = _rewrite_sequence
    elif rule is None and (kind.is_composite or not has(kind, "evaluate")) and has(kind, "decompose"):
        # The interpreter evaluates the same decomposition.
        rule = None if kind.__name__ in KEPT else _decompose_known_ranks
    return None if rule is None else rule(b, node)


def _is_sequence_op(kind: type[Op]) -> bool:
    # Deferred: most models have no sequences.
    from dovetail.ops.sequence.sequence import SequenceOp

    return issubclass(kind, SequenceOp)


def _import_rule(module: str, name: str) -> Rule:
    """Return the rule ``name`` of a module of this package, which the first use imports: few models have its operators."""

    def rule(b: Builder, node: Node) -> Result:
        result: Result = getattr(import_module(f"dovetail.engine.rewrite.{module}"), name)(b, node)
        return result

    return rule


def _decompose(b: Builder, node: Node) -> Result:
    """Return the operator's decomposition; None where it depends on sizes that are known only at run time."""
    return _decompose_with(b, node.op, node.inputs)


def _decompose_with(b: Builder, op: Op, xs: Inputs) -> Result:
    decompose: Callable[..., Result] = op.decompose
    try:
        return decompose(b, *xs)
    except (UnsupportedError, Unknown):
        return None


def _decompose_f32(b: Builder, node: Node) -> Result:
    """Return the decomposition if the first input is f32 and all inputs have known ranks; else None."""
    xs = node.inputs
    is_f32 = xs[0] is not None and xs[0].dtype.name == "f32" and all(x is None or x.shape is not None for x in xs)
    return _decompose(b, node) if is_f32 else None


def _decompose_any_type(b: Builder, node: Node) -> Result:
    """Return the decomposition if no input is omitted and all have known ranks, for any type; else None. For ai.onnx.ml."""
    return _decompose(b, node) if all(x is not None and x.shape is not None for x in node.inputs) else None


def _decompose_known_ranks(b: Builder, node: Node) -> Result:
    """Return the decomposition if all inputs that are not omitted have known ranks; else None."""
    return _decompose(b, node) if all(x is None or x.shape is not None for x in node.inputs) else None


def _rewrite_sequence(b: Builder, node: Node) -> Result:
    if type(node.op).__name__ == "ConcatFromSequence" and not isinstance(getattr(node.input(0).type, "length", None), int):
        # Only the run can refuse a sequence that turns out to be empty.
        return None
    # Deferred: most models have no sequences.
    from dovetail.laws.sequences import decompose_sequence_op

    result: Result = decompose_sequence_op(b, node)
    return result


def _rewrite_batch_norm(b: Builder, node: Node) -> Result:
    assert isinstance(node.op, BatchNormalization)
    known = rewrite_batch_norm(b, node.op, node.inputs)
    x, *parameters = (node.input(index) for index in range(len(node.inputs)))
    is_plain = x.shape is not None and all(value.shape == (x.dims[1],) for value in parameters)
    return _decompose_f32(b, node) if known is None and is_plain and not node.op.training_mode else known


def _rewrite_matmul_nbits(b: Builder, node: Node) -> Result:
    return _decompose_f32(b, node) if node.input(1).constant is not None else None


def _rewrite_rms_norm(b: Builder, node: Node) -> Result:
    # The decomposition would broadcast a scale that the operator refuses.
    return _decompose_f32(b, node) if is_parameter(getattr(node.inputs[0], "shape", None), node.inputs[1]) else None


def _rewrite_tree_ensemble(b: Builder, node: Node) -> Result:
    # Deferred: few models have the operator.
    from dovetail.engine.rewrite.tree_ensemble import rewrite_tree_ensemble

    return rewrite_tree_ensemble(b, cast("TreeEnsemble", node.op), node.input(0))


def _rewrite_resize(b: Builder, node: Node) -> Result:
    """Decompose an interpolating Resize of integers to a Resize of floats, which has a kernel."""
    x = node.input(0)
    is_integer = (
        cast("Resize", node.op).mode != "nearest"
        and isinstance(x.type, Tensor)
        and x.type.dtype is not None
        and x.dtype.is_integer
    )
    return _decompose_known_ranks(b, node) if is_integer else None


def _rewrite_tensor_scatter(b: Builder, node: Node) -> Result:
    """Decompose TensorScatter to ScatterElements, with negative start positions of mode ``linear`` replaced by the length.

    ScatterElements would count negative positions from the end; the length of the axis is out of range for both operators.
    """
    op, (cache, update, *rest) = cast("TensorScatter", node.op), node.inputs
    if cache is None or update is None or cache.shape is None or update.shape is None:
        return None
    starts = rest[0] if rest else None
    if starts is not None and op.mode == "linear":
        length = shape_value(b, cache, [axis_in(op.axis, len(cache.shape))])
        end = b.constant(length, dtypes.i64) if isinstance(length, list) else length
        starts = b.Where(b.Less(starts, b.constant(0, dtypes.i64)), end, starts)
    return _decompose_with(b, op, [cache, update, starts])


def _rewrite_nms(b: Builder, node: Node) -> Result:
    # Deferred: few models have the operator.
    from dovetail.engine.rewrite.nms import rewrite_nms

    return rewrite_nms(b, cast("NonMaxSuppression", node.op), node.inputs)


def _rewrite_cast_like(b: Builder, node: Node) -> Result:
    assert isinstance(node.op, CastLike)
    like = node.input(1).type
    return b.add(node.op.cast(like.dtype), node.inputs[0]) if isinstance(like, Tensor) and like.dtype is not None else None


def _rewrite_quantization(b: Builder, node: Node) -> Result:
    # Deferred: few models have the operator.
    from dovetail.engine.rewrite.integer_ops import rewrite_quantization

    assert isinstance(node.op, QuantizeLinear | DequantizeLinear)
    try:
        return rewrite_quantization(b, node.op, node.inputs)
    except UnsupportedError:
        return None


def _rewrite_layer(b: Builder, node: Node) -> Result:
    """Rewrite a recurrent layer to a call of its kernel; without a kernel, unroll a layer of few time steps."""
    # Deferred: few models have the operator.
    from dovetail.engine.rewrite.recurrent import rewrite_layer, with_checked_lengths

    op = cast("RNN | GRU | LSTM", node.op)
    result: Result = rewrite_layer(b, op, node.inputs)
    if result is not None or not _has_known_f32_inputs(node.inputs):
        return result
    sizes = op.sizes_of(*node.inputs)
    steps = sizes["s"]
    is_short = isinstance(sizes["h"], int) and isinstance(steps, int) and 0 < steps * op.directions <= MAX_UNROLLED_STEPS
    return _decompose_with(b, op, with_checked_lengths(b, op, node.inputs)) if is_short else None


def _rewrite_quantized_layer(b: Builder, node: Node) -> Result:
    # Deferred: few models have the operator.
    from dovetail.engine.rewrite.recurrent import rewrite_quantized_layer

    result: Result = rewrite_quantized_layer(b, cast("DynamicQuantizeLSTM", node.op), node.inputs)
    return result


def _rewrite_cell(b: Builder, node: Node) -> Result:
    op: Any = node.op
    if not _has_known_f32_inputs(node.inputs):
        return None
    return _decompose(b, node) if isinstance(op.shape(*node.inputs)[0][1], int) else None


def _has_known_f32_inputs(xs: Inputs) -> bool:
    x = xs[0]
    return x is not None and x.shape is not None and x.dtype.name == "f32" and all(y is None or y.shape is not None for y in xs)


def _rewrite_sum(b: Builder, node: Node) -> Result:
    return b.Add(node.input(0), node.input(1)) if len(node.inputs) == 2 and cast("Sum", node.op).broadcast else None


def _rewrite_group_conv(b: Builder, node: Node) -> Result:
    op = cast("GroupConv", node.op)
    return op.decompose(b, node.input(0), node.input(1)) if node.input(1).constant is not None else None


def _rewrite_dropout(b: Builder, node: Node) -> Result:
    """Rewrite Dropout outside training mode to Identity."""
    training = node.inputs[2] if len(node.inputs) > 2 else None
    is_off = training is None or (training.constant is not None and not training.constant.any())
    return (
        [b.Identity(node.input(0)), None][: cast("Dropout", node.op).outputs]
        if is_off and _uses_first_output_only(b, node)
        else None
    )


def _rewrite_max_pool(b: Builder, node: Node) -> Result:
    """Rewrite MaxPool whose indices nothing reads to MaxPool without indices."""
    if cast("MaxPool", node.op).outputs != 2 or not _uses_first_output_only(b, node):
        return None
    return [*b.add(node.op.with_(outputs=1), *node.inputs), None]


def _uses_first_output_only(b: Builder, node: Node) -> bool:
    return not any(y.uses or y in b.graph.outputs for y in node.outputs[1:])


def _rewrite_dft(b: Builder, node: Node) -> Result:
    """Rewrite a DFT over several axes to one DFT per axis; a one-sided axis comes first, but last in an inverse DFT."""
    op, (x, axes, signal_size) = cast("DFT", node.op), (*node.inputs, None)[:3]
    assert x is not None and axes is not None
    if x.shape is None or axes.constant is None or axes.constant.size < 2:
        return None
    indices = axes_in(axes.constant.reshape(-1).tolist(), len(x.shape) - 1)
    steps = [(type(op)(op.inverse), place) for place in range(len(indices))]
    steps[-1] = (op, len(indices) - 1)
    for transform, place in steps if op.inverse else reversed(steps):
        size = () if signal_size is None else (b.Gather(signal_size, b.constant([place]), axis=0),)
        (x,) = b.add(transform, x, b.constant([indices[place]]), *size)
    return x


def _rewrite_matmul(b: Builder, node: Node) -> Result:
    """Rewrite vector operands of MatMul to matrices of one row or one column, and products of repeated heads."""
    op, x, y = cast("MatMul", node.op), node.input(0), node.input(1)
    if x.shape is None or y.shape is None or 1 not in (len(x.shape), len(y.shape)):
        return multiply_by_cache(b, node)
    is_row, is_column = len(x.shape) == 1, len(y.shape) == 1
    rows, columns = b.Unsqueeze(x, [0]) if is_row else x, b.Unsqueeze(y, [1]) if is_column else y
    product = b.MatMul(rows, columns, transpose_a=op.transpose_a and not is_row, transpose_b=op.transpose_b and not is_column)
    return b.Squeeze(product, [*([-2] if is_row else []), *([-1] if is_column else [])])


def _rewrite_gemm(b: Builder, node: Node) -> Result:
    """Decompose a Gemm of another type than f32, whose kernel has no epilogue; an integer Gemm only if its factors are 1."""
    op, x = cast("Gemm", node.op), node.input(0)
    is_exact = x.dtype.is_float or op.alpha == op.beta == 1
    return _decompose(b, node) if x.dtype.name != "f32" and is_exact else None


def _rewrite_prelu(b: Builder, node: Node) -> Result:
    """Rewrite a PRelu whose slope may be per channel to a PRelu whose slope is reshaped to broadcast."""
    op, x, slope = cast("PRelu", node.op), node.input(0), node.input(1)
    is_by_channel = op.is_by_channel(x.shape, slope.shape)
    if not op.channels or is_by_channel is None or x.shape is None:
        return None
    return b.PRelu(x, b.Unsqueeze(slope, list(range(1, len(x.shape) - 1))) if is_by_channel else slope)


# Keyed by name, so that a model imports the modules of its own operators alone.
REWRITES: dict[str, Rule] = {
    "Attention": _decompose_f32,
    "BatchNormalization": _rewrite_batch_norm,
    "Bernoulli": _decompose_any_type,
    "CastLike": _rewrite_cast_like,
    "ConvInteger": _import_rule("integer_ops", "rewrite_conv_integer"),
    "DFT": _rewrite_dft,
    "DequantizeLinear": _rewrite_quantization,
    "Dropout": _rewrite_dropout,
    "DynamicQuantizeLSTM": _rewrite_quantized_layer,
    "DynamicQuantizeMatMul": _import_rule("integer_ops", "rewrite_dynamic_quantize_matmul"),
    "Einsum": _decompose_f32,
    "ErfInv": _decompose_any_type,
    "EyeLike": _decompose_any_type,
    "FakeQuantize": _decompose_f32,
    "FeatureVectorizer": _decompose_any_type,
    "GRU": _rewrite_layer,
    "GRUCell": _rewrite_cell,
    "Gemm": _rewrite_gemm,
    "GroupConv": _rewrite_group_conv,
    "GlobalLpPool": _decompose_any_type,
    "GroupNormalization": _decompose_f32,
    "GroupedMatMul": _decompose_known_ranks,
    "Hardmax": _import_rule("positions", "rewrite_hardmax"),
    "IRDFT": _decompose_any_type,
    "ISTFT": _decompose_any_type,
    "Imputer": _decompose_any_type,
    "InstanceNormalization": _decompose_f32,
    "LSTM": _rewrite_layer,
    "LSTMCell": _rewrite_cell,
    "LinearClassifier": _decompose_any_type,
    "LinearRegressor": _decompose_any_type,
    "LogSoftmax": _import_rule("positions", "rewrite_softmax"),
    "LpNormalization": _decompose_f32,
    "LpPool": _decompose_any_type,
    "MatMul": _rewrite_matmul,
    "MatMulInteger": _import_rule("integer_ops", "rewrite_matmul_integer"),
    "MatMulIntegerToFloat": _import_rule("integer_ops", "rewrite_matmul_integer_to_float"),
    "MatMulNBits": _rewrite_matmul_nbits,
    "MaxPool": _rewrite_max_pool,
    "MeanVarianceNormalization": _decompose_f32,
    "Multinomial": _decompose_any_type,
    "Multiply": rewrite_multiply,
    "NonMaxSuppression": _rewrite_nms,
    "NormalizeL2": _decompose_f32,
    "Normalizer": _decompose_any_type,
    "OneHot": _import_rule("positions", "rewrite_one_hot"),
    "OneHotEncoder": _decompose_any_type,
    "PRelu": _rewrite_prelu,
    "QLinearAdd": _import_rule("integer_ops", "rewrite_qlinear_add"),
    "QLinearConv": _import_rule("integer_ops", "rewrite_qlinear_conv"),
    "QLinearGlobalAveragePool": _import_rule("integer_ops", "rewrite_global_average"),
    "QLinearLeakyRelu": _import_rule("integer_ops", "rewrite_function_of_byte"),
    "QLinearSigmoid": _import_rule("integer_ops", "rewrite_function_of_byte"),
    "RDFT": _decompose_any_type,
    "QuantizeLinear": _rewrite_quantization,
    "RMSNormalization": _rewrite_rms_norm,
    "RNN": _rewrite_layer,
    "RNNCell": _rewrite_cell,
    "RandomNormal": _decompose_any_type,
    "RandomNormalLike": _decompose_any_type,
    "RandomUniform": _decompose_any_type,
    "RandomUniformLike": _decompose_any_type,
    "Range": _import_rule("positions", "rewrite_range"),
    "Resize": _rewrite_resize,
    "RotaryEmbedding": _decompose_f32,
    "STFT": _decompose_any_type,
    "SVMClassifier": _decompose_any_type,
    "SVMRegressor": _decompose_any_type,
    "ScaledDotProductAttention": _decompose_f32,
    "Scaler": _decompose_any_type,
    "ScatterElements": _decompose_any_type,
    "Softmax": _import_rule("positions", "rewrite_softmax"),
    "Sum": _rewrite_sum,
    "TensorScatter": _rewrite_tensor_scatter,
    "TreeEnsemble": _rewrite_tree_ensemble,
    "TreeEnsembleClassifier": _decompose_any_type,
    "TreeEnsembleRegressor": _decompose_any_type,
}
