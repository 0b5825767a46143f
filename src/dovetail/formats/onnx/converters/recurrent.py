"""Converters for LSTM, GRU and RNN: imports accept activation names in any case, exports legalize to ONNX's form."""

from __future__ import annotations

from typing import Any

from dovetail.errors import UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node
from dovetail.ops.recurrent.dynamic_quantize_lstm import DynamicQuantizeLSTM
from dovetail.ops.recurrent.layouts import convert_form, has_full_lengths, pad_inputs

WORDS = (
    "Affine Elu HardSigmoid LeakyRelu Relu ScaledTanh Sigmoid Softplus Softsign Tanh ThresholdedRelu"
).split()  # fmt: skip
_BY_LOWER = {word.lower(): word for word in WORDS}


@ONNX.importer("RNN", 1, 7, 14, 22)
@ONNX.importer("GRU", 1, 3, 7, 14, 22)
@ONNX.importer("LSTM", 1, 7, 14, 22)
@ONNX.importer("DynamicQuantizeLSTM", 1, domain="com.microsoft")
def import_recurrent(ctx: ImportContext) -> Any:
    attributes = dict(ctx.node.attributes)
    if "activations" in attributes:
        words = ctx.attribute("activations", "tuple[str, ...]")
        attributes["activations"] = [_BY_LOWER.get(word.lower(), word) for word in words]
    if "direction" in attributes:
        attributes["direction"] = ctx.attribute("direction", "str").lower()
    if ctx.node.kind == "RNN" and attributes.get("direction") != "bidirectional" and "activations" in attributes:
        # The schema's default lists activations for two directions, also for a node with one direction.
        attributes["activations"] = attributes["activations"][:1]
    limit = ctx.attribute("clip", "float", None)
    if limit is not None and not limit > 0:
        raise UnsupportedError("attribute.range", f"{ctx.node.kind}: clip must be positive, got {limit}")
    op, xs = ctx.apply_mapping(*ctx.inputs, **attributes)
    if isinstance(op, DynamicQuantizeLSTM) and has_full_lengths(op, xs[0], xs[4]):
        xs[4] = None
    return op, xs


@ONNX.legalize("RNN", "GRU", "LSTM")
def legalize_recurrent(b: Builder, node: Node) -> Any:
    """Legalize RNN, GRU and LSTM to separate biases, gates in ONNX's order, and i32 lengths, absent if all rows are full.

    The optional attribute hidden_size is set, because onnxruntime requires it.
    """
    op: Any = node.op.canonical(*node.inputs)
    xs = pad_inputs(op, node.inputs)
    lengths = xs[4]
    if has_full_lengths(op, xs[0], lengths):
        xs[4] = None
    elif lengths is not None and lengths.dtype is not dtypes.i32:
        xs[4] = b.Cast(lengths, to=dtypes.i32)
    size = op.sizes_of(*xs)["h"]
    attributes: dict[str, Any] = {"summed_bias": False, "hidden_size": size if isinstance(size, int) else None}
    if op.layout == "direction_second":
        attributes["layout"] = "sequence_first"
    if "weights_format" in op.fields_by_name:
        attributes["weights_format"] = "iofc"
    if xs[4] is lengths and all(op.__dict__[name] == value for name, value in attributes.items()):
        return None
    return convert_form(b, op, xs, **attributes)


@ONNX.legalize("DynamicQuantizeLSTM")
def legalize_dynamic_quantize_lstm(b: Builder, node: Node) -> Any:
    """Legalize DynamicQuantizeLSTM: set the optional attribute hidden_size, because onnxruntime requires it."""
    op: Any = node.op
    size = op.sizes_of(*node.inputs)["h"]
    return b.add(op.with_(hidden_size=size), *node.inputs) if isinstance(size, int) and op.hidden_size is None else None
