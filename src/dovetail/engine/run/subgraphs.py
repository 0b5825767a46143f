"""Subgraphs of If and Loop as compiled programs, which replace the interpreter's evaluation of these operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dovetail.arrays import Array, Namespace
from dovetail.engine.run.executable import Executable, is_array
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_graph, replace_uses
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ops.control_flow.if_op import If
from dovetail.ops.control_flow.loop import Loop, clear_types

REASON = "its subgraph is a program of its own"
"""The reason that a plan gives for running such an operator in Python."""
MAX_EXECUTABLES = 64
"""The most sets of input shapes for which a Subgraph looks up an executable without its engine."""


class SubgraphEngine(Protocol):
    """An engine for the model of a subgraph."""

    def bind(self, inputs: Sequence[Array]) -> tuple[Executable, list[Array]]: ...
    def __call__(self, inputs: Sequence[Array]) -> dict[str, Array]: ...


CreateEngine = Callable[[Model], SubgraphEngine]


class Subgraph:
    """A subgraph as a program. An input that is a constant of the outer graph is one inside, so that weights are packed."""

    def __init__(self, body: Graph, outer_values: Sequence[Value | None], create_engine: CreateEngine) -> None:
        self._create_engine = create_engine
        self._engine: SubgraphEngine | None = None
        graph = copy_graph(body)
        clear_types(graph)
        self._model = Model(graph)
        variable = [index for index, x in enumerate(outer_values) if not _replace_by_constant(graph, index, x)]
        outputs = {id(value) for value in graph.outputs}
        self._read = [index for index in variable if graph.inputs[index].uses or id(graph.inputs[index]) in outputs]
        graph.inputs = [graph.inputs[index] for index in self._read]
        for value in graph.inputs:
            # A shape value may be an expression in symbols of the outer graph.
            value.value = None
        _make_outputs_distinct(graph)
        self._names = [str(index) for index in range(len(graph.outputs))]
        self._executables: dict[tuple[Any, ...], Executable] = {}

    def __call__(self, xs: Sequence[Array]) -> list[Array]:
        inputs = [xs[index] for index in self._read]
        key = tuple([(x.shape, x.strides) if is_array(x) and x.flags.aligned else None for x in inputs])
        executable = self._executables.get(key)
        if executable is not None:
            return list(executable(inputs, None, self._names).values())
        if self._engine is None:
            self._engine = self._create_engine(self._model)
        executable, arrays = self._engine.bind(inputs)
        if any(tensor.is_dynamic for tensor in (*executable.plan.inputs, *executable.plan.outputs)):
            return list(self._engine(inputs).values())
        if None not in key and all(array is x for array, x in zip(arrays, inputs, strict=True)):
            if len(self._executables) >= MAX_EXECUTABLES:
                self._executables.clear()
            self._executables[key] = executable
        return list(executable(arrays, None, self._names).values())

    def __repr__(self) -> str:
        return f"<Subgraph {self._model!r}>"


def _replace_by_constant(graph: Graph, index: int, x: Value | None) -> bool:
    """Replace an input by the constant that it is in the outer graph; returns whether it is one."""
    if x is None or x.constant is None:
        return False
    nodes, graph.nodes = graph.nodes, []
    replace_uses(graph, graph.inputs[index], Builder(graph=graph).constant(x.constant, x.dtype))
    graph.nodes += nodes
    return True


def _make_outputs_distinct(graph: Graph) -> None:
    """Write an Identity for each output that is an input or another output, so that each has a name of its own."""
    b = Builder(graph=graph)
    seen = {id(value) for value in graph.inputs}
    for index, value in enumerate(graph.outputs):
        if id(value) in seen:
            graph.outputs[index] = value = b.apply("Identity", value)
        seen.add(id(value))


class CompiledIf(If, sig=If.sig, is_registered=False):
    """If whose branches are programs. An operator of the engine alone."""

    programs: tuple[Subgraph, Subgraph] | None = None
    interpreter_reason = REASON

    def evaluate(self, xp: Namespace, condition: Array, *captures: Array) -> Array:
        assert self.programs is not None
        then_, else_ = self.programs
        return self.evaluate_with(
            lambda branch, xs: (then_ if branch is self.then_branch else else_)(xs), xp, condition, *captures
        )


class CompiledLoop(Loop, sig=Loop.sig, is_registered=False):
    """Loop whose body is a program. An operator of the engine alone."""

    program: Subgraph | None = None
    interpreter_reason = REASON

    def evaluate(self, xp: Namespace, trips: Array = None, condition: Array = None, *xs: Array) -> Array:
        assert self.program is not None
        program = self.program
        return self.evaluate_with(lambda _, inputs: program(inputs), xp, trips, condition, *xs)


def compile_subgraphs(graph: Graph, create_engine: CreateEngine) -> None:
    """Replace each If and Loop of ``graph`` by its compiled form. ``create_engine`` prepares the model of a subgraph."""
    for node in graph.nodes:
        if type(node.op) is If:
            then_, else_ = node.op.then_branch, node.op.else_branch
            programs = (Subgraph(then_, node.inputs[1:], create_engine), Subgraph(else_, node.inputs[1:], create_engine))
            node.op = CompiledIf(**node.op.__dict__, programs=programs)
        elif type(node.op) is Loop:
            node.op = CompiledLoop(**node.op.__dict__, program=_loop_body(node, node.op, create_engine))


def _loop_body(node: Node, op: Loop, create_engine: CreateEngine) -> Subgraph:
    own_inputs = op.carried + len(op.scan_inputs)
    outer_values = [None, *[None] * own_inputs, *node.inputs[2 + own_inputs :]]
    return Subgraph(op.body, outer_values, create_engine)
