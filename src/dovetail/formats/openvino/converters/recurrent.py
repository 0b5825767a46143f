"""Converters for recurrent sequences and cells: imports create canonical attributes, exports legalize to OpenVINO's form."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node
from dovetail.ir.limits import refuse_table
from dovetail.ops.recurrent.layouts import convert_form, fill_inputs, pad_inputs, split_directions

FUNCTIONS = ("relu", "sigmoid", "tanh")
"""The activation functions of OpenVINO's specification."""


@OPENVINO.importer("LSTMSequence", 1, 5)
@OPENVINO.importer("GRUSequence", 5)
@OPENVINO.importer("RNNSequence", 5)
@OPENVINO.importer("LSTMCell", 1, 4)
@OPENVINO.importer("GRUCell", 3)
@OPENVINO.importer("RNNCell", 1)
def import_recurrent(ctx: ImportContext) -> Any:
    attributes = dict(ctx.node.attributes)
    words = [word.lower() for word in ctx.attribute("activations", "tuple[str, ...]", ())]
    unknown = [word for word in words if word not in FUNCTIONS]
    if unknown:
        raise UnsupportedError(
            "attribute.value", f"{ctx.node.kind}: activations must be among {', '.join(FUNCTIONS)}, got {unknown[0]!r}"
        )
    if words:
        attributes["activations"] = words
    # The supported functions have no parameters, and ignore alpha and beta in the file.
    attributes["activations_alpha"] = attributes["activations_beta"] = ""
    if "direction" in attributes:
        attributes["direction"] = ctx.attribute("direction", "str").lower()
    limit = ctx.attribute("clip", "float", 0.0)
    if limit == float("inf"):
        attributes["clip"] = 0.0
    op, xs = ctx.apply_mapping(*ctx.inputs, **attributes)
    return op.canonical(*xs), xs


@OPENVINO.legalize("RNNCell", "GRUCell", "LSTMCell")
def legalize_cell(b: Builder, node: Node) -> Any:
    """Legalize a recurrent cell: set every input and attribute, or decompose a cell that OpenVINO cannot express."""
    op: Any = node.op
    layer = op.as_layer()
    names = {name for name, _, _ in layer.activations_of(0)}
    if not names <= set(FUNCTIONS) or getattr(op, "input_forget", False) or getattr(op, "weights_format", "fico") != "fico":
        return op.decompose(b, *node.inputs)
    size = op.shape(*node.inputs)[0][1]
    if not isinstance(size, int):
        raise UnsupportedError("type.unknown", f"{type(op).__name__}: the hidden size must be static in OpenVINO, got {size}")
    xs = pad_inputs(op, node.inputs)
    x = xs[0]
    assert x is not None
    if xs[-1] is None:
        refuse_table((layer.bias_count, size), 8, "the bias of a recurrent layer")
        xs[-1] = b.constant(np.zeros(layer.bias_count * size, x.dtype.numpy), x.dtype)
    new = op.canonical().with_(hidden_size=size, clip=op.clip or 0.0)
    new = new if new.activations else new.with_(activations=layer.default_activations)
    return None if new == op and xs == node.inputs else b.add(new, *xs)


@OPENVINO.legalize("RNN", "GRU", "LSTM")
def legalize_recurrent(b: Builder, node: Node) -> Any:
    """Legalize a recurrent layer: set every input and attribute, with summed biases; other layers become a loop."""
    op: Any = node.op
    xs = pad_inputs(op, node.inputs)
    names = {name for direction in range(op.directions) for name, _, _ in op.activations_of(direction)}
    is_supported = (
        names <= set(FUNCTIONS) and not getattr(op, "input_forget", False) and all(x is None for x in xs[5 + op.state_count :])
    )
    if not is_supported:
        # The importer recognizes a loop of one step as the recurrent layer again; unrolled steps would be many nodes.
        return op.write_steps(b, 0, *node.inputs)
    plain = op.canonical(*node.inputs)
    if len(plain.activations) > len(op.default_activations):
        return split_directions(b, plain, xs)
    size = op.sizes_of(*xs)["h"]
    if not isinstance(size, int):
        raise UnsupportedError("type.unknown", f"{type(op).__name__}: the hidden size must be static in OpenVINO, got {size}")
    attributes: dict[str, Any] = {
        "layout": "direction_second", "summed_bias": True, "hidden_size": size, "outputs": len(op.signature.outputs),
        "activations": plain.activations or op.default_activations, "clip": op.clip or 0.0,
    }  # fmt: skip
    if "weights_format" in op.fields_by_name:
        attributes["weights_format"] = "fico"
    if all(op.__dict__[name] == value for name, value in attributes.items()) and None not in xs[: 5 + op.state_count]:
        return None
    return convert_form(b, plain, fill_inputs(b, plain, xs), **attributes)
