"""Subgraphs of If and Loop as compiled programs, which replace the interpreter's evaluation of these operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from dovetail.engine.memory.tensor import RunTensor, TensorMap, is_array
from dovetail.engine.plan import Operand
from dovetail.engine.rewrite.data_sizes import Partition
from dovetail.engine.shape_specialization import constants_of
from dovetail.errors import DovetailError
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.builder import Builder
from dovetail.ir.dtypes import dtype
from dovetail.ir.edit import copy_graph, inline, remove_dead, replace_uses
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.inputs_outputs import copy_shared_outputs
from dovetail.ir.limits import active
from dovetail.laws.rules.conditions import known_index
from dovetail.ops.control_flow.if_op import If
from dovetail.ops.control_flow.loop import Loop, clear_types, is_endless

if TYPE_CHECKING:
    from dovetail.engine.run.executable import Executable
    from dovetail.engine.run.fast_calls import FastCalls

REASON = "its subgraph is a separate program"
"""The reason that a plan gives for running an If or Loop in Python."""
_TRUE = np.array(True)
MAX_EXECUTABLES = 64
"""The maximum number of sets of input shapes for which a Subgraph looks up an executable without its engine."""


class SubgraphEngine(Protocol):
    """SubgraphEngine is an engine for the model of a subgraph."""

    graph: Graph
    fast_calls: FastCalls | None

    def bind(self, inputs: Sequence[Array]) -> tuple[Executable, list[Array]]: ...
    def __call__(self, inputs: Sequence[Array]) -> dict[str, Array]: ...


T = TypeVar("T")


class TensorShape(NamedTuple):
    """TensorShape holds the element type and the shape of a tensor."""

    dtype: str
    sizes: tuple[int, ...]

    @staticmethod
    def of(tensor: RunTensor) -> TensorShape:
        return TensorShape("" if tensor.dtype is None else tensor.dtype.name, tensor.sizes)

    @staticmethod
    def of_operand(operand: Operand, axis: int | None = None, size: int = 0) -> TensorShape:
        """Return the element type and shape of an operand. With ``axis``, the size along that axis is ``size``."""
        sizes = operand.sizes if axis is None else (*operand.sizes[:axis], size, *operand.sizes[axis + 1 :])
        return TensorShape("" if operand.tensor.dtype is None else operand.tensor.dtype.name, sizes)


CreateEngine = Callable[[Model, bool], SubgraphEngine]
"""A function that returns the engine of a subgraph; the engine has fast calls if the second argument is true."""


RunExecutable = Callable[["Subgraph", "Executable", Sequence[Array], Sequence[str]], dict[str, Array]]
_PROFILED: ContextVar[RunExecutable | None] = ContextVar("dovetail-profiled", default=None)


@contextmanager
def profile_subgraphs(run: RunExecutable) -> Iterator[None]:
    """Within this context, call ``run`` to run the executables of subgraphs whose If or Loop runs in Python."""
    token = _PROFILED.set(run)
    try:
        yield
    finally:
        _PROFILED.reset(token)


class Subgraph:
    """Subgraph is a program for a subgraph. Inputs that are constants of the outer graph become constants, to pack weights.

    ``is_endless``: the body of a loop whose first output, the condition, is always true; the program does not have that output.
    ``is_partition``: the core serves calls whose sizes change without Python. ``reads``: the indices of the subgraph's inputs
    that the program has.
    """

    def __init__(
        self,
        body: Graph,
        outer_values: Sequence[Value | None],
        create_engine: CreateEngine,
        is_endless: bool = False,
        is_partition: bool = False,
    ) -> None:
        self._create_engine = create_engine
        self.is_endless = is_endless
        self._is_partition = is_partition
        self._engine: SubgraphEngine | None = None
        graph = copy_graph(body)
        clear_types(graph)
        if is_endless:
            del graph.outputs[0]
            remove_dead(graph)
        self.model = Model(graph)
        variable = [index for index, x in enumerate(outer_values) if not _replace_by_constant(graph, index, x)]
        outputs = {id(value) for value in graph.outputs}
        self.reads = [index for index in variable if graph.inputs[index].uses or id(graph.inputs[index]) in outputs]
        graph.inputs = [graph.inputs[index] for index in self.reads]
        for value in graph.inputs:
            # A shape value may be an expression in symbols of the outer graph.
            value.value = None
        _make_outputs_distinct(graph)
        self._names = [str(index) for index in range(len(graph.outputs))]
        self._executables: dict[tuple[Any, ...], Executable] = {}

    def __call__(self, xs: Sequence[Array]) -> list[Array]:
        """Run the subgraph once, with all of its inputs; return all of its outputs."""
        return [_TRUE, *self._run(xs)] if self.is_endless else self._run(xs)

    def _run(self, xs: Sequence[Array]) -> list[Array]:
        inputs = self.select_read(xs)
        if (run := _PROFILED.get()) is not None:
            return self._run_with(run, inputs)
        if self._is_partition:
            results = self._call_fast(inputs)
            return list(self.engine()(inputs).values()) if results is None else results
        key = tuple([(x.shape, x.strides) if is_array(x) and x.flags.aligned else None for x in inputs])
        executable = self._executables.get(key)
        if executable is not None:
            return list(executable(inputs, None, self._names).values())
        engine = self.engine()
        executable, arrays = engine.bind(inputs)
        if any(tensor.is_dynamic for tensor in (*executable.plan.inputs, *executable.plan.outputs)):
            return list(engine(inputs).values())
        if None not in key and all(array is x for array, x in zip(arrays, inputs, strict=True)):
            if len(self._executables) >= MAX_EXECUTABLES:
                self._executables.clear()
            self._executables[key] = executable
        return list(executable(arrays, None, self._names).values())

    def _call_fast(self, inputs: Sequence[Array]) -> list[Array] | None:
        """Return the results of a call that the core serves without Python; None where the core does not serve the call."""
        fast_calls = self.engine().fast_calls
        if fast_calls is None or fast_calls.call is None or active() is not None:
            return None
        results = fast_calls.call((list(inputs),), {}, None)
        return None if results is None else list(results.values())

    def _run_with(self, run: RunExecutable, inputs: Sequence[Array]) -> list[Array]:
        executable, arrays = self.engine().bind(inputs)
        outputs = run(self, executable, arrays, self._names)
        tensors = zip(outputs, executable.plan.outputs, strict=True)
        dynamic = {name: outputs[name] for name, tensor in tensors if tensor.is_dynamic}
        return list((outputs | copy_shared_outputs(dynamic, arrays)).values())

    def engine(self) -> SubgraphEngine:
        """Return the engine of the subgraph, which is created at the first use: a branch that never runs needs no engine."""
        if self._engine is None:
            self._engine = self._create_engine(self.model, self._is_partition)
        return self._engine

    def native_executable(self, inputs: Sequence[TensorShape | None]) -> Executable | None:
        """Return the executable for inputs of these shapes; None if some step is not native, or the shapes are refused."""
        shapes = self.select_read(inputs)
        if any(shape is None or shape.dtype in ("", "string") for shape in shapes):
            return None
        try:
            arrays = [np.empty(shape.sizes, dtype(shape.dtype).numpy) for shape in shapes if shape is not None]
            executable, _ = self.engine().bind(arrays)
        except (DovetailError, MemoryError):
            # A run in Python reports the error.
            return None
        is_dynamic = any(tensor.is_dynamic for tensor in (*executable.plan.inputs, *executable.plan.outputs))
        return executable if executable.is_native and executable.has_dense_inputs and not is_dynamic else None

    def select_read(self, xs: Sequence[T]) -> list[T]:
        """Return the items of ``xs`` for the inputs that the subgraph's engine reads."""
        return [xs[index] for index in self.reads]

    def __repr__(self) -> str:
        return f"<Subgraph {self.model!r}>"


def _replace_by_constant(graph: Graph, index: int, x: Value | None) -> bool:
    """Replace an input by a constant if the value ``x`` of the outer graph is constant; return whether ``x`` is constant."""
    if x is None or x.constant is None:
        return False
    nodes, graph.nodes = graph.nodes, []
    replace_uses(graph, graph.inputs[index], Builder(graph=graph).constant(x.constant, x.dtype))
    graph.nodes += nodes
    return True


def _make_outputs_distinct(graph: Graph) -> None:
    """Insert an Identity for each output that is an input or another output, so that each output has a distinct name."""
    b = Builder(graph=graph)
    seen = {id(value) for value in graph.inputs}
    for index, value in enumerate(graph.outputs):
        if id(value) in seen:
            graph.outputs[index] = value = b.apply("Identity", value)
        seen.add(id(value))


class CompiledIf(If, sig=If.sig, is_registered=False):
    """CompiledIf is an If whose branches are programs. Only the engine uses this operator."""

    title = "If"
    programs: tuple[Subgraph, Subgraph] | None = None
    interpreter_reason = REASON

    def evaluate(self, xp: Namespace, condition: Array, *captures: Array) -> Array:
        assert self.programs is not None
        then_, else_ = self.programs
        return self.evaluate_with(
            lambda branch, xs: (then_ if branch is self.then_branch else else_)(xs), xp, condition, *captures
        )


class CompiledLoop(Loop, sig=Loop.sig, is_registered=False):
    """CompiledLoop is a Loop whose body is a program. Only the engine uses this operator."""

    title = "Loop"
    program: Subgraph | None = None
    interpreter_reason = REASON

    def evaluate(self, xp: Namespace, trips: Array = None, condition: Array = None, *xs: Array) -> Array:
        assert self.program is not None
        program = self.program
        return self.evaluate_with(lambda _, inputs: program(inputs), xp, trips, condition, *xs)


def inlining_rule(shared: set[int]) -> Callable[[Builder, Node], list[Value] | None]:
    """Return a rule that replaces an If of known condition by the nodes of its branch, rewritten by the branch's engine.

    ``shared`` receives the ``id`` of each constant of that branch.
    """

    def rule(b: Builder, node: Node) -> list[Value] | None:
        index = known_index(node.op, node.inputs)
        if index is None or not isinstance(node.op, CompiledIf) or node.op.programs is None:
            return None
        program = node.op.programs[index]
        try:
            branch = program.engine().graph
            results = inline(b, branch, program.select_read(node.inputs[1:]), keep_names=True)
        except DovetailError:
            # The If stays, and the run reports the error if it reaches the branch.
            return None
        shared.update(constants_of(branch))
        return results

    return rule


def has_branches(graph: Graph) -> bool:
    """Return whether a graph has an If whose branches are programs."""
    return any(isinstance(node.op, CompiledIf) for node in graph.nodes)


def decides_branch(graph: Graph, tensor_map: TensorMap) -> bool:
    """Return whether the sizes of a run decide the condition of an If."""
    return any(isinstance(node.op, CompiledIf) and tensor_map.of(node.input(0)).data is not None for node in graph.nodes)


def compile_subgraphs(graph: Graph, create_engine: CreateEngine) -> None:
    """Replace each If and Loop of ``graph`` by its compiled form. ``create_engine`` returns the engine of a subgraph."""
    for node in graph.nodes:
        if type(node.op) is If:
            then_, else_ = node.op.then_branch, node.op.else_branch
            programs = (Subgraph(then_, node.inputs[1:], create_engine), Subgraph(else_, node.inputs[1:], create_engine))
            node.op = CompiledIf(**node.op.__dict__, programs=programs)
        elif type(node.op) is Loop:
            node.op = CompiledLoop(**node.op.__dict__, program=_loop_body(node, node.op, create_engine))
        elif isinstance(node.op, Partition):
            node.op = node.op.with_(program=Subgraph(node.op.body, node.inputs, create_engine, is_partition=True))


def _loop_body(node: Node, op: Loop, create_engine: CreateEngine) -> Subgraph:
    own_inputs = op.carried + len(op.scan_inputs)
    outer_values = [None, *[None] * own_inputs, *node.inputs[2 + own_inputs :]]
    return Subgraph(op.body, outer_values, create_engine, is_endless(op.body))
