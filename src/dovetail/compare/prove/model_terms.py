"""Terms of models: the graphs of several models are translated into one table of terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dovetail.compare.prove.symbols import Interface, unify_inputs
from dovetail.errors import DovetailError
from dovetail.ir import symbolic
from dovetail.ir.dtypes import i64
from dovetail.ir.edit import copy_op
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.op import UNFORESEEN, Op, draws, infer_types
from dovetail.ir.types import UNKNOWN, Tensor, Type, Unknown
from dovetail.laws.table import exact_rules
from dovetail.laws.terms.keys import operator_key
from dovetail.laws.terms.steps import ProofSteps
from dovetail.laws.terms.terms import OutOfTime, Terms
from dovetail.ops.constant import Constant, DefaultInput, Foreign
from dovetail.ops.control_flow.if_op import If, known_branch, symbols_of, type_outside
from dovetail.ops.control_flow.loop import Loop
from dovetail.ops.random import RandomNormalLike, RandomUniformLike


@dataclass(slots=True)
class Numbered:
    """Numbered holds models that are translated to terms of one table.

    ``terms`` maps, for each model, the id of each value to its term.

    ``before_cuts`` maps, for each model, the number of a cut to the term of the value that the cut replaces. ``is_complete`` is
    false if the time ran out; no rules are then applied to later operators.
    """

    table: Terms
    interface: Interface
    terms: list[dict[int, Value]] = field(default_factory=list)
    inputs: dict[int, str] = field(default_factory=dict)
    before_cuts: list[dict[int, Value]] = field(default_factory=list)
    is_complete: bool = True
    applications: list[tuple[int, Node, list[Value | None], list[Value]]] = field(default_factory=list)
    """The model, the node, the terms of its inputs and of its outputs, also of nodes in subgraphs."""


class Numberer:
    """Numberer translates the graphs of models into one table of terms."""

    def __init__(
        self,
        models: Sequence[Model],
        deadline: float | None,
        fit_sizes: bool,
        cuts: Sequence[dict[int, int]] | None,
        steps: ProofSteps | None,
    ) -> None:
        self._models = models
        self._cuts = cuts or [{} for _ in models]
        self._table = Terms(exact_rules, deadline=deadline, steps=steps)
        self._result = Numbered(self._table, unify_inputs(models, fit_sizes=fit_sizes))
        self._inputs: dict[tuple[str, Type], Value] = {}
        self._draws: dict[Any, int] = {}
        self._copies: list[Op] = []
        """Copies of operators with subgraphs; they must stay alive, because terms identify their operators by id."""

    def run(self) -> Numbered:
        for index, model in enumerate(self._models):
            env: dict[int, Value] = {}
            self._draws = {}
            for value in model.inputs:
                env[id(value)] = self._input(value, self._result.interface.types[index][value.name])
            self._result.before_cuts.append({})
            self._number_nodes(model.graph, env, 0, self._cuts[index])
            self._result.terms.append(env)
        return self._result

    def _input(self, value: Value, type: Type) -> Value:
        key = value.name, type
        if key not in self._inputs:
            # The table names its inputs, so that no symbol of inference can have the name of a symbol of a file.
            term = self._table.input_of(f"input_{len(self._inputs)}", type)
            self._inputs[key] = term
            self._result.inputs[id(term)] = value.name
        return self._inputs[key]

    def _number_nodes(self, graph: Graph, env: dict[int, Value], depth: int, cuts: dict[int, int] | None = None) -> None:
        for node in graph.nodes:
            xs = [None if x is None else env[id(x)] for x in node.inputs]
            terms = self._terms_of(node, xs, depth)
            self._result.applications.append((len(self._result.terms), node, xs, terms))
            for y, term in zip(node.outputs, terms, strict=True):
                if cuts and (number := cuts.get(id(y))) is not None:
                    self._result.before_cuts[-1][number] = term
                    term = self._table.parameter(-1, number, term.type)
                env[id(y)] = term

    def _terms_of(self, node: Node, xs: list[Value | None], depth: int) -> list[Value]:
        op, table = node.op, self._table
        if isinstance(op, Constant):
            return table.term(op, xs)
        try:
            if isinstance(op, DefaultInput):
                # The caller may pass any array, so that a default input equals only a default input of the same name and default.
                key = ("default", node.outputs[0].name, operator_key(op))
                return table.opaque(key, xs, [_plain(y.type) for y in node.outputs])
            if not self._result.is_complete:
                return table.opaque(self._whole_key(node), xs, [_plain(y.type) for y in node.outputs])
            if isinstance(op, If | Loop):
                return self._subgraph_terms(op, xs, depth)
            if isinstance(op, RandomUniformLike | RandomNormalLike) and xs[0] is not None:
                op, xs = op.with_shape_input(), [table.Shape(xs[0], output_type=i64), *xs[1:]]
            if draws(op, xs):
                # A draw outside of a loop gives one number, a draw in its body a number for each iteration: they are not equal.
                key = (depth, operator_key(op), *map(id, xs))
                number = self._draws[key] = self._draws.get(key, 0) + 1
                types = infer_types(op, tuple(xs), f"draw_{len(table.graph.nodes)}")
                return table.opaque(("draw", depth, operator_key(op), number), xs, types)
            if isinstance(op, Foreign):
                return table.opaque(operator_key(op), xs, [UNKNOWN] * len(node.outputs))
            return table.term(op, list(xs))
        except OutOfTime:
            self._result.is_complete = False
            return self._terms_of(node, xs, depth)
        except (Unknown, symbolic.Inexact, RecursionError, DovetailError, *UNFORESEEN):
            # No rules are applied to an operator that inference rejects; an operator with subgraphs then equals only itself.
            return table.opaque(("refused", self._whole_key(node)), xs, [UNKNOWN] * len(node.outputs))

    def _whole_key(self, node: Node) -> Any:
        """Return the key of an operator to which no rules are applied; the key of a random operator equals no other key."""
        if draws(node.op, node.inputs):
            return "draw", len(self._table.graph.nodes)
        return id(node.op) if node.op.holds_graphs else operator_key(node.op)

    # Subgraphs

    def _subgraph_terms(self, op: If | Loop, xs: list[Value | None], depth: int) -> list[Value]:
        copy = copy_op(op)
        self._copies.append(copy)
        types = infer_types(copy, tuple(xs), f"body_{len(self._table.graph.nodes)}")
        if isinstance(copy, If):
            return self._if_terms(copy, xs, types, depth)
        assert isinstance(copy, Loop)
        return self._loop_terms(copy, xs, types, depth)

    def _if_terms(self, op: If, xs: list[Value | None], types: list[Type], depth: int) -> list[Value]:
        condition, *captures = xs
        assert condition is not None
        branches = [op.then_branch, op.else_branch]
        taken = known_branch(condition)
        if taken is not None:
            return self._branch(branches[taken], captures, depth)
        results = [self._branch(branch, captures, depth) for branch in branches]
        if all(a is b for a, b in zip(*results, strict=True)):
            return results[0]
        return self._table.opaque(("If", op.outputs), [condition, *results[0], *results[1]], types)

    def _branch(self, body: Graph, captures: Sequence[Value | None], depth: int) -> list[Value]:
        env = {id(inner): x for inner, x in zip(body.inputs, captures, strict=True) if x is not None}
        self._number_nodes(body, env, depth)
        return [env[id(y)] for y in body.outputs]

    def _loop_terms(self, op: Loop, xs: list[Value | None], types: list[Type], depth: int) -> list[Value]:
        body, count = op.body, 1 + op.carried + len(op.scan_inputs)
        known = symbols_of(xs)
        env = {
            id(inner): self._table.parameter(depth, position, type_outside(inner.type, known))
            for position, inner in enumerate(body.inputs[:count])
        }
        captures = xs[1 + count :]
        env.update((id(inner), x) for inner, x in zip(body.inputs[count:], captures, strict=True) if x is not None)
        self._number_nodes(body, env, depth + 1)
        results = [env[id(y)] for y in body.outputs]
        key = ("Loop", depth, op.carried, op.scan_inputs, op.scan_outputs)
        return self._table.opaque(key, [*xs[: 1 + count], *results], types)


def _plain(type: Type) -> Type:
    return Tensor(type.dtype, None) if isinstance(type, Tensor) else UNKNOWN


def number_terms(
    models: Sequence[Model],
    *,
    deadline: float | None = None,
    fit_sizes: bool = False,
    cuts: Sequence[dict[int, int]] | None = None,
    steps: ProofSteps | None = None,
) -> Numbered:
    """Translate models into one table of terms. ``cuts`` maps ids of values to numbers of the unknowns that replace these."""
    return Numberer(models, deadline, fit_sizes, cuts, steps).run()
