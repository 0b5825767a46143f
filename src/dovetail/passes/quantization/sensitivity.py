"""Sensitivities of a model's outputs to the rounding of each weight, from one forward and one backward pass for each call.

For a change dW of a weight, the outputs change by J dW to first order, with the Jacobian J. For a probe v of independent +1 and
-1, the expectation of ``(v^T J dW)^2`` is ``|J dW|^2``, the squared error. ``v^T J`` is the gradient of ``v^T y``, which one
backward pass gives for all nodes. With the change dY of a node's result, the gradient with respect to that result gives one
sample of ``v^T J dW`` for each row. Source: the estimate of Hutchinson, for the Gauss-Newton matrix of half the squared error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.edit import connect_input, copy_model, remove_dead, set_input
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.op import bodies
from dovetail.ir.rewrite import rewrite
from dovetail.ir.types import Tensor
from dovetail.laws.gradients import adjoints
from dovetail.laws.sequences import eliminate_sequences
from dovetail.ops.casts import as_type
from dovetail.passes.quantization.calibration import ReferenceRun, count_rows, keep_initial_states
from dovetail.passes.quantization.changes import RoundedOperands, change_of, operands_of
from dovetail.passes.quantization.weights import CONSTANT, ModelWeight
from dovetail.runtime.compilation import compile

MIN_SAMPLES = 32
"""The minimum number of rows times passes; with fewer rows, each call has several passes with other probes."""
MIN_CALLS = 8
"""The minimum number of calls times passes where a constant is no weight of a linear operator: each pass gives one sample."""


def predict_errors(model: Model, weights: Sequence[ModelWeight], reference: ReferenceRun, seed: int) -> list[float]:
    """Return for each rounded weight the expected relative error of the outputs, where only this weight is rounded.

    The squared errors of several outputs add up, since one backward pass serves all of them.
    The weights are values of ``model``, whose graph changes. Raises the errors of :func:`dovetail.grad`.
    """
    graph = model.graph
    eliminate_sequences(graph)
    names = {y.name: y for y in model.outputs}
    outputs = [names[name] for name in reference.names]
    b = Builder(graph=graph)
    seeds = [b.input_of(graph.free_name(f"probe:{y.name}"), y.type) for y in outputs]
    results = [node.outputs[0] for weight in weights if weight.is_linear for node, _ in weight.readers]
    constants = [weight.value for weight in weights if not weight.is_linear]
    sources = list({id(value): value for value in (*results, *constants)}.values())
    gradients = dict(zip(map(id, sources), adjoints(b, outputs, seeds, sources), strict=True))
    sums: list[list[Value]] = []
    for weight in weights:
        assert weight.rounded is not None
        operands = operands_of(b, weight)
        if not weight.is_linear:
            sums.append([_total(b, gradients[id(weight.value)], operands.delta)])
            continue
        changes = [(node.outputs[0], change_of(b, node, index, operands)) for node, index in weight.readers]
        sums.append([_sum_rows(b, gradients[id(y)], change) for y, change in changes])
    keep_initial_states(model)
    for value in (value for values in sums for value in values):
        b.output(graph.free_name("sum"), value)
    order = [[value.name for value in values] for values in sums]
    remove_dead(graph)
    has_constants = any(not weight.is_linear for weight in weights)
    return _run(model, order, [value.name for value in seeds], reference, seed, has_constants=has_constants)


def _run(
    model: Model, order: list[list[str]], seeds: list[str], reference: ReferenceRun, seed: int, *, has_constants: bool
) -> list[float]:
    """Run the passes, and return the square roots of the mean squares of ``v^T J dW``, relative to the outputs."""
    program = compile(model)
    generator = np.random.default_rng(seed)
    rows = [count_rows(call) for call in reference.calls]
    passes = max(1, -(-MIN_SAMPLES // max(1, sum(rows))), -(-MIN_CALLS // len(rows)) if has_constants else 1)
    squares = np.zeros(len(order))
    # Probes of at most 1 stay in the range of f16.
    unit = min(_norm(reference.norms[output]) for output in reference.names)
    for call, outputs, count in zip(reference.calls, reference.outputs, rows, strict=True):
        for _ in range(passes):
            probes = {
                name: (generator.choice((-1.0, 1.0), outputs[output].shape) * unit / _norm(reference.norms[output]))
                for name, output in zip(seeds, reference.names, strict=True)
            }
            typed = {value.name: probes[value.name].astype(value.dtype.numpy) for value in model.inputs if value.name in probes}
            found = program({**call, **typed})
            for index, names in enumerate(order):
                squares[index] += _square([np.asarray(found[name], np.float64) for name in names], count)
    return [float(value) for value in np.sqrt(squares / passes) / unit]


def _norm(squares: float) -> float:
    return float(np.sqrt(squares)) if squares > 0 else 1.0


def _square(sums: list[Any], count: int) -> float:
    """Return the sum over the ``count`` rows of a call of the squared sum over all readers and all positions of a row."""
    grouped = [np.ravel(each) for each in sums]
    if all(len(each) % count == 0 for each in grouped):
        total = sum(each.reshape(count, -1).sum(axis=1) for each in grouped)
    else:
        total = sum(each.sum(keepdims=True) for each in grouped)
    return float(np.sum(np.square(total)))


def _sum_rows(b: Builder, gradient: Value, change: Value) -> Value:
    """Emit the sum of ``gradient * change`` over all axes but the first."""
    product: Value = b.Multiply(as_type(b, gradient, dtypes.f32), as_type(b, change, dtypes.f32))
    rank = len(product.dims)
    return product if rank < 2 else b.ReduceSum(product, list(range(1, rank)), keepdims=False)


def _total(b: Builder, gradient: Value, change: Value) -> Value:
    rank = len(gradient.dims)
    product: Value = b.Multiply(as_type(b, gradient, dtypes.f32), as_type(b, change, dtypes.f32))
    return product if not rank else b.ReduceSum(product, list(range(rank)), keepdims=False)


def measure_errors(model: Model, weights: Sequence[ModelWeight], reference: ReferenceRun) -> list[float]:
    """Return for each rounded weight the relative error of the outputs, in runs where only this weight is rounded.

    The weights are values of ``model``, whose graph changes: one program runs once for each weight. To the result of a linear
    node it adds the change of this result, multiplied by an input that is 1 where the weight is rounded and 0 elsewhere, so that
    all weights stay constants.
    """
    graph = model.graph
    b = Builder(graph=graph)
    switches: list[str] = []
    changes: dict[int, tuple[int | None, RoundedOperands, Value]] = {}
    for weight in weights:
        assert weight.rounded is not None
        switch = b.input_of(graph.free_name(f"rounded:{weight.value.name}"), Tensor(dtypes.f32, ()))
        mark = len(graph.nodes)
        operands = operands_of(b, weight)
        graph.nodes = graph.nodes[mark:] + graph.nodes[:mark]
        switches.append(switch.name)
        if not weight.is_linear:
            assert weight.value.node is not None
            changes[id(weight.value.node)] = None, operands, switch
        else:
            changes.update({id(node): (index, operands, switch) for node, index in weight.readers})

    def rule(b: Builder, node: Node) -> Value | None:
        if id(node) not in changes:
            return None
        index, operands, switch = changes[id(node)]
        y = b.add(node.op, *node.inputs)[0]
        change = operands.delta if index is None else change_of(b, node, index, operands)
        total: Value = b.Add(y, b.Multiply(change, as_type(b, switch, y.dtype)))
        return total

    rewrite(graph, rule)
    program = compile(model)
    off = dict.fromkeys(switches, np.zeros((), np.float32))
    base = ReferenceRun(model, reference.calls, program, off)
    return [base.error(program, {**off, name: np.ones((), np.float32)}) for name in switches]


def copy_with_weights(
    model: Model, weights: Sequence[ModelWeight], find: Callable[[Graph], list[ModelWeight]]
) -> tuple[Model, list[ModelWeight]]:
    """Copy a model; return the copy and its weights, with the ``rounded`` forms and reasons of ``weights``.

    ``find`` is the function that found ``weights`` in the graph of ``model``.
    """
    new = copy_model(model)
    others: list[ModelWeight] = find(new.graph)
    for other, weight in zip(others, weights, strict=True):
        other.rounded, other.kept, other.activation, other.shifts = weight.rounded, weight.kept, weight.activation, weight.shifts
    return new, others


def lift_weights(graph: Graph, weights: Sequence[ModelWeight]) -> None:
    """Let the readers of weights that are not linear read a constant of ``graph`` that nothing else reads.

    A weight of a subgraph becomes a further input of the subgraphs of its path, so that it has a gradient and can be changed.
    The weights then are those constants.
    """
    for weight in weights:
        if weight.is_linear or (weight.kind == CONSTANT and not weight.path):
            continue
        mark = len(graph.nodes)
        value = Builder(graph=graph).constant(weight.data.astype(weight.value.dtype.numpy), weight.value.dtype, weight.value.name)
        graph.nodes = graph.nodes[mark:] + graph.nodes[:mark]
        inner = value
        for node, body in weight.path:
            connect_input(node, inner)
            for _, other in bodies(node.op):
                new = Value(other.claim(weight.value.name), value.type)
                other.inputs.append(new)
                if other is body:
                    inner = new
        for node, index in weight.readers:
            set_input(node, index, inner)
        if weight.kind == CONSTANT:
            owner = weight.owner(graph)
            owner.outputs = [inner if output is weight.value else output for output in owner.outputs]
        weight.value, weight.path, weight.is_captured = value, (), True
