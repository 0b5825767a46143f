"""A graph of f32 and smaller floats computed in f64: who of two engines that differ is nearer to the model's own numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from dovetail import dtypes
from dovetail.interpreter.evaluate import evaluate_node
from dovetail.ir.edit import copy_model
from dovetail.ir.graph import Graph, Model
from dovetail.ir.op import bodies

NARROW = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def wide(item: Any) -> Any:
    """An array, or a list of them, with its floats as f64."""
    if isinstance(item, list):
        return [wide(each) for each in item]
    return item.astype(np.float64) if isinstance(item, np.ndarray) and item.dtype in NARROW else item


def run_wide(model: Model, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs by name with floats in f64: constants, inputs, and whatever an operator's attributes name as their type."""
    graph = copy_model(model).graph
    _widen(graph)
    found: dict[int, Any] = {
        id(inner): wide(np.asarray(inputs[x.name])) for inner, x in zip(graph.inputs, model.inputs, strict=True)
    }
    for node in graph.nodes:
        # Some rules, as those of ai.onnx.ml, make f32 of whatever goes in.
        results = evaluate_node(node, np, [None if x is None else found[id(x)] for x in node.inputs])
        found.update((id(y), wide(result)) for y, result in zip(node.outputs, results, strict=False))
    return {value.name: found[id(inner)] for inner, value in zip(graph.outputs, model.outputs, strict=True)}


def _widen(graph: Graph) -> None:
    """Constants and attributes of a graph that is nobody else's. Types are left: running does not read them."""
    for node in graph.nodes:
        for _, body in bodies(node.op):
            _widen(body)
        changes = {
            field.name: _attribute(getattr(node.op, field.name)) for field in node.op.fields if field.annotation != "Graph"
        }
        changed = {name: value for name, value in changes.items() if value is not getattr(node.op, name)}
        if changed:
            node.op = node.op.with_(**changed)


def _attribute(value: Any) -> Any:
    return dtypes.f64 if isinstance(value, dtypes.DType) and value.name in ("f32", "f16", "bf16") else wide(value)
