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
from dovetail.ir.op import Op, bodies, has
from dovetail.ir.types import Shape, Tensor
from dovetail.ops.control_flow.loop import Loop
from dovetail.ops.elementwise import activation, binary, logical, unary
from dovetail.ops.elementwise.broadcast import Elementwise
from dovetail.ops.elementwise.cast import Cast, CastLike
from dovetail.ops.elementwise.clip import Clip, finite_range
from dovetail.ops.linalg.einsum import Einsum
from dovetail.ops.ml.label_encoder import LabelEncoder
from dovetail.ops.ml.tree_ensemble import TreeEnsemble
from dovetail.ops.ml.tree_ensemble_classifier import TreeEnsembleClassifier, TreeEnsembleRegressor
from dovetail.ops.nn.dropout import Dropout
from dovetail.ops.nn.pool import AveragePool, GlobalAveragePool, GlobalPool
from dovetail.ops.nn.sliding_window import SlidingWindowOp
from dovetail.ops.reduction import reduce
from dovetail.ops.tensor import gather, shape as shape_ops
from dovetail.ops.tensor.concat_split import Concat, Split
from dovetail.ops.tensor.slice import Slice
from dovetail.ops.tensor.topk import TopK

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
    if dtype.kind == "bool":
        return Flow("deep", value.name, "integer")
    if not dtype.is_integer or dtype.name in ("u8", "i8"):
        return Flow("plain", value.name, "float")
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
        if isinstance(node.op, shape_ops.Shape | shape_ops.Size) and not inputs[0].is_size:
            return [CONSTANT] * len(node.outputs)
        if all(flow.role == "constant" for flow in inputs):
            return [CONSTANT] * len(node.outputs)
        flow = _combine(node, inputs)
        if flow.role == "selected":
            for each in inputs:
                if each.role == "test":
                    self.report(_label(node), each)
            flow = _deep(inputs)
        return [_with_family(node, inputs, flow, y) for y in node.outputs]

    def _flows_of_subgraphs(self, node: Node, inputs: list[Flow]) -> list[Flow]:
        loop = node.op if isinstance(node.op, Loop) else None
        results = [CONSTANT] * len(node.outputs)
        first = 2 if loop else node.op.first_capture
        for flow in inputs[:first]:
            if flow.role == "test":
                self.report(_label(node), flow)
        decided = any(flow.role != "constant" for flow in inputs[:first])
        for _, body in bodies(node.op):
            given = [*([CONSTANT] if loop else []), *inputs[first:]]
            given += [CONSTANT] * (len(body.inputs) - len(given))
            outputs = self.visit(body, tuple(given[: len(body.inputs)]))
            if loop:
                # The second visit has the states of a later trip.
                ends = slice(1, 1 + loop.carried)
                given[ends] = [_join([a, b]) for a, b in zip(given[ends], outputs[ends], strict=True)]
                outputs = self.visit(body, tuple(given[: len(body.inputs)]))
                if outputs and outputs[0].role == "test":
                    self.report(_label(node), outputs[0])
                outputs = outputs[1:]
            results = [_join([a, b]) for a, b in zip(results, outputs, strict=False)] + results[len(outputs) :]
        if decided:
            results = [_deep(inputs) if flow.role == "constant" else flow for flow in results]
        return results


def _label(node: Node) -> str:
    return f"{node.label} ({node.title})"


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
    is_step = isinstance(node.op, TreeEnsemble | TreeEnsembleClassifier | TreeEnsembleRegressor) or (
        (_moves(node.op) or isinstance(node.op, Elementwise | Cast | LabelEncoder))
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
        node=_label(node),
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
    low, high = (ends, ()) if is_low else ((), ends)
    return replace(flow, role="side", node=_label(node), constant=_constant_text(constant), low=low, high=high)


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
    """Return whether a node selects elements, and keeps a constant number of them along an axis."""
    if not isinstance(node.op, Slice | Split | gather.Gather | gather.GatherElements | gather.GatherND):
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


def _moves(op: Op) -> bool:
    return op.moves_elements or isinstance(op, Dropout)


def _reduces(op: Op) -> bool:
    """Return whether each result is a function of several elements of an input, if the other inputs are constants."""
    return isinstance(op, reduce.Reduction | SlidingWindowOp | GlobalPool | TopK) or _counts(op)


def _counts(op: Op) -> bool:
    """Return whether each result is a function of a weighted sum of tests, if the other inputs are constants."""
    sums = reduce.ReduceSum | reduce.ReduceMean | reduce.ReduceL1 | reduce.ReduceSumSquare | AveragePool | GlobalAveragePool
    return isinstance(op, sums | reduce.ReduceLogSum | Einsum) or has(op, "multiply_adds")


def _compares(node: Node) -> bool:
    """Return whether a node separates small from large numbers; a Clip without an upper bound guards a divisor."""
    op = node.op
    if isinstance(op, Clip):
        high = node.inputs[2] if len(node.inputs) > 2 else None
        data = _elements(high)
        return high is not None and (data is None or bool(np.all(data < finite_range(high.dtype)[1])))
    if isinstance(op, Cast | CastLike):
        return _is_boolean(node.outputs[0])
    return isinstance(op, logical.ComparisonOp | binary.Minimum) or _is_threshold(op)


def _is_threshold(op: Op) -> bool:
    """Return whether an operator is a function of one number with a bend or a step, as an activation is."""
    is_function = isinstance(op, unary.UnaryOp | activation.PRelu | activation.Gelu | Clip)
    return is_function and not op.is_algebraic and not isinstance(op, unary.Exp | unary.Log)


def _is_boolean(value: Value) -> bool:
    return isinstance(value.type, Tensor) and value.type.dtype is not None and value.type.dtype.kind == "bool"


def _combine(node: Node, inputs: list[Flow]) -> Flow:
    """Return the flow of a node's outputs; the role "selected" if a test joins other data."""
    op = node.op
    tainted = [flow for flow in inputs if flow.role != "constant"]
    tests = [flow for flow in tainted if flow.role == "test"]
    sides = [flow for flow in tainted if flow.role == "side"]
    if len(sides) > 1 and len(sides) + len(tests) == len(tainted) and (interval := _interval(sides)):
        return _join([interval, *tests])
    if tests:
        if len(tests) + len(sides) < len(tainted):
            return Flow("selected")
        return _function_of_tests(node, _join(tests))
    if isinstance(op, logical.ComparisonOp):
        return _compare(node, inputs)
    if sides:
        return _function_of_sides(node, tainted, sides)
    if len(tainted) > 1:
        return _combine_data(node, tainted)
    position = next(index for index, flow in enumerate(inputs) if flow.role != "constant")
    return _with_constants(node, inputs[position], position)


def _function_of_sides(node: Node, tainted: list[Flow], sides: list[Flow]) -> Flow:
    is_kept = isinstance(node.op, Cast | CastLike | logical.Not | reduce.Reduction) or _moves(node.op)
    if len(tainted) == 1 and is_kept:
        return sides[0]
    if isinstance(node.op, logical.And | logical.Or | binary.Multiply | binary.Minimum) and len(sides) == len(tainted):
        sides = [side for side in sides if side.source == sides[0].source]
        low = next((side.low for side in sides if side.low), ())
        high = next((side.high for side in sides if side.high), ())
        return replace(sides[0], low=low, high=high)
    return _deep(tainted)


def _function_of_tests(node: Node, flow: Flow) -> Flow:
    op = node.op
    if op.sizes_depend_on_data:
        return replace(flow, is_size=True)
    if isinstance(op, shape_ops.Shape | shape_ops.Size):
        return replace(flow, is_size=False, is_counted=True)
    if _counts(op):
        return replace(flow, is_counted=True)
    if _reduces(op) and node.outputs[0].uses:
        # Only the indices are read of a TopK that finds the position of a token.
        return replace(flow, is_narrow=flow.is_narrow or flow.family != "option")
    if _compares(node):
        return replace(flow, is_narrow=flow.is_narrow or flow.is_counted)
    return replace(flow, is_narrow=flow.is_narrow or _is_narrowed(node))


def _compare(node: Node, inputs: list[Flow]) -> Flow:
    a, b = inputs
    if a.role != "constant" and b.role != "constant":
        return _deep(inputs)
    flow, constant = (a, node.inputs[1]) if b.role == "constant" else (b, node.inputs[0])
    is_equality = isinstance(node.op, logical.Equal | logical.NotEqual)
    if is_equality and _is_one_hot(flow, constant):
        return _deep(inputs)
    if is_equality or flow.role in ("distance", "margin"):
        return _test(node, flow, constant)
    if flow.role in ("plain", "difference"):
        is_low = isinstance(node.op, logical.Greater | logical.GreaterEqual) == (flow is a)
        return _side(node, flow, constant, is_low)
    return flow if flow.role == "side" else _deep(inputs)


def _is_one_hot(flow: Flow, constant: Value | None) -> bool:
    """Return whether a comparison of integers with successive integers along one axis makes a one-hot encoding."""
    data = _elements(constant)
    if data is None or data.size < 3 or data.size != max(data.shape) or flow.family != "integer":
        return False
    items = data.reshape(-1)
    return bool(np.all(np.diff(items) == 1) and items[0] in (0, 1))


def _combine_data(node: Node, tainted: list[Flow]) -> Flow:
    """Return the flow of a node with several inputs that are no constants, and no tests."""
    op = node.op
    roles = {flow.role for flow in tainted}
    is_one_source = len({flow.source for flow in tainted}) == 1
    extremes = binary.Minimum | binary.Maximum
    is_one_value = len(node.inputs) == 2 and node.inputs[0] is node.inputs[1]
    if isinstance(op, binary.Subtract) and is_one_value:
        return CONSTANT
    if isinstance(op, binary.Multiply) and is_one_source and roles <= {"difference", "distance"}:
        return replace(_join(tainted), role="distance")
    is_norm = (isinstance(op, binary.Maximum) and roles <= {"half", "difference"}) or (
        isinstance(op, binary.Add | binary.Sum) and roles == {"half"}
    )
    if is_norm and is_one_source:
        return replace(_join(tainted), role="distance")
    if roles <= {"distance", "margin"} and isinstance(op, extremes | binary.Add | binary.Sum | binary.Multiply):
        return _join(tainted)
    if isinstance(op, Concat | binary.Mean) and "deep" not in roles:
        return _join(tainted)
    return _deep(tainted)


def _with_constants(node: Node, flow: Flow, position: int) -> Flow:
    """Return the flow of a node with one input that is no constant, the input ``position``."""
    op, role = node.op, flow.role
    if isinstance(op, Cast | CastLike):
        if _is_boolean(node.outputs[0]):
            return _test(node, flow, None) if role in ("distance", "margin", "difference") else replace(flow, role="deep")
        return flow
    if _moves(op):
        if position and not isinstance(op, Concat):
            return _deep([flow])
        return replace(flow, is_narrow=flow.is_narrow or _is_narrowed(node))
    if isinstance(op, binary.Multiply | binary.Divide | unary.Negative):
        data = _elements(node.inputs[1 - position]) if isinstance(op, binary.Multiply) else None
        return CONSTANT if data is not None and data.size and not data.any() else flow
    if isinstance(op, binary.Add | binary.Subtract | binary.Sum):
        changed = {"plain": "difference", "distance": "margin", "half": "deep"}
        return replace(flow, role=changed.get(role, role))
    if isinstance(op, binary.SquaredDifference) and role in ("plain", "difference"):
        return replace(flow, role="distance")
    if isinstance(op, unary.Abs | reduce.ReduceL1 | reduce.ReduceL2 | reduce.ReduceSumSquare) and role == "difference":
        return replace(flow, role="distance")
    if isinstance(op, binary.Power | unary.Sqrt | unary.Abs | unary.Log) and role in ("difference", "distance"):
        exponent = _elements(node.inputs[1]) if isinstance(op, binary.Power) else None
        is_even = exponent is not None and exponent.size == 1 and not float(exponent.reshape(-1)[0]) % 2
        return replace(flow, role="distance" if role == "distance" or is_even else "deep")
    if _reduces(op):
        if role in ("distance", "margin"):
            return flow
        kept = reduce.ReduceSum | reduce.ReduceMean | reduce.ReduceMax | reduce.ReduceMin
        is_kept = isinstance(op, kept) and role in ("plain", "difference")
        return replace(flow, is_narrow=True) if is_kept else _deep([flow])
    extremes = binary.Minimum | binary.Maximum
    if isinstance(op, extremes) or _is_threshold(op):
        bounds = activation.HardSigmoid | activation.ThresholdedRelu | Clip | binary.Minimum
        if role == "margin" or (role == "distance" and isinstance(op, bounds | unary.Sign | unary.Floor | unary.Ceil)):
            return _test(node, flow, _bound_of(node, position))
        if role == "difference" and isinstance(op, activation.Relu | Clip | extremes):
            return replace(flow, role="half")
        is_plain = role == "plain" and isinstance(op, Clip | extremes | unary.Floor | unary.Ceil | unary.Round)
        return flow if is_plain else _deep([flow])
    return _deep([flow])


def _bound_of(node: Node, position: int) -> Value | None:
    return next((x for index, x in enumerate(node.inputs) if index != position and x is not None), None)
