"""Import and export RNN, GRU, LSTM and DynamicQuantizeLSTM."""

from __future__ import annotations

from typing import Any

from dovetail import dtypes
from dovetail.errors import UnsupportedError
from dovetail.formats.import_context import Lifting
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.graph import Node
from dovetail.ops.recurrent.dynamic_quantize_lstm import DynamicQuantizeLSTM
from dovetail.ops.recurrent.layouts import convert_form, has_full_lengths, pad_inputs

WORDS = (
    "Affine Elu HardSigmoid LeakyRelu Relu ScaledTanh Sigmoid Softplus Softsign Tanh ThresholdedRelu"
).split()  # fmt: skip
_BY_LOWER = {word.lower(): word for word in WORDS}


@ONNX.lift("RNN", 1, 7, 14, 22)
@ONNX.lift("GRU", 1, 3, 7, 14, 22)
@ONNX.lift("LSTM", 1, 7, 14, 22)
@ONNX.lift("DynamicQuantizeLSTM", 1, domain="com.microsoft")
def recurrent(node: Lifting) -> Any:
    attributes = dict(node.node.attributes)
    if "activations" in attributes:
        words = node.attribute("activations", "tuple[str, ...]")
        attributes["activations"] = [_BY_LOWER.get(word.lower(), word) for word in words]
    if "direction" in attributes:
        attributes["direction"] = node.attribute("direction", "str").lower()
    if node.node.kind == "RNN" and attributes.get("direction") != "bidirectional" and "activations" in attributes:
        # The schema's default lists the activations of two directions.
        attributes["activations"] = attributes["activations"][:1]
    limit = node.attribute("clip", "float", None)
    if limit is not None and not limit > 0:
        raise UnsupportedError("recurrent.clip", f"{node.node.kind} with clip = {limit}")
    op, xs = node.reading(*node.inputs, **attributes)
    if isinstance(op, DynamicQuantizeLSTM) and has_full_lengths(op, xs[0], xs[4]):
        xs[4] = None
    return op, xs


@ONNX.lower("RNN", "GRU", "LSTM")
def lower_recurrent(b: Any, node: Node) -> Any:
    """Write ONNX's form: separate biases, gates in the order iofc, lengths in i32 or omitted where every row is full.

    ``hidden_size`` is optional, but onnxruntime does not run without it.
    """
    op: Any = node.op.canonical(*node.inputs)
    xs = pad_inputs(op, node.inputs)
    lengths = xs[4]
    if has_full_lengths(op, xs[0], lengths):
        xs[4] = None
    elif lengths is not None and lengths.dtype is not dtypes.i32:
        xs[4] = b.Cast(lengths, to=dtypes.i32)
    size = op.sizes_of(*xs)["h"]
    wanted: dict[str, Any] = {"summed_bias": False, "hidden_size": size if isinstance(size, int) else None}
    if op.layout == "direction_second":
        wanted["layout"] = "sequence_first"
    if "weights_format" in op.fields_by_name:
        wanted["weights_format"] = "iofc"
    if xs[4] is lengths and all(op.__dict__[name] == value for name, value in wanted.items()):
        return None
    return convert_form(b, op, xs, **wanted)


@ONNX.lower("DynamicQuantizeLSTM")
def lower_quantized(b: Any, node: Node) -> Any:
    """Write the hidden size, without which onnxruntime does not run."""
    op: Any = node.op
    size = op.sizes_of(*node.inputs)["h"]
    return b.add(op.with_(hidden_size=size), *node.inputs) if isinstance(size, int) and op.hidden_size is None else None
