"""NodeSchedule: the steps of a graph that runs in numpy, prepared once. It gives the interpreter's results to within rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dovetail.errors import EngineError, RuleError
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.evaluate import RunArrays, apply, evaluate_node, live_nodes
from dovetail.ir.graph import Graph, Node
from dovetail.ir.limits import active
from dovetail.ir.op import Op
from dovetail.ops.constant import Constant
from dovetail.runtime.interpreter.elementwise_group import ElementwiseGroup, is_groupable
from dovetail.runtime.interpreter.numpy_kernels import KERNELS
from dovetail.runtime.interpreter.worker_threads import WorkerThreads

Compute: TypeAlias = Callable[[Op, Namespace, Sequence[Array]], tuple[Any, ...]]
"""A function of an operator, a namespace and the inputs that returns the outputs."""


class ScheduledNodes(NamedTuple):
    """ScheduledNodes is a node or a group of elementwise nodes; no later one reads the values with the keys ``released``."""

    nodes: Sequence[Node]
    group: ElementwiseGroup | None
    released: Sequence[int]


class NodeSchedule:
    """NodeSchedule holds the steps of a graph and its constants. Several threads may run a NodeSchedule."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        live = live_nodes(graph)
        nodes = [node for index, node in enumerate(graph.nodes) if index in live]
        self._constants = [(id(node.outputs[0]), node.op.data) for node in nodes if isinstance(node.op, Constant)]
        outputs = {id(value) for value in graph.outputs}
        groups = _group_nodes([node for node in nodes if not isinstance(node.op, Constant)], outputs)
        last: dict[int, int] = {}
        for index, group in enumerate(groups):
            inner = {id(node.outputs[0]) for node in group[:-1]}
            values = [value for node in group for value in (*node.inputs, *node.outputs) if value is not None]
            last |= {id(value): index for value in values if id(value) not in inner}
        released: list[list[int]] = [[] for _ in groups]
        for key, index in last.items():
            if key not in outputs:
                released[index].append(key)
        self._steps = [
            ScheduledNodes(group, ElementwiseGroup(group) if is_groupable(group[-1]) else None, keys)
            for group, keys in zip(groups, released, strict=True)
        ]

    def run(self, inputs: Sequence[Array], threads: WorkerThreads) -> list[Any]:
        """Return the outputs for ``inputs`` in the order of the graph's inputs. Raises the errors of ``evaluate_node``."""
        if isinstance(self.graph.fault, RuleError):
            raise self.graph.fault.with_traceback(None)
        usage = active()
        timed = usage if usage is not None and usage.deadline is not None else None
        is_limited = usage is not None and usage.limits.memory is not None

        def compute(op: Op, xp: Namespace, xs: Sequence[Array]) -> tuple[Any, ...]:
            kernel = KERNELS.get(type(op))
            result = None if kernel is None else kernel(op, threads, xs)
            return apply(op, xp, xs) if result is None else (result,)

        arrays = RunArrays([*zip(map(id, self.graph.inputs), inputs, strict=True), *self._constants])
        new: set[int] = set()
        with np.errstate(all="ignore"), arrays:
            for nodes, group, released in self._steps:
                if timed is not None:
                    timed.check_time()
                result = None
                if group is not None and not is_limited:
                    result = _compute_group(group, arrays, {key for key in released if key in new and arrays.owns(key)}, threads)
                if result is not None:
                    arrays.store(nodes[-1], [result])
                    new.add(id(nodes[-1].outputs[0]))
                else:
                    self._run_nodes(nodes, arrays, compute)
                    if type(nodes[-1].op) in KERNELS:
                        new.add(id(nodes[-1].outputs[0]))
                for key in released:
                    arrays.release(key)
            return [arrays[id(value)] for value in self.graph.outputs]

    def _run_nodes(self, nodes: Sequence[Node], arrays: RunArrays, compute: Compute) -> None:
        for node in nodes:
            xs = [None if x is None else arrays[id(x)] for x in node.inputs]
            arrays.store(node, evaluate_node(node, np, xs, compute=compute))
        for node in nodes[:-1]:
            arrays.release(id(node.outputs[0]))


def _group_nodes(nodes: Sequence[Node], outputs: set[int]) -> list[list[Node]]:
    """Divide nodes into groups in an order in which they can run: a groupable node joins those whose results only it reads."""
    groups: dict[int, list[Node]] = {}
    for node in nodes:
        group = [node]
        if is_groupable(node):
            for x in dict.fromkeys(node.inputs):
                if x is None or x.node is None or id(x) in outputs or any(user is not node for user, _ in x.uses):
                    continue
                if (before := groups.get(id(x.node))) is not None and is_groupable(before[-1]):
                    del groups[id(x.node)]
                    group = [*before, *group]
        groups[id(node)] = group
    return list(groups.values())


def _compute_group(group: ElementwiseGroup, arrays: RunArrays, overwritable: set[int], threads: WorkerThreads) -> Array | None:
    """Return the output of a group; None where its nodes are to run one by one, which names a node that fails."""
    xs = [arrays[id(x)] for x in group.inputs]
    try:
        return group.compute(xs, [id(x) in overwritable for x in group.inputs], threads)
    except MemoryError as error:
        raise EngineError("run.memory", str(error), node=group.nodes[-1].label) from None
