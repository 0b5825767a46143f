"""Derivation: the terms and the steps of a proof as JSON data, which the package dovetail_check replays."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.compare.prove.conditions import PreparedModels, constants_of
from dovetail.compare.prove.model_terms import Numbered, number_terms
from dovetail.compare.prove.real_terms import RealNumbered, RealTerms, real_terms
from dovetail.errors import RuleError
from dovetail.formats.text.literals import INLINE, Array, LiteralWriter, Symbols
from dovetail.formats.text.writer import TextWriter
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Model, Value
from dovetail.ir.op import Op, draws
from dovetail.laws.terms.keys import operator_key
from dovetail.laws.terms.opaque import BoundParameter, KnownIntegers, Opaque
from dovetail.laws.terms.steps import Application, ProofStep, ProofSteps
from dovetail.laws.terms.terms import Fold, Terms
from dovetail.ops.constant import Constant, DefaultInput, Foreign
from dovetail.ops.control_flow.if_op import If
from dovetail.ops.control_flow.loop import Loop
from dovetail.ops.random import RandomNormalLike, RandomUniformLike
from dovetail.storage.safetensors_file import SafetensorsFile


def derive(
    models: tuple[Model, Model],
    prepared: PreparedModels,
    verdict: str,
    rewrites: Sequence[str] | None = None,
    *,
    fit_sizes: bool = False,
) -> dict[str, Any]:
    """Prove two models equal again, and return the derivation. ``prepared`` are the models under the conditions of the proof.

    ``texts`` are digests of the text forms of the models, ``operators`` texts of operators; ``terms`` are inputs, constants,
    known integers and operators with operands; ``rounded`` are the terms of rounded constants by name; ``steps`` are rows of an
    application, the terms that equal it, and the parts that its law built. ``links`` pairs the exact terms with those over the
    real numbers. Raises RuleError [argument.conflict] for models with operators whose steps are not recorded.
    """
    steps = ProofSteps()
    # The elements of rounded constants follow from steps of the second model, which precede those of the first.
    order = -1 if prepared.rounded else 1
    numbered = number_terms(prepared.models[::order], steps=steps, fit_sizes=fit_sizes)
    numbered.terms = numbered.terms[::order]
    writer = _DerivationWriter(models, prepared, numbered, steps)
    for _, node, xs, ys in numbered.applications:
        op, is_random = node.op, draws(node.op, xs)
        if (op.holds_graphs and (is_random or not isinstance(op, If | Loop))) or isinstance(op, DefaultInput | Foreign):
            raise RuleError("argument.conflict", f"a proof of {op.title} has no derivation")
        if is_random:
            op = op.with_shape_input() if isinstance(op, RandomUniformLike | RandomNormalLike) else op
            writer.random[operator_key(op)] = op
        elif not op.holds_graphs:
            writer.need(op, xs)
        for y in ys:
            writer.need_term(y)
    if verdict == "real":
        real = ProofSteps()
        over_reals = real_terms(numbered, allowed=None if rewrites is None else frozenset(rewrites), steps=real)
        writer.keep_operators(numbered.table.folds, over_reals)
    sections = [writer.rows()]
    if verdict == "real":
        exact_terms = writer.terms()
        writer.turn_to(over_reals.table, real)
        for term in exact_terms:
            writer.link(term, over_reals.translation)
        sections.append(writer.rows())
    return writer.data(sections)


class _DerivationWriter:
    """_DerivationWriter collects the terms and the steps that are needed, and writes them in their order."""

    def __init__(self, models: tuple[Model, Model], prepared: PreparedModels, numbered: Numbered, steps: ProofSteps) -> None:
        self._models = models
        self._symbols = Symbols()
        self._literals = LiteralWriter(self._symbols, self._refuse_array)
        self._operators: dict[str, int] = {}
        self._names: dict[Any, int] = {}
        self._ids: dict[int, int] = {}
        self._terms: list[list[Any]] = []
        self._links: list[tuple[Value, Value]] = []
        self._stored: dict[int, list[Any]] = {}
        self.random: dict[Any, Op] = {}
        """The operators that draw random numbers, by their keys."""
        self._kept: dict[int, Application] = {}
        """The constants that are written as operators, by their ids."""
        self._inputs = dict(numbered.inputs)
        stored = prepared.stored[:: -1 if prepared.rounded else 1]
        own = [{id(y) for y in constants_of(model)} for model in prepared.models[:: -1 if prepared.rounded else 1]]
        nodes = [(index, node) for index, node, _, _ in numbered.applications if isinstance(node.op, Constant)]
        names = Counter((index, node.outputs[0].name) for index, node in nodes)
        for index, node, _, ys in numbered.applications:
            y = node.outputs[0] if isinstance(node.op, Constant) else None
            if y is None:
                continue
            # A constant of the graph that is in no file was rounded; those of subgraphs have their names.
            # Constants of subgraphs may have the name of another one.
            name = stored[index].get(id(y)) if id(y) in own[index] else y.name if names[index, y.name] == 1 else None
            if name is not None:
                self._stored.setdefault(id(ys[0]), [1 - index if prepared.rounded else index, name])
        self._rounded = {name: numbered.terms[0][id(value)] for name, value in prepared.rounded.items()}
        self.turn_to(numbered.table, steps)

    def turn_to(self, table: Terms, steps: ProofSteps) -> None:
        """Turn to the terms and the steps of another table."""
        self._table = table
        self._steps = steps.steps
        self._by_key: dict[Any, int] = {}
        for position, step in enumerate(self._steps):
            self._by_key.setdefault(_key_of(step.application), position)
        self._computed: set[int] = set()
        self._needed_steps: set[int] = set()
        self._needed: dict[int, Value] = {}

    def _refuse_array(self, data: Array, dtype: DType, name: str) -> str:
        raise RuleError("argument.conflict", "a proof with an operator that holds a large tensor has no derivation")

    def keep_operators(self, folds: Mapping[int, Fold], over_reals: RealNumbered) -> None:
        """Write the constants whose rounding is larger than that of their elements as the operators that compute them.

        Their elements over the real numbers follow from the operator, and not from the rounded elements.
        """
        near = over_reals.table.is_near
        folded = [
            (value, over_reals.translation[key], folds[key])
            for key, value in self._needed.items()
            if key in folds and key not in self._stored and folds[key].op is not None and key in over_reals.translation
        ]
        far = {id(real) for value, real, _ in folded if value.constant is not None and not near(value, real)}
        for value, real, fold in sorted(folded, key=lambda row: self._table.number_of(row[0])):
            if id(real) in far or any(x is not None and id(x) in self._kept for x in fold.operands):
                assert fold.op is not None
                self._kept[id(value)] = Application(fold.op, fold.operands, ())
                for x in fold.operands:
                    self.need_term(x)

    # What is needed

    def need(self, op: Op, xs: list[Value | None]) -> None:
        """Need the step of an application, its parts and their terms."""
        stack = [Application(op, tuple(xs), ())]
        while stack:
            application = stack.pop()
            for x in application.operands:
                self.need_term(x)
            for y in application.results:
                self.need_term(y)
            position = self._by_key.get(_key_of(application))
            if position is None or position in self._needed_steps:
                continue
            self._needed_steps.add(position)
            step = self._steps[position]
            for y in step.application.results:
                self.need_term(y)
            stack += step.parts

    def need_term(self, x: Value | None) -> None:
        stack = [x]
        while stack:
            value = stack.pop()
            if value is None or id(value) in self._needed:
                continue
            self._needed[id(value)] = value
            if value.node is not None:
                stack += [*value.node.inputs, *value.node.outputs]

    def terms(self) -> list[Value]:
        """Return the terms of the table that are written, in their order."""
        return sorted(self._needed.values(), key=lambda value: self._ids[id(value)])

    def link(self, exact: Value, translation: Mapping[int, Value]) -> None:
        """Record the term over the real numbers that an exact term equals, and need the step of its operator."""
        real = translation[id(exact)]
        self._links.append((exact, real))
        self.need_term(real)
        if id(exact) in self._stored:
            self._stored.setdefault(id(real), self._stored[id(exact)])
        if id(exact) in self._inputs:
            self._inputs[id(real)] = self._inputs[id(exact)]
        source = self._kept.get(id(exact))
        if source is None and exact.node is not None:
            source = Application(exact.node.op, tuple(exact.node.inputs), ())
        if source is not None:
            self.need(source.op, [None if x is None else translation[id(x)] for x in source.operands])

    # Rows

    def rows(self) -> list[list[Any]]:
        """Write the terms and the steps that are needed, and return the rows of the steps."""
        steps = [self._steps[position] for position in sorted(self._needed_steps)]
        # Constants whose elements follow from a step before their first use: over the real numbers these are not rounded.
        used: set[int] = set()
        self._computed = set()
        for step in steps:
            used.update(id(x) for each in (step.application, *step.parts) for x in each.operands if x is not None)
            for y in step.application.results:
                if not step.parts and id(y) not in used and isinstance(self._table, RealTerms) and self._table.is_computed(y):
                    self._computed.add(id(y))
                used.add(id(y))
        for value in [*self._table.graph.inputs, *(y for node in self._table.graph.nodes for y in node.outputs)]:
            if id(value) in self._needed:
                self._write_term(value)
        for value in list(self._needed.values()):
            # Constants that are in no graph: those which a computation over the real numbers gives.
            self._write_term(value)
        return [self._row(step) for step in steps]

    def _row(self, step: ProofStep) -> list[Any]:
        parts = [part for part in step.parts if not isinstance(part.op, KnownIntegers)]
        return [self._application(each) for each in (step.application, *parts)]

    def _application(self, application: Application) -> list[Any]:
        operands = [None if x is None else self._ids[id(x)] for x in application.operands]
        return [self._operator(application.op), operands, [self._ids[id(y)] for y in application.results]]

    def _operator(self, op: Op) -> int:
        key = operator_key(op)
        if key not in self._names:
            text = self._opaque_text(op) if isinstance(op, Opaque) else self._literals.operator(op)
            self._names[key] = self._operators.setdefault(text, len(self._operators))
        return self._names[key]

    def _opaque_text(self, op: Opaque) -> str:
        """Return the text of an If or a Loop, whose operands are the results of its subgraphs, or of a draw with its number."""
        if op.key[0] == "If":
            return f"If(; outputs={op.key[1]})"
        if op.key[0] == "Loop":
            values = map(self._literals.value, op.key[1:])
            names = ("depth", "carried", "scan_inputs", "scan_outputs")
            return f"Loop(; {', '.join(f'{name}={value}' for name, value in zip(names, values, strict=True))})"
        if op.key[0] != "draw" or op.key[1] or op.key[2] not in self.random:
            raise RuleError("argument.conflict", "a proof of operators with subgraphs has no derivation")
        text = self._literals.operator(self.random[op.key[2]])
        return f"{text[:-1]}{', ' if '(; ' in text else '; '}draw={op.key[3]})"

    def _write_term(self, value: Value) -> None:
        if id(value) in self._ids:
            return
        node = value.node
        row: list[Any]
        if id(value) in self._kept:
            row = ["operator", self._literals.type(value.type), *self._application(self._kept[id(value)])[:2], 0]
        elif node is None:
            row = ["input", self._inputs[id(value)], self._literals.type(value.type)]
        elif isinstance(node.op, Constant):
            row = ["constant", self._literals.type(value.type)]
            if id(value) in self._stored:
                row += self._stored[id(value)]
            elif node.op.data.size <= INLINE and id(value) not in self._computed:
                row.append(self._literals.array(node.op.data, node.op.dtype, ""))
        elif isinstance(node.op, KnownIntegers):
            sizes = [self._literals.size(size) for size in node.op.elements]
            row = ["integers", self._literals.type(value.type), sizes]
        elif isinstance(node.op, BoundParameter):
            row = ["parameter", self._literals.type(value.type), node.op.depth, node.op.position]
        else:
            for y in node.outputs:
                self._ids[id(y)] = len(self._terms)
                operands = [None if x is None else self._ids[id(x)] for x in node.inputs]
                types = self._literals.type(y.type)
                self._terms.append(["operator", types, self._operator(node.op), operands, node.outputs.index(y)])
            return
        self._ids[id(value)] = len(self._terms)
        self._terms.append(row)

    def data(self, sections: list[list[list[Any]]]) -> dict[str, Any]:
        rounded = {name: self._ids[id(term)] for name, term in self._rounded.items()}
        return {
            **({"rounded": rounded} if rounded else {}),
            "texts": [_text_digest(model) for model in self._models],
            "operators": list(self._operators),
            "terms": self._terms,
            "links": [[self._ids[id(exact)], self._ids[id(real)]] for exact, real in self._links],
            "steps": sections,
        }


def _text_digest(model: Model) -> str:
    """Return the digest of a model's text form without its first line, which names the weights file."""
    lines = TextWriter(SafetensorsFile()).lines(model)
    return hashlib.sha256("\n".join([*lines, ""]).encode()).hexdigest()


def _key_of(application: Application) -> Any:
    xs = [*application.operands]
    while xs and xs[-1] is None:
        xs.pop()
    return (operator_key(application.op), *map(id, xs))
