"""Recurrent sequences and cells: OpenVINO's form on export, canonical attributes on import."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.graph import Node
from dovetail.ops.recurrent.layouts import completed, one_by_one, padded, recast

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
            "recurrent.activations", f"{ctx.node.kind}: the activation function {unknown[0]!r} is not supported"
        )
    if words:
        attributes["activations"] = words
    # Functions without parameters ignore the parameters that are given.
    attributes["activations_alpha"] = attributes["activations_beta"] = ""
    if "direction" in attributes:
        attributes["direction"] = ctx.attribute("direction", "str").lower()
    limit = ctx.attribute("clip", "float", 0.0)
    if limit == float("inf"):
        attributes["clip"] = 0.0
    op, xs = ctx.apply_mapping(*ctx.inputs, **attributes)
    return op.canonical(*xs), xs


@OPENVINO.legalize("RNNCell", "GRUCell", "LSTMCell")
def legalize_cell(b: Any, node: Node) -> Any:
    """Write every input and attribute of a cell; decompose a cell that OpenVINO lacks."""
    op: Any = node.op
    layer = op.sequence()
    names = {name for name, _, _ in layer.functions(0)}
    if not names <= set(FUNCTIONS) or getattr(op, "input_forget", False) or getattr(op, "gates", "fico") != "fico":
        return op.decompose(b, *node.inputs)
    size = op.shape(*node.inputs)[0][1]
    if not isinstance(size, int):
        raise UnsupportedError("recurrent.hidden-size", "OpenVINO needs a static hidden size")
    xs = padded(op, node.inputs)
    x = xs[0]
    assert x is not None
    if xs[-1] is None:
        xs[-1] = b.constant(np.zeros(layer.bias_count * size, x.dtype.numpy), x.dtype)
    new = op.canonical().with_(hidden_size=size, clip=op.clip or 0.0)
    new = new if new.activations else new.with_(activations=layer.usual)
    return None if new == op and xs == node.inputs else b.add(new, *xs)


@OPENVINO.legalize("RNN", "GRU", "LSTM")
def legalize_recurrent(b: Any, node: Node) -> Any:
    """Write every input and attribute, with summed biases; unroll a layer that OpenVINO lacks."""
    op: Any = node.op
    xs = padded(op, node.inputs)
    names = {name for direction in range(op.directions) for name, _, _ in op.functions(direction)}
    is_sayable = (
        names <= set(FUNCTIONS) and not getattr(op, "input_forget", False) and all(x is None for x in xs[5 + op.states :])
    )
    if not is_sayable:
        return op.decompose(b, *node.inputs)
    plain = op.canonical(*node.inputs)
    if len(plain.activations) > len(op.usual):
        return one_by_one(b, plain, xs)
    size = op.sizes(*xs)["h"]
    if not isinstance(size, int):
        raise UnsupportedError("recurrent.hidden-size", "OpenVINO needs a static hidden size")
    wanted: dict[str, Any] = {
        "layout": "direction_second", "summed": True, "hidden_size": size, "outputs": len(op.signature.outputs),
        "activations": plain.activations or op.usual, "clip": op.clip or 0.0,
    }  # fmt: skip
    if "gates" in op.fields_by_name:
        wanted["gates"] = "fico"
    if all(op.__dict__[name] == value for name, value in wanted.items()) and None not in xs[: 5 + op.states]:
        return None
    return recast(b, plain, completed(b, plain, xs), **wanted)
