"""LSTM, GRU and RNN: the names of activation functions in any case on the way in, ONNX's own form on the way out."""

from __future__ import annotations

from typing import Any

from dovetail import dtypes
from dovetail.errors import UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.graph import Node
from dovetail.ops.recurrent.dynamic_quantize_lstm import DynamicQuantizeLSTM
from dovetail.ops.recurrent.layouts import is_full, padded, recast

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
        # The schema's own default is a list for two directions.
        attributes["activations"] = attributes["activations"][:1]
    limit = ctx.attribute("clip", "float", None)
    if limit is not None and not limit > 0:
        raise UnsupportedError("recurrent.clip", f"{ctx.node.kind} with clip = {limit}")
    op, xs = ctx.apply_mapping(*ctx.inputs, **attributes)
    if isinstance(op, DynamicQuantizeLSTM) and is_full(op, xs[0], xs[4]):
        xs[4] = None
    return op, xs


@ONNX.legalize("RNN", "GRU", "LSTM")
def legalize_recurrent(b: Any, node: Node) -> Any:
    """Biases apart, gates in ONNX's order, lengths in i32 or left out where every row is whole, and the hidden size, which may be
    left out, but without which onnxruntime does not run."""
    op: Any = node.op.canonical(*node.inputs)
    xs = padded(op, node.inputs)
    lengths = xs[4]
    if is_full(op, xs[0], lengths):
        xs[4] = None
    elif lengths is not None and lengths.dtype is not dtypes.i32:
        xs[4] = b.Cast(lengths, to=dtypes.i32)
    size = op.sizes(*xs)["h"]
    wanted: dict[str, Any] = {"summed": False, "hidden_size": size if isinstance(size, int) else None}
    if op.layout == "direction_second":
        wanted["layout"] = "sequence_first"
    if "gates" in op.fields_by_name:
        wanted["gates"] = "iofc"
    if xs[4] is lengths and all(op.__dict__[name] == value for name, value in wanted.items()):
        return None
    return recast(b, op, xs, **wanted)


@ONNX.legalize("DynamicQuantizeLSTM")
def legalize_quantized(b: Any, node: Node) -> Any:
    """With the hidden size, without which onnxruntime does not run."""
    op: Any = node.op
    size = op.sizes(*node.inputs)["h"]
    return b.add(op.with_(hidden_size=size), *node.inputs) if isinstance(size, int) and op.hidden_size is None else None
