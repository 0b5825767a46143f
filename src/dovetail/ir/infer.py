"""Inference of types, shapes and shape values, by the rules of the operators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from dovetail.errors import DovetailError, raise_all
from dovetail.ir import symbolic
from dovetail.ir.builder import describe_op
from dovetail.ir.edit import copy_model
from dovetail.ir.equations import Equation, Substitution, min_value_of, solve
from dovetail.ir.graph import Graph, Model, Node
from dovetail.ir.limits import counting
from dovetail.ir.op import DEFAULT_NEEDED, bodies, infer_types, infer_values
from dovetail.ir.substitution import map_elements
from dovetail.ir.suggestions import check_keywords
from dovetail.ir.symbolic import Dim
from dovetail.ir.types import UNKNOWN, Tensor, Type, collect_equations, is_unnamed, sizes_in

_ROUNDS = 8
"""The maximum number of rounds of inference and equation solving; each round removes a symbol or tightens a bound."""


_is_pure: ContextVar[bool] = ContextVar("dovetail-pure-inference", default=False)


@contextmanager
def pure_inference() -> Iterator[None]:
    """Make inference inside the block ignore sizes that only the file declares, in subgraphs too.

    A run may contradict a declared size that no rule derives; runtimes only warn about it. Rewrites that compute with sizes need
    sizes that follow from the inputs.
    """
    token = _is_pure.set(True)
    try:
        yield
    finally:
        _is_pure.reset(token)


def infer_graph(
    graph: Graph,
    *,
    file: str | None = None,
    substitution: Substitution | None = None,
    equations: list[Equation] | None = None,
    refuse_preserved: bool = False,
) -> int:
    """Infer the types of all values of ``graph`` from its inputs' types. Returns the number of types that changed.

    ``substitution`` is applied to every inferred size. The equations that operators of ``graph`` require are added to
    ``equations``; equations of subgraphs are not added, because a subgraph may not run. With ``refuse_preserved`` the fault of a
    preserved node is an error.

    Raises the first RuleError, with all independent errors in its ``diagnostics``.
    """
    errors: list[DovetailError] = []
    changed = 0
    for node in graph.nodes:
        op = node.op
        if type(op).__name__ == "Constant" or type(op).__name__ == "Foreign":
            fault = getattr(op, "fault", None) if refuse_preserved else None
            if fault is not None and fault.code != DEFAULT_NEEDED:
                errors.append(fault)
            continue
        xs = tuple(node.inputs)
        try:
            types = _infer_node(node, equations)
        except DovetailError as error:
            errors.append(error.at(node=node.label, op=describe_op(op, xs), file=file))
            for y in node.outputs:
                y.type = UNKNOWN
            continue
        values = infer_values(op, xs, types)
        for y, type_, value in zip(node.outputs, types, values, strict=True):
            result = type_ if _is_pure.get() else keep_names(type_, y.type)
            if substitution is not None:
                result, value = substitution.type(result), map_elements(value, substitution.size)
            if result != y.type:
                y.type = result
                changed += 1
            y._value = value
    raise_all(errors, "faults while inferring types")
    return changed


def _infer_node(node: Node, equations: list[Equation] | None) -> list[Type]:
    name = node.outputs[0].name if node.outputs else ""
    if equations is None or any(True for _ in bodies(node.op)):
        return infer_types(node.op, tuple(node.inputs), name)
    with collect_equations() as pairs:
        types = infer_types(node.op, tuple(node.inputs), name)
    equations += [Equation(first, second, node.label, type(node.op).__name__) for first, second in pairs]
    return types


def keep_names(new: Type, old: Type) -> Type:
    """Return the type ``new`` with its unnamed sizes replaced by the named sizes of the type ``old``."""
    if not isinstance(new, Tensor) or not isinstance(old, Tensor) or old.shape is None:
        return new
    if new.shape is None:
        return Tensor(new.dtype or old.dtype, old.shape)
    if len(new.shape) != len(old.shape):
        return new
    sizes = tuple(
        old_ if is_unnamed(new_) and not isinstance(old_, int) and not is_unnamed(old_) else new_
        for new_, old_ in zip(new.shape, old.shape, strict=True)
    )
    return Tensor(new.dtype or old.dtype, sizes)


@check_keywords
def infer(model: Model) -> Model:
    """Return a copy of ``model`` with types, shapes and shape values on every value.

    :func:`dovetail.infer_report` also solves the equations between dimensions that operators demand.

    Raises RuleError with every independent fault in its ``diagnostics``: [argument.*], [array.*], [attention.heads],
    [attribute.*], [axis.*], [constant.*], [default.needed], [dtype.*], [index.*], [input.*], [loop.*], [name.*], [node.*],
    [op.*], [quantize.type], [reshape.*], [sequence.*], [shape.*], [split.*], [state.*], [subgraph.*], [tree.nodes], [type.*].
    Raises UnsupportedError [extra.missing], [inference.steps], [limits.exceeded], EngineError [run.*].

    >>> with dovetail.Builder() as b: y = b.output("y", b.Concat(x := b.input("x", "f32", ("n", 2)), x, axis=0))
    >>> dovetail.infer(b.model).outputs
    [<y: f32[2*n, 2]>]
    """
    new = copy_model(model)
    with counting(model.limits):
        infer_graph(new.graph, file=new.file)
    return new


def infer_with_equations(model: Model) -> tuple[Model, Substitution, list[Equation]]:
    """Infer the types of a copy of ``model``, and solve the equations of its operators.

    Returns the copy, the substitution of symbols, and the equations that replaced a symbol. Dimensions that an operator requires
    to be equal, such as the other axes of a Concat's inputs, become one symbol in the whole graph. The lower bound of a symbol
    is raised where a dimension would otherwise be negative. Raises RuleError with every independent fault in its
    ``diagnostics``, [shape.disagree] if two operators require different sizes.
    """
    new = copy_model(model)
    substitution = Substitution()
    used: list[Equation] = []
    with counting(model.limits):
        live = _live_nodes(new.graph)
        for _ in range(_ROUNDS):
            equations: list[Equation] = []
            infer_graph(new.graph, file=new.file, substitution=substitution, equations=equations)
            solved = solve((item for item in equations if item.node in live), substitution, _input_symbols(new.graph))
            used += solved
            if not solved and not _tighten_bounds(new.graph, live, substitution):
                break
            for value in new.graph.inputs:
                value.type = substitution.type(value.type)
    return new, substitution, used


def _input_symbols(graph: Graph) -> dict[str, int]:
    """Map the names of the symbols in the input types to their positions in the order of first occurrence."""
    sizes = [size for value in graph.inputs for size in sizes_in(value.type)]
    names = dict.fromkeys(str(symbolic.name_of(symbol)) for size in sizes for symbol in symbolic.symbols(size))
    return {name: index for index, name in enumerate(names)}


def _live_nodes(graph: Graph) -> set[str]:
    """Return the labels of the nodes that the outputs depend on; runs execute only these nodes."""
    needed = {id(value) for value in graph.outputs}
    live: set[str] = set()
    for node in reversed(graph.nodes):
        if any(id(y) in needed for y in node.outputs):
            live.add(node.label)
            needed.update(id(x) for x in node.inputs if x is not None)
    return live


def _tighten_bounds(graph: Graph, live: set[str], substitution: Substitution) -> bool:
    """Raise lower bounds of symbols until no dimension of a live node is negative. Returns whether a bound changed.

    The search for each dimension starts at the bound that earlier dimensions require, so that all searches together cost little
    more than a single search.
    """
    inputs = _input_symbols(graph)
    lows: dict[Dim, int] = {}
    sizes = dict.fromkeys(
        size
        for node in graph.nodes
        if node.label in live
        for y in node.outputs
        for size in sizes_in(y.type)
        if isinstance(size, Dim)
    )
    for size in sizes:
        low, symbols = symbolic.bounds(size)[0], symbolic.symbols(size)
        if (low is not None and low >= 0) or len(symbols) != 1 or str(symbolic.name_of(symbols[0])) not in inputs:
            continue
        start = lows.get(symbols[0], symbolic.bounds(symbols[0])[0])
        minimum = None if start is None else min_value_of(size, symbols[0], start)
        if minimum is not None and start is not None and minimum > start:
            lows[symbols[0]] = minimum
    for symbol, low in lows.items():
        high = symbolic.bounds(symbol)[1]
        if high is None or low <= high:
            substitution.replace(symbol, symbolic.symbol(str(symbolic.name_of(symbol)), low, high))
    return bool(lows)
