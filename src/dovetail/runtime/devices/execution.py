"""Runs of a graph over an array library, with its constants on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from dovetail.errors import DovetailError, UnsupportedError, raise_all
from dovetail.ir import arrays
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.builder import describe_op
from dovetail.ir.evaluate import evaluate_node, host_nodes, last_readers, live_nodes, values_of_shapes
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.limits import active
from dovetail.ir.op import draws, host_inputs
from dovetail.ir.types import Tensor, is_static, static
from dovetail.ops.constant import Constant
from dovetail.ops.tensor.shape import Shape, Size

KNOWN_ELEMENTS = 1 << 12
"""A tensor computed in numpy during tracing becomes a literal of the program if it has at most this number of elements."""
Constraint = Callable[[Value, Array], Array]
"""A function that returns the array of a value in the layout that the program prescribes for the value."""


class GraphExecution:
    """GraphExecution runs a graph node by node: shape computations in numpy on the host, other nodes on the device.

    ``constants`` lists the constants that the device reads, in order: their values and elements. ``run`` takes the device arrays
    of these constants by the identity of the value.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        live = live_nodes(graph)
        self._nodes = [(index, node) for index, node in enumerate(graph.nodes) if index in live]
        self._host_nodes = host_nodes(graph)
        self._last_readers = last_readers(graph)
        on_device = {id(value) for value in graph.outputs}
        for index, node in self._nodes:
            if index not in self._host_nodes:
                hosts = host_inputs(node.op, len(node.inputs))
                on_device.update(id(x) for x, host in zip(node.inputs, hosts, strict=True) if not host)
        constants = [(node.outputs[0], node.op.data) for _, node in self._nodes if isinstance(node.op, Constant)]
        self.constants = [(value, data) for value, data in constants if id(value) in on_device]

    def run(
        self, inputs: Sequence[Array], constants: Mapping[int, Array], xp: Namespace, constrain: Constraint | None = None
    ) -> list[Any]:
        """Run the graph for ``inputs``, in the order of the graph's inputs, and return the outputs."""
        env = dict(zip(map(id, self.graph.inputs), inputs, strict=True))
        for index, node in self._nodes:
            self._run_node(index, node, env, constants, xp, constrain)
        return self._outputs(env, constants, xp)

    def trace(
        self,
        inputs: Sequence[Array],
        constants: Mapping[int, Array],
        xp: Namespace,
        library: str,
        is_tracing_error: Callable[[BaseException], bool],
        scope: Callable[[int], AbstractContextManager[object]] = nullcontext,
        constrain: Constraint | None = None,
    ) -> tuple[list[Any], list[arrays.DeferredCheck]]:
        """Return the outputs of traced inputs, and the element checks to evaluate after each run of the compiled program.

        ``is_tracing_error`` recognizes the library's errors for operations that need the elements of a traced array. ``scope``
        returns a context that labels the operations of a node, by index, in the library's reports. Raises UnsupportedError
        [device.data-dependent], [device.random] with every node that cannot be compiled.
        """
        env = dict(zip(map(id, self.graph.inputs), inputs, strict=True))
        refusals: list[DovetailError] = []
        with arrays.deferring_checks() as checks:
            for index, node in self._nodes:
                if any(x is not None and id(x) not in env and id(x) not in constants for x in node.inputs):
                    continue
                count = len(checks)
                try:
                    if draws(node.op, node.inputs):
                        raise _refusal(node, "device.random", f"a program compiled by {library} cannot draw random numbers")
                    with scope(index):
                        self._run_node(index, node, env, constants, xp, constrain)
                except DovetailError as error:
                    if error.code != "device.random" and not _is_caused_by(error, is_tracing_error):
                        raise
                    refusals.append(error if error.code == "device.random" else _data_dependent(node, error, library))
                    env.update(_placeholders(node, xp))
                for check in checks[count:]:
                    check.error.at(node=node.label, op=describe_op(node.op, node.inputs))
        raise_all(refusals, f"nodes cannot be compiled by {library}")
        return self._outputs(env, constants, xp), checks

    def _run_node(
        self,
        index: int,
        node: Node,
        env: dict[int, Any],
        constants: Mapping[int, Array],
        xp: Namespace,
        constrain: Constraint | None,
    ) -> None:
        usage = active()
        if usage is not None and usage.deadline is not None:
            usage.check_time()
        if isinstance(node.op, Constant):
            env[id(node.outputs[0])] = node.op.data
            return
        for y, array in zip(node.outputs, self._evaluate(index, node, env, constants, xp), strict=False):
            env[id(y)] = array if constrain is None or isinstance(array, np.ndarray) else constrain(y, array)
        for key in self._last_readers.get(index, ()):
            env.pop(key, None)

    def _evaluate(
        self, index: int, node: Node, env: Mapping[int, Any], constants: Mapping[int, Array], xp: Namespace
    ) -> tuple[Any, ...]:
        """Compute a node in numpy if the elements or shapes that it needs are known before the run, else on the device."""
        hosts = host_inputs(node.op, len(node.inputs))
        known = [None if x is None else env.get(id(x)) for x in node.inputs]
        on_host = index in self._host_nodes
        sizes = [0 if x is None else x.size if isinstance(x, np.ndarray) else KNOWN_ELEMENTS + 1 for x in known]
        if all(size <= KNOWN_ELEMENTS or (on_host and isinstance(x, np.ndarray)) for x, size in zip(known, sizes, strict=True)):
            if not draws(node.op, node.inputs):
                results = evaluate_node(node, np, known)
                if on_host or all(isinstance(y, np.ndarray) and y.size <= KNOWN_ELEMENTS for y in results):
                    return results
        elif (on_host or isinstance(node.op, Shape | Size)) and not any(isinstance(x, list | dict) for x in known):
            values = values_of_shapes(node, known)
            if values is not None:
                return values
        xs = [
            None if x is None else y if host else constants.get(id(x), y)
            for x, y, host in zip(node.inputs, known, hosts, strict=True)
        ]
        return evaluate_node(node, xp, xs)

    def _outputs(self, env: Mapping[int, Any], constants: Mapping[int, Array], xp: Namespace) -> list[Any]:
        outputs = [constants.get(id(value), env.get(id(value))) for value in self.graph.outputs]
        return [arrays.from_numpy(xp, item) if isinstance(item, np.ndarray) else item for item in outputs]


def _refusal(node: Node, code: str, message: str) -> UnsupportedError:
    return UnsupportedError(code, message, node=node.label, op=describe_op(node.op, node.inputs))


def _data_dependent(node: Node, error: DovetailError, library: str) -> UnsupportedError:
    message = f"the result's size or the control flow depends on elements, which are unknown when {library} compiles"
    refusal = _refusal(node, "device.data-dependent", message)
    return refusal if error.node is None or error.node == node.label else _name_refusal(refusal, error)


def _name_refusal(refusal: UnsupportedError, error: DovetailError) -> UnsupportedError:
    """Return ``refusal`` with the node and operator that ``error`` names; this node may be in a subgraph."""
    return UnsupportedError(refusal.code, refusal.message, node=error.node, op=error.op)


def _is_caused_by(error: BaseException, is_tracing_error: Callable[[BaseException], bool]) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        if is_tracing_error(cause):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _placeholders(node: Node, xp: Namespace) -> dict[int, Any]:
    """Return zeros for the outputs of a rejected node that have known shapes, so that later nodes are traced too."""
    found = {}
    for y in node.outputs:
        if isinstance(y.type, Tensor) and y.type.dtype is not None and y.type.dtype.standard and is_static(y.type):
            found[id(y)] = xp.zeros(static(y.type.shape), dtype=arrays.dtype_in(xp, y.type.dtype))
    return found
