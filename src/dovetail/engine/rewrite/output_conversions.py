"""Output conversions: operators such as ZipMap that turn a result into Python objects run after the plan, on its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dovetail.ir.arrays import Array
from dovetail.ir.builder import Builder
from dovetail.ir.edit import remove_dead
from dovetail.ir.evaluate import evaluate_node
from dovetail.ir.graph import Graph, Node
from dovetail.ir.inputs_outputs import copy_into
from dovetail.ir.types import Tensor

Conversions = dict[int, Node]
"""The nodes that convert arrays of the plan to graph outputs, by the index of the output."""


def detach_conversions(graph: Graph) -> Conversions:
    """Replace each graph output that a conversion computes by the conversion's input; return the conversions."""
    conversions: Conversions = {}
    ends = {id(value) for value in (*graph.inputs, *graph.outputs)}
    for index, value in enumerate(graph.outputs):
        node = value.node
        x = node.inputs[0] if node is not None and getattr(node.op, "converts_outputs", False) else None
        if node is None or x is None or not isinstance(x.type, Tensor) or x.type.dtype is None:
            continue
        conversions[index] = node
        # Graph outputs must be distinct values, and no inputs.
        graph.outputs[index] = Builder(graph=graph).apply("Identity", x) if id(x) in ends else x
        ends.add(id(x))
    if conversions:
        remove_dead(graph)
    return conversions


def convert_outputs(
    conversions: Conversions, outputs: dict[str, Array], names: list[str], out: Mapping[str, Array] | None
) -> dict[str, Any]:
    """Return the outputs as the graph defines them. ``out``: the caller's arrays, which cannot hold Python objects."""
    for index, node in conversions.items():
        name = names[index]
        (outputs[name],) = evaluate_node(node, np, [outputs[name]])
        if out is not None and name in out:
            copy_into(out[name], outputs[name], name)
    return outputs
