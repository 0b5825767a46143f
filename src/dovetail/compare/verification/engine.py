"""The engine by which a transformation is verified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.ir.graph import Graph, Model
from dovetail.ir.op import bodies
from dovetail.ops.constant import Constant
from dovetail.runtime.compilation import compile
from dovetail.runtime.program import Program

MAX_NATIVE_WEIGHTS = 256 << 20
"""Maximum size in bytes of the weights of a model that the native engine verifies; it keeps a packed copy of weights."""


def compile_for_verification(model: Model) -> Program:
    """Compile a model for the native engine; beyond MAX_NATIVE_WEIGHTS, compile it for the interpreter.

    The interpreter reads mapped weights in place.
    """
    return compile(model, engine="auto" if has_native_size(model) else "interpreter", precision="f32")


def run_for_verification(model: Model, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Run a model once in the engine that ``compile_for_verification`` selects."""
    return dict(compile_for_verification(model)(inputs))


def has_native_size(model: Model) -> bool:
    """Return whether the weights have at most MAX_NATIVE_WEIGHTS bytes."""
    return _weight_bytes(model.graph) <= MAX_NATIVE_WEIGHTS


def _weight_bytes(graph: Graph) -> int:
    total = 0
    for node in graph.nodes:
        if isinstance(node.op, Constant):
            total += node.op.data.nbytes
        total += sum(_weight_bytes(body) for _, body in bodies(node.op))
    return total
