"""Function, a Model of nodes, and adjoints, the gradients of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail.errors import RuleError
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Model, Value
from dovetail.ir.types import agree_shapes
from dovetail.laws.gradients import adjoints as pull_back
from dovetail.ngraph.nodes import Constant, Node, Output, Parameter, as_list, in_order, output_of
from dovetail.ngraph.operators import Core
from dovetail.ops.constant import Identity


class NodeWriter:
    """NodeWriter adds nodes to one graph, each node once."""

    def __init__(self, graph: Graph | None = None) -> None:
        self.b = Builder(graph=graph)
        self.values: dict[Output, Value] = {}
        self.owners: dict[int, Output] = {}

    def value(self, output: Output) -> Value:
        for node in in_order([output.node], self._is_written):
            xs = [self.values[argument] for argument in node.arguments]
            if isinstance(node, Parameter):
                ys = [self.b.input_of(node.name, node.type)]
            else:
                ys = as_list(node.write(self.b, *xs))
            for index, y in enumerate(ys):
                self.values[Output(node, index)] = y
                self.owners[id(y)] = Output(node, index)
                if node.name and not isinstance(node, Parameter) and len(ys) == 1 and not self.b.graph.is_taken(node.name):
                    self.b.graph.release(y.name)
                    y.name = self.b.graph.claim(node.name)
        return self.values[output]

    def _is_written(self, node: Node) -> bool:
        return Output(node, 0) in self.values


class Function(Model):
    """Function is a Model of ``results`` in terms of ``parameters``, which must include each Parameter that the results need."""

    def __init__(self, results: Node | Output | Sequence[Node | Output], parameters: Sequence[Parameter], name: str = "") -> None:
        super().__init__(Graph(name))
        wanted = [output_of(result) for result in ([results] if isinstance(results, Node | Output) else results)]
        writer = NodeWriter(self.graph)
        for parameter in parameters:
            writer.value(Output(parameter, 0))
        known = len(self.graph.inputs)
        if known != len(parameters):
            raise RuleError("argument.value", "parameters must be distinct, got the same Parameter twice")
        values = [writer.value(result) for result in wanted]
        extra = [value.name for value in self.graph.inputs[known:]]
        if extra:
            raise RuleError(
                "argument.value", f"parameters must include each Parameter that the results need, missing {', '.join(extra)}"
            )
        for value in values:
            writer.b.output(value.name if not _is_out(self.graph, value) else f"{value.name}_result", value)
        self.results = wanted
        self.parameters = list(parameters)


def _is_out(graph: Graph, value: Value) -> bool:
    return any(value is other for other in (*graph.inputs, *graph.outputs))


class Adjoints(dict[Parameter, Node]):
    """Adjoints maps each Parameter to its gradient."""

    def backprop_node(self, parameter: Parameter) -> Node:
        """Return the gradient with respect to ``parameter``. Raises RuleError [name.unknown]."""
        if parameter not in self:
            raise RuleError("name.unknown", f"a gradient needs a parameter on which the outputs depend, got {parameter!r}")
        return self[parameter]


def adjoints(outputs: Sequence[Node | Output] | Node | Output, deltas: Sequence[Node | Output] | Node | Output) -> Adjoints:
    """Return gradients of ``outputs`` for incoming gradients ``deltas``, one per float Parameter on which ``outputs`` depend."""
    ends = [output_of(item) for item in ([outputs] if isinstance(outputs, Node | Output) else outputs)]
    starts = [output_of(item) for item in ([deltas] if isinstance(deltas, Node | Output) else deltas)]
    if len(ends) != len(starts):
        raise RuleError("argument.value", f"the number of deltas ({len(starts)}) must equal the number of outputs ({len(ends)})")
    parameters = [node for node in in_order([end.node for end in ends], lambda node: False) if isinstance(node, Parameter)]
    parameters = [node for node in parameters if node.type.dtype is not None and node.type.dtype.is_float]
    writer = NodeWriter()
    targets = [writer.value(end) for end in ends]
    incoming = [writer.value(start) for start in starts]
    for target, delta in zip(targets, incoming, strict=True):
        if target.dtype is not delta.dtype:
            raise RuleError(
                "type.disagree", f"the incoming gradient of an output must have its type {target.dtype}, got {delta.dtype}"
            )
        agree_shapes(target.shape, delta.shape, "the output", "its incoming gradient")
    sources = [writer.values[Output(parameter, 0)] for parameter in parameters]
    gradients = pull_back(writer.b, targets, incoming, sources)
    for core in writer.b.graph.nodes:
        _wrap(writer, core)
    return Adjoints(zip(parameters, (_node_of(writer.owners[id(gradient)]) for gradient in gradients), strict=True))


def _wrap(writer: NodeWriter, core: Any) -> None:
    """Create an nGraph node for a node of the core graph that has none yet."""
    if all(id(y) in writer.owners for y in core.outputs):
        return
    data = core.outputs[0].constant
    if data is not None:
        node: Node = Constant(core.op.dtype, data.shape, data)
    else:
        node = Core(core.op, *(writer.owners[id(x)] for x in core.inputs))
    for index, y in enumerate(core.outputs):
        writer.owners.setdefault(id(y), Output(node, index))


def _node_of(output: Output) -> Node:
    return output.node if len(output.node.types) == 1 else Core(Identity(), output)
