"""Find results of a graph that are selected by an equality test on its inputs, the form of a backdoor that is added to a model.

Each value has a :class:`Flow`, which follows the elements of an input through the nodes. A test that joins other data, decides
a branch or becomes an output is a :class:`Trigger`. docs/howto/inspect.md states the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.ir.evaluate import constant_value, live_nodes
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.limits import Limits
from dovetail.ir.op import bodies
from dovetail.ir.types import Shape, Tensor
from dovetail.ops.elementwise.broadcast import Elementwise

NEVER, IF_NARROW, ALWAYS = 0, 1, 2
"""Strengths of a test: whether it is a reason against a file never, only for few elements of an input, or always."""

USUAL_CONSTANTS = (0.0, 1.0, -1.0)
"""Elements with which models compare masks and divisors; infinities and NaN count as usual too."""
MAX_BOUNDS = 1 << 16
"""The largest number of elements of a constant whose elements are compared."""
INTERVAL = 0.02
"""The largest width of an interval that counts as an equality, as a share of the magnitude of its ends, or of 1 if below."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Flow describes how the elements of a value depend on the inputs of the model.

    ``role``: "constant" (on no element of an input), "plain" (elements of an input, moved, cast or scaled), "difference"
    (plain plus a constant), "half" (a difference with one sign), "distance" (a norm of a difference), "margin" (a distance plus
    a constant), "side" (a plain value above or below a constant), "test" (a function of equality tests), "deep" (any other).
    """

    role: str = "constant"
    source: str = ""
    """The name of the input."""
    family: str = ""
    """The kind of the input's elements: "float", "integer", "text" or "option" (an integer scalar)."""
    is_narrow: bool = False
    """Whether few elements of the input, or one decision about several, determine the value."""
    is_counted: bool = False
    """Whether a test was summed."""
    is_size: bool = False
    """Whether the shape of the value depends on a test too."""
    strength: int = NEVER
    node: str = ""
    """The node of the test."""
    constant: str = ""
    """The constant of the test as text."""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


CONSTANT = Flow()


@dataclass(frozen=True, slots=True)
class Trigger:
    """Trigger is a path from an input through an equality test to a node that selects by it, or to an output."""

    input: str
    test: str
    """The node that compares."""
    constant: str
    """The constant of the comparison, shortened."""
    selection: str
    """The node or the output that depends on the test and on other data."""
    is_reason: bool
    """Whether the rules count the path as a reason against the file."""

    def __str__(self) -> str:
        return f"{self.selection} selects by a test of the input {self.input}: {self.test} compares with {self.constant}"


def find_triggers(graph: Graph, limits: Limits) -> list[Trigger]:
    """Return the triggers of an inferred graph, those that are reasons first.

    Raises UnsupportedError [limits.exceeded] if nested subgraphs need more visits of nodes than the limit ``inference_steps``.
    """
    search = _TriggerSearch(limits)
    results = search.visit(graph, tuple(_flow_of_input(value) for value in graph.inputs))
    for value, flow in zip(graph.outputs, results, strict=True):
        if flow.role == "test":
            search.report(f"output {value.name}", flow)
    return sorted(search.triggers.values(), key=lambda item: not item.is_reason)


def _flow_of_input(value: Value) -> Flow:
    type = value.type
    dtype = type.dtype if isinstance(type, Tensor) else None
    if dtype is None:
        return Flow("plain", value.name, "float")
    if dtype.name == "string":
        return Flow("plain", value.name, "text")
    shape = _sizes(value)
    if not dtype.is_integer or dtype.name in ("u8", "i8"):
        return Flow("deep" if dtype.kind == "bool" else "plain", value.name, "integer" if dtype.kind == "bool" else "float")
    if shape is not None and all(size == 1 for size in shape) and len(shape) < 2:
        return Flow("plain", value.name, "option")
    one_per_row = shape is not None and len(shape) > 1 and all(size == 1 for size in shape[1:])
    return Flow("plain", value.name, "integer", is_narrow=one_per_row)


@dataclass
class _TriggerSearch:
    limits: Limits
    triggers: dict[tuple[str, str], Trigger] = field(default_factory=dict)
    visits: int = 0
    known: dict[tuple[int, tuple[Flow, ...]], tuple[Flow, ...]] = field(default_factory=dict)

    def visit(self, graph: Graph, inputs: tuple[Flow, ...]) -> tuple[Flow, ...]:
        """Return the flows of the outputs of a graph, and report the triggers in it."""
        key = id(graph), inputs
        if key in self.known:
            return self.known[key]
        self.visits += len(graph.nodes)
        if self.visits > self.limits.nodes + self.limits.inference_steps:
            text = f"nested subgraphs need {self.visits} visits of nodes; {self.limits.describe('inference_steps')}"
            raise UnsupportedError("limits.exceeded", text)
        flows = {id(value): flow for value, flow in zip(graph.inputs, inputs, strict=True)}
        live = live_nodes(graph)
        for index, node in enumerate(graph.nodes):
            if index in live:
                for value, flow in zip(node.outputs, self._flows_of(node, flows), strict=True):
                    flows[id(value)] = flow
        results = tuple(flows.get(id(value), CONSTANT) for value in graph.outputs)
        self.known[key] = results
        return results

    def report(self, selection: str, flow: Flow) -> None:
        is_reason = flow.strength == ALWAYS or (flow.strength == IF_NARROW and flow.is_narrow)
        key = flow.source, flow.node
        if key not in self.triggers or (is_reason and not self.triggers[key].is_reason):
            self.triggers[key] = Trigger(flow.source, flow.node, flow.constant, selection, is_reason)

    def _flows_of(self, node: Node, flows: dict[int, Flow]) -> list[Flow]:
        inputs = [CONSTANT if x is None else flows.get(id(x), CONSTANT) for x in node.inputs]
        if node.op.holds_graphs:
            return self._flows_of_subgraphs(node, inputs)
        if type(node.op).__name__ in ("Shape", "Size") and not inputs[0].is_size:
            return [CONSTANT] * len(node.outputs)
        if all(flow.role == "constant" for flow in inputs):
            return [CONSTANT] * len(node.outputs)
        flow = _combine(node, inputs)
        if flow.role == "selected":
            for each in inputs:
                if each.role == "test":
                    self.report(f"{node.label} ({node.title})", each)
            flow = _deep(inputs)
        return [_with_family(node, inputs, flow, y) for y in node.outputs]

    def _flows_of_subgraphs(self, node: Node, inputs: list[Flow]) -> list[Flow]:
        is_loop = type(node.op).__name__ == "Loop"
        results = [CONSTANT] * len(node.outputs)
        first = 2 if is_loop else node.op.first_capture
        for flow in inputs[:first]:
            if flow.role == "test":
                self.report(f"{node.label} ({node.title})", flow)
        decided = any(flow.role != "constant" for flow in inputs[:first])
        for _, body in bodies(node.op):
            given = [*([CONSTANT] if is_loop else []), *inputs[first:]]
            given += [CONSTANT] * (len(body.inputs) - len(given))
            outputs = self.visit(body, tuple(given[: len(body.inputs)]))
            if is_loop:
                # The second visit has the states of a later trip.
                carried = getattr(node.op, "carried", 0)
                states = [_join([a, b]) for a, b in zip(given[1 : 1 + carried], outputs[1 : 1 + carried], strict=False)]
                given[1 : 1 + len(states)] = states
                outputs = self.visit(body, tuple(given[: len(body.inputs)]))
                if outputs and outputs[0].role == "test":
                    self.report(f"{node.label} ({node.title})", outputs[0])
                outputs = outputs[1:]
            results = [_join([a, b]) for a, b in zip(results, outputs, strict=False)] + results[len(outputs) :]
        if decided:
            results = [_deep(inputs) if flow.role == "constant" else flow for flow in results]
        return results


def _deep(inputs: Sequence[Flow]) -> Flow:
    first = next((flow for flow in inputs if flow.role != "constant"), CONSTANT)
    return Flow("deep", first.source, first.family, first.is_narrow)


def _with_family(node: Node, inputs: Sequence[Flow], flow: Flow, y: Value) -> Flow:
    """Return a deep flow with the family of its elements: "integer" also for the steps of decision trees, as floats too."""
    if flow.role != "deep" or not isinstance(y.type, Tensor) or y.type.dtype is None:
        return flow
    dtype = y.type.dtype
    if dtype.name == "string":
        return replace(flow, family="text")
    is_step = type(node.op).__name__.startswith("TreeEnsemble") or (
        (_moves(node) or isinstance(node.op, Elementwise) or type(node.op).__name__ in ("Cast", "LabelEncoder"))
        and all(each.role == "constant" or (each.role == "deep" and each.family == "integer") for each in inputs)
    )
    return replace(flow, family="float" if dtype.kind == "float" and not is_step else "integer")


_ORDER = ("constant", "deep", "side", "plain", "difference", "half", "distance", "margin", "test")


def _join(inputs: Sequence[Flow]) -> Flow:
    """Return a flow that covers all of ``inputs``."""
    best = max(inputs, key=lambda flow: (_ORDER.index(flow.role), flow.strength, flow.is_narrow))
    return replace(
        best,
        is_narrow=any(flow.is_narrow for flow in inputs if flow.role == best.role),
        is_counted=any(flow.is_counted for flow in inputs if flow.role == best.role),
    )


def _elements(value: Value | None) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None:
    """Return the elements of a small constant of numbers; None for any other value."""
    data = None if value is None else value.constant if value.constant is not None else constant_value(value)
    if data is None or data.size > MAX_BOUNDS or data.dtype.hasobject:
        return None
    try:
        return np.asarray(data).astype(np.float64)
    except (TypeError, ValueError):
        return None


def _constant_text(value: Value | None) -> str:
    data = None if value is None else value.constant if value.constant is not None else constant_value(value)
    if data is None:
        return "computed elements"
    items = [str(item)[:40] for item in data.reshape(-1)[:4].tolist()]
    return ", ".join(items) + (f", ... ({data.size} elements)" if data.size > 4 else "")


def _is_usual(value: Value | None) -> bool:
    """Return whether all elements of a constant are among USUAL_CONSTANTS."""
    data = _elements(value)
    return data is not None and bool(np.all(np.isin(data, USUAL_CONSTANTS) | ~np.isfinite(data)))


def _test(node: Node, flow: Flow, constant: Value | None) -> Flow:
    """Return the flow of an equality test of ``flow`` with a constant."""
    if flow.role in ("distance", "margin") or flow.family == "text":
        strength = ALWAYS
    elif flow.role == "deep" or flow.family == "option":
        strength = NEVER
        if flow.family == "float" and not _is_usual(constant):
            strength = ALWAYS
    elif flow.family == "float":
        strength = IF_NARROW if _is_usual(constant) else ALWAYS
    else:
        strength = IF_NARROW
    return replace(
        flow,
        role="test",
        strength=strength,
        node=f"{node.label} ({node.title})",
        constant=_constant_text(constant),
        low=(),
        high=(),
    )


def _side(node: Node, flow: Flow, constant: Value | None, is_low: bool) -> Flow:
    """Return the flow of a comparison of a plain value with a constant, its lower (``is_low``) or upper bound."""
    data = _elements(constant)
    if data is None:
        return replace(flow, role="deep")
    ends = tuple(data.reshape(-1).tolist())
    label = f"{node.label} ({node.title})"
    low, high = (ends, ()) if is_low else ((), ends)
    return replace(flow, role="side", node=label, constant=_constant_text(constant), low=low, high=high)


def _interval(sides: Sequence[Flow]) -> Flow | None:
    """Return the test that two sides of one input make, if their interval is small."""
    for below in sides:
        for above in sides:
            if below.low and above.high and below.source == above.source and len(below.low) in (1, len(above.high)):
                low, high = np.asarray(below.low), np.asarray(above.high)
                scale = np.maximum(1, np.maximum(abs(low), abs(high)))
                if bool(np.all(np.abs(high - low) <= INTERVAL * scale)):
                    return replace(below, role="test", strength=IF_NARROW if below.family != "float" else ALWAYS, low=(), high=())
    return None


def _is_narrowed(node: Node) -> bool:
    """Return whether a node that moves elements keeps a constant number of them along an axis."""
    if type(node.op).__name__ not in ("Slice", "Gather", "GatherND", "GatherElements", "Split", "ReduceMin", "ReduceMax"):
        return False
    before, after = _sizes(node.inputs[0]), _sizes(node.outputs[0])
    if before is None or after is None:
        return False
    if len(before) != len(after):
        return any(size != 1 for size in before) and len(after) < len(before)
    return any(isinstance(b, int) and (not isinstance(a, int) or a > b) for a, b in zip(before, after, strict=True))


def _sizes(value: Value | None) -> Shape | None:
    """Return the shape of a tensor; None for an unknown rank or another type."""
    return value.type.shape if value is not None and isinstance(value.type, Tensor) else None


def _combine(node: Node, inputs: list[Flow]) -> Flow:
    """Return the flow of a node's outputs; the role "selected" if a test joins other data."""
    name = type(node.op).__name__
    tainted = [flow for flow in inputs if flow.role != "constant"]
    tests = [flow for flow in tainted if flow.role == "test"]
    sides = [flow for flow in tainted if flow.role == "side"]
    if len(sides) > 1 and len(sides) + len(tests) == len(tainted) and (found := _interval(sides)):
        return _join([found, *tests])
    if tests:
        if len(tests) + len(sides) < len(tainted):
            return Flow("selected")
        return _function_of_tests(name, node, _join(tests))
    if name in ("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"):
        return _compare(name, node, inputs)
    if sides:
        if name in ("Cast", "CastLike", "Not", "ReduceMin", "ReduceMax", "ReduceProd", "ReduceAll", "ReduceAny") or _moves(node):
            return (
                replace(_join(tainted), low=tuple(sides[0].low), high=tuple(sides[0].high))
                if len(tainted) == 1
                else _deep(inputs)
            )
        if name in ("And", "Or", "Multiply", "Minimum") and len(sides) == len(tainted):
            low = next((side.low for side in sides if side.low), ())
            high = next((side.high for side in sides if side.high), ())
            return replace(sides[0], low=low, high=high)
        return _deep(inputs)
    if len(tainted) > 1:
        return _combine_data(name, node, inputs, tainted)
    position = next(index for index, flow in enumerate(inputs) if flow.role != "constant")
    return _with_constants(name, node, inputs[position], position)


def _moves(node: Node) -> bool:
    return node.op.moves_elements or type(node.op).__name__ in (
        "Identity",
        "Dropout",
        "Expand",
        "Squeeze",
        "Unsqueeze",
        "Flatten",
    )


def _function_of_tests(name: str, node: Node, flow: Flow) -> Flow:
    if name in ("ReduceMin", "ReduceMax", "ReduceProd", "ReduceAll", "ReduceAny", "ReduceL2"):
        return replace(flow, is_narrow=flow.is_narrow or flow.family != "option")
    if node.op.sizes_depend_on_data:
        return replace(flow, is_size=True)
    if name in ("Shape", "Size"):
        return replace(flow, is_size=False, is_counted=True)
    if name in ("ReduceSum", "ReduceMean", "ReduceL1", "MatMul", "Gemm", "Conv", "Einsum", "AveragePool", "GlobalAveragePool"):
        return replace(flow, is_counted=True)
    if name in ("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual", "Relu", "Floor", "Sign"):
        return replace(flow, is_narrow=flow.is_narrow or flow.is_counted)
    return replace(flow, is_narrow=flow.is_narrow or _is_narrowed(node)) if _moves(node) else flow


def _compare(name: str, node: Node, inputs: list[Flow]) -> Flow:
    a, b = inputs
    if a.role != "constant" and b.role != "constant":
        return _deep(inputs)
    flow, constant = (a, node.inputs[1]) if b.role == "constant" else (b, node.inputs[0])
    if name in ("Equal", "NotEqual") and _is_one_hot(flow, constant):
        return _deep(inputs)
    if name in ("Equal", "NotEqual") or flow.role in ("distance", "margin"):
        return _test(node, flow, constant)
    if flow.role in ("plain", "difference"):
        is_low = name.startswith("Greater") == (flow is a)
        return _side(node, flow, constant, is_low)
    return _deep(inputs)


def _is_one_hot(flow: Flow, constant: Value | None) -> bool:
    """Return whether a comparison of integers with successive integers along one axis makes a one-hot encoding."""
    data = _elements(constant)
    if data is None or data.size < 3 or data.size != max(data.shape) or flow.family != "integer":
        return False
    items = data.reshape(-1)
    return bool(np.all(np.diff(items) == 1) and items[0] in (0, 1))


def _combine_data(name: str, node: Node, inputs: list[Flow], tainted: list[Flow]) -> Flow:
    roles = {flow.role for flow in tainted}
    is_one_source = len({flow.source for flow in tainted}) == 1
    if len(node.inputs) == 2 and node.inputs[0] is node.inputs[1]:
        if name == "Subtract":
            return CONSTANT
        if name == "Multiply" and roles <= {"difference", "distance"}:
            return replace(tainted[0], role="distance")
    if name == "Multiply" and is_one_source and roles == {"difference"}:
        return replace(_join(tainted), role="distance")
    if (
        name in ("Add", "Sum", "Maximum")
        and is_one_source
        and roles <= ({"half", "difference"} if name == "Maximum" else {"half"})
    ):
        return replace(_join(tainted), role="distance")
    if name in ("Add", "Sum", "Maximum", "Minimum", "Multiply") and roles <= {"distance", "margin"}:
        return _join(tainted)
    if name in ("Concat", "Mean") and "deep" not in roles:
        return _join(tainted)
    return _deep(inputs)


def _with_constants(name: str, node: Node, flow: Flow, position: int) -> Flow:
    """Return the flow of a node with one input that is no constant, the input ``position``."""
    role = flow.role
    y = node.outputs[0]
    if name in ("Cast", "CastLike"):
        if isinstance(y.type, Tensor) and y.type.dtype is not None and y.type.dtype.kind == "bool":
            return _test(node, flow, None) if role in ("distance", "margin", "difference") else replace(flow, role="deep")
        return flow
    if _moves(node) or name in ("Concat", "Pad", "Tile"):
        if position and name != "Concat":
            return _deep([flow])
        return replace(flow, is_narrow=flow.is_narrow or (flow.family == "integer" and _is_narrowed(node)) or _is_slice(node))
    if name in ("Multiply", "Divide", "Negative", "Identity"):
        other = node.inputs[1 - position] if len(node.inputs) == 2 else None
        data = _elements(other) if name == "Multiply" and other is not None else None
        return CONSTANT if data is not None and data.size and not data.any() else flow
    if name in ("Add", "Subtract", "Sum"):
        changed = {"plain": "difference", "distance": "margin", "half": "deep"}
        return replace(flow, role=changed.get(role, role))
    if name == "SquaredDifference" and role in ("plain", "difference"):
        return replace(flow, role="distance")
    if name in ("Abs", "ReduceL1", "ReduceL2", "ReduceSumSquare") and role == "difference":
        return replace(flow, role="distance")
    if name in ("Power", "Sqrt", "Abs", "Log") and role in ("difference", "distance"):
        exponent = _elements(node.inputs[1]) if name == "Power" else None
        is_even = exponent is not None and exponent.size == 1 and not float(exponent.reshape(-1)[0]) % 2
        return replace(flow, role="distance" if role == "distance" or is_even else "deep")
    if name in (
        "ReduceSum",
        "ReduceMean",
        "ReduceMax",
        "ReduceMin",
        "MatMul",
        "Gemm",
        "Conv",
        "Einsum",
        "GlobalAveragePool",
        "AveragePool",
    ):
        if role in ("distance", "margin"):
            return flow
        return replace(flow, is_narrow=True) if name.startswith("Reduce") and role in ("plain", "difference") else _deep([flow])
    if name in (
        "Relu",
        "Clip",
        "Minimum",
        "Maximum",
        "HardSigmoid",
        "Sign",
        "Floor",
        "Ceil",
        "Round",
        "Sigmoid",
        "ThresholdedRelu",
    ):
        if role == "margin" or (role == "distance" and name not in ("Relu", "Maximum", "Sigmoid", "Round")):
            return _test(node, flow, _bound_of(node, position))
        if role == "difference" and name in ("Relu", "Clip", "Maximum", "Minimum"):
            return replace(flow, role="half")
        return flow if role == "plain" and name in ("Clip", "Minimum", "Maximum", "Floor", "Ceil", "Round") else _deep([flow])
    return _deep([flow])


def _bound_of(node: Node, position: int) -> Value | None:
    return next((x for index, x in enumerate(node.inputs) if index != position and x is not None), None)


def _is_slice(node: Node) -> bool:
    return type(node.op).__name__ in ("Slice", "Gather", "GatherND", "GatherElements") and _is_narrowed(node)
