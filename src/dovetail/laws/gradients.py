"""Reverse-mode automatic differentiation of graphs. Gradients are ordinary nodes, which can be differentiated again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.errors import DovetailError, RuleError, UnsupportedError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import Builder, describe_op
from dovetail.ir.edit import connect, copy_model, inline, remove_dead
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.op import has, infer_types
from dovetail.ir.suggestions import check_keywords
from dovetail.ir.types import Tensor, Unknown
from dovetail.laws.ranks import has_open_rank, specialize_ranks
from dovetail.laws.sequences import eliminate_sequences
from dovetail.ops.builders import zeros_like
from dovetail.ops.constant import Foreign


@check_keywords
def grad(model: Model, of: str | Sequence[str] | None = None, wrt: Sequence[str] | str | None = None) -> Model:
    """Differentiate: return a Model that computes ``of`` and its gradient with respect to each of ``wrt``.

    ``of`` is the name of an output or of any other value; the default is the only output of the model. ``wrt`` are names of
    inputs, weights or other values; the default is all float inputs. The outputs of the new model are ``of``, then
    ``grad:<name>`` for each name of ``wrt``, with a number appended where this name is taken. If ``of`` is not a scalar, the new
    model has one more input ``grad:<of>``: the incoming gradient, of the shape of ``of``. The gradient of a value on which
    ``of`` does not depend is zeros.

    Raises RuleError [name.unknown] for a name that the model lacks, [grad.dtype] for a value that is no float tensor. Raises
    UnsupportedError [grad.op] with all nodes between ``wrt`` and ``of`` that have no gradient, [type.unknown] and
    [constant.needed] where a gradient depends on types or values that are not known, and the errors of :func:`infer`.

    Source: reverse-mode differentiation, as torch.autograd; each operator has its vector-Jacobian product.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Multiply(x := b.input("x", "f32", ()), x))
    >>> dovetail.run(dovetail.grad(b.model), np.float32(3))["grad:x"]
    array(6., dtype=float32)
    """
    new = copy_model(model)
    eliminate_sequences(new.graph)
    values = new.values
    target = _select_values(values, of, [value.name for value in new.outputs], "of")[0]
    floats = [
        value.name for value in new.inputs if isinstance(value.type, Tensor) and value.type.dtype and value.type.dtype.is_float
    ]
    sources = _select_values(values, wrt, floats, "wrt")
    for value in (target, *sources):
        if not isinstance(value.type, Tensor) or value.type.dtype is None or not value.type.dtype.is_float:
            raise RuleError("grad.dtype", f"{value.name!r} must be a float tensor to have a gradient, got {value.type}")
    _drop_declaration(target)
    # A differentiation that fails has changed the graph already.
    untouched = copy_model(new) if has_open_rank(new.graph) else None
    try:
        return _add_gradients(new, target, sources)
    except DovetailError:
        specialized = None if untouched is None else _specialize(untouched, target.name, [source.name for source in sources])
        if specialized is None:
            raise
    values = specialized.values
    return _add_gradients(specialized, values[target.name], [values[source.name] for source in sources])


def _drop_declaration(target: Value) -> None:
    """Replace the type of ``target`` by the type inferred from its node; a run may contradict sizes that a file declares.

    The incoming gradient gets the inferred type.
    """
    node = target.node
    if node is None or isinstance(node.op, Foreign) or node.op.holds_graphs or target.index >= len(node.outputs):
        return
    inferred = infer_types(node.op, tuple(node.inputs), node.outputs[0].name)[target.index]
    if isinstance(inferred, Tensor):
        target.type = Tensor(inferred.dtype or target.dtype, inferred.shape)


def _add_gradients(model: Model, target: Value, sources: Sequence[Value]) -> Model:
    """Add the gradients to ``model`` as outputs."""
    graph = model.graph
    b = Builder(graph=graph)
    gradients = adjoints(b, [target], [_seed(b, target)], sources)
    graph.outputs = []
    graph.outputs.append(target)
    for source, gradient in zip(sources, gradients, strict=True):
        b.output(graph.free_name(f"grad:{source.name}"), gradient)
    remove_dead(graph)
    return model


def _specialize(model: Model, of: str, wrt: Sequence[str]) -> Model | None:
    """Apply :func:`specialize_ranks` to ``model`` for the gradient of ``of`` with respect to ``wrt``. Changes ``model``.

    Inputs and constants in ``wrt`` stay values of the outer graph. Returns None if ``wrt`` has any other value, or if ``of`` has
    two ranks.
    """
    graph, values = model.graph, model.values
    graph.outputs = [values[of]]
    weights: dict[str, Node] = {}
    for value in (values[name] for name in wrt):
        if value.node is not None and value.constant is None:
            return None
        if value.node is not None:
            # A constant would be copied into the branches; an input is passed to them.
            weights[value.name] = value.node
            graph.inputs.append(value)
            value.node = None
    moved = set(map(id, weights.values()))
    graph.nodes[:] = [node for node in graph.nodes if id(node) not in moved]
    try:
        graph = model.graph = specialize_ranks(graph)
    except UnsupportedError:
        return None
    constants = [value for value in graph.inputs if value.name in weights]
    graph.inputs[:] = [value for value in graph.inputs if value.name not in weights]
    graph.nodes[:0] = [connect(Node(weights[value.name].op, [], [value])) for value in reversed(constants)]
    return model


def _select_values(values: dict[str, Value], names: Sequence[str] | str | None, default: list[str], role: str) -> list[Value]:
    if names is None:
        if role == "of" and len(default) != 1:
            raise RuleError("name.unknown", f"of must name one of several outputs of the model: {', '.join(map(repr, default))}")
        names = default
    wanted = [names] if isinstance(names, str) else list(names)
    missing = [name for name in wanted if name not in values]
    if missing:
        raise RuleError("name.unknown", f"{role}: the model has no value {', '.join(map(repr, missing))}")
    return [values[name] for name in wanted]


def _seed(b: Builder, target: Value) -> Value:
    if target.shape == ():
        return b.constant(np.ones((), dtype=target.dtype.numpy), target.dtype)
    return b.input_of(f"grad:{target.name}", target.type)


def adjoints(b: Builder, outputs: Sequence[Value], deltas: Sequence[Value], sources: Sequence[Value]) -> list[Value]:
    """Emit the gradients of ``sources``: the sum over ``outputs`` of the vector-Jacobian products of ``deltas``."""
    gradients = adjoints_or_none(b, outputs, deltas, sources)
    return [zeros_like(b, x) if gradient is None else gradient for x, gradient in zip(sources, gradients, strict=True)]


def adjoints_or_none(
    b: Builder,
    outputs: Sequence[Value],
    deltas: Sequence[Value],
    sources: Sequence[Value],
    *,
    straight_through: bool = False,
) -> list[Value | None]:
    """Emit the gradients as :func:`adjoints` does, but None for a source on which no output depends differentiably.

    With ``straight_through``, gradients flow through the quantizations that have a straight-through estimate.
    """
    flow: dict[int, Value] = {}
    for output, delta in zip(outputs, deltas, strict=True):
        _accumulate(b, flow, output, delta)
    needed, quantized = _dependent_values(b.graph, sources)
    dependent = needed | quantized
    if straight_through:
        needed = dependent
    wanted = {id(source) for source in sources}
    problems: list[DovetailError] = []
    for node in reversed(tuple(b.graph.nodes)):
        incoming = [flow.pop(id(y), None) if id(y) not in wanted else flow.get(id(y)) for y in node.outputs]
        if all(g is None for g in incoming) or not any(x is not None and id(x) in dependent for x in node.inputs):
            continue
        try:
            if straight_through and has(node.op, "straight_through"):
                gradients = _pull_straight_through(b, node, incoming[0])
            else:
                is_moved = straight_through and node.op.moves_elements
                if not is_moved and any(x is not None and id(x) in quantized for x in node.inputs):
                    raise UnsupportedError("grad.op", "quantization has no gradient")
                gradients = _pull_back(b, node, incoming, [x is not None and id(x) in needed for x in node.inputs])
        except DovetailError as error:
            problems.append(error.at(node=node.label, op=describe_op(node.op, node.inputs)))
            continue
        except (Unknown, symbolic.Inexact) as error:
            problems.append(_unknown_types_error(node, error))
            continue
        for x, gradient in zip(node.inputs, gradients, strict=False):
            if x is not None and gradient is not None and id(x) in needed:
                _accumulate(b, flow, x, gradient)
    if problems:
        items = [item for error in problems for item in error.diagnostics]
        first = problems[0]
        if len(items) == 1:
            raise first
        raise UnsupportedError("grad.op", f"{len(items)} nodes have no gradient", diagnostics=items)
    return [flow.get(id(source)) for source in sources]


def _unknown_types_error(node: Node, error: Exception) -> UnsupportedError:
    message = f"the gradient of {type(node.op).__name__} needs types, ranks or shapes that are not known"
    return UnsupportedError(
        "type.unknown", f"{message}: {error}" if str(error) else message, node=node.label, op=describe_op(node.op, node.inputs)
    )


def _accumulate(b: Builder, flow: dict[int, Value], value: Value, gradient: Value) -> None:
    known = flow.get(id(value))
    flow[id(value)] = gradient if known is None else b.apply("Add", known, gradient)


def _dependent_values(graph: Graph, sources: Sequence[Value]) -> tuple[set[int], set[int]]:
    """Return the ids of the float values that depend on a source, and the ids of the quantized values that do.

    Sources are included; shapes have no gradient.
    """
    smooth = {id(source) for source in sources}
    quantized: set[int] = set()
    for node in graph.nodes:
        xs = {id(x) for x in node.inputs if x is not None}
        # A float that is computed from quantized values depends on the source, although its node has no gradient.
        if not xs.isdisjoint(smooth) or not xs.isdisjoint(quantized):
            smooth.update(id(y) for y in node.outputs if _is_smooth(y))
        if not xs.isdisjoint(quantized) or (getattr(node.op, "quantizes", False) and not xs.isdisjoint(smooth)):
            quantized.update(id(y) for y in node.outputs if not _is_smooth(y))
    return smooth, quantized


def _is_smooth(value: Value) -> bool:
    return not isinstance(value.type, Tensor) or value.type.dtype is None or value.type.dtype.is_float


def _pull_straight_through(b: Builder, node: Node, incoming: Value | None) -> Sequence[Value | None]:
    """Emit the gradients of the straight-through estimate of a quantization, those of integers as floats."""
    assert incoming is not None
    inner = Builder()
    xs = [None if x is None else x if _is_smooth(x) else b.Cast(x, to=dtypes.f32) for x in node.inputs]
    fixed = [None if x is None else inner.input_of(f"c{index}", x.type) for index, x in enumerate(node.inputs)]
    inputs = [None if x is None else inner.input_of(f"x{index}", x.type) for index, x in enumerate(xs)]
    y = node.op.straight_through(inner, fixed, *inputs)
    delta = inner.input_of("g", incoming.type)
    known = [value for value in inputs if value is not None]
    inner.graph.outputs = adjoints(inner, [y], [delta], known)
    remove_dead(inner.graph)
    outer = [*(x for x in node.inputs if x is not None), *(x for x in xs if x is not None), incoming]
    results = iter(inline(b, inner.graph, outer))
    return [None if value is None else next(results) for value in inputs]


def _pull_back(b: Builder, node: Node, incoming: list[Value | None], wanted: list[bool]) -> Sequence[Value | None]:
    op = node.op
    if has(op, "pull_back"):
        return list(op.pull_back(b, adjoints, node, incoming, wanted))
    if has(op, "vjp"):
        has_several = len(node.outputs) > 1 or "outputs" in op.__match_args__
        g = tuple(incoming) if has_several else incoming[0]
        y = tuple(node.outputs) if has_several else node.outputs[0]
        gradients = op.vjp(b, g, y, *node.inputs)
        return [gradients] if isinstance(gradients, Value) or gradients is None else list(gradients)
    if has(op, "decompose"):
        inner = Builder()
        inputs = [None if x is None else inner.input_of(f"x{index}", x.type) for index, x in enumerate(node.inputs)]
        for x, value in zip(node.inputs, inputs, strict=True):
            if x is not None and value is not None and x.value is not None:
                value.value = x.value
        outputs = op.decompose(inner, *inputs)
        inner.graph.outputs = [outputs] if isinstance(outputs, Value) else list(outputs)
        known_inputs = [value for value in inputs if value is not None]
        smooth = [value for value in known_inputs if _is_smooth(value)]
        pairs = [(y, g) for y, g in zip(inner.graph.outputs, incoming, strict=False) if g is not None]
        seeds = [inner.input_of(f"g{index}", y.type) for index, (y, _) in enumerate(pairs)]
        results = adjoints(inner, [y for y, _ in pairs], seeds, smooth)
        inner.graph.outputs = results
        remove_dead(inner.graph)
        outer = [*(x for x in node.inputs if x is not None), *(g for _, g in pairs)]
        inlined = inline(b, inner.graph, outer)
        by_input = {id(value): gradient for value, gradient in zip(smooth, inlined, strict=True)}
        return [None if value is None else by_input.get(id(value)) for value in inputs]
    if isinstance(op, Foreign) and op.fault is not None:
        raise op.refusal
    raise UnsupportedError("grad.op", f"{type(op).__name__} has no gradient")
