"""Rank specialization: move the nodes after an If whose branches differ in rank into both branches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_op, remove_dead, rename
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import Op, bodies
from dovetail.ir.types import Tensor, Type
from dovetail.ops.control_flow.if_op import If, known_branch
from dovetail.ops.tensor.reshape import Reshape

GROWTH = 32
"""Maximum number of emitted nodes per node of the graph: n If with branches of different rank have 2**n combinations."""

Step = Node | list[tuple[Value, Value]]
"""A node to emit, or pairs of an existing value and another value that becomes its alias."""


def has_open_rank(graph: Graph) -> bool:
    """Test whether some If in ``graph`` or its subgraphs has branches of different rank or a result of unknown rank.

    The result is also True for a branch that cannot run.
    """
    return graph.fault is not None or any(
        _is_open(node) or any(has_open_rank(body) for _, body in bodies(node.op)) for node in graph.nodes
    )


def specialize_ranks(graph: Graph) -> Graph:
    """Return an equivalent graph in which no If has branches of different rank, nor a constant condition.

    Let ``y`` be the result of an If whose branches differ in rank. The nodes that depend on ``y`` move into both branches, where
    the rank of ``y`` is known. A condition on this rank is then constant, and the selected branch replaces its If. A branch that
    violates a rule at all sizes becomes a branch that raises an error when it runs. Raises UnsupportedError [op.unsayable] if an
    output of ``graph`` has two ranks, or if the number of nodes grows by more than GROWTH.
    """
    return _Specializer(graph).graph()


class _TwoRanks(UnsupportedError):
    """_TwoRanks is raised if a result of a graph has two ranks; the caller may move the following nodes into the graph."""


class _Specializer:
    def __init__(self, graph: Graph) -> None:
        self.original = graph
        self.nodes_left = GROWTH * _count(graph)

    def graph(self) -> Graph:
        try:
            return self.body(self.original, [(value.type, value.value) for value in self.original.inputs])
        except RuleError as error:
            raise UnsupportedError(error.code, error.message, node=error.node, op=error.op) from None

    def body(self, graph: Graph, inputs: Sequence[tuple[Type, Any]]) -> Graph:
        """Specialize ``graph`` for inputs of these types and shape values."""
        b = Builder(graph.name, strict=False)
        new = b.graph
        new.doc, new.metadata = graph.doc, dict(graph.metadata)
        env: dict[int, Value] = {}
        for old, (type_, known) in zip(graph.inputs, inputs, strict=True):
            results = b.input_of(old.name, type_)
            results.names, results.doc, results.metadata, results.value = old.names, old.doc, dict(old.metadata), known
            env[id(old)] = results
        self.write(b, graph.nodes, env, graph.outputs)
        seen = {id(value) for value in new.inputs}
        for old in graph.outputs:
            results = env[id(old)]
            if id(results) in seen:
                results = b.apply("Identity", results)
            seen.add(id(results))
            rename(new, results, old.name)
            results.names, results.doc, results.metadata = (
                old.names or results.names,
                old.doc or results.doc,
                {**results.metadata, **old.metadata},
            )
            new.outputs.append(results)
        remove_dead(new)
        return new

    def write(self, b: Builder, steps: Iterable[Step], env: dict[int, Value], outputs: Sequence[Value]) -> None:
        """Emit ``steps`` into ``b``; ``env`` maps ids of original values to new values.

        ``outputs`` are the original values that are needed after ``steps``.
        """
        todo = deque(steps)
        while todo:
            step = todo.popleft()
            if isinstance(step, list):
                env.update((id(new), env[id(old)]) for old, new in step)
                continue
            if type(step.op) is not If:
                self._copy(b, step, env)
                continue
            condition, *captures = (env[id(x)] for x in step.inputs if x is not None)
            taken = known_branch(condition)
            if taken is not None:
                todo.extendleft(reversed(_branch_steps(step, taken)))
                continue
            inputs = [(x.type, x.value) for x in captures]
            choices = [partial(self.body, branch, inputs) for branch in (step.op.then_branch, step.op.else_branch)]
            branches = self._branches_of_one_rank(choices, condition)
            if branches is not None:
                op = step.op.with_(then_branch=branches[0], else_branch=branches[1])
                self._add(b, step, op, [condition, *captures, condition], env)
                continue
            if not todo:
                raise _TwoRanks(
                    "op.unsayable", "results that leave the graph must have one rank, and the branches differ", node=step.label
                )
            after = self._write_independent(b, step, todo, env)
            self._sink(b, step, after, env, outputs)
            return

    def _branches_of_one_rank(self, choices: Sequence[Callable[[], Graph]], condition: Value) -> list[Graph] | None:
        """Return the specialized branches; None if a result has different or unknown ranks in the branches."""
        try:
            branches = _branches(choices, condition)
        except _TwoRanks:
            return None
        return None if _differ(branches) else branches

    def _copy(self, b: Builder, node: Node, env: dict[int, Value]) -> None:
        xs = [None if x is None else env[id(x)] for x in node.inputs]
        op = copy_op(node.op)
        for fault in (body.fault for _, body in bodies(op) if body.fault is not None):
            # No RuleError: a Loop without iterations may have a subgraph that cannot run.
            raise UnsupportedError(fault.code, fault.message, node=fault.node, op=fault.op)
        open_bodies = [(name, body) for name, body in bodies(op) if has_open_rank(body)]
        changes = {name: self.body(body, [(x.type, x.value) for x in body.inputs]) for name, body in open_bodies}
        self._add(b, node, op.with_(**changes) if changes else op, xs, env)

    def _add(self, b: Builder, node: Node, op: Op, xs: Sequence[Value | None], env: dict[int, Value]) -> None:
        if (fault := getattr(op, "fault", None)) is not None:
            raise fault
        self.nodes_left -= 1
        if self.nodes_left < 0:
            raise UnsupportedError(
                "op.unsayable",
                f"branches of different ranks must not increase the number of nodes more than {GROWTH} times",
                node=node.label,
            )
        if not node.inputs and (data := node.outputs[0].constant) is not None:
            results = [b.constant(data, node.outputs[0].dtype, node.outputs[0].name)]
        else:
            b.location = node.location
            results = b.add(op, *xs, names=[y.name for y in node.outputs], name=node.name)
        if results and results[0].node is not None:
            results[0].node.doc, results[0].node.metadata = node.doc, dict(node.metadata)
        for old, new in zip(node.outputs, results, strict=True):
            new.names, new.doc, new.metadata = old.names, old.doc, dict(old.metadata)
            env[id(old)] = new

    def _write_independent(self, b: Builder, node: Node, todo: Iterable[Step], env: dict[int, Value]) -> list[Step]:
        """Emit the steps that do not depend on ``node``. Returns the steps that do."""
        reached = {id(y) for y in node.outputs}
        after: list[Step] = []
        before: list[Step] = []
        for step in todo:
            xs, ys = _reads_and_writes(step)
            if any(id(x) in reached for x in xs):
                reached.update(map(id, ys))
                after.append(step)
            else:
                before.append(step)
        self.write(b, before, env, [x for step in after for x in _reads_and_writes(step)[0]])
        return after

    def _sink(self, b: Builder, node: Node, after: list[Step], env: dict[int, Value], outputs: Sequence[Value]) -> None:
        """Emit an If whose branches continue with the steps ``after``, and whose results are the needed values of ``outputs``."""
        produced = {id(y) for step in [node, *after] for y in _reads_and_writes(step)[1]}
        wanted = list({id(value): value for value in outputs if id(value) in produced}.values())
        read = {id(x): x for step in [node, *after] for x in _reads_and_writes(step)[0] if id(x) in env and id(x) not in produced}
        condition = node.inputs[0]
        assert condition is not None
        captures = [x for x in read.values() if env[id(x)].constant is None]
        outside = [(x, env[id(x)]) for x in read.values()]
        choices = [partial(self._tail, [*_branch_steps(node, index), *after], outside, wanted) for index in (0, 1)]
        branches = _branches(choices, env[id(condition)])
        if _differ(branches):
            ranks = [[_rank(y) for y in branch.outputs] for branch in branches]
            raise _TwoRanks(
                "op.unsayable", f"results that leave the graph must have one rank, got {ranks[0]} and {ranks[1]}", node=node.label
            )
        op = If(then_branch=branches[0], else_branch=branches[1], outputs=len(wanted))
        results = b.add(op, env[id(condition)], *(env[id(x)] for x in captures), env[id(condition)], name=node.name)
        for old, new in zip(wanted, results, strict=True):
            env[id(old)] = new

    def _tail(self, steps: Iterable[Step], outside: Iterable[tuple[Value, Value]], wanted: Sequence[Value]) -> Graph:
        """Return a branch that computes ``wanted`` by ``steps``; values ``outside`` become inputs, and constants are copied."""
        b = Builder(strict=False)
        env: dict[int, Value] = {}
        for old, outer in outside:
            if outer.constant is None:
                env[id(old)] = b.input_of(outer.name, outer.type)
                env[id(old)].value = outer.value
            else:
                env[id(old)] = b.constant(outer.constant, outer.dtype, outer.name)
        self.write(b, steps, env, wanted)
        _set_outputs(b, [env[id(value)] for value in wanted])
        return b.graph


def _branches(choices: Sequence[Callable[[], Graph]], condition: Value) -> list[Graph]:
    """Return the graphs of ``choices``, each with the condition as one more input.

    A branch that is invalid at all sizes of its inputs is replaced by a branch that raises an error when it runs. Raises
    RuleError if both branches are invalid.
    """
    results: list[Graph | None] = []
    faults: list[RuleError] = []
    for choice in choices:
        try:
            branch = choice()
            branch.inputs.append(Value(branch.claim(condition.name), condition.type))
            results.append(branch)
        except RuleError as error:
            results.append(None)
            faults.append(error)
    if len(faults) == 2:
        raise faults[0]
    return [_raising_branch(next(filter(None, results)), faults[0]) if branch is None else branch for branch in results]


def _raising_branch(other: Graph, fault: RuleError) -> Graph:
    """Return a branch with inputs and outputs like ``other`` that always raises: it reshapes two elements to one.

    The number two is computed from the condition, so that no reader of the file reports the error before the branch runs. Each
    Reshape is named after the node and the code of ``fault``.
    """
    b = Builder("raises")
    *_, condition = [b.input_of(x.name, x.type) for x in other.inputs]
    condition = b.apply("Reshape", condition, [1])
    numbers = [b.apply("Cast", x, to=dtypes.i64) for x in (condition, b.apply("Not", condition))]
    two = b.apply("Add", b.apply("Add", *numbers), 1)
    for index, y in enumerate(other.outputs):
        zeros = b.apply("Expand", b.constant(np.zeros((), y.dtype.numpy), y.dtype), two)
        b.graph.outputs += b.add(Reshape(), zeros, np.ones(len(y.dims), np.int64), name=f"{fault.node}/{fault.code}/{index}")
    return b.graph


def _branch_steps(node: Node, index: int) -> list[Step]:
    """Return the steps that replace an If by its branch ``index``."""
    op: Any = node.op
    branch: Graph = op.else_branch if index else op.then_branch
    into = [(x, inner) for x, inner in zip(node.inputs[1:], branch.inputs, strict=True) if x is not None]
    return [into, *branch.nodes, list(zip(branch.outputs, node.outputs, strict=True))]


def _reads_and_writes(step: Step) -> tuple[list[Value], list[Value]]:
    """Return the values that a step reads, and the values that the step defines."""
    if isinstance(step, list):
        return [old for old, _ in step], [new for _, new in step]
    return [x for x in step.inputs if x is not None], list(step.outputs)


def _set_outputs(b: Builder, values: Sequence[Value]) -> None:
    seen = {id(value) for value in b.graph.inputs}
    for value in values:
        if id(value) in seen:
            value = b.apply("Identity", value)
        seen.add(id(value))
        b.graph.outputs.append(value)
    remove_dead(b.graph)


def _differ(branches: Sequence[Graph]) -> bool:
    ranks = [[_rank(y) for y in branch.outputs] for branch in branches]
    return ranks[0] != ranks[1] or None in ranks[0]


def _rank(value: Value) -> int | None:
    shape = value.type.shape if isinstance(value.type, Tensor) else ()
    return None if shape is None else len(shape)


def _is_open(node: Node) -> bool:
    return isinstance(node.op, If) and _differ((node.op.then_branch, node.op.else_branch))


def _count(graph: Graph) -> int:
    return sum(1 + sum(_count(body) for _, body in bodies(node.op)) for node in graph.nodes)
