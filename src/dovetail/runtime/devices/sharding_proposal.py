"""The proposal of shardings for a model: data parallel over the mesh axis "data", tensor parallel over "model"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dovetail.ir.graph import Graph, Value
from dovetail.ir.types import Tensor
from dovetail.runtime.devices.axis_flow import AxisFlow, Split
from dovetail.runtime.devices.sharding_plan import Sharding, ShardingPlan
from dovetail.runtime.devices.trace_steps import TraceSteps

DATA, MODEL = "data", "model"


class ShardingProposal(NamedTuple):
    """ShardingProposal holds a plan, and a dict that maps the name of each gathered value to the gathered axis."""

    plan: ShardingPlan
    gathered: Mapping[str, int]


def propose(
    graph: Graph, weights: Sequence[Value], trace: TraceSteps, mesh: Mapping[str, int], inputs: Sequence[int | None]
) -> ShardingProposal:
    """Propose a sharding for each input and weight.

    ``inputs`` are the values of the graph's inputs in the trace, None for a list. The weights are the first inputs of the trace.
    """
    ids = trace.inputs[: len(weights)]
    parts = mesh.get(MODEL, 1)
    known = [value for value in inputs if value is not None]
    splits = AxisFlow(trace, ids, known, parts).find() if parts > 1 else {}
    batch = _batch_size(graph)
    rows = [
        _input_row(
            value, None if number is None else trace.shapes[number], splits.get(-1 if number is None else number), batch, mesh
        )
        for value, number in zip(graph.inputs, inputs, strict=True)
    ]
    for value, number in zip(weights, ids, strict=True):
        shape = trace.shapes[number]
        split = splits.get(number)
        spec = () if split is None else (*(None,) * split.axis, MODEL)
        rows.append(Sharding(value.name, "weight", shape, spec, _weight_reason(graph, split, shape, parts)))
    gathered = {
        graph.nodes[split.node].outputs[0].name: -1 if len(trace.shapes[number]) <= 2 else 1
        for number, split in splits.items()
        if split.role == "gathered" and split.node is not None
    }
    return ShardingProposal(ShardingPlan(mesh, rows), gathered)


def _batch_size(graph: Graph) -> Any:
    """Return the most frequent leading size of the outputs; None if it is 1 or unknown."""
    sizes = [value.type.shape[0] for value in graph.outputs if isinstance(value.type, Tensor) and value.type.shape]
    if not sizes:
        return None
    (size, _), *_ = Counter(sizes).most_common(1)
    return None if size == 1 else size


def _input_row(value: Value, shape: Sequence[int] | None, split: Split | None, batch: Any, mesh: Mapping[str, int]) -> Sharding:
    declared = value.type.shape if isinstance(value.type, Tensor) else None
    spec: list[Any] = []
    reasons = []
    if split is not None:
        spec = [None] * split.axis + [MODEL]
        reasons.append("meets a split tensor")
    count = mesh.get(DATA, 1)
    if count > 1 and shape and declared and not (split is not None and split.axis == 0):
        if declared[0] != batch or batch is None:
            reasons.append("no batch axis")
        elif isinstance(batch, int) and batch % count:
            reasons.append(f"the batch {batch} is no multiple of {count}")
        else:
            spec = [DATA, *spec[1:]]
            reasons.insert(0, "batch")
    return Sharding(value.name, "input", tuple(declared or ()), tuple(spec), ", ".join(reasons) or "replicated")


def _weight_reason(graph: Graph, split: Split | None, shape: Sequence[int], parts: int) -> str:
    if split is None:
        return "replicated" if parts == 1 or any(size % parts == 0 for size in shape) else f"no axis is a multiple of {parts}"
    where = "" if split.node is None else f" of {graph.nodes[split.node].label}"
    texts = {
        "column": f"columns{where}",
        "row": f"rows{where}: one all-reduce",
        "follows": "as the tensor that it is combined with",
        "table": f"rows of the table{where}",
        "gathered": f"columns{where}, gathered",
    }
    text = texts[split.role]
    if split.obstacle is None:
        return text
    node = "" if split.obstacle.node is None else f" of {graph.nodes[split.obstacle.node].label}"
    return f"{text}: {split.obstacle.primitive}{node} needs the whole axis"
