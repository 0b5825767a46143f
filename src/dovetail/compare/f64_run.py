"""A run of a model in f64, which shows which of two different results is nearer to the exact one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from dovetail.ir import dtypes
from dovetail.ir.edit import copy_model
from dovetail.ir.evaluate import RunArrays, evaluate_node, last_readers, live_nodes, type_of
from dovetail.ir.graph import Graph, Model
from dovetail.ir.limits import active, counting, current
from dovetail.ir.op import bodies

NARROW = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def wide(item: object) -> Any:
    """Return an array or a list of arrays with floats converted to f64."""
    if isinstance(item, list):
        return [wide(each) for each in item]
    return item.astype(np.float64) if isinstance(item, np.ndarray) and item.dtype in NARROW else item


def run_wide(model: Model, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs by name, computed in f64: constants, inputs and float types in attributes are widened."""
    return run_wide_with_magnitude(model, inputs)[0]


def run_wide_with_magnitude(model: Model, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
    """Return the outputs of :func:`run_wide`, and the largest finite magnitude of any float value."""
    graph = copy_model(model).graph
    _widen(graph)
    wide_inputs = {
        id(inner): wide(np.asarray(inputs[x.name]) if not isinstance(inputs[x.name], list | dict) else inputs[x.name])
        for inner, x in zip(graph.inputs, model.inputs, strict=True)
    }
    largest = max(map(magnitude_of, wide_inputs.values()), default=0.0)
    last, live = last_readers(graph), live_nodes(graph)
    with counting(None if active() else model.limits), RunArrays(wide_inputs.items()) as found:
        for index, node in enumerate(graph.nodes):
            if index not in live:
                continue
            current().check_time()
            # The rules of some operators, such as those of ai.onnx.ml, return f32 for inputs of any type.
            results = [wide(y) for y in evaluate_node(node, np, [None if x is None else found[id(x)] for x in node.inputs])]
            found.store(node, results)
            largest = max(largest, *map(magnitude_of, results)) if results else largest
            for key in last.get(index, ()):
                found.release(key)
        return {value.name: found[id(inner)] for inner, value in zip(graph.outputs, model.outputs, strict=True)}, largest


def magnitude_of(item: np.ndarray[Any, Any] | list[np.ndarray[Any, Any]]) -> float:
    """Return the largest finite magnitude of an array of floats; 0 for other values."""
    item = wide(item)
    if not isinstance(item, np.ndarray) or item.dtype != np.float64 or not item.size:
        return 0.0
    magnitude = np.abs(item)
    return float(np.max(magnitude, initial=0.0, where=np.isfinite(magnitude)))


def _widen(graph: Graph) -> None:
    """Widen the constants and attributes of a graph in place.

    Types of other values are not changed: the run of a Loop infers the types in its body, except the types of constants.
    """
    for node in graph.nodes:
        for _, body in bodies(node.op):
            _widen(body)
        changes = {
            field.name: _attribute(getattr(node.op, field.name)) for field in node.op.fields if field.annotation != "Graph"
        }
        changed = {name: value for name, value in changes.items() if value is not getattr(node.op, name)}
        if changed:
            node.op = node.op.with_(**changed)
        for y in node.outputs:
            if y.constant is not None:
                y.type = type_of(y.constant)


def _attribute(value: object) -> Any:
    return dtypes.f64 if isinstance(value, dtypes.DType) and value.name in ("f32", "f16", "bf16") else wide(value)
