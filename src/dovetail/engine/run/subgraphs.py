"""The graphs that operators hold, as programs of their own: If and Loop run them in place of the interpreter's walk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dovetail.engine.run.executable import Executable, is_array
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_graph, replace_uses
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ops.control_flow.if_op import If
from dovetail.ops.control_flow.loop import Loop, forget

APART = "what it holds is a program of its own"
"""Why no kernel does the work of such an operator."""
MOST = 64
"""How many sets of input shapes a body's plans are looked up by at once."""


class Subgraph:
    """A body made ready to run. What it reads that is constant outside is constant inside, so that weights are packed."""

    def __init__(self, body: Graph, outside: Sequence[Value | None], engine: Callable[[Model], Any]) -> None:
        self._make = engine
        self._engine: Any = None
        graph = copy_graph(body)
        forget(graph)
        self._model = Model(graph)
        given = [place for place, x in enumerate(outside) if not _put_in(graph, place, x)]
        made = {id(value) for value in graph.outputs}
        self._read = [place for place in given if graph.inputs[place].uses or id(graph.inputs[place]) in made]
        graph.inputs = [graph.inputs[place] for place in self._read]
        for value in graph.inputs:
            # What is known of it as a shape value is said in sizes that may not be its inputs'.
            value.value = None
        _own_outputs(graph)
        self._names = [str(place) for place in range(len(graph.outputs))]
        self._known: dict[tuple[Any, ...], Executable] = {}

    def __call__(self, xs: Sequence[Any]) -> list[Any]:
        given = [xs[place] for place in self._read]
        key = tuple([(x.shape, x.strides) if is_array(x) and x.flags.aligned else None for x in given])
        executable = self._known.get(key)
        if executable is not None:
            return list(executable(given, None, self._names).values())
        if self._engine is None:
            self._engine = self._make(self._model)
        executable, arrays = self._engine.bind(given)
        if any(tensor.is_dynamic for tensor in (*executable.plan.inputs, *executable.plan.outputs)):
            return list(self._engine(given).values())
        if None not in key and all(array is x for array, x in zip(arrays, given, strict=True)):
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[key] = executable
        return list(executable(arrays, None, self._names).values())

    def __repr__(self) -> str:
        return f"<Body {self._model!r}>"


def _put_in(graph: Graph, place: int, x: Value | None) -> bool:
    """Whether an input is constant outside, and now inside."""
    if x is None or x.constant is None:
        return False
    nodes, graph.nodes = graph.nodes, []
    replace_uses(graph, graph.inputs[place], Builder(graph=graph).constant(x.constant, x.dtype))
    graph.nodes += nodes
    return True


def _own_outputs(graph: Graph) -> None:
    """Let each output be a value of its own, so that it has a name of its own."""
    b = Builder(graph=graph)
    seen = {id(value) for value in graph.inputs}
    for place, value in enumerate(graph.outputs):
        if id(value) in seen:
            graph.outputs[place] = value = b.apply("Identity", value)
        seen.add(id(value))


class CompiledIf(If, sig=If.sig, is_registered=False):
    """If whose branches are programs. Not one of a model's operators."""

    programs: tuple[Subgraph, Subgraph] | None = None
    no_kernel = APART

    def evaluate(self, xp: Any, condition: Any, *captures: Any) -> Any:
        assert self.programs is not None
        then_, else_ = self.programs
        return self.through(lambda branch, xs: (then_ if branch is self.then_branch else else_)(xs), xp, condition, *captures)


class CompiledLoop(Loop, sig=Loop.sig, is_registered=False):
    """Loop whose body is a program. Not one of a model's operators."""

    program: Subgraph | None = None
    no_kernel = APART

    def evaluate(self, xp: Any, trips: Any = None, condition: Any = None, *xs: Any) -> Any:
        assert self.program is not None
        program = self.program
        return self.through(lambda _, inputs: program(inputs), xp, trips, condition, *xs)


def compile_subgraphs(graph: Graph, engine: Callable[[Model], Any]) -> None:
    """Let the operators of ``graph`` that hold graphs run programs. ``engine`` makes one of a model."""
    for node in graph.nodes:
        if type(node.op) is If:
            then_, else_ = node.op.then_branch, node.op.else_branch
            programs = (Subgraph(then_, node.inputs[1:], engine), Subgraph(else_, node.inputs[1:], engine))
            node.op = CompiledIf(**node.op.__dict__, programs=programs)
        elif type(node.op) is Loop:
            node.op = CompiledLoop(**node.op.__dict__, program=_trip(node, node.op, engine))


def _trip(node: Node, op: Loop, engine: Callable[[Model], Any]) -> Subgraph:
    own = op.carried + len(op.scanned)
    outside = [None, *[None] * own, *node.inputs[2 + own :]]
    return Subgraph(op.body, outside, engine)


__all__ = ["compile_subgraphs"]
