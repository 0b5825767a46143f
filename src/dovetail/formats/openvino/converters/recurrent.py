"""Import and export OpenVINO's recurrent cells and sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.formats.import_context import Lifting
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.graph import Node
from dovetail.ops.recurrent.layouts import convert_form, fill_inputs, pad_inputs, split_directions

FUNCTIONS = ("relu", "sigmoid", "tanh")
"""The activation functions that OpenVINO's specification lists."""


@OPENVINO.lift("LSTMSequence", 1, 5)
@OPENVINO.lift("GRUSequence", 5)
@OPENVINO.lift("RNNSequence", 5)
@OPENVINO.lift("LSTMCell", 1, 4)
@OPENVINO.lift("GRUCell", 3)
@OPENVINO.lift("RNNCell", 1)
def recurrent(node: Lifting) -> Any:
    attributes = dict(node.node.attributes)
    words = [word.lower() for word in node.attribute("activations", "tuple[str, ...]", ())]
    unknown = [word for word in words if word not in FUNCTIONS]
    if unknown:
        raise UnsupportedError("recurrent.activations", f"{node.node.kind} with the activation function {unknown[0]!r}")
    if words:
        attributes["activations"] = words
    # Functions without parameters leave them unread.
    attributes["activations_alpha"] = attributes["activations_beta"] = ""
    if "direction" in attributes:
        attributes["direction"] = node.attribute("direction", "str").lower()
    limit = node.attribute("clip", "float", 0.0)
    if limit == float("inf"):
        attributes["clip"] = 0.0
    op, xs = node.reading(*node.inputs, **attributes)
    return op.canonical(*xs), xs


@OPENVINO.lower("RNNCell", "GRUCell", "LSTMCell")
def lower_cell(b: Any, node: Node) -> Any:
    """Write every input and attribute; a cell that OpenVINO lacks is decomposed into a layer of one time step."""
    op: Any = node.op
    layer = op.as_layer()
    names = {name for name, _, _ in layer.activations_of(0)}
    if not names <= set(FUNCTIONS) or getattr(op, "input_forget", False) or getattr(op, "weights_format", "fico") != "fico":
        return op.decompose(b, *node.inputs)
    size = op.shape(*node.inputs)[0][1]
    if not isinstance(size, int):
        raise UnsupportedError("recurrent.hidden-size", "OpenVINO needs a known hidden size")
    xs = pad_inputs(op, node.inputs)
    x = xs[0]
    assert x is not None
    if xs[-1] is None:
        xs[-1] = b.constant(np.zeros(layer.bias_count * size, x.dtype.numpy), x.dtype)
    new = op.canonical().with_(hidden_size=size, clip=op.clip or 0.0)
    new = new if new.activations else new.with_(activations=layer.default_activations)
    return None if new == op and xs == node.inputs else b.add(new, *xs)


@OPENVINO.lower("RNN", "GRU", "LSTM")
def lower_recurrent(b: Any, node: Node) -> Any:
    """Write every input and attribute, with a summed bias; a layer that OpenVINO lacks is unrolled."""
    op: Any = node.op
    xs = pad_inputs(op, node.inputs)
    names = {name for place in range(op.directions) for name, _, _ in op.activations_of(place)}
    is_supported = (
        names <= set(FUNCTIONS) and not getattr(op, "input_forget", False) and all(x is None for x in xs[5 + op.state_count :])
    )
    if not is_supported:
        return op.decompose(b, *node.inputs)
    plain = op.canonical(*node.inputs)
    if len(plain.activations) > len(op.default_activations):
        return split_directions(b, plain, xs)
    size = op.sizes_of(*xs)["h"]
    if not isinstance(size, int):
        raise UnsupportedError("recurrent.hidden-size", "OpenVINO needs a known hidden size")
    wanted: dict[str, Any] = {
        "layout": "direction_second", "summed_bias": True, "hidden_size": size, "outputs": len(op.signature.outputs),
        "activations": plain.activations or op.default_activations, "clip": op.clip or 0.0,
    }  # fmt: skip
    if "weights_format" in op.fields_by_name:
        wanted["weights_format"] = "fico"
    if all(op.__dict__[name] == value for name, value in wanted.items()) and None not in xs[: 5 + op.state_count]:
        return None
    return convert_form(b, plain, fill_inputs(b, plain, xs), **wanted)
