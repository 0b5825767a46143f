"""Validation of graphs: their structure and the rules of their operators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from os import PathLike

from dovetail.errors import Diagnostic, DovetailError, EngineError, RuleError
from dovetail.ir.edit import copy_model
from dovetail.ir.evaluate import bytes_of_types
from dovetail.ir.graph import Graph, Model, Value
from dovetail.ir.infer import infer_graph
from dovetail.ir.limits import Limits, counting, refuse_memory
from dovetail.ir.op import bodies, faults as branch_faults, graphs_of
from dovetail.ir.suggestions import check_keywords
from dovetail.ops.constant import Constant
from dovetail.ops.control_flow.loop import Loop


def validate(graph: Graph) -> list[Diagnostic]:
    """Return the structural faults of ``graph``: of node order, uses and names of values, and outputs without a producer."""
    faults: list[Diagnostic] = []

    def fault(code: str, message: str, node: str | None = None) -> None:
        faults.append(Diagnostic(code, message, node))

    produced: dict[int, str] = {id(value): value.name for value in graph.inputs}
    readers: dict[int, int] = {}
    names: set[str] = set()
    known = {id(value): {(id(user), index) for user, index in value.uses} for value in graph.values()}
    for value in graph.values():
        if value.name in names:
            fault("graph.repeated", f"names of values must be unique, got two values {value.name!r}")
        names.add(value.name)
    for node in graph.nodes:
        for index, x in enumerate(node.inputs):
            if x is None:
                continue
            if id(x) not in produced:
                fault("graph.order", f"the producer of {x.name!r} must precede its readers", node.label)
            if (id(node), index) not in known.get(id(x), ()):
                fault("graph.uses", f"the uses of {x.name!r} must contain input {index} of this node", node.label)
            readers[id(x)] = readers.get(id(x), 0) + 1
        for index, y in enumerate(node.outputs):
            if y.node is not node or y.index != index:
                fault("graph.uses", f"the output {y.name!r} must refer to this node and to the index {index}", node.label)
            produced[id(y)] = y.name
        for name, body in bodies(node.op):
            faults.extend(Diagnostic(item.code, f"{name}: {item.message}", node.label) for item in validate(body))
    for value in graph.values():
        if len(value.uses) != readers.get(id(value), 0):
            fault(
                "graph.uses", f"{value.name!r} must have {readers.get(id(value), 0)} uses, one per reader, got {len(value.uses)}"
            )
    for value in graph.outputs:
        if id(value) not in produced:
            fault("graph.dangling", f"the output {value.name!r} must be a graph input or an output of a node")
    return faults


@check_keywords
def check(model: Model | str | PathLike[str], *, limits: Limits | None = None) -> list[Diagnostic]:
    """Check a model or a model file, and return every independent fault; the list is empty for a valid model.

    Each fault has ``code``, ``node``, ``message`` and ``file``. Deviations that ``load`` accepts with a warning are faults of a
    file, but not of a loaded Model. Operators unknown to dovetail are not reported. ``limits`` bounds the cost of the check; the
    default is the limits of the model.

    A valid model of which a run would exceed the limits gets warnings, with ``severity`` "warning": [run.memory] if a tensor of
    known sizes exceeds the limit ``memory`` or the memory of the machine, and [loop.trips] if known numbers of trips exceed the
    limit ``trips``. Nothing is run.

    Raises only the errors of the limits, [limits.exceeded], [run.time] and [run.memory], and only for a Model; an invalid
    file raises no error. Every other error is returned.

    Source: the specifications of ONNX and of OpenVINO IR.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Relu(b.input("x", "f32", ("n", 2))))
    >>> dovetail.check(b.model)
    []
    """
    if isinstance(model, Model):
        with counting(limits or model.limits):
            return check_graph(model, limits=limits)
    from dovetail.formats import examine

    loaded, faults, _ = examine(model, limits)
    if loaded is None:
        return faults
    with counting(loaded.limits):
        return list(dict.fromkeys([*faults, *check_graph(loaded, is_own=True)]))


def check_graph(model: Model, is_own: bool = False, limits: Limits | None = None) -> list[Diagnostic]:
    """Return the structural faults of a loaded model; if there are none, return the faults that inference reports.

    A model without faults gets warnings where a run would exceed ``limits``, by default those of the model. With ``is_own``
    inference may change the model in place.
    """
    faults = validate(model.graph)
    if faults:
        return faults
    graph = model.graph if is_own else copy_model(model).graph
    try:
        infer_graph(graph, file=model.file, refuse_preserved=True)
    except DovetailError as error:
        faults = list(error.diagnostics)
    faults += [item for node in graph.nodes for fault in branch_faults(node.op) for item in fault.diagnostics]
    return list(dict.fromkeys(faults)) or list(_cost_warnings(graph, limits or model.limits, model.file))


def _cost_warnings(graph: Graph, limits: Limits, file: str | None) -> Iterator[Diagnostic]:
    """Yield a warning for the largest tensor and for the trips of all loops, if a run of an inferred graph exceeds the limits."""
    tensors = ((_bytes_of(value), value) for inner in graphs_of(graph) for value in inner.values())
    nbytes, largest = max(tensors, key=lambda item: item[0], default=(0, None))
    try:
        refuse_memory(limits, nbytes, "" if largest is None else f"{largest.name!r} ({largest.type})")
    except EngineError as error:
        node = None if largest is None or largest.node is None else largest.node.label
        yield Diagnostic(error.code, error.message, node, file, severity="warning")
    trips = _trips_of(graph)
    if trips > limits.trips:
        message = f"the loops of one run have up to {trips} iterations; {limits.describe('trips')}"
        yield Diagnostic("loop.trips", message, file=file, severity="warning")


def _bytes_of(value: Value) -> int:
    """Return the bytes of a computed tensor or a graph input; 0 for constants and for unknown sizes."""
    is_constant = value.node is not None and isinstance(value.node.op, Constant)
    return 0 if is_constant else bytes_of_types([value.type]) or 0


def _trips_of(graph: Graph) -> int:
    """Return the trips of all loops of a graph, where their numbers are known; an unknown number counts as one."""
    total = 0
    for node in graph.nodes:
        inner = max((_trips_of(body) for _, body in bodies(node.op)), default=0)
        if isinstance(node.op, Loop):
            count, cond, *rest = node.inputs
            # A body that breaks a rule, and that no run reaches, may hold a loop of contradicting sizes.
            with suppress(RuleError):
                known = node.op.known_trips(count, cond, [x for x in rest if x is not None])
                inner = known * (1 + inner) if isinstance(known, int) else inner
        total += inner
    return total
